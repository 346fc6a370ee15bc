/* expert_down.comp: second half of the feed-forward network for few rows, with the experts' weights, the shared expert's row and the residual. A team of
 * LANES invocations takes EXTRA outputs, two at a time when it is even, over all slots in order. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_expert_down
#include "prelude.glsl"
#include "formats.glsl"
#include "act.glsl"
#include "weight.glsl"
#include "shared.glsl"

#define PAIRED (EXTRA % 2 == 0)

/* Row `row` of an expert's matrix . h; .y: row2, when PAIRED. */
vec2 down_dot(uint64_t matrix, uint row, uint row2, uint64_t h) {
  const uint STEP = DECODE(FMT, STEP);
  vec2 acc = vec2(0);
  UNIT_BLOCKS(FMT, u0, D_FF / 32) {
    DECODE(FMT, block) b = DECODE(FMT, open)(F_down, matrix, D_FF, D_MODEL, row, u0), b2;
    if (PAIRED) b2 = DECODE(FMT, open)(F_down, matrix, D_FF, D_MODEL, row2, u0);
    UNIT_EACH(FMT, u, u0) {
      DECODE(FMT, unit) w = DECODE(FMT, load)(b, F_down, matrix, D_FF, D_MODEL, row, u), w2;
      if (PAIRED) w2 = DECODE(FMT, load)(b2, F_down, matrix, D_FF, D_MODEL, row2, u);
      act a = act_load(F_h, h, DECODE(FMT, base)(u), STEP);
      for (uint k = 0; k < ROLLED(4); k++) {
        vec4 lo = act_lo(a, F_h, STEP, k), hi = act_hi(a, F_h, STEP, k);
        acc.x += dot(DECODE(FMT, lo)(w, k), lo) + dot(DECODE(FMT, hi)(w, k), hi);
        if (PAIRED) acc.y += dot(DECODE(FMT, lo)(w2, k), lo) + dot(DECODE(FMT, hi)(w2, k), hi);
      }
    }
  }
  return vec2(lanes_sum(acc.x), PAIRED ? lanes_sum(acc.y) : 0);
}
void store(uint r, uint o, float sum) {
  uint64_t p = 4 * (uint64_t(r) * D_MODEL + o);
  if (TID % LANES == 0 && o < D_MODEL) st_x_float(p, RESIDUAL != 0 ? ld_x_float(p) + sum : sum);
}

/* The sum's beginning for output o. */
float begin_of(uint r, float scale, uint o) {
  return SHARED != 0 ? scale * ld_shared_row_float(4 * (uint64_t(r) * D_MODEL + o)) : 0.0;
}
float bias_of(uint e, uint o) { return BIAS != 0 ? ld_bias_float(e * plane_row(D_MODEL, 1, 4) + 4 * o) : 0.0; }

void main() {
  codebook_stage();
  uint r = gl_WorkGroupID.y, teams = WG / LANES;
  if (r >= step_word(IMG_STEP_N_ROW)) return;
  float scale = shared_scale(r);
  for (uint i = 0; i < EXTRA; i += PAIRED ? 2 : 1) {
    uint o = (gl_WorkGroupID.x * EXTRA + i) * teams + TID / LANES;
    uint row = min(o, uint(D_MODEL - 1)), row2 = min(o + teams, uint(D_MODEL - 1));
    vec2 sum = vec2(begin_of(r, scale, row), PAIRED ? begin_of(r, scale, row2) : 0.0);
    for (uint slot = 0; slot < N_EXPERT_USED; slot++) {
      uint pair = r * N_EXPERT_USED + slot;
      uint e = ROUTED != 0 ? min(ld_ids_uint(4 * pair), uint(N_EXPERT - 1)) : 0;
      vec2 y = down_dot(pc.down + e * DECODE(FMT, mat_stride)(D_FF, D_MODEL), row, row2, pc.h + 4 * uint64_t(pair) * D_FF);
      if (BIAS != 0) y += vec2(bias_of(e, row), PAIRED ? bias_of(e, row2) : 0.0);
      sum += ROUTED != 0 ? ld_weights_float(4 * pair) * y : y;
    }
    if (SCALE != 1.0) sum *= SCALE;
    store(r, o, sum.x);
    if (PAIRED) store(r, o + teams, sum.y);
  }
}
