/* pack_unit.h: units, the form in which planes hold the low bits of 32 quants, and their high bits. PLANES.md has the
 * formulas.
 *
 * Owns: writing and reading a unit's 16 bytes of four bits, its word of one bit, its two words of two bits. Does not
 * own: which elements a unit holds (the caller gives them in order). Invariants: q[0..15] are the quants of the low
 * nibbles in element order, q[16..31] those of the high nibbles. */
#ifndef COMPILER_PACK_UNIT_H
#define COMPILER_PACK_UNIT_H

#include "dequant.h"

#include <stdint.h>

enum { PACK_UNIT = 32 }; /* quants a unit */

static inline void pack_put_u32(uint8_t *p, uint32_t word) {
  for (int i = 0; i < 4; i++) p[i] = (uint8_t)(word >> (8 * i));
}

/* Units of two bits from the 64 bytes that several 256-blocks have alike: in each half of 128 elements (32 bytes),
 * element 32j + k has its two bits at 2j of byte k. Unit u holds elements 32u .. 32u + 31. */
static inline void pack_put_pairs(const uint8_t *src, uint8_t *units) {
  for (int run = 0; run < 16; run++) { /* 16 elements, one word */
    const uint8_t *from = src + 32 * (run / 8) + 16 * (run % 2);
    uint32_t word = 0;
    for (int k = 0; k < 4; k++) word |= ((dequant_u32(from + 4 * k) >> (run % 8 / 2 * 2)) & 0x03030303u) << (2 * k);
    pack_put_u32(units + 4 * run, word);
  }
}

/* Readers by the packed formulas that kernels use, four quants a word. get_nibbles sets all of q; get_bits1 and
 * get_bits2 or one or two bits in, from bit `at` up. */
static inline void pack_spread(uint8_t *q, uint32_t packed) {
  for (int b = 0; b < 4; b++) q[b] |= (uint8_t)(packed >> (8 * b));
}

static inline void pack_get_nibbles(const uint8_t *unit, uint8_t q[PACK_UNIT]) {
  memset(q, 0, PACK_UNIT);
  for (int k = 0; k < 4; k++) {
    uint32_t word = dequant_u32(unit + 4 * k);
    pack_spread(q + 4 * k, word & 0x0f0f0f0fu);
    pack_spread(q + 16 + 4 * k, (word >> 4) & 0x0f0f0f0fu);
  }
}

static inline void pack_get_bits1(const uint8_t *word, int at, uint8_t q[PACK_UNIT]) {
  uint32_t w = dequant_u32(word);
  for (int k = 0; k < 4; k++) {
    pack_spread(q + 4 * k, ((w >> k) & 0x01010101u) << at);
    pack_spread(q + 16 + 4 * k, ((w >> (4 + k)) & 0x01010101u) << at);
  }
}

static inline void pack_get_bits2(const uint8_t *words, int at, uint8_t q[PACK_UNIT]) {
  uint32_t w0 = dequant_u32(words), w1 = dequant_u32(words + 4);
  for (int k = 0; k < 4; k++) {
    pack_spread(q + 4 * k, ((w0 >> (2 * k)) & 0x03030303u) << at);
    pack_spread(q + 16 + 4 * k, ((w1 >> (2 * k)) & 0x03030303u) << at);
  }
}

#endif
