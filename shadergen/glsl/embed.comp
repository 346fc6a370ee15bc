/* embed.comp: rows of the embedding table. One invocation: 32 elements of a row. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_embed
#include "prelude.glsl"
#include "formats.glsl"

void main() {
  codebook_stage();
  uint u = gl_WorkGroupID.x * WG + TID, r = gl_WorkGroupID.y;
  if (u >= D_MODEL / 32 || r >= step_word(IMG_STEP_N_ROW)) return;
  uint token = step_row_token(r);
  if (int(token) == IMG_TOKEN_FROM_SLOT)
    token = ld_slot_uint(4 * (step_row_slot(r) * IMG_SLOT_WORDS + IMG_SLOT_TOKEN));
  token = min(token, uint(N_VOCAB - 1));
  DECODE(FMT, block) b = DECODE(FMT, open)(F_weight, pc.weight, D_MODEL, N_VOCAB, token, u);
  DECODE(FMT, unit) w = DECODE(FMT, load)(b, F_weight, pc.weight, D_MODEL, N_VOCAB, token, u);
  uint64_t y = 4 * (uint64_t(r) * D_MODEL + DECODE(FMT, base)(u));
  for (uint k = 0; k < ROLLED(4); k++) {
    st_x_vec4(y + 16 * k, DECODE(FMT, lo)(w, k) * SCALE);
    st_x_vec4(y + 4 * DECODE(FMT, STEP) + 16 * k, DECODE(FMT, hi)(w, k) * SCALE);
  }
}
