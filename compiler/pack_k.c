/* pack_k.c: planes of the K formats.
 *
 * Owns: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K. Does not own: their definitions (dequant_k.c), strides (pack.c). Formulas:
 * PLANES.md. Invariants: a block has 8 units. Of Q2_K and Q3_K, unit u holds elements 32u .. 32u + 31; of the others,
 * unit 2g + h holds elements 64g + 16h .. + 15 in its low nibbles and those 32 further in its high ones. */
#include "pack.h"

#include "dequant.h"
#include "pack_unit.h"

enum { N = 256, N_UNIT = 8 }; /* weights and units a block */

void pack_q2_k_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 84) {
    pack_put_pairs(src + 16, sub[0] + 64 * i);
    memcpy(sub[1] + 16 * i, src, 16);
    memcpy(sub[2] + 4 * i, src + 80, 4);
  }
}

void pack_q2_k_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++) {
    float d = dequant_f16(dequant_u16(sub[2] + 4 * i)), dmin = dequant_f16(dequant_u16(sub[2] + 4 * i + 2));
    for (int u = 0; u < N_UNIT; u++, dst += PACK_UNIT) {
      uint32_t t = dequant_u32(sub[1] + 16 * i + 4 * (u / 2)) >> (16 * (u % 2));
      float d_low = d * (float)(t & 15), m_low = dmin * (float)((t >> 4) & 15);
      float d_high = d * (float)((t >> 8) & 15), m_high = dmin * (float)((t >> 12) & 15);
      uint8_t q[PACK_UNIT] = {0};
      pack_get_bits2(sub[0] + 64 * i + 8 * u, 0, q);
      for (int e = 0; e < 16; e++) {
        dst[e] = d_low * (float)q[e] - m_low;
        dst[16 + e] = d_high * (float)q[16 + e] - m_high;
      }
    }
  }
}

/* Deals the 96 bits of sixteen 6-bit scales out anew, four bits of each word a unit: of the first word the low bits of
 * the units' low scales, of the second those of the high scales, of the third the two high bits of both. */
static void put_scales_q3_k(uint8_t *dst, const uint8_t *s) {
  uint32_t word[3] = {0};
  for (int i = 0; i < 16; i++) {
    uint32_t low = (s[i % 8] >> (i / 8 * 4)) & 15, high = (s[8 + i % 4] >> (i / 4 * 2)) & 3;
    word[i % 2] |= low << (i / 2 * 4);
    word[2] |= high << (2 * i);
  }
  for (int w = 0; w < 3; w++) pack_put_u32(dst + 4 * w, word[w]);
}

void pack_q3_k_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 110) {
    pack_put_pairs(src + 32, sub[0] + 64 * i);
    for (int u = 0; u < N_UNIT; u++) { /* bit u of the GGUF's high byte k belongs to element 32u + k */
      uint32_t word = 0;
      for (int k = 0; k < 8; k++) word |= ((dequant_u32(src + 4 * k) >> u) & 0x01010101u) << k;
      pack_put_u32(sub[1] + 32 * i + 4 * u, word);
    }
    put_scales_q3_k(sub[2] + 12 * i, src + 96);
    memcpy(sub[3] + 2 * i, src + 108, 2);
  }
}

void pack_q3_k_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++) {
    const uint8_t *scales = sub[2] + 12 * i;
    float d = dequant_f16(dequant_u16(sub[3] + 2 * i));
    for (int u = 0; u < N_UNIT; u++, dst += PACK_UNIT) {
      uint32_t a = dequant_u32(scales) >> (4 * u), b = dequant_u32(scales + 4) >> (4 * u),
               c = dequant_u32(scales + 8) >> (4 * u);
      float d_low = d * (float)((int)((a & 15) | (c & 3) << 4) - 32);
      float d_high = d * (float)((int)((b & 15) | (c & 12) << 2) - 32);
      uint8_t q[PACK_UNIT] = {0};
      pack_get_bits2(sub[0] + 64 * i + 8 * u, 0, q);
      pack_get_bits1(sub[1] + 32 * i + 4 * u, 2, q);
      for (int e = 0; e < 16; e++) {
        dst[e] = d_low * (float)(q[e] - 4);
        dst[16 + e] = d_high * (float)(q[16 + e] - 4);
      }
    }
  }
}

/* First element of the low nibbles of unit u; the high nibbles' are 32 further. */
static int unit_base(int u) {
  return 64 * (u / 2) + 16 * (u % 2);
}

/* Deals the 96 bits of the GGUF's 12 scale bytes out anew: byte g of the first word has the scale of sub-block 2g, of
 * the second its minimum, of the third the scale of sub-block 2g + 1, and the top two bits of the three have the
 * minimum of sub-block 2g + 1. */
static void put_scales(uint8_t *dst, const uint8_t *s) {
  for (int g = 0; g < 4; g++) {
    int scale[2], minimum[2];
    for (int i = 0; i < 2; i++) {
      int j = 2 * g + i;
      scale[i] = j < 4 ? s[j] & 63 : (s[4 + j] & 15) | (s[j - 4] >> 6) << 4;
      minimum[i] = j < 4 ? s[4 + j] & 63 : (s[4 + j] >> 4) | (s[j] >> 6) << 4;
    }
    dst[g] = (uint8_t)(scale[0] | (minimum[1] & 3) << 6);
    dst[4 + g] = (uint8_t)(minimum[0] | ((minimum[1] >> 2) & 3) << 6);
    dst[8 + g] = (uint8_t)(scale[1] | (minimum[1] >> 4) << 6);
  }
}

/* One unit of Q4_K or Q5_K from its quants and its block's scales, by PLANES.md's formulas. dst: the block's first
 * element. */
