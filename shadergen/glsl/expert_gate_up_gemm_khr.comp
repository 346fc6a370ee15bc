/* expert_gate_up_gemm_khr.comp: first half of the feed-forward network for many rows on subgroup matrices. A workgroup takes a tile of an
 * expert's pairs and EXTRA outputs. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_expert_gate_up_gemm_khr
#include "prelude.glsl"
#include "formats.glsl"
#include "glu.glsl"
#define K_SIZE D_MODEL
#define N_SIZE D_FF
#define FIELD_X F_xn
#define FIELD_0 F_gate
#define FMT_0 FMT_GATE
#define FIELD_1 F_up
#define FMT_1 FMT_UP
#define PLANES 2
#include "matrix.glsl"

shared uint pair_of[TM];
uint64_t bias_at;

void put(uint r, uint o, float y[PLANES]) {
  if (BIAS != 0) {
    y[0] += ld_gate_bias_float(bias_at + 4 * o);
    y[1] += ld_up_bias_float(bias_at + 4 * o);
  }
  st_h_float(4 * (uint64_t(pair_of[r]) * D_FF + o), glu(y[0], y[1]));
}

void main() {
  uint n_live = min(step_word(IMG_STEP_N_ROW), uint(N_ROW));
  uvec4 tile = ROUTED != 0 ? ld_tiles_uvec4(16 * gl_WorkGroupID.y) : uvec4(0, gl_WorkGroupID.y * TM, 0, 0);
  if (ROUTED == 0) tile.z = tile.y < n_live ? min(uint(TM), n_live - tile.y) : 0;
  if (tile.z == 0) return;
  codebook_stage();
  for (uint r = TID; r < TM; r += WG) {
    if (r < tile.z) pair_of[r] = ROUTED != 0 ? ld_pairs_uint(4 * (tile.y + r)) : tile.y + r;
    tile_row(r, r < tile.z ? pair_of[r] / N_EXPERT_USED * D_MODEL : NO_ROW);
  }
  bias_at = tile.x * plane_row(D_FF, 1, 4);
  matrix_run(pc.xn, pc.gate + tile.x * DECODE(FMT_GATE, mat_stride)(D_MODEL, D_FF),
             pc.up + tile.x * DECODE(FMT_UP, mat_stride)(D_MODEL, D_FF), gl_WorkGroupID.x * TN, tile.z);
}
