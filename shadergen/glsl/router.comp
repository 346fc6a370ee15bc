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
#define EXPERT_FACTOR(E) 1.0
#include "topk.glsl"

/* Logit of expert e (clamped). scale: of the norm, for the row. */
float logit_of(uint e, uint64_t x, out float scale) {
  const uint STEP = DECODE(FMT, STEP);
  float acc = 0, squares = 0;
  e = min(e, uint(N_EXPERT - 1));
  UNIT_BLOCKS(FMT, u0, D_MODEL / 32) {
    DECODE(FMT, block) b = DECODE(FMT, open)(F_weight, pc.weight, D_MODEL, N_EXPERT, e, u0);
    UNIT_EACH(FMT, u, u0) {
      DECODE(FMT, unit) w = DECODE(FMT, load)(b, F_weight, pc.weight, D_MODEL, N_EXPERT, e, u);
      uint base = DECODE(FMT, base)(u);
      act a = act_load(F_x, x, base, STEP), n = act_load(F_norm, pc.norm, base, STEP);
      if (SPREAD) {
        squares += dot(a.spread, a.spread);
        a.spread *= n.spread;
      }
      for (uint k = 0; k < ROLLED(4); k++) {
        vec4 xl = act_lo(a, F_x, STEP, k), xh = act_hi(a, F_x, STEP, k);
        if (!SPREAD) {
          squares += dot(xl, xl) + dot(xh, xh);
          xl *= act_lo(n, F_norm, STEP, k);
          xh *= act_hi(n, F_norm, STEP, k);
        }
        acc += dot(DECODE(FMT, lo)(w, k), xl) + dot(DECODE(FMT, hi)(w, k), xh);
      }
    }
  }
  scale = inversesqrt((SPREAD ? subgroup_sum(squares) : lanes_sum(squares)) / float(D_MODEL) + EPS);
  return lanes_sum(acc) * scale;
}

void main() {
  codebook_stage();
  uint r = gl_WorkGroupID.y, teams = WG / LANES;
  if (r >= step_word(IMG_STEP_N_ROW)) return;
  uint64_t row = 4 * uint64_t(r) * D_MODEL;
  float scale;
  [[dont_unroll]] for (uint i = 0; i < EXTRA; i++) {
    uint e = (gl_WorkGroupID.x * EXTRA + i) * teams + TID / LANES;
    float v = logit_of(e, pc.x + row, scale);
    if (TID % LANES == 0 && e < N_EXPERT) mem_st_shared(F_logits, pc.logits + 4 * (uint64_t(r) * N_EXPERT + e), v);
  }
  if (gl_WorkGroupID.x == 0)
    [[dont_unroll]] for (uint i = 4 * TID; i < D_MODEL; i += 4 * WG)
      st_xn_vec4(row + 4 * i, ld_x_vec4(row + 4 * i) * scale * ld_norm_vec4(4 * i));
  if (arrive_last(F_counter, pc.counter + 4 * r, gl_NumWorkGroups.x) && TID < SUBGROUP) topk_row(r);
}
