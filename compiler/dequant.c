/* dequant.c: dequant_row, and the formats without blocks (F32, F16, BF16). See dequant.h. */
#include "dequant.h"

void dequant_row(const struct format *f, const void *src, float *dst, uint64_t n) {
  f->dequant_row(src, dst, n / f->elements);
}

/* Values are little-endian, as is every machine that moec runs on. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "moec reads and writes little-endian files in place");

void dequant_f32_row(const uint8_t *src, float *dst, uint64_t n_block) {
  memcpy(dst, src, n_block * sizeof *dst);
}

void dequant_f16_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++) dst[i] = dequant_f16(dequant_u16(src + 2 * i));
}

void dequant_bf16_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++) dst[i] = dequant_bf16(dequant_u16(src + 2 * i));
}
