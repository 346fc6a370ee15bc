/* router.comp: norm, router logits and choice of experts for few rows. A team of LANES invocations takes an expert, EXTRA experts a
 * team; the workgroup that comes first in the grid also writes the normalized row, the one that arrives last chooses. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_router
#include "prelude.glsl"
#include "formats.glsl"
#include "act.glsl"
#include "weight.glsl"
#define LOGIT(E) mem_ld_shared(F_logits, pc.logits + 4 * (uint64_t(gl_WorkGroupID.y) * N_EXPERT + (E)))
#include "topk.glsl"

/* Logit of expert e (clamped). scale: of the norm, for the row. */
float logit_of(uint e, uint64_t x, out float scale) {
  float acc = 0, squares = 0;
  for (uint u = TID % LANES; u < D_MODEL / 32; u += LANES) {
    DECODE(FMT, unit) unit = DECODE(FMT, load)(F_weight, pc.weight, D_MODEL, N_EXPERT, min(e, uint(N_EXPERT - 1)), u);
    uint base = DECODE(FMT, base)(u);
    act a = act_load(F_x, x, base, DECODE(FMT, STEP));
    squares += act_squares(a);
    act_mul(a, act_load(F_norm, pc.norm, base, DECODE(FMT, STEP)));
    weight w;
    WEIGHT_DECODE(FMT, w, unit)
    acc += weight_dot(w, a);
  }
  scale = inversesqrt(act_total(squares) / float(D_MODEL) + EPS);
  return lanes_sum(acc) * scale;
}

void main() {
  uint r = gl_WorkGroupID.y, teams = WG / LANES;
  if (r >= step_word(IMG_STEP_N_ROW)) return;
  uint64_t row = 4 * uint64_t(r) * D_MODEL;
  float scale;
  for (uint i = 0; i < EXTRA; i++) {
    uint e = (gl_WorkGroupID.x * EXTRA + i) * teams + TID / LANES;
    float v = logit_of(e, pc.x + row, scale);
    if (TID % LANES == 0 && e < N_EXPERT) mem_st_shared(F_logits, pc.logits + 4 * (uint64_t(r) * N_EXPERT + e), v);
  }
  if (gl_WorkGroupID.x == 0)
    for (uint i = 4 * TID; i < D_MODEL; i += 4 * WG)
      st_xn_vec4(row + 4 * i, ld_x_vec4(row + 4 * i) * scale * ld_norm_vec4(4 * i));
  if (arrive_last(F_counter, pc.counter + 4 * r, gl_NumWorkGroups.x) && TID < SUBGROUP) topk_row(r);
}