static void read_scaled_unit(const uint8_t *scales, const uint8_t q[PACK_UNIT], int u, float *dst) {
  float d = dequant_f16(dequant_u16(scales)), dmin = dequant_f16(dequant_u16(scales + 2));
  int shift = 8 * (u / 2), base = unit_base(u);
  uint32_t a = (dequant_u32(scales + 4) >> shift) & 255, b = (dequant_u32(scales + 8) >> shift) & 255,
           c = (dequant_u32(scales + 12) >> shift) & 255;
  float d_low = d * (float)(a & 63), m_low = dmin * (float)(b & 63);
  float d_high = d * (float)(c & 63), m_high = dmin * (float)((a >> 6) | (b >> 6) << 2 | (c >> 6) << 4);
  for (int e = 0; e < 16; e++) {
    dst[base + e] = d_low * (float)q[e] - m_low;
    dst[base + 32 + e] = d_high * (float)q[16 + e] - m_high;
  }
}

void pack_q4_k_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 144) {
    memcpy(sub[0] + 128 * i, src + 16, 128); /* the GGUF's order is that of units */
    memcpy(sub[1] + 16 * i, src, 4);
    put_scales(sub[1] + 16 * i + 4, src + 4);
  }
}

void pack_q4_k_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, dst += N)
    for (int u = 0; u < N_UNIT; u++) {
      uint8_t q[PACK_UNIT];
      pack_get_nibbles(sub[0] + 128 * i + 16 * u, q);
      read_scaled_unit(sub[1] + 16 * i, q, u, dst);
    }
}

/* Bit j of byte k of the GGUF's 32 high bytes belongs to element 32j + k: in unit 2g + h, j is 2g for the low nibbles
 * and 2g + 1 for the high ones, and k runs from 16h. */
static uint32_t high_word_q5_k(const uint8_t *high, int u) {
  int g = u / 2, h = u % 2;
  uint32_t word = 0;
  for (int k = 0; k < 4; k++) {
    uint32_t bytes = dequant_u32(high + 16 * h + 4 * k);
    word |= ((bytes >> (2 * g)) & 0x01010101u) << k;
    word |= ((bytes >> (2 * g + 1)) & 0x01010101u) << (4 + k);
  }
  return word;
}

void pack_q5_k_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 176) {
    memcpy(sub[0] + 128 * i, src + 48, 128);
    for (int u = 0; u < N_UNIT; u++) pack_put_u32(sub[1] + 32 * i + 4 * u, high_word_q5_k(src + 16, u));
    memcpy(sub[2] + 16 * i, src, 4);
    put_scales(sub[2] + 16 * i + 4, src + 4);
  }
}

void pack_q5_k_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, dst += N)
    for (int u = 0; u < N_UNIT; u++) {
      uint8_t q[PACK_UNIT];
      pack_get_nibbles(sub[0] + 128 * i + 16 * u, q);
      pack_get_bits1(sub[1] + 32 * i + 4 * u, 4, q);
      read_scaled_unit(sub[2] + 16 * i, q, u, dst);
    }
}

/* Unit 2g + h of a Q6_K block. In each half of 128 elements (g / 2), 64 bytes have low nibbles and 32 have high bits,
 * each byte those of elements 64 (nibbles) and 32 (high bits) apart: see dequant_k.c. So the unit's low nibbles come
 * from bytes 16h on and its high ones from bytes 32 + 16h on, both from the upper half of the byte for odd g, where the
 * high bits stand four further too. */
static void pack_unit_q6_k(const uint8_t *block, int u, uint8_t *quants, uint8_t *high) {
  int g = u / 2, h = u % 2, shift = 4 * (g % 2);
  const uint8_t *nibbles = block + 64 * (g / 2) + 16 * h, *bits = block + 128 + 32 * (g / 2) + 16 * h;
  uint32_t low_word = 0, high_word = 0;
  for (int k = 0; k < 4; k++) {
    uint32_t low = dequant_u32(nibbles + 4 * k) >> shift, up = dequant_u32(nibbles + 32 + 4 * k) >> shift;
    uint32_t pairs = dequant_u32(bits + 4 * k) >> shift;
    pack_put_u32(quants + 4 * k, (low & 0x0f0f0f0fu) | (up & 0x0f0f0f0fu) << 4);
    low_word |= (pairs & 0x03030303u) << (2 * k);
    high_word |= ((pairs >> 2) & 0x03030303u) << (2 * k);
  }
  pack_put_u32(high, low_word);
  pack_put_u32(high + 4, high_word);
}

void pack_q6_k_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 210) {
    for (int u = 0; u < N_UNIT; u++) pack_unit_q6_k(src, u, sub[0] + 128 * i + 16 * u, sub[1] + 64 * i + 8 * u);
    memcpy(sub[2] + 16 * i, src + 192, 16);
    memcpy(sub[3] + 2 * i, src + 208, 2);
  }
}

void pack_q6_k_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, dst += N) {
    float d = dequant_f16(dequant_u16(sub[3] + 2 * i));
    for (int u = 0; u < N_UNIT; u++) {
      int g = u / 2, h = u % 2, base = unit_base(u);
      uint32_t t = dequant_u32(sub[2] + 16 * i + 4 * g);
      float d_low = d * (float)(int8_t)(t >> (8 * h)), d_high = d * (float)(int8_t)(t >> (8 * h + 16));
      uint8_t q[PACK_UNIT];
      pack_get_nibbles(sub[0] + 128 * i + 16 * u, q);
      pack_get_bits2(sub[1] + 64 * i + 8 * u, 4, q);
      for (int e = 0; e < 16; e++) {
        dst[base + e] = d_low * (float)(q[e] - 32);
        dst[base + 32 + e] = d_high * (float)(q[16 + e] - 32);
      }
    }
  }
}
