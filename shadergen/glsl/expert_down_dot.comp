/* expert_down_dot.comp: second half of the feed-forward network for few rows in packed integer dot products (dot.glsl), with the experts'
 * weights, the shared expert's row and the residual. The pieces of all slots are one long row, so that lanes divide it evenly whatever
 * D_FF is; a slot's weight is part of its activations' scales. So the sum over slots is formed within the lanes, not slot after slot. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_expert_down_dot
#define DOT8
#include "prelude.glsl"
#include "formats.glsl"
#include "shared.glsl"

#define SLOT_PIECES ((D_FF + 63) / 64)
#define DOT_ROWS 1
#define DOT_PIECES (N_EXPERT_USED * SLOT_PIECES)
#include "dot.glsl"

uint first_pair; /* of the row */
uint expert_of(uint slot) { return ROUTED != 0 ? min(ld_ids_uint(4 * (first_pair + slot)), uint(N_EXPERT - 1)) : 0; }

vec4 stage_value(uint r, uint e) {
  uint k = e % (64 * SLOT_PIECES);
  if (D_FF % 64 != 0 && k >= D_FF) return vec4(0);
  return ld_h_vec4(4 * (uint64_t(first_pair + e / (64 * SLOT_PIECES)) * D_FF + k));
}
float stage_factor(uint r, uint e) {
  return ROUTED != 0 ? ld_weights_float(4 * (first_pair + e / (64 * SLOT_PIECES))) : 1.0;
}
/* Lane i of a team has the residual of its row i, loaded beforehand, where its lanes are as many as its rows. */
#define EARLY (RESIDUAL != 0 && EXTRA <= LANES)
uint first_row;
float residual;

uint64_t x_of(uint o) { return 4 * (uint64_t(gl_WorkGroupID.y) * D_MODEL + o); }
void dot_begin() {
  if (EARLY && TID % LANES < EXTRA) residual = ld_x_float(x_of(min(first_row + TID % LANES, uint(D_MODEL - 1))));
  codebook_stage();
}

void dot_finish(uint row, uint unused, vec2 sum) {
  uint r = gl_WorkGroupID.y;
  [[unroll]] for (uint i = 0; i < WEIGHT_ROWS; i++) {
    uint o = row + i;
    if (TID % LANES != (o - first_row) % LANES || o >= D_MODEL) continue;
    precise float y = sum[i];
    if (BIAS != 0)
      [[dont_unroll]] for (uint slot = 0; slot < N_EXPERT_USED; slot++) {
        float b = ld_bias_float(expert_of(slot) * plane_row(D_MODEL, 1, 4) + 4 * o);
        y += ROUTED != 0 ? ld_weights_float(4 * (first_pair + slot)) * b : b;
      }
    uint64_t p = x_of(o);
    if (SHARED != 0) y += shared_scale(r) * ld_shared_row_float(p);
    if (SCALE != 1.0) y *= SCALE;
    if (RESIDUAL != 0) y += EARLY ? residual : ld_x_float(p);
    st_x_float(p, y);
  }
}

#define DOT_FORMAT FMT
#define DOT_NAME(WHAT) down_##WHAT
#define DOT_PIECE(P) ((P) % SLOT_PIECES)
DECODE(FMT, raw) down_fetch(uint row, uint p) {
  uint64_t matrix = pc.down + expert_of(p / SLOT_PIECES) * DECODE(FMT, mat_stride)(D_FF, D_MODEL);
  return DECODE(FMT, fetch)(F_down, matrix, D_FF, D_MODEL, min(row, uint(D_MODEL - 1)), DOT_PIECE(p));
}
#include "dot_rows.glsl"

void main() {
  if (gl_WorkGroupID.y >= step_word(IMG_STEP_N_ROW)) return;
  first_pair = gl_WorkGroupID.y * N_EXPERT_USED;
  first_row = (gl_WorkGroupID.x * (WG / LANES) + TID / LANES) * EXTRA;
  down_rows(first_row);
}
