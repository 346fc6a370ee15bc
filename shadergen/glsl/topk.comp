/* topk.comp: the router's choice from finished logits. One subgroup a row. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_topk
#include "prelude.glsl"
#define LOGIT(E) ld_logits_float(4 * (uint64_t(gl_WorkGroupID.x) * N_EXPERT + (E)))
#define EXPERT_FACTOR(E) (EXPERT_SCALE != 0 ? ld_expert_scale_float(4 * (E)) : 1.0)
#include "topk.glsl"

void main() {
  if (gl_WorkGroupID.x >= step_word(IMG_STEP_N_ROW) || TID >= SUBGROUP) return;
  topk_row(gl_WorkGroupID.x);
}
