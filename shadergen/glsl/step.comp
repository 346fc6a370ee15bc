/* step.comp: all layers of a decoding step of one row in one dispatch of resident workgroups, one a processor of the device.
 *
 * Owns: the order of a layer's phases. A phase is what other tiers make a dispatch of; the workgroups hand vectors on by tagged words
 * (step_exchange.glsl), so that a workgroup begins a phase when its own inputs are there. Invariants: all workgroups run at once, their number
 * is EXTRA (img_features.def: RESIDENT); sums have an order that depends on shapes, positions and tuning only; the residual stream's rows stay with one
 * workgroup for the whole step. */
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_integer_dot_product : require
#define KERNEL_step
#define DOT8
#include "prelude.glsl"
#ifndef SHADERGEN_PARAMS
#define FORMATS_0 0x501101
#define FORMATS_1 0x8000
#endif
#define FMT_USED(N) (((N) < 24 && ((FORMATS_0 >> ((N) % 24)) & 1) != 0) || ((N) >= 24 && ((FORMATS_1 >> ((N) % 24)) & 1) != 0))
#include "formats.glsl"
/* Whether a format is used that has no integers. */
#define FLOAT_FORMATS (FMT_USED(0) || FMT_USED(1) || FMT_USED(30) || FMT_USED(34))
/* Bits of BIASES. */
const int BIAS_QKV = 1, BIAS_OUTPUT = 2, BIAS_ROUTER = 4, BIAS_GLU = 8, BIAS_DOWN = 16;
#include "turns.glsl"
#include "glu.glsl"
#include "step_layer.glsl"
#include "step_exchange.glsl"
#include "step_vector.glsl"
#include "step_weight.glsl"
#include "step_stage.glsl"
#include "step_choose.glsl"
#include "step_product.glsl"
#include "step_heads.glsl"
#define HEADS 1
#define LANES_ LANES_ONE
#define TILE_ TILE_ONE
#define VALUES_ VALUES_ONE
#define NAME attend_one
#include "step_attend.glsl"
#undef HEADS
#undef LANES_
#undef TILE_
#undef VALUES_
#undef NAME
#define HEADS ATTEND_HEADS
#define LANES_ LANES_MANY
#define TILE_ TILE_MANY
#define VALUES_ VALUES_MANY
#define NAME attend_many
#include "step_attend.glsl"

/* Pages from which on positions are split among workgroups and heads taken together. (NARROW: nothing is gained; so tests get there soon.) */
#define SPLIT_PAGES (NARROW ? 2 : 5)

void attention() {
  uint n_pos = step_row_pos(0) + 1, slot = step_row_slot(0);
  uint window = uint(cell(CELL_WINDOW)), begin = window > 0 && n_pos > window ? n_pos - window : 0;
  uint n_page = (n_pos - 1) / 64 + 1 - begin / 64, n_split = n_page < SPLIT_PAGES ? 1 : min(NARROW ? n_page : n_page / 2, uint(ATTEND_SPLITS));
  if (n_page < SPLIT_PAGES) {
    [[dont_unroll]] for (uint i = gl_WorkGroupID.x; i < N_HEAD; i += N_WORKER) attend_one(i, 1, n_pos, slot);
  } else {
    [[dont_unroll]] for (uint i = gl_WorkGroupID.x; i < N_HEAD / ATTEND_HEADS * n_split; i += N_WORKER)
      attend_many(i, n_split, n_pos, slot);
    if (n_split > 1)
      [[dont_unroll]] for (uint h = gl_WorkGroupID.x; h < N_HEAD; h += N_WORKER) attend_combine(h, n_split);
  }
  phase++;
}

void main() {
  codebook_stage();
  if (step_word(IMG_STEP_N_ROW) == 0 || gl_WorkGroupID.x >= N_WORKER) return;
  serial = mem_ld_uint(F_exchange, pc.exchange) + 1; /* zeroed memory holds no tag */
  uint first = gl_WorkGroupID.x * STREAM_ROWS, n = rows_here(D_MODEL, STREAM_ROWS);
  cells_ahead(0);
  cells_put(0, 0);
  [[dont_unroll]] for (uint i = TID; i < n; i += WG) stream[i] = ld_x_float(4 * (first + i));
  [[dont_unroll]] for (uint k = TID; k < N_EXPERT_USED; k += WG) chosen[k] = 0;
  if (TID == 0) shared_weight = 1; /* of a dense network; choose sets it else */
  turns_stage(step_row_pos(0), step_row_slot(0));
  group_barrier();
  [[dont_unroll]] for (uint i = TID; i < n / 2; i += WG)
    pair_store(PLACE_BEGIN + 4 * (first + 2 * i), stream[2 * i], stream[2 * i + 1], tag_in());
  [[dont_unroll]] for (uint layer = 0; layer < N_LAYER; layer++) {
    cells_ahead(layer + 1);
    product(KIND_QKV);
    attention();
    group_barrier();
    cells_put(turn ^ 1, layer + 1);
    product(KIND_OUTPUT);
    if (N_EXPERT_USED > 0) {
      router();
      phase++;
    }
    product(KIND_GLU);
    product(KIND_DOWN);
    turn ^= 1;
  }
  if (step_word(IMG_STEP_N_SELECT) != 0) product(KIND_HEAD);
  /* Drivers that end an invocation's loops after some number of iterations (README.md) end this one, too. */
  uint turns = 0;
  [[dont_unroll]] for (uint i = 0; i < 2 + (TID >> 24); i++) turns += step_word(IMG_STEP_N_ROW) != 0 ? 1 : 0;
  if (turns < 2) st_result_uint(4 * IMG_RESULT_LOST, IMG_LOST_LOOP);
  if (wait_left == 0) st_result_uint(4 * IMG_RESULT_LOST, IMG_LOST_WAIT);
  if (gl_WorkGroupID.x == 0 && TID == 0) mem_st_uint(F_exchange, pc.exchange, serial + N_LAYER * 6 + 1);
}
