/* pack_unit.h: units, the form in which planes hold the low four bits of 32 quants, and their high bits. PLANES.md has
 * the formulas.
 *
 * Owns: writing and reading a unit's 16 bytes, its word of one high bit, its two words of two high bits. Does not own:
 * which elements a unit holds (the caller gives them in order). Invariants: q[0..15] are the quants of the low nibbles
 * in element order, q[16..31] those of the high nibbles. */
#ifndef COMPILER_PACK_UNIT_H
#define COMPILER_PACK_UNIT_H

#include "dequant.h"

#include <stdint.h>

enum { PACK_UNIT = 32 }; /* quants a unit */

static inline void pack_put_u32(uint8_t *p, uint32_t word) {
  for (int i = 0; i < 4; i++) p[i] = (uint8_t)(word >> (8 * i));
}

/* 16 bytes: byte j = low four bits of q[j], and of q[16 + j] above them. */
static inline void pack_put_nibbles(uint8_t *unit, const uint8_t q[PACK_UNIT]) {
  for (int j = 0; j < 16; j++) unit[j] = (uint8_t)((q[j] & 15) | (q[16 + j] & 15) << 4);
}

/* One word: bit 8b + k is bit 4 of q[4k + b], bit 8b + 4 + k is bit 4 of q[16 + 4k + b]. */
static inline void pack_put_high1(uint8_t *word, const uint8_t q[PACK_UNIT]) {
  uint32_t w = 0;
  for (int j = 0; j < 16; j++) {
    int k = j / 4, b = j % 4;
    w |= (uint32_t)((q[j] >> 4) & 1) << (8 * b + k);
    w |= (uint32_t)((q[16 + j] >> 4) & 1) << (8 * b + 4 + k);
  }
  pack_put_u32(word, w);
}

/* Two words: bits 8b + 2k, 8b + 2k + 1 of the first are bits 4, 5 of q[4k + b], of the second those of q[16 + 4k + b].
 */
static inline void pack_put_high2(uint8_t *words, const uint8_t q[PACK_UNIT]) {
  uint32_t w[2] = {0, 0};
  for (int j = 0; j < PACK_UNIT; j++) {
    int k = j % 16 / 4, b = j % 4;
    w[j / 16] |= (uint32_t)((q[j] >> 4) & 3) << (8 * b + 2 * k);
  }
  pack_put_u32(words, w[0]);
  pack_put_u32(words + 4, w[1]);
}

/* Readers by the packed formulas that kernels use, four quants a word. get_nibbles sets all of q; get_high1 and
 * get_high2 or the high bits in. */
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

static inline void pack_get_high1(const uint8_t *word, uint8_t q[PACK_UNIT]) {
  uint32_t w = dequant_u32(word);
  for (int k = 0; k < 4; k++) {
    pack_spread(q + 4 * k, ((w >> k) & 0x01010101u) << 4);
    pack_spread(q + 16 + 4 * k, ((w >> (4 + k)) & 0x01010101u) << 4);
  }
}

static inline void pack_get_high2(const uint8_t *words, uint8_t q[PACK_UNIT]) {
  uint32_t w0 = dequant_u32(words), w1 = dequant_u32(words + 4);
  for (int k = 0; k < 4; k++) {
    pack_spread(q + 4 * k, ((w0 >> (2 * k)) & 0x03030303u) << 4);
    pack_spread(q + 16 + 4 * k, ((w1 >> (2 * k)) & 0x03030303u) << 4);
  }
}

#endif
