/* expert_down_gemm_khr.comp: second half of the feed-forward network for many rows on subgroup matrices. A workgroup takes a tile of an
 * expert's pairs and EXTRA outputs. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_expert_down_gemm_khr
#include "prelude.glsl"
#include "formats.glsl"
#define K_SIZE D_FF
#define N_SIZE D_MODEL
#define FIELD_X F_h
#define FIELD_0 F_down
#define FMT_0 FMT
#include "matrix.glsl"

shared uint pair_of[TM];
uint64_t bias_at;

void put(uint r, uint o, float y[PLANES]) {
  float bias = BIAS != 0 ? ld_bias_float(bias_at + 4 * o) : 0.0;
  st_y_float(4 * (uint64_t(pair_of[r]) * D_MODEL + o), y[0] + bias);
}

void main() {
  uvec4 tile = ld_tiles_uvec4(16 * gl_WorkGroupID.y);
  if (tile.z == 0) return;
  codebook_stage();
  for (uint r = TID; r < TM; r += WG) {
    if (r < tile.z) pair_of[r] = ld_pairs_uint(4 * (tile.y + r));
    tile_row(r, r < tile.z ? pair_of[r] * D_FF : NO_ROW);
  }
  bias_at = tile.x * plane_row(D_MODEL, 1, 4);
  matrix_run(pc.h, pc.down + tile.x * DECODE(FMT, mat_stride)(D_FF, D_MODEL), 0, gl_WorkGroupID.x * TN, tile.z);
}
