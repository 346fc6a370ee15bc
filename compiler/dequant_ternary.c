/* dequant_ternary.c: the definitions of the formats with quants -1, 0 and 1.
 *
 * Owns: TQ1_0, TQ2_0. Does not own: their planes (pack_ternary.c).
 * Source: block_tq1_0, block_tq2_0 in ggml-common.h and their dequantizers in ggml-quants.c (see dequant.h). */
#include "dequant.h"

enum { N = 256 }; /* weights a block */

/* Digit n (0..4) of a byte that holds five base-3 digits, the first most significant, as a fraction of 256: multiplied
 * by 3^n, what overflows is dropped, and a third of the byte's range each is one digit. */
static int digit(uint8_t byte, int n) {
  static const uint8_t power[5] = {1, 3, 9, 27, 81};
  uint8_t rest = (uint8_t)(byte * power[n]);
  return rest * 3 >> 8;
}

/* 48 bytes of five weights each, 4 bytes of four, d f16. Weight 32n + k (n 0..4, k 0..31) is digit n of byte k, weight
 * 160 + 16n + k digit n of byte 32 + k (k 0..15), weight 240 + 4n + k (n 0..3) digit n of byte 48 + k (k 0..3).
 * w = (digit - 1) * d. */
void dequant_tq1_0_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 54, dst += N) {
    float d = dequant_f16(dequant_u16(src + 52));
    for (int e = 0; e < 160; e++) dst[e] = (float)(digit(src[e % 32], e / 32) - 1) * d;
    for (int e = 0; e < 80; e++) dst[160 + e] = (float)(digit(src[32 + e % 16], e / 16) - 1) * d;
    for (int e = 0; e < 16; e++) dst[240 + e] = (float)(digit(src[48 + e % 4], e / 4) - 1) * d;
  }
}

/* 64 bytes of quants, d f16. In each half of 128 weights (32 bytes), weight 32j + k (j 0..3) has its quant at bits 2j
 * of byte k. w = (q - 1) * d. */
void dequant_tq2_0_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 66, dst += N) {
    float d = dequant_f16(dequant_u16(src + 64));
    for (int e = 0; e < N; e++) dst[e] = (float)(((src[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2)) & 3) - 1) * d;
  }
}
