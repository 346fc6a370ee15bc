/* expert_gate_up.comp: first half of the feed-forward network for few rows. A team of LANES invocations takes one output of one
 * chosen expert, EXTRA outputs a team. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_expert_gate_up
#include "prelude.glsl"
#include "formats.glsl"
#include "act.glsl"
#include "weight.glsl"
#include "glu.glsl"

/* OUT += row ROW of a plane's matrix . x */
#define DOT_ROW(NUMBER, OUT, FIELD, MATRIX, ROW, X)                                                                    \
  UNIT_BLOCKS(NUMBER, u0_, D_MODEL / 32) {                                                                             \
    DECODE(NUMBER, block) b_ = DECODE(NUMBER, open)(FIELD, MATRIX, D_MODEL, D_FF, ROW, u0_);                           \
    UNIT_EACH(NUMBER, u_, u0_) {                                                                                       \
      DECODE(NUMBER, unit) w_ = DECODE(NUMBER, load)(b_, FIELD, MATRIX, D_MODEL, D_FF, ROW, u_);                       \
      act a_ = act_load(F_xn, X, DECODE(NUMBER, base)(u_), DECODE(NUMBER, STEP));                                      \
      for (uint k_ = 0; k_ < ROLLED(4); k_++)                                                                                  \
        OUT += dot(DECODE(NUMBER, lo)(w_, k_), act_lo(a_, F_xn, DECODE(NUMBER, STEP), k_)) +                           \
               dot(DECODE(NUMBER, hi)(w_, k_), act_hi(a_, F_xn, DECODE(NUMBER, STEP), k_));                            \
    }                                                                                                                  \
  }

void output_of(uint e, uint o, uint64_t x, uint64_t gate_matrix, uint64_t up_matrix, uint64_t h) {
  uint row = min(o, uint(D_FF - 1));
  float gate = 0, up = 0;
#if FMT_GATE == FMT_UP
  const uint STEP = DECODE(FMT_UP, STEP);
  UNIT_BLOCKS(FMT_UP, u0, D_MODEL / 32) {
    DECODE(FMT_UP, block) gate_block = DECODE(FMT_UP, open)(F_gate, gate_matrix, D_MODEL, D_FF, row, u0);
    DECODE(FMT_UP, block) up_block = DECODE(FMT_UP, open)(F_up, up_matrix, D_MODEL, D_FF, row, u0);
    UNIT_EACH(FMT_UP, u, u0) {
      DECODE(FMT_UP, unit) gate_unit = DECODE(FMT_UP, load)(gate_block, F_gate, gate_matrix, D_MODEL, D_FF, row, u);
      DECODE(FMT_UP, unit) up_unit = DECODE(FMT_UP, load)(up_block, F_up, up_matrix, D_MODEL, D_FF, row, u);
      act a = act_load(F_xn, x, DECODE(FMT_UP, base)(u), STEP);
      for (uint k = 0; k < ROLLED(4); k++) {
        vec4 lo = act_lo(a, F_xn, STEP, k), hi = act_hi(a, F_xn, STEP, k);
        gate += dot(DECODE(FMT_UP, lo)(gate_unit, k), lo) + dot(DECODE(FMT_UP, hi)(gate_unit, k), hi);
        up += dot(DECODE(FMT_UP, lo)(up_unit, k), lo) + dot(DECODE(FMT_UP, hi)(up_unit, k), hi);
      }
    }
  }
#else
  DOT_ROW(FMT_GATE, gate, F_gate, gate_matrix, row, x)
  DOT_ROW(FMT_UP, up, F_up, up_matrix, row, x)
#endif
  gate = lanes_sum(gate);
  up = lanes_sum(up);
  if (TID % LANES != 0 || o >= D_FF) return;
  if (BIAS != 0) {
    uint64_t p = e * plane_row(D_FF, 1, 4) + 4 * o;
    gate += ld_gate_bias_float(p);
    up += ld_up_bias_float(p);
  }
  st_h_float(h + 4 * o, glu(gate, up));
}

void main() {
  codebook_stage();
  uint slot = gl_WorkGroupID.y, r = gl_WorkGroupID.z, teams = WG / LANES;
  if (r >= step_word(IMG_STEP_N_ROW)) return;
  uint pair = r * N_EXPERT_USED + slot;
  uint e = ROUTED != 0 ? min(ld_ids_uint(4 * pair), uint(N_EXPERT - 1)) : 0;
  uint64_t gate_matrix = pc.gate + e * DECODE(FMT_GATE, mat_stride)(D_MODEL, D_FF);
  uint64_t up_matrix = pc.up + e * DECODE(FMT_UP, mat_stride)(D_MODEL, D_FF);
  uint first = gl_WorkGroupID.x * teams * EXTRA + TID / LANES;
  for (uint i = 0; i < EXTRA; i++)
    output_of(e, first + i * teams, pc.xn + 4 * uint64_t(r) * D_MODEL, gate_matrix, up_matrix, 4 * uint64_t(pair) * D_FF);
}
