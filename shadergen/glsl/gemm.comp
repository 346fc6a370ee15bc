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

void load_weight(uint o, uint u, out weight w) {
  DECODE(FMT, unit) unit = DECODE(FMT, load)(F_weight, pc.weight, N_IN, N_OUT, min(o, uint(N_OUT - 1)), u);
  WEIGHT_DECODE(FMT, w, unit)
}
void store(float acc[TILE_ROWS], uint o, uint r0, uint n_live) {
  if (o >= N_OUT) return;
  [[unroll]] for (uint j = 0; j < TILE_ROWS; j++) {
    if (r0 + j >= n_live) break;
    uint64_t p = 4 * (uint64_t(r0 + j) * Y_STRIDE + o);
    float y = acc[j];
    if (BIAS != 0) y += ld_bias_float(4 * o);
    if (RESIDUAL != 0) y += ld_y_float(p);
    st_y_float(p, y);
  }
}

void main() {
  uint n_live = min(step_word(ROWSEL != 0 ? IMG_STEP_N_SELECT : IMG_STEP_N_ROW), uint(N_ROW));
  uint o = gl_WorkGroupID.x * WG * EXTRA + TID;
  for (uint sub = 0; sub < TM / TILE_ROWS; sub++) {
    uint r0 = gl_WorkGroupID.y * TM + sub * TILE_ROWS, offset[TILE_ROWS];
    if (r0 >= n_live) break;
    [[unroll]] for (uint j = 0; j < TILE_ROWS; j++) {
      uint r = min(r0 + j, n_live - 1);
      offset[j] = (ROWSEL != 0 ? step_select(r, IMG_SELECT_ROW) : r) * X_STRIDE;
    }
    float acc[TILE_ROWS], acc2[TILE_ROWS];
    tile_zero(acc);
    tile_zero(acc2);
    for (uint u = 0; u < N_IN / 32; u++) {
      weight w, w2;
      load_weight(o, u, w);
      if (EXTRA == 2) {
        load_weight(o + WG, u, w2);
        tile_add2(w, w2, F_x, pc.x, offset, DECODE(FMT, base)(u), DECODE(FMT, STEP), acc, acc2);
      } else {
        tile_add(w, F_x, pc.x, offset, DECODE(FMT, base)(u), DECODE(FMT, STEP), acc);
      }
    }
    store(acc, o, r0, n_live);
    if (EXTRA == 2) store(acc2, o + WG, r0, n_live);
  }
}
