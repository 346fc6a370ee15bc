/* dequant_k.c: the definitions of the K formats: super-blocks of 256 weights with f16 super-scales and small integer
 * scales.
 *
 * Owns: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K. Does not own: the 32-blocks (dequant_block32.c).
 * Source: block_q2_K to block_q6_K and the packing of their 6-bit scales in ggml-common.h and ggml-quants.c
 * (see dequant.h). */
#include "dequant.h"

enum { N = 256 }; /* weights a super-block */

/* 16 bytes of scales, 64 of quants, d, dmin f16. In each half of 128 weights (32 bytes), weight 32j + k (j 0..3) has
 * its quant at bits 2j of byte k; a sub-block is 16 weights, with its scale in the low and its minimum in the high
 * nibble of its byte. w = (d * scale) * q - dmin * minimum. */
void dequant_q2_k_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 84, dst += N) {
    float d = dequant_f16(dequant_u16(src + 80)), dmin = dequant_f16(dequant_u16(src + 82));
    for (int sub = 0; sub < 16; sub++) {
      const uint8_t *quants = src + 16 + 32 * (sub / 8) + 16 * (sub % 2);
      float d1 = d * (float)(src[sub] & 15), m1 = dmin * (float)(src[sub] >> 4);
      for (int k = 0; k < 16; k++) dst[16 * sub + k] = d1 * (float)((quants[k] >> (sub % 8 / 2 * 2)) & 3) - m1;
    }
  }
}

/* 32 bytes of high bits, 64 of quants as in Q2_K, 12 of scales, d f16. Bit j (0..7) of high byte k belongs to weight
 * 32j + k. The 6-bit scale of 16-weight sub-block i has its low bits in the low (i < 8) or high nibble of byte i % 8,
 * its high bits at 2 * (i / 4) of byte 8 + i % 4. w = (d * (scale - 32)) * (q - 4). */
void dequant_q3_k_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 110, dst += N) {
    const uint8_t *scales = src + 96;
    float d = dequant_f16(dequant_u16(src + 108));
    for (int sub = 0; sub < 16; sub++) {
      const uint8_t *high = src + 16 * (sub % 2), *quants = src + 32 + 32 * (sub / 8) + 16 * (sub % 2);
      int scale = ((scales[sub % 8] >> (sub / 8 * 4)) & 15) | ((scales[8 + sub % 4] >> (sub / 4 * 2)) & 3) << 4;
      float d1 = d * (float)(scale - 32);
      for (int k = 0; k < 16; k++) {
        int q = ((quants[k] >> (sub % 8 / 2 * 2)) & 3) | ((high[k] >> (sub / 2)) & 1) << 2;
        dst[16 * sub + k] = d1 * (float)(q - 4);
      }
    }
  }
}

/* The 6-bit scale and minimum of 32-weight sub-block j (0..7) from the 12 bytes that Q4_K and Q5_K share: sub-blocks
 * 0..3 have theirs in the low six bits of bytes j and 4 + j; sub-blocks 4..7 have four low bits in byte 4 + j (scale
 * low, minimum high nibble) and two high bits on top of bytes j - 4 and j. */
static void scale_and_minimum(const uint8_t *s, int j, int *scale, int *minimum) {
  if (j < 4) {
    *scale = s[j] & 63;
    *minimum = s[4 + j] & 63;
  } else {
    *scale = (s[4 + j] & 15) | (s[j - 4] >> 6) << 4;
    *minimum = (s[4 + j] >> 4) | (s[j] >> 6) << 4;
  }
}

/* d, dmin f16, 12 bytes of scales, 128 bytes: byte j of group g (32 bytes) has the quant of weight 64g + j in its low
 * and of weight 64g + 32 + j in its high nibble. w = (d * scale) * q - dmin * minimum. */
void dequant_q4_k_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 144, dst += N) {
    float d = dequant_f16(dequant_u16(src)), dmin = dequant_f16(dequant_u16(src + 2));
    const uint8_t *quants = src + 16;
    for (int j = 0; j < 8; j++) {
      int scale, minimum, shift = 4 * (j & 1);
      scale_and_minimum(src + 4, j, &scale, &minimum);
      float d1 = d * (float)scale, m1 = dmin * (float)minimum;
      for (int k = 0; k < 32; k++) dst[32 * j + k] = d1 * (float)((quants[32 * (j / 2) + k] >> shift) & 15) - m1;
    }
  }
}

/* As Q4_K, with 32 bytes of high bits between scales and quants: bit j of byte k belongs to weight 32j + k. */
void dequant_q5_k_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 176, dst += N) {
    float d = dequant_f16(dequant_u16(src)), dmin = dequant_f16(dequant_u16(src + 2));
    const uint8_t *high = src + 16, *quants = src + 48;
    for (int j = 0; j < 8; j++) {
      int scale, minimum, shift = 4 * (j & 1);
      scale_and_minimum(src + 4, j, &scale, &minimum);
      float d1 = d * (float)scale, m1 = dmin * (float)minimum;
      for (int k = 0; k < 32; k++) {
        int q = ((quants[32 * (j / 2) + k] >> shift) & 15) | ((high[k] >> j) & 1) << 4;
        dst[32 * j + k] = d1 * (float)q - m1;
      }
    }
  }
}

/* 128 bytes of low nibbles, 64 bytes of 2-bit highs, 16 signed scales, d f16. In each half of 128 weights (64 + 32 + 8
 * bytes), weight 32j + k (j 0..3) has its low nibble in byte 32 * (j & 1) + k, low half of the byte for j < 2, and its
 * high bits at 2j of byte k. w = (d * scale of its 16) * (q - 32). */
void dequant_q6_k_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 210, dst += N) {
    float d = dequant_f16(dequant_u16(src + 208));
    for (int sub = 0; sub < 16; sub++) { /* 16 weights with one scale: 32j + k of a half, k from 0 or from 16 */
      int half = sub / 8, j = sub % 8 / 2, first = 16 * (sub % 2);
      const uint8_t *low = src + 64 * half + 32 * (j & 1) + first, *high = src + 128 + 32 * half + first;
      float d1 = d * (float)(int8_t)src[192 + sub];
      for (int k = 0; k < 16; k++) {
        int q = ((low[k] >> (4 * (j / 2))) & 15) | ((high[k] >> (2 * j)) & 3) << 4;
        dst[16 * sub + k] = d1 * (float)(q - 32);
      }
    }
  }
}
