/* expert_gate_up.comp: first half of the feed-forward network for few rows. A team of LANES invocations takes one output of one
 * chosen expert, EXTRA outputs a team. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_expert_gate_up
#include "prelude.glsl"
#include "formats.glsl"
#include "act.glsl"
#include "weight.glsl"

/* out: dot product of a plane's row with x. */
#define DOT_ROW(NUMBER, OUT, FIELD, MATRIX, ROW, X)                                                                    \
  for (uint u_ = TID % LANES; u_ < D_MODEL / 32; u_ += LANES) {                                                        \
    DECODE(NUMBER, unit) unit_ = DECODE(NUMBER, load)(FIELD, MATRIX, D_MODEL, D_FF, ROW, u_);                          \
    act a_ = act_load(F_xn, X, DECODE(NUMBER, base)(u_), DECODE(NUMBER, STEP));                                        \
    weight w_;                                                                                                         \
    WEIGHT_DECODE(NUMBER, w_, unit_)                                                                                   \
    OUT += weight_dot(w_, a_);                                                                                         \
  }

void output_of(uint o, uint64_t x, uint64_t gate_matrix, uint64_t up_matrix, uint64_t h) {
  uint row = min(o, uint(D_FF - 1));
  float gate = 0, up = 0;
#if FMT_GATE == FMT_UP
  for (uint u = TID % LANES; u < D_MODEL / 32; u += LANES) {
    DECODE(FMT_UP, unit) gate_unit = DECODE(FMT_UP, load)(F_gate, gate_matrix, D_MODEL, D_FF, row, u);
    DECODE(FMT_UP, unit) up_unit = DECODE(FMT_UP, load)(F_up, up_matrix, D_MODEL, D_FF, row, u);
    act a = act_load(F_xn, x, DECODE(FMT_UP, base)(u), DECODE(FMT_UP, STEP));
    [[unroll]] for (uint k = 0; k < 4; k++) {
      vec4 lo = act_lo(a, k), hi = act_hi(a, k);
      gate += dot(DECODE(FMT_UP, lo)(gate_unit, k), lo) + dot(DECODE(FMT_UP, hi)(gate_unit, k), hi);
      up += dot(DECODE(FMT_UP, lo)(up_unit, k), lo) + dot(DECODE(FMT_UP, hi)(up_unit, k), hi);
    }
  }
#else
  DOT_ROW(FMT_GATE, gate, F_gate, gate_matrix, row, x)
  DOT_ROW(FMT_UP, up, F_up, up_matrix, row, x)
#endif
  gate = lanes_sum(gate);
  up = lanes_sum(up);
  if (TID % LANES == 0 && o < D_FF) st_h_float(h + 4 * o, gate / (1.0 + exp(-gate)) * up);
}

void main() {
  uint slot = gl_WorkGroupID.y, r = gl_WorkGroupID.z, teams = WG / LANES;
  if (r >= step_word(IMG_STEP_N_ROW)) return;
  uint pair = r * N_EXPERT_USED + slot;
  uint e = ROUTED != 0 ? min(ld_ids_uint(4 * pair), uint(N_EXPERT - 1)) : 0;
  uint64_t gate_matrix = pc.gate + e * DECODE(FMT_GATE, mat_stride)(D_MODEL, D_FF);
  uint64_t up_matrix = pc.up + e * DECODE(FMT_UP, mat_stride)(D_MODEL, D_FF);
  uint first = gl_WorkGroupID.x * teams * EXTRA + TID / LANES;
  for (uint i = 0; i < EXTRA; i++)
    output_of(first + i * teams, pc.xn + 4 * uint64_t(r) * D_MODEL, gate_matrix, up_matrix, 4 * uint64_t(pair) * D_FF);
}
