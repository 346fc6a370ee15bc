/* dequant_fp4.c: the definitions of the formats whose quants are 4-bit floats (E2M1: sign, two exponent bits, one
 * mantissa bit).
 *
 * Owns: MXFP4, NVFP4; the values of E2M1. Does not own: their planes (pack_fp4.c).
 * Source: block_mxfp4, block_nvfp4, kvalues_mxfp4 and the conversions of E8M0 and UE4M3 in ggml-common.h, ggml-impl.h
 * and ggml-quants.c (see dequant.h); OCP Microscaling Formats (MX) specification 1.0 for E2M1 and E8M0. */
#include "dequant.h"

#include <math.h>

/* Twice the value that E2M1 gives a quant, so that all are integers; scales are halved in turn. Minus zero is zero. */
const int8_t dequant_fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* e E8M0, 16 bytes of nibbles as in Q4_0. w = value * 2^(e - 128). */
void dequant_mxfp4_row(const uint8_t *src, float *dst, uint64_t n_block) {
  enum { N = 32 };
  for (uint64_t i = 0; i < n_block; i++, src += 17, dst += N) {
    float d = dequant_e8m0_half(src[0]);
    for (int j = 0; j < N / 2; j++) {
      dst[j] = (float)dequant_fp4_values[src[1 + j] & 15] * d;
      dst[N / 2 + j] = (float)dequant_fp4_values[src[1 + j] >> 4] * d;
    }
  }
}

/* Half of what UE4M3 bits mean (four exponent bits of bias 7, three mantissa bits; bit 7 counts for nothing): exact.
 * 127, which would be NaN, is zero, as ggml has it. */
static float ue4m3_half(uint8_t x) {
  int exponent = (x >> 3) & 15, mantissa = x & 7;
  if (x == 127) return 0;
  return exponent == 0 ? ldexpf((float)mantissa, -10) : ldexpf((float)(8 + mantissa), exponent - 11);
}

/* 4 scales UE4M3, 32 bytes: sub-block j (0..3) of 16 weights has its scale in byte j and its quants in 8 bytes, weight
 * k (0..7) in the low and weight 8 + k in the high nibble of byte k. w = value * scale. */
void dequant_nvfp4_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 36)
    for (int j = 0; j < 4; j++, dst += 16) {
      float d = ue4m3_half(src[j]);
      for (int k = 0; k < 8; k++) {
        uint8_t pair = src[4 + 8 * j + k];
        dst[k] = (float)dequant_fp4_values[pair & 15] * d;
        dst[8 + k] = (float)dequant_fp4_values[pair >> 4] * d;
      }
    }
}
