/* pack_ternary.c: planes of the formats with quants -1, 0 and 1.
 *
 * Owns: TQ1_0, TQ2_0. Does not own: their definitions (dequant_ternary.c), strides (pack.c). Formulas: PLANES.md.
 * Invariants: unit u of a block holds elements 32u .. 32u + 31. */
#include "pack.h"

#include "dequant.h"
#include "pack_unit.h"

enum { N_UNIT = 8 }; /* a block */

void pack_tq1_0_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 54) {
    memcpy(sub[0] + 48 * i, src, 48);
    memcpy(sub[1] + 4 * i, src + 48, 4);
    memcpy(sub[2] + 2 * i, src + 52, 2);
  }
}

/* The digits of four bytes, by the packed formula that kernels use: two bytes at a time, as 16-bit halves. */
static uint32_t digits(uint32_t bytes, uint32_t power) {
  uint32_t even = ((bytes & 0x00ff00ffu) * power) & 0x00ff00ffu,
           odd = (((bytes >> 8) & 0x00ff00ffu) * power) & 0x00ff00ffu;
  return ((even * 3 >> 8) & 0x00030003u) | ((odd * 3) & 0x03000300u);
}

/* A run of 16 weights, from 16 bytes times one power of 3, or from the block's last 4 bytes times four powers. */
static void read_run(const uint8_t *quants, const uint8_t *tail, int run, float d, float *dst) {
  static const uint8_t power[5] = {1, 3, 9, 27, 81};
  uint8_t q[16] = {0};
  for (int k = 0; k < 4; k++) {
    uint32_t packed = run < 10   ? digits(dequant_u32(quants + 16 * (run % 2) + 4 * k), power[run / 2])
                      : run < 15 ? digits(dequant_u32(quants + 32 + 4 * k), power[run - 10])
                                 : digits(dequant_u32(tail), power[k]);
    pack_spread(q + 4 * k, packed);
  }
  for (int e = 0; e < 16; e++) dst[e] = (float)(q[e] - 1) * d;
}

void pack_tq1_0_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++) {
    float d = dequant_f16(dequant_u16(sub[2] + 2 * i));
    for (int run = 0; run < 16; run++, dst += 16) read_run(sub[0] + 48 * i, sub[1] + 4 * i, run, d, dst);
  }
}

void pack_tq2_0_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 66) {
    pack_put_pairs(src, sub[0] + 64 * i);
    memcpy(sub[1] + 2 * i, src + 64, 2);
  }
}

void pack_tq2_0_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++) {
    float d = dequant_f16(dequant_u16(sub[1] + 2 * i));
    for (int u = 0; u < N_UNIT; u++, dst += PACK_UNIT) {
      uint8_t q[PACK_UNIT] = {0};
      pack_get_bits2(sub[0] + 64 * i + 8 * u, 0, q);
      for (int e = 0; e < PACK_UNIT; e++) dst[e] = (float)(q[e] - 1) * d;
    }
  }
}
