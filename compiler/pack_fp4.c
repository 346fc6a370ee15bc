/* pack_fp4.c: planes of the formats whose quants are 4-bit floats.
 *
 * Owns: MXFP4. Does not own: their definitions (dequant_fp4.c), strides (pack.c). Formulas: PLANES.md.
 */
#include "pack.h"

#include "dequant.h"
#include "pack_unit.h"

/* A unit's nibbles to twice their values, four a word, by the packed formula that kernels use. */
static void fp4_values(const uint8_t *unit, float value[PACK_UNIT]) {
  uint8_t q[PACK_UNIT];
  pack_get_nibbles(unit, q);
  for (int e = 0; e < PACK_UNIT; e += 4) {
    uint32_t w = dequant_u32(q + e), m = w & 0x07070707u, big = (m >> 2) & 0x01010101u;
    m += (m & big * 3) + ((big & m & (m >> 1)) << 1);
    uint32_t biased = 0x10101010u + m - ((m & ((w >> 3) & 0x01010101u) * 15) << 1);
    for (int b = 0; b < 4; b++) value[e + b] = (float)((int)((biased >> (8 * b)) & 255) - 16);
  }
}

void pack_mxfp4_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 17) {
    memcpy(sub[0] + 16 * i, src + 1, 16); /* the GGUF's order is a unit's */
    sub[1][i] = src[0];
  }
}

void pack_mxfp4_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, dst += PACK_UNIT) {
    float d = dequant_e8m0_half(sub[1][i]), value[PACK_UNIT];
    fp4_values(sub[0] + 16 * i, value);
    for (int e = 0; e < PACK_UNIT; e++) dst[e] = value[e] * d;
  }
}
