/* expert_down.comp: second half of the feed-forward network for few rows, with the experts' weights and the residual. A team of
 * LANES invocations takes one output over all slots, in order; EXTRA outputs a team. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_expert_down
#include "prelude.glsl"
#include "formats.glsl"
#include "act.glsl"
#include "weight.glsl"

float down_dot(uint64_t matrix, uint row, uint64_t h) {
  float acc = 0;
  for (uint u = TID % LANES; u < D_FF / 32; u += LANES) {
    DECODE(FMT, unit) unit = DECODE(FMT, load)(F_down, matrix, D_FF, D_MODEL, row, u);
    act a = act_load(F_h, h, DECODE(FMT, base)(u), DECODE(FMT, STEP));
    weight w;
    WEIGHT_DECODE(FMT, w, unit)
    acc += weight_dot(w, a);
  }
  return lanes_sum(acc);
}

void main() {
  uint r = gl_WorkGroupID.y, teams = WG / LANES;
  if (r >= step_word(IMG_STEP_N_ROW)) return;
  for (uint i = 0; i < EXTRA; i++) {
    uint o = (gl_WorkGroupID.x * EXTRA + i) * teams + TID / LANES, row = min(o, uint(D_MODEL - 1));
    float sum = 0;
    for (uint slot = 0; slot < N_EXPERT_USED; slot++) {
      uint pair = r * N_EXPERT_USED + slot;
      uint e = ROUTED != 0 ? min(ld_ids_uint(4 * pair), uint(N_EXPERT - 1)) : 0;
      float y = down_dot(pc.down + e * DECODE(FMT, mat_stride)(D_FF, D_MODEL), row, pc.h + 4 * uint64_t(pair) * D_FF);
      sum += ROUTED != 0 ? ld_weights_float(4 * pair) * y : y;
    }
    uint64_t p = 4 * (uint64_t(r) * D_MODEL + o);
    if (TID % LANES == 0 && o < D_MODEL) st_x_float(p, ld_x_float(p) + sum);
  }
}
