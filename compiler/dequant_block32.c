/* dequant_block32.c: the definitions of the formats with blocks of 32 weights and one f16 scale d, some with an f16
 * minimum m.
 *
 * Owns: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0. Does not own: the 256-blocks (dequant_k.c).
 * Source: block_q4_0, block_q4_1, block_q5_0, block_q5_1, block_q8_0 in ggml-common.h (see dequant.h). */
#include "dequant.h"

enum { N = 32 }; /* weights a block */

/* d f16, 16 bytes: byte j has the quant of weight j in its low and of weight 16 + j in its high nibble. w = (q - 8) *
 * d. */
void dequant_q4_0_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 18, dst += N) {
    float d = dequant_f16(dequant_u16(src));
    for (int j = 0; j < N / 2; j++) {
      int q = src[2 + j];
      dst[j] = (float)((q & 15) - 8) * d;
      dst[N / 2 + j] = (float)((q >> 4) - 8) * d;
    }
  }
}

/* d f16, 4 bytes of high bits (bit j belongs to weight j), 16 bytes of nibbles as in Q4_0. w = (q - 16) * d. */
void dequant_q5_0_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 22, dst += N) {
    float d = dequant_f16(dequant_u16(src));
    uint32_t high = dequant_u32(src + 2);
    for (int j = 0; j < N / 2; j++) {
      int q = src[6 + j];
      int low = (q & 15) | (int)((high >> j) & 1) << 4;
      int up = (q >> 4) | (int)((high >> (N / 2 + j)) & 1) << 4;
      dst[j] = (float)(low - 16) * d;
      dst[N / 2 + j] = (float)(up - 16) * d;
    }
  }
}

/* d, m f16, 16 bytes of nibbles as in Q4_0. w = q * d + m. */
void dequant_q4_1_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 20, dst += N) {
    float d = dequant_f16(dequant_u16(src)), m = dequant_f16(dequant_u16(src + 2));
    for (int j = 0; j < N / 2; j++) {
      dst[j] = (float)(src[4 + j] & 15) * d + m;
      dst[N / 2 + j] = (float)(src[4 + j] >> 4) * d + m;
    }
  }
}

/* d, m f16, 4 bytes of high bits and 16 of nibbles as in Q5_0. w = q * d + m. */
void dequant_q5_1_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 24, dst += N) {
    float d = dequant_f16(dequant_u16(src)), m = dequant_f16(dequant_u16(src + 2));
    uint32_t high = dequant_u32(src + 4);
    for (int j = 0; j < N / 2; j++) {
      int q = src[8 + j];
      dst[j] = (float)((q & 15) | (int)((high >> j) & 1) << 4) * d + m;
      dst[N / 2 + j] = (float)((q >> 4) | (int)((high >> (N / 2 + j)) & 1) << 4) * d + m;
    }
  }
}

/* d f16, 32 signed bytes. w = q * d. */
void dequant_q8_0_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 34, dst += N) {
    float d = dequant_f16(dequant_u16(src));
    for (int j = 0; j < N; j++) dst[j] = (float)(int8_t)src[2 + j] * d;
  }
}
