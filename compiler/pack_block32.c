/* pack_block32.c: planes of the formats with 32-weight blocks.
 *
 * Owns: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0. Does not own: their definitions (dequant_block32.c), strides (pack.c). Formulas:
 * PLANES.md.
 */
#include "pack.h"

#include "dequant.h"
#include "pack_unit.h"

enum { N = 32 }; /* weights a block */

void pack_q4_0_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 18) {
    memcpy(sub[0] + 16 * i, src + 2, 16); /* the GGUF's order is a unit's */
    memcpy(sub[1] + 2 * i, src, 2);
  }
}

void pack_q4_0_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, dst += N) {
    float d = dequant_f16(dequant_u16(sub[1] + 2 * i));
    uint8_t q[PACK_UNIT];
    pack_get_nibbles(sub[0] + 16 * i, q);
    for (int e = 0; e < N; e++) dst[e] = (float)(q[e] - 8) * d;
  }
}

/* Four bits, one in each byte's lowest: bit b moves to bit 8b. (The factor copies the bits to 0, 7, 14 and 21; the mask
 * keeps bit b of copy b.) */
static uint32_t spread_bits(uint32_t bits) {
  return (bits * 0x00204081u) & 0x01010101u;
}

/* The unit's word of high bits from the GGUF's 4 bytes, where bit e belongs to weight e. */
static uint32_t high_word(uint32_t high) {
  uint32_t word = 0;
  for (int k = 0; k < 4; k++) {
    word |= spread_bits((high >> (4 * k)) & 15) << k;
    word |= spread_bits((high >> (16 + 4 * k)) & 15) << (4 + k);
  }
  return word;
}

void pack_q5_0_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 22) {
    memcpy(sub[0] + 16 * i, src + 6, 16);
    pack_put_u32(sub[1] + 4 * i, high_word(dequant_u32(src + 2)));
    memcpy(sub[2] + 2 * i, src, 2);
  }
}

void pack_q5_0_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, dst += N) {
    float d = dequant_f16(dequant_u16(sub[2] + 2 * i));
    uint8_t q[PACK_UNIT];
    pack_get_nibbles(sub[0] + 16 * i, q);
    pack_get_bits1(sub[1] + 4 * i, 4, q);
    for (int e = 0; e < N; e++) dst[e] = (float)(q[e] - 16) * d;
  }
}

void pack_q4_1_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 20) {
    memcpy(sub[0] + 16 * i, src + 4, 16);
    memcpy(sub[1] + 4 * i, src, 4);
  }
}

void pack_q5_1_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 24) {
    memcpy(sub[0] + 16 * i, src + 8, 16);
    pack_put_u32(sub[1] + 4 * i, high_word(dequant_u32(src + 4)));
    memcpy(sub[2] + 4 * i, src, 4);
  }
}

/* A block of 32 quants with scale and minimum. */
static void read_scaled(const uint8_t *scales, const uint8_t q[PACK_UNIT], float *dst) {
  float d = dequant_f16(dequant_u16(scales)), m = dequant_f16(dequant_u16(scales + 2));
  for (int e = 0; e < N; e++) dst[e] = (float)q[e] * d + m;
}

void pack_q4_1_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, dst += N) {
    uint8_t q[PACK_UNIT];
    pack_get_nibbles(sub[0] + 16 * i, q);
    read_scaled(sub[1] + 4 * i, q, dst);
  }
}

void pack_q5_1_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, dst += N) {
    uint8_t q[PACK_UNIT];
    pack_get_nibbles(sub[0] + 16 * i, q);
    pack_get_bits1(sub[1] + 4 * i, 4, q);
    read_scaled(sub[2] + 4 * i, q, dst);
  }
}

void pack_q8_0_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 34) {
    memcpy(sub[0] + N * i, src + 2, N);
    memcpy(sub[1] + 2 * i, src, 2);
  }
}

void pack_q8_0_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, dst += N) {
    float d = dequant_f16(dequant_u16(sub[1] + 2 * i));
    for (int e = 0; e < N; e++) dst[e] = (float)(int8_t)sub[0][N * i + (uint64_t)e] * d;
  }
}
