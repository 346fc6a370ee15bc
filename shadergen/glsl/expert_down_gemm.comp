/* expert_down_gemm.comp: second half of the feed-forward network for many rows. A workgroup takes a tile of an expert's pairs, eight at
 * a time, and WG * EXTRA outputs; an invocation EXTRA (1 or 2) of them. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_expert_down_gemm
#include "prelude.glsl"
#include "formats.glsl"
#include "act.glsl"
#include "weight.glsl"
#include "tile.glsl"

#define PAIRED (EXTRA == 2)

void store(float acc[TILE_ROWS], uint e, uint o, uint pair[TILE_ROWS], uint n) {
  if (o >= D_MODEL) return;
  float bias = BIAS != 0 ? ld_bias_float(e * plane_row(D_MODEL, 1, 4) + 4 * o) : 0.0;
  [[unroll]] for (uint j = 0; j < TILE_ROWS; j++)
    if (j < n) st_y_float(4 * (uint64_t(pair[j]) * D_MODEL + o), acc[j] + bias);
}

void main() {
  codebook_stage();
  uvec4 tile = ld_tiles_uvec4(16 * gl_WorkGroupID.y);
  uint o = gl_WorkGroupID.x * WG * EXTRA + TID, row = min(o, uint(D_MODEL - 1)), row2 = min(o + WG, uint(D_MODEL - 1));
  uint64_t matrix = pc.down + tile.x * DECODE(FMT, mat_stride)(D_FF, D_MODEL);
  for (uint i0 = 0; i0 < tile.z; i0 += TILE_ROWS) {
    uint pair[TILE_ROWS], offset[TILE_ROWS];
    [[unroll]] for (uint j = 0; j < TILE_ROWS; j++) {
      pair[j] = ld_pairs_uint(4 * (tile.y + min(i0 + j, tile.z - 1)));
      offset[j] = pair[j] * D_FF;
    }
    float acc[TILE_ROWS], acc2[TILE_ROWS];
    tile_zero(acc);
    tile_zero(acc2);
    UNIT_BLOCKS(FMT, u0, D_FF / 32) {
      DECODE(FMT, block) b = DECODE(FMT, open)(F_down, matrix, D_FF, D_MODEL, row, u0), b2;
      if (PAIRED) b2 = DECODE(FMT, open)(F_down, matrix, D_FF, D_MODEL, row2, u0);
      UNIT_EACH(FMT, u, u0) {
        DECODE(FMT, unit) w = DECODE(FMT, load)(b, F_down, matrix, D_FF, D_MODEL, row, u), w2;
        act a[TILE_ROWS];
        tile_load(F_h, pc.h, offset, DECODE(FMT, base)(u), DECODE(FMT, STEP), a);
        if (PAIRED) {
          w2 = DECODE(FMT, load)(b2, F_down, matrix, D_FF, D_MODEL, row2, u);
          TILE_ADD_TWO(FMT, w, w2, F_h, a, acc, acc2)
        } else {
          TILE_ADD(FMT, w, F_h, a, acc)
        }
      }
    }
    store(acc, tile.x, o, pair, tile.z - i0);
    if (PAIRED) store(acc2, tile.x, o + WG, pair, tile.z - i0);
  }
}
