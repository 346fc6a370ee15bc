/* pack_k.c: planes of the K formats.
 *
 * Owns: Q4_K, Q5_K, Q6_K. Does not own: their definitions (dequant_k.c), strides (pack.c). Formulas: PLANES.md.
 * Invariants: a block has 8 units; unit 2g + h holds elements 64g + 16h .. + 15 in its low nibbles and those 32 further
 * in its high ones. */
#include "pack.h"

#include "dequant.h"
#include "pack_unit.h"

enum { N = 256, N_UNIT = 8 }; /* weights and units a block */

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

/* The high bits of unit u of a Q5_K block, at bit 4: bit j of byte k of the GGUF's 32 belongs to element 32j + k. */
static void high_bits_q5_k(const uint8_t *high, int u, uint8_t q[PACK_UNIT]) {
  for (int e = 0; e < PACK_UNIT; e++) {
    int element = unit_base(u) + 32 * (e / 16) + e % 16;
    q[e] = (uint8_t)(((high[element % 32] >> (element / 32)) & 1) << 4);
  }
}

void pack_q5_k_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 176) {
    memcpy(sub[0] + 128 * i, src + 48, 128);
    for (int u = 0; u < N_UNIT; u++) {
      uint8_t q[PACK_UNIT];
      high_bits_q5_k(src + 16, u, q);
      pack_put_high1(sub[1] + 32 * i + 4 * u, q);
    }
    memcpy(sub[2] + 16 * i, src, 4);
    put_scales(sub[2] + 16 * i + 4, src + 4);
  }
}

void pack_q5_k_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, dst += N)
    for (int u = 0; u < N_UNIT; u++) {
      uint8_t q[PACK_UNIT];
      pack_get_nibbles(sub[0] + 128 * i + 16 * u, q);
      pack_get_high1(sub[1] + 32 * i + 4 * u, q);
      read_scaled_unit(sub[2] + 16 * i, q, u, dst);
    }
}

/* The six-bit quant of element e of a Q6_K block in the GGUF (see dequant_k.c for the order). */
static uint8_t quant_q6_k(const uint8_t *block, int e) {
  int half = e / 128, j = e % 128 / 32, k = e % 32;
  int low = (block[64 * half + 32 * (j & 1) + k] >> (4 * (j / 2))) & 15;
  int high = (block[128 + 32 * half + k] >> (2 * j)) & 3;
  return (uint8_t)(low | high << 4);
}

void pack_q6_k_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 210) {
    for (int u = 0; u < N_UNIT; u++) {
      uint8_t q[PACK_UNIT];
      for (int e = 0; e < PACK_UNIT; e++) q[e] = quant_q6_k(src, unit_base(u) + 32 * (e / 16) + e % 16);
      pack_put_nibbles(sub[0] + 128 * i + 16 * u, q);
      pack_put_high2(sub[1] + 64 * i + 8 * u, q);
    }
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
      pack_get_high2(sub[1] + 64 * i + 8 * u, q);
      for (int e = 0; e < 16; e++) {
        dst[base + e] = d_low * (float)(q[e] - 32);
        dst[base + 32 + e] = d_high * (float)(q[16 + e] - 32);
      }
    }
  }
}
