/* dequant_fp4.c: the definitions of the formats whose quants are 4-bit floats (E2M1: sign, two exponent bits, one
 * mantissa bit).
 *
 * Owns: MXFP4; the values of E2M1. Does not own: their planes (pack_fp4.c).
 * Source: block_mxfp4, kvalues_mxfp4 and the conversion of E8M0 in ggml-common.h, ggml-impl.h and ggml-quants.c (see
 * dequant.h); OCP Microscaling Formats (MX) specification 1.0 for E2M1 and E8M0. */
#include "dequant.h"

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
