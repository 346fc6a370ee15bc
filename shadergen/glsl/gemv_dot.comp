/* gemv_dot.comp: up to three matrices times few vectors in packed integer dot products (dot.glsl). A workgroup has rows of one matrix: the
 * first workgroups those of the first. The norm is folded in: x * norm is staged, and the sums are scaled at the end. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_gemv_dot
#define DOT8
#include "prelude.glsl"
#include "formats.glsl"

#define DOT_ROWS N_ROW
#define DOT_PIECES ((N_IN + 63) / 64)
#define DOT_NORM
#include "dot.glsl"

uint64_t x_row[N_ROW]; /* addresses */
uint n_live;
/* The workgroup's matrix. */
uint which, n_out;
uint64_t matrix;

#define WHICH(A, B, C) (which == 0 ? A : which == 1 ? B : C)

vec4 stage_value(uint r, uint e) {
  if (N_IN % 64 != 0 && e >= N_IN) return vec4(0);
  uint64_t row = x_row[0];
  [[unroll]] for (uint i = 1; i < N_ROW; i++) row = r == i ? x_row[i] : row;
  return mem_ld_vec4(F_x, row + 4 * e);
}
vec4 stage_gain(uint e) { return N_IN % 64 != 0 && e >= N_IN ? vec4(0) : ld_norm_vec4(4 * e); }
float stage_factor(uint r, uint e) { return 1; }

/* Of one row of x the residual of a team's rows is loaded beforehand, where its lanes are as many: lane i has that of row first + i. */
#define EARLY (RESIDUAL != 0 && N_ROW == 1 && EXTRA <= LANES)
uint first_row;
float residual;

void dot_begin() {
  if (EARLY && TID % LANES < EXTRA) residual = ld_y_float(4 * min(first_row + TID % LANES, n_out - 1));
  codebook_stage();
  n_live = min(step_word(ROWSEL != 0 ? IMG_STEP_N_SELECT : IMG_STEP_N_ROW), uint(N_ROW));
  [[unroll]] for (uint r = 0; r < N_ROW; r++) {
    uint live = n_live == 0 ? 0 : min(r, n_live - 1), from = live;
    if (ROWSEL != 0) from = min(step_select(live, IMG_SELECT_ROW), uint(X_ROWS != 0 ? X_ROWS - 1 : N_ROW - 1));
    x_row[r] = pc.x + 4 * uint64_t(from) * X_STRIDE;
  }
}

void dot_finish(uint row, uint r, vec2 sum) {
  precise float scale = 1;
  if (NORM != 0) scale = inversesqrt(row_square[r] / float(N_IN) + EPS);
  [[unroll]] for (uint i = 0; i < WEIGHT_ROWS; i++) {
    uint o = row + i;
    if (TID % LANES != (o - first_row) % LANES || o >= n_out || r >= n_live) continue;
    precise float y = sum[i];
    if (NORM != 0) y *= scale;
    if ((BIAS & 1 << which) != 0) y += mem_ld_float(WHICH(F_bias, F_bias_2, F_bias_3), WHICH(pc.bias, pc.bias_2, pc.bias_3) + 4 * o);
    if (SCALE != 1.0) y *= SCALE;
    uint64_t p = WHICH(pc.y, pc.y_2, pc.y_3) + 4 * (uint64_t(r) * n_out + o);
    if (RESIDUAL != 0) y += EARLY ? residual : mem_ld_float(F_y, p);
    mem_st_float(WHICH(F_y, F_y_2, F_y_3), p, y);
  }
}

#define DOT_PIECE(P) (P)
#define FETCH(NUMBER) \
  DECODE(NUMBER, fetch)(WHICH(F_weight, F_weight_2, F_weight_3), matrix, N_IN, n_out, min(row, n_out - 1), p)
#define DOT_FORMAT FMT
#define DOT_NAME(WHAT) first_##WHAT
DECODE(FMT, raw) first_fetch(uint row, uint p) { return FETCH(FMT); }
#include "dot_rows.glsl"
#if FMT_2 != FMT
#undef DOT_FORMAT
#undef DOT_NAME
#define DOT_FORMAT FMT_2
#define DOT_NAME(WHAT) second_##WHAT
DECODE(FMT_2, raw) second_fetch(uint row, uint p) { return FETCH(FMT_2); }
#include "dot_rows.glsl"
#endif
#if FMT_3 != FMT && FMT_3 != FMT_2
#undef DOT_FORMAT
#undef DOT_NAME
#define DOT_FORMAT FMT_3
#define DOT_NAME(WHAT) third_##WHAT
DECODE(FMT_3, raw) third_fetch(uint row, uint p) { return FETCH(FMT_3); }
#include "dot_rows.glsl"
#endif

void main() {
  const uint rows = WG / LANES * EXTRA; /* of a workgroup */
  uint at = gl_WorkGroupID.x, n_1 = (N_OUT + rows - 1) / rows, n_2 = (N_OUT_2 + rows - 1) / rows;
  which = at < n_1 ? 0 : at < n_1 + n_2 ? 1 : 2;
  at -= WHICH(0, n_1, n_1 + n_2);
  n_out = WHICH(N_OUT, N_OUT_2, N_OUT_3);
  if (at * rows >= n_out) return;
  matrix = WHICH(pc.weight, pc.weight_2, pc.weight_3);
  first_row = at * rows + TID / LANES * EXTRA;
#if FMT_2 != FMT
  if (which == 1) {
    second_rows(first_row);
    return;
  }
#endif
#if FMT_3 != FMT && FMT_3 != FMT_2
  if (which == 2) {
    third_rows(first_row);
    return;
  }
#elif FMT_3 != FMT
  if (which == 2) {
    second_rows(first_row);
    return;
  }
#endif
  first_rows(first_row);
}
