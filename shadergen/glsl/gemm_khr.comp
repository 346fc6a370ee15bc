/* gemm_khr.comp: matrix times many rows on subgroup matrices. A workgroup takes TM rows and EXTRA outputs. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_gemm_khr
#include "prelude.glsl"
#include "formats.glsl"
#define K_SIZE N_IN
#define N_SIZE N_OUT
#define FIELD_X F_x
#define FIELD_0 F_weight
#define FMT_0 FMT
#include "matrix.glsl"

void put(uint r, uint o, float sum[PLANES]) {
  uint64_t p = 4 * (uint64_t(gl_WorkGroupID.y * TM + r) * Y_STRIDE + gl_WorkGroupID.z * N_OUT + o);
  float y = sum[0];
  if (BIAS != 0) y += ld_bias_float(4 * o);
  if (SCALE != 1.0) y *= SCALE;
  if (RESIDUAL != 0) y += ld_y_float(p);
  st_y_float(p, y);
}

void main() {
  uint n_live = min(step_word(ROWSEL != 0 ? IMG_STEP_N_SELECT : IMG_STEP_N_ROW), uint(N_ROW)), r0 = gl_WorkGroupID.y * TM;
  if (r0 >= n_live) return;
  codebook_stage();
  for (uint r = TID; r < TM; r += WG)
    tile_row(r, r0 + r < n_live ? (ROWSEL != 0 ? step_select(r0 + r, IMG_SELECT_ROW) : r0 + r) * X_STRIDE + gl_WorkGroupID.z * N_IN : NO_ROW);
  uint64_t matrix = pc.weight + gl_WorkGroupID.z * DECODE(FMT, mat_stride)(N_IN, N_OUT);
  matrix_run(pc.x, matrix, 0, gl_WorkGroupID.x * TN, min(n_live - r0, uint(TM)));
}
