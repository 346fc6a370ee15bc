/* dequant.h: weights as floats, from each format's definition. The oracle that planes and kernels are compared with.
 *
 * Owns: dequant_row, the per-format row functions, f16 and bf16 to f32. Does not own: planes (pack.h).
 * Invariants: float operations are done one by one in the order ggml's reference dequantizers have (no fused
 * multiply-add, no reassociation; the library is compiled with -ffp-contract=off), so the floats are those of any
 * engine that follows the definition. Source: ggml's block structures and reference dequantizers
 * (github.com/ggml-org/ggml, ggml-common.h, ggml-quants.c). */
#ifndef COMPILER_DEQUANT_H
#define COMPILER_DEQUANT_H

#include "formats.h"

#include <stdint.h>
#include <string.h>

/* Dequantizes the n weights of one row (or of any run of whole blocks).
 * f: a compiled format. src: n / f->elements * f->bytes bytes, any alignment. dst: n floats. n: a multiple of
 * f->elements. Cannot fail; any bytes are a valid row. Threads: pure. */
void dequant_row(const struct format *f, const void *src, float *dst, uint64_t n);

/* IEEE binary16 bits to float, exact; NaN payloads keep their bits, shifted up. */
static inline float dequant_f16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 0x3ffu, bits;
  if (exponent == 31) {
    bits = sign | 0x7f800000u | (mantissa << 13);
  } else if (exponent != 0) {
    bits = sign | ((exponent + 112) << 23) | (mantissa << 13);
  } else {
    float magnitude =
        (float)mantissa * 0x1p-24f; /* zero and denormals: a small integer times a power of two is exact */
    memcpy(&bits, &magnitude, sizeof bits);
    bits |= sign;
  }
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* bfloat16 bits to float, exact. */
static inline float dequant_bf16(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Half of what E8M0 bits mean, 2^(e - 127): exact, down to denormals. 255 is 2^127 here and not NaN, as ggml has it. */
static inline float dequant_e8m0_half(uint8_t e) {
  uint32_t bits = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Twice the value of each E2M1 quant (dequant_fp4.c). */
extern const int8_t dequant_fp4_values[16];

/* Little-endian scalars at any alignment. */
static inline uint16_t dequant_u16(const uint8_t *p) {
  return (uint16_t)(p[0] | p[1] << 8);
}
static inline uint32_t dequant_u32(const uint8_t *p) {
  return dequant_u16(p) | (uint32_t)dequant_u16(p + 2) << 16;
}

/* struct format's dequant_row of every compiled format: dequant_f32_row, dequant_q4_k_row, ... */
#define FORMAT_COMPILED(number, name, symbol, elements, bytes, ...)                                                    \
  void dequant_##symbol##_row(const uint8_t *src, float *dst, uint64_t n_block);
#define FORMAT_NAMED(number, name, elements, bytes)
#include "formats.def"

#endif
