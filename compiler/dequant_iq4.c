/* dequant_iq4.c: the definitions of the formats whose 4-bit quants number the sixteen values of a codebook.
 *
 * Owns: IQ4_NL, IQ4_XS, their codebook. Does not own: their planes (pack_iq4.c).
 * Source: block_iq4_nl, block_iq4_xs and kvalues_iq4nl in ggml-common.h and ggml-quants.c (see dequant.h). */
#include "dequant.h"

static const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* 32 weights of one scale: byte j has the quant of weight j in its low and of weight 16 + j in its high nibble. */
static void dequant_32(const uint8_t *quants, float d, float *dst) {
  for (int j = 0; j < 16; j++) {
    dst[j] = d * (float)values[quants[j] & 15];
    dst[16 + j] = d * (float)values[quants[j] >> 4];
  }
}

/* d f16, 16 bytes of quants. w = d * value. */
void dequant_iq4_nl_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 18, dst += 32) dequant_32(src + 2, dequant_f16(dequant_u16(src)), dst);
}

/* d f16, 2 bytes and 4 bytes of scales, 8 times 16 bytes of quants. The scale of 32-weight sub-block j (0..7) has its
 * four low bits in nibble j of the 4 bytes and its two high bits at 2j of the 2 bytes. w = (d * (scale - 32)) * value.
 */
void dequant_iq4_xs_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 136) {
    float d = dequant_f16(dequant_u16(src));
    uint32_t high = dequant_u16(src + 2), low = dequant_u32(src + 4);
    for (int j = 0; j < 8; j++, dst += 32) {
      int scale = (int)((low >> (4 * j)) & 15) | (int)((high >> (2 * j)) & 3) << 4;
      dequant_32(src + 8 + 16 * j, d * (float)(scale - 32), dst);
    }
  }
}
