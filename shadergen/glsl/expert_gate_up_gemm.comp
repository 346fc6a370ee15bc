/* expert_gate_up_gemm.comp: first half of the feed-forward network for many rows. A workgroup takes a tile of an expert's pairs, eight
 * at a time, and WG outputs. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_expert_gate_up_gemm
#include "prelude.glsl"
#include "formats.glsl"
#include "act.glsl"
#include "weight.glsl"
#include "tile.glsl"
#include "glu.glsl"

/* ACC += row `row` of a plane's matrix . the rows at `offset`. */
#define TILE_ROW(NUMBER, ACC, FIELD, MATRIX)                                                                           \
  UNIT_BLOCKS(NUMBER, u0_, D_MODEL / 32) {                                                                             \
    DECODE(NUMBER, block) b_ = DECODE(NUMBER, open)(FIELD, MATRIX, D_MODEL, D_FF, row, u0_);                           \
    UNIT_EACH(NUMBER, u_, u0_) {                                                                                       \
      DECODE(NUMBER, unit) w_ = DECODE(NUMBER, load)(b_, FIELD, MATRIX, D_MODEL, D_FF, row, u_);                       \
      act a_[TILE_ROWS];                                                                                               \
      tile_load(F_xn, pc.xn, offset, DECODE(NUMBER, base)(u_), DECODE(NUMBER, STEP), a_);                              \
      TILE_ADD(NUMBER, w_, F_xn, a_, ACC)                                                                              \
    }                                                                                                                  \
  }

void main() {
  codebook_stage();
  uint o = gl_WorkGroupID.x * WG + TID, row = min(o, uint(D_FF - 1)), n_live = min(step_word(IMG_STEP_N_ROW), uint(N_ROW));
  uvec4 tile = ROUTED != 0 ? ld_tiles_uvec4(16 * gl_WorkGroupID.y) : uvec4(0, gl_WorkGroupID.y * TM, 0, 0);
  if (ROUTED == 0) tile.z = tile.y < n_live ? min(uint(TM), n_live - tile.y) : 0;
  uint64_t gate_matrix = pc.gate + tile.x * DECODE(FMT_GATE, mat_stride)(D_MODEL, D_FF);
  uint64_t up_matrix = pc.up + tile.x * DECODE(FMT_UP, mat_stride)(D_MODEL, D_FF);
  uint64_t bias_at = tile.x * plane_row(D_FF, 1, 4) + 4 * row;
  float gate_bias = BIAS != 0 ? ld_gate_bias_float(bias_at) : 0.0, up_bias = BIAS != 0 ? ld_up_bias_float(bias_at) : 0.0;
  for (uint i0 = 0; i0 < tile.z; i0 += TILE_ROWS) {
    uint pair[TILE_ROWS], offset[TILE_ROWS];
    [[unroll]] for (uint j = 0; j < TILE_ROWS; j++) {
      uint i = tile.y + min(i0 + j, tile.z - 1);
      pair[j] = ROUTED != 0 ? ld_pairs_uint(4 * i) : i;
      offset[j] = pair[j] / N_EXPERT_USED * D_MODEL;
    }
    float gate[TILE_ROWS], up[TILE_ROWS];
    tile_zero(gate);
    tile_zero(up);
#if FMT_GATE == FMT_UP
    UNIT_BLOCKS(FMT_UP, u0, D_MODEL / 32) {
      DECODE(FMT_UP, block) gate_block = DECODE(FMT_UP, open)(F_gate, gate_matrix, D_MODEL, D_FF, row, u0);
      DECODE(FMT_UP, block) up_block = DECODE(FMT_UP, open)(F_up, up_matrix, D_MODEL, D_FF, row, u0);
      UNIT_EACH(FMT_UP, u, u0) {
        DECODE(FMT_UP, unit) gate_unit = DECODE(FMT_UP, load)(gate_block, F_gate, gate_matrix, D_MODEL, D_FF, row, u);
        DECODE(FMT_UP, unit) up_unit = DECODE(FMT_UP, load)(up_block, F_up, up_matrix, D_MODEL, D_FF, row, u);
        act a[TILE_ROWS];
        tile_load(F_xn, pc.xn, offset, DECODE(FMT_UP, base)(u), DECODE(FMT_UP, STEP), a);
        TILE_ADD_TWO(FMT_UP, gate_unit, up_unit, F_xn, a, gate, up)
      }
    }
#else
    TILE_ROW(FMT_GATE, gate, F_gate, gate_matrix)
    TILE_ROW(FMT_UP, up, F_up, up_matrix)
#endif
    [[unroll]] for (uint j = 0; j < TILE_ROWS; j++)
      if (o < D_FF && i0 + j < tile.z)
        st_h_float(4 * (uint64_t(pair[j]) * D_FF + o), glu(gate[j] + gate_bias, up[j] + up_bias));
  }
}
