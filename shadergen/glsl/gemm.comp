/* gemm.comp: matrix times many rows. A workgroup takes a tile of TM rows, eight at a time, and WG * EXTRA outputs; an invocation EXTRA
 * (1 or 2) of them. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_gemm
#include "prelude.glsl"
#include "formats.glsl"
#include "act.glsl"
#include "weight.glsl"
#include "tile.glsl"

#define PAIRED (EXTRA == 2)

uint y_column; /* of the matrix's first output */

void store(float acc[TILE_ROWS], uint o, uint r0, uint n_live) {
  if (o >= N_OUT) return;
  [[unroll]] for (uint j = 0; j < TILE_ROWS; j++) {
    if (r0 + j >= n_live) break;
    uint64_t p = 4 * (uint64_t(r0 + j) * Y_STRIDE + y_column + o);
    float y = acc[j];
    if (BIAS != 0) y += ld_bias_float(4 * o);
    if (SCALE != 1.0) y *= SCALE;
    if (RESIDUAL != 0) y += ld_y_float(p);
    st_y_float(p, y);
  }
}

void main() {
  codebook_stage();
  uint n_live = min(step_word(ROWSEL != 0 ? IMG_STEP_N_SELECT : IMG_STEP_N_ROW), uint(N_ROW));
  uint o = gl_WorkGroupID.x * WG * EXTRA + TID, row = min(o, uint(N_OUT - 1)), row2 = min(o + WG, uint(N_OUT - 1));
  uint mat = N_MAT > 1 ? gl_WorkGroupID.z : 0;
  uint64_t matrix = pc.weight + mat * DECODE(FMT, mat_stride)(N_IN, N_OUT);
  y_column = mat * N_OUT;
  for (uint sub = 0; sub < TM / TILE_ROWS; sub++) {
    uint r0 = gl_WorkGroupID.y * TM + sub * TILE_ROWS, offset[TILE_ROWS];
    if (r0 >= n_live) break;
    [[unroll]] for (uint j = 0; j < TILE_ROWS; j++) {
      uint r = min(r0 + j, n_live - 1);
      offset[j] = (ROWSEL != 0 ? step_select(r, IMG_SELECT_ROW) : r) * X_STRIDE + mat * N_IN;
    }
    float acc[TILE_ROWS], acc2[TILE_ROWS];
    tile_zero(acc);
    tile_zero(acc2);
    UNIT_BLOCKS(FMT, u0, N_IN / 32) {
      DECODE(FMT, block) b = DECODE(FMT, open)(F_weight, matrix, N_IN, N_OUT, row, u0), b2;
      if (PAIRED) b2 = DECODE(FMT, open)(F_weight, matrix, N_IN, N_OUT, row2, u0);
      UNIT_EACH(FMT, u, u0) {
        DECODE(FMT, unit) w = DECODE(FMT, load)(b, F_weight, matrix, N_IN, N_OUT, row, u), w2;
        act a[TILE_ROWS];
        tile_load(F_x, pc.x, offset, DECODE(FMT, base)(u), DECODE(FMT, STEP), a);
        if (PAIRED) {
          w2 = DECODE(FMT, load)(b2, F_weight, matrix, N_IN, N_OUT, row2, u);
          TILE_ADD_TWO(FMT, w, w2, F_x, a, acc, acc2)
        } else {
          TILE_ADD(FMT, w, F_x, a, acc)
        }
      }
    }
    store(acc, o, r0, n_live);
    if (PAIRED) store(acc2, o + WG, r0, n_live);
  }
}
