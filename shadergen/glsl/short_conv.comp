/* short_conv.comp: causal depthwise convolution over the positions of each run, then SiLU. An invocation has two channels of CONV_ROWS rows and
 * walks down them, the inputs of the last positions in registers. The workgroup in whose rows a run begins is the only one that reads and writes
 * the slot's window: it also takes those of the run's first rows that reach before it, wherever they stand. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_short_conv
#include "prelude.glsl"
#include "plane.glsl"

const uint BEFORE = N_TAP - 1; /* positions of a window */

vec2 past[BEFORE]; /* inputs of the positions before the row at hand, the oldest first */

vec2 input_of(uint r, uint c) { return ld_x_vec2(4 * (uint64_t(r) * N_CHANNEL + c)); }
uint64_t window_at(uint slot, uint i, uint c) { return uint64_t(slot) * BLOCK_BYTES + 4 * (i * N_CHANNEL + c); }

/* Inputs before row r of a run that begins at row `first` and position pos. */
void load_past(uint first, uint r, uint pos, uint slot, uint c) {
  [[unroll]] for (uint j = 0; j < BEFORE; j++) {
    uint back = BEFORE - j, done = r - first;
    past[j] = vec2(0);
    if (done >= back)
      past[j] = input_of(r - back, c);
    else if (pos + done >= back)
      past[j] = ld_state_vec2(window_at(slot, j + done, c));
  }
}
/* The window as of the end of a run of n rows. Cell i takes cell i + n, which is written later. */
void store_window(uint first, uint n, uint pos, uint slot, uint c) {
  [[unroll]] for (uint i = 0; i < BEFORE; i++) {
    vec2 v = vec2(0);
    if (n + i >= BEFORE)
      v = input_of(first + n + i - BEFORE, c);
    else if (pos + n + i >= BEFORE)
      v = ld_state_vec2(window_at(slot, i + n, c));
    st_state_vec2(window_at(slot, i, c), v);
  }
}

void main() {
  uint c = 2 * (gl_WorkGroupID.x * WG + TID), n_row = step_word(IMG_STEP_N_ROW), n_run = step_word(IMG_STEP_N_RUN);
  uint begin = gl_WorkGroupID.y * CONV_ROWS, end = min(begin + CONV_ROWS, n_row);
  if (begin >= n_row || c >= N_CHANNEL) return;
  vec2 tap[N_TAP];
  uint64_t row = plane_row(N_TAP, 1, 4);
  [[unroll]] for (uint j = 0; j < N_TAP; j++)
    tap[j] = vec2(ld_weight_float(c * row + 4 * j), ld_weight_float((c + 1) * row + 4 * j));
  uint run = 0; /* the one that has row `begin` */
  for (uint high = n_run; high - run > 1;) {
    uint middle = (run + high) / 2;
    if (step_run(middle, IMG_RUN_ROW) <= begin)
      run = middle;
    else
      high = middle;
  }
  for (; run < n_run; run++) {
    uint first = step_run(run, IMG_RUN_ROW), n = step_run(run, IMG_RUN_COUNT);
    if (first >= end) break;
    uint pos = step_row_pos(first), slot = step_row_slot(first);
    bool own = first >= begin;
    uint from = own ? first : max(begin, first + BEFORE), to = min(own ? max(end, first + BEFORE) : end, first + n);
    if (from >= to) continue;
    load_past(first, from, pos, slot, c);
    [[dont_unroll]] for (uint r = from; r < to; r++) {
      vec2 x = input_of(r, c), sum = tap[BEFORE] * x;
      [[unroll]] for (uint j = 0; j < BEFORE; j++) sum += tap[j] * past[j];
      [[unroll]] for (uint j = 0; j + 1 < BEFORE; j++) past[j] = past[j + 1];
      past[BEFORE - 1] = x;
      st_y_vec2(4 * (uint64_t(r) * N_CHANNEL + c), sum / (1 + exp(-sum)));
    }
    if (own) store_window(first, n, pos, slot, c);
  }
}
