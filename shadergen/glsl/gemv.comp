/* gemv.comp: matrix times few vectors. A team of LANES invocations takes an output, its lanes the units of the row in turn;
 * EXTRA outputs a team, one after the other. The norm is folded in: sum W (x * norm) and sum x^2 in one pass, scaled at the end. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_gemv
#include "prelude.glsl"
#include "formats.glsl"
#include "act.glsl"
#include "weight.glsl"

uint64_t x_row[N_ROW]; /* addresses */

void output_of(uint o, uint n_live) {
  uint row = min(o, uint(N_OUT - 1)), lane = TID % LANES;
  float acc[N_ROW], squares[N_ROW];
  [[unroll]] for (uint r = 0; r < N_ROW; r++) acc[r] = squares[r] = 0;
  for (uint u = lane; u < N_IN / 32; u += LANES) {
    DECODE(FMT, unit) unit = DECODE(FMT, load)(F_weight, pc.weight, N_IN, N_OUT, row, u);
    uint base = DECODE(FMT, base)(u);
    act n;
    if (NORM != 0) n = act_load(F_norm, pc.norm, base, DECODE(FMT, STEP));
    weight w;
    WEIGHT_DECODE(FMT, w, unit)
    [[unroll]] for (uint r = 0; r < N_ROW; r++) {
      act a = act_load(F_x, x_row[r], base, DECODE(FMT, STEP));
      if (NORM != 0) {
        squares[r] += act_squares(a);
        act_mul(a, n);
      }
      acc[r] += weight_dot(w, a);
    }
  }
  [[unroll]] for (uint r = 0; r < N_ROW; r++) {
    float y = lanes_sum(acc[r]);
    if (NORM != 0) y *= inversesqrt(act_total(squares[r]) / float(N_IN) + EPS);
    if (lane == 0 && o < N_OUT && r < n_live) {
      uint64_t p = 4 * (uint64_t(r) * Y_STRIDE + o);
      if (BIAS != 0) y += ld_bias_float(4 * o);
      if (RESIDUAL != 0) y += ld_y_float(p);
      st_y_float(p, y);
    }
  }
}

void main() {
  uint n_live = min(step_word(ROWSEL != 0 ? IMG_STEP_N_SELECT : IMG_STEP_N_ROW), uint(N_ROW));
  if (n_live == 0) return;
  [[unroll]] for (uint r = 0; r < N_ROW; r++) {
    uint live = min(r, n_live - 1);
    uint from = ROWSEL != 0 ? step_select(live, IMG_SELECT_ROW) : live;
    x_row[r] = pc.x + 4 * uint64_t(from) * X_STRIDE;
  }
  uint teams = WG / LANES, first = gl_WorkGroupID.x * teams * EXTRA + TID / LANES;
  for (uint e = 0; e < EXTRA; e++) output_of(first + e * teams, n_live);
}
