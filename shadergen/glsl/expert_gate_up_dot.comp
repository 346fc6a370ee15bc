/* expert_gate_up_dot.comp: first half of the feed-forward network for few rows in packed integer dot products (dot.glsl). Rows of
 * weights are those of gate and up in turn. ROUTED: of one slot of one row; else of all rows. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_expert_gate_up_dot
#define DOT8
#include "prelude.glsl"
#include "formats.glsl"
#include "glu.glsl"

#define DOT_ROWS GATE_UP_ROWS(ROUTED, N_ROW)
#define DOT_PIECES ((D_MODEL + 63) / 64)
#define DOT_NORM
#include "dot.glsl"

uint n_live, pair, expert; /* pair and expert: of ROUTED */
uint64_t gate_matrix, up_matrix;

vec4 stage_value(uint r, uint e) {
  if (D_MODEL % 64 != 0 && e >= D_MODEL) return vec4(0);
  uint row = ROUTED != 0 ? gl_WorkGroupID.z : r;
  return ld_xn_vec4(4 * (uint64_t(row) * D_MODEL + e));
}
vec4 stage_gain(uint e) { return D_MODEL % 64 != 0 && e >= D_MODEL ? vec4(0) : ld_norm_vec4(4 * e); }
float stage_factor(uint r, uint e) { return 1; }
void dot_begin() { codebook_stage(); }

void store(uint o, uint r, float gate_sum, float up_sum) {
  uint row = ROUTED != 0 ? gl_WorkGroupID.z : r;
  if (o >= D_FF || row >= n_live) return;
  precise float gate = gate_sum, up = up_sum;
  if (NORM != 0) {
    precise float scale = inversesqrt(row_square[r] / float(D_MODEL) + EPS);
    gate *= scale;
    up *= scale;
  }
  if (BIAS != 0) {
    uint64_t p = expert * plane_row(D_FF, 1, 4) + 4 * o;
    gate += ld_gate_bias_float(p);
    up += ld_up_bias_float(p);
  }
  if (TID % LANES == o % LANES) st_h_float(4 * (uint64_t(ROUTED != 0 ? pair : r) * D_FF + o), glu(gate, up));
}

float gate_sum[DOT_ROWS]; /* waits for the row of up */
void dot_finish(uint row, uint r, vec2 sum) {
  [[unroll]] for (uint i = 0; i < WEIGHT_ROWS; i++) {
    if ((row + i) % 2 == 0)
      gate_sum[r] = sum[i];
    else
      store((row + i) / 2, r, gate_sum[r], sum[i]);
  }
}

#define DOT_FORMAT FMT
#define DOT_NAME(WHAT) gate_up_##WHAT
#define DOT_PIECE(P) (P)
DECODE(FMT, raw) gate_up_fetch(uint row, uint p) {
  bool up = row % 2 != 0;
  return DECODE(FMT, fetch)(up ? F_up : F_gate, up ? up_matrix : gate_matrix, D_MODEL, D_FF, min(row / 2, uint(D_FF - 1)), p);
}
#include "dot_rows.glsl"

void main() {
  n_live = step_word(IMG_STEP_N_ROW);
  pair = gl_WorkGroupID.z * N_EXPERT_USED + gl_WorkGroupID.y;
  expert = ROUTED != 0 ? min(ld_ids_uint(4 * pair), uint(N_EXPERT - 1)) : 0;
  if (ROUTED != 0 && gl_WorkGroupID.z >= n_live) return;
  gate_matrix = pc.gate + expert * DECODE(FMT, mat_stride)(D_MODEL, D_FF);
  up_matrix = pc.up + expert * DECODE(FMT, mat_stride)(D_MODEL, D_FF);
  gate_up_rows((gl_WorkGroupID.x * (WG / LANES) + TID / LANES) * EXTRA);
}
