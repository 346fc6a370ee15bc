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

void load_gate(uint64_t matrix, uint row, uint u, out weight w) {
  DECODE(FMT_GATE, unit) unit = DECODE(FMT_GATE, load)(F_gate, matrix, D_MODEL, D_FF, row, u);
  WEIGHT_DECODE(FMT_GATE, w, unit)
}
void load_up(uint64_t matrix, uint row, uint u, out weight w) {
  DECODE(FMT_UP, unit) unit = DECODE(FMT_UP, load)(F_up, matrix, D_MODEL, D_FF, row, u);
  WEIGHT_DECODE(FMT_UP, w, unit)
}

void main() {
  uint o = gl_WorkGroupID.x * WG + TID, row = min(o, uint(D_FF - 1)), n_live = min(step_word(IMG_STEP_N_ROW), uint(N_ROW));
  uvec4 tile = ROUTED != 0 ? ld_tiles_uvec4(16 * gl_WorkGroupID.y) : uvec4(0, gl_WorkGroupID.y * TM, 0, 0);
  if (ROUTED == 0) tile.z = tile.y < n_live ? min(uint(TM), n_live - tile.y) : 0;
  uint64_t gate_matrix = pc.gate + tile.x * DECODE(FMT_GATE, mat_stride)(D_MODEL, D_FF);
  uint64_t up_matrix = pc.up + tile.x * DECODE(FMT_UP, mat_stride)(D_MODEL, D_FF);
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
    for (uint u = 0; u < D_MODEL / 32; u++) {
      weight w_gate, w_up;
      load_gate(gate_matrix, row, u, w_gate);
      load_up(up_matrix, row, u, w_up);
#if FMT_GATE == FMT_UP
      tile_add2(w_gate, w_up, F_xn, pc.xn, offset, DECODE(FMT_UP, base)(u), DECODE(FMT_UP, STEP), gate, up);
#else
      tile_add(w_gate, F_xn, pc.xn, offset, DECODE(FMT_GATE, base)(u), DECODE(FMT_GATE, STEP), gate);
      tile_add(w_up, F_xn, pc.xn, offset, DECODE(FMT_UP, base)(u), DECODE(FMT_UP, STEP), up);
#endif
    }
    [[unroll]] for (uint j = 0; j < TILE_ROWS; j++)
      if (o < D_FF && i0 + j < tile.z)
        st_h_float(4 * (uint64_t(pair[j]) * D_FF + o), gate[j] / (1.0 + exp(-gate[j])) * up[j]);
  }
}
