/* pack_fp4.c: planes of the formats whose quants are 4-bit floats.
 *
 * Owns: MXFP4, NVFP4. Does not own: their definitions (dequant_fp4.c), strides (pack.c). Formulas: PLANES.md.
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

/* Unit u has sub-block 2u in its low nibbles and 2u + 1 in its high ones; a sub-block's weights 8 .. 15 are the high
 * nibbles of its eight bytes. */
void pack_nvfp4_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 36) {
    for (int u = 0; u < 2; u++)
      for (int k = 0; k < 4; k++) {
        const uint8_t *low = src + 4 + 16 * u + 4 * (k % 2);
        uint32_t a = dequant_u32(low) >> (4 * (k / 2)), b = dequant_u32(low + 8) >> (4 * (k / 2));
        pack_put_u32(sub[0] + 32 * i + 16 * u + 4 * k, (a & 0x0f0f0f0fu) | (b & 0x0f0f0f0fu) << 4);
      }
    memcpy(sub[1] + 4 * i, src, 4);
  }
}

/* Half of what UE4M3 bits mean, by PLANES.md's formula: a float's exponent and mantissa have the same order. */
static float ue4m3_half(uint32_t x) {
  uint32_t bits = ((x & 127) << 20) + (119u << 23);
  float normal;
  memcpy(&normal, &bits, sizeof normal);
  return x == 127 ? 0.0f : (x & 120) == 0 ? (float)(x & 7) * 0x1p-10f : normal;
}

void pack_nvfp4_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++)
    for (int u = 0; u < 2; u++, dst += PACK_UNIT) {
      uint32_t scales = dequant_u32(sub[1] + 4 * i) >> (16 * u);
      float d_low = ue4m3_half(scales & 255), d_high = ue4m3_half((scales >> 8) & 255), value[PACK_UNIT];
      fp4_values(sub[0] + 32 * i + 16 * u, value);
      for (int e = 0; e < 16; e++) {
        dst[e] = value[e] * d_low;
        dst[16 + e] = value[16 + e] * d_high;
      }
    }
}
