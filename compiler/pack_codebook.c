/* pack_codebook.c: planes of the codebook formats.
 *
 * Owns: IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ1_S, IQ1_M. Does not own: their definitions (dequant_codebook.c),
 * the grids (codebooks.c), strides (pack.c). Formulas: PLANES.md.
 * Invariants: a block has 8 units; unit u holds elements 32u .. 32u + 31. Readers work as kernels do: four weights at a
 * time, a byte each. */
#include "pack.h"

#include "codebooks.h"
#include "dequant.h"
#include "pack_unit.h"

enum { N_UNIT = 8 }; /* units a block */

/* ---- Four weights in the bytes of a word ---- */

/* Four two-bit codes, lowest first, to a byte each; four of four bits. */
static uint32_t spread2(uint32_t e) {
  e = (e | e << 12) & 0x000f000fu;
  return (e | e << 6) & 0x03030303u;
}
static uint32_t spread4(uint32_t e) {
  e = (e | e << 8) & 0x00ff00ffu;
  return (e | e << 4) & 0x0f0f0f0fu;
}

static uint32_t iq2_magnitudes(uint32_t c) {
  return 0x08080808u + 17 * c + ((c >> 1) & 0x01010101u);
}
static uint32_t iq3_xxs_magnitudes(uint32_t c) {
  return 0x04040404u + 8 * c + (((c + 0x01010101u) >> 2) & 0x02020202u);
}
static uint32_t iq3_s_magnitudes(uint32_t c) {
  return 0x01010101u + 2 * c;
}

/* Bytes with bit j of signs set negated, two's complement; none of them is zero. */
static uint32_t negate(uint32_t m, uint32_t signs) {
  uint32_t b = ((signs & 15) * 0x00204081u) & 0x01010101u;
  return (m ^ (b * 255)) + b;
}

/* The unit's 32 sign bits from four times seven: each eighth makes the number even. */
static uint32_t even_signs(uint32_t w) {
  uint32_t s = (w & 0x7fu) | (w << 1 & 0x7f00u) | (w << 2 & 0x7f0000u) | (w << 3 & 0x7f000000u);
  uint32_t p = s ^ s >> 4;
  p ^= p >> 2;
  p ^= p >> 1;
  return s | (p & 0x01010101u) << 7;
}

static void put_four(float *dst, uint32_t bytes, float scale) {
  for (int b = 0; b < 4; b++) dst[b] = scale * (float)(int8_t)(bytes >> (8 * b));
}

/* A unit of IQ2: four entries, 32 signs, a scale for each half. */
static void put_iq2(float *dst, const uint16_t entry[4], uint32_t signs, float low, float high) {
  for (int k = 0; k < 8; k++)
    put_four(dst + 4 * k, negate(iq2_magnitudes(spread2((entry[k / 2] >> (8 * (k % 2))) & 255u)), signs >> (4 * k)),
             k < 4 ? low : high);
}

/* d * (0.5 + n) * 0.25 */
static float quarter_scale(float d, uint32_t n) {
  return d * (0.5f + (float)n) * 0.25f;
}

/* ---- IQ2 ---- */

void pack_iq2_xxs_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 66) {
    memcpy(sub[0] + 64 * i, src + 2, 64);
    memcpy(sub[1] + 2 * i, src, 2);
  }
}

void pack_iq2_xxs_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t u = 0; u < N_UNIT * n_block; u++, dst += 32) {
    uint32_t q = dequant_u32(sub[0] + 8 * u), w = dequant_u32(sub[0] + 8 * u + 4);
    float scale = quarter_scale(dequant_f16(dequant_u16(sub[1] + 2 * (u / N_UNIT))), w >> 28);
    uint16_t entry[4];
    for (int l = 0; l < 4; l++) entry[l] = codebooks.iq2_xxs[(q >> (8 * l)) & 255];
    put_iq2(dst, entry, even_signs(w), scale, scale);
  }
}

void pack_iq2_xs_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 74) {
    memcpy(sub[0] + 64 * i, src + 2, 64);
    memcpy(sub[1] + 8 * i, src + 66, 8);
    memcpy(sub[2] + 2 * i, src, 2);
  }
}

void pack_iq2_xs_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t u = 0; u < N_UNIT * n_block; u++, dst += 32) {
    uint32_t w[2] = {dequant_u32(sub[0] + 8 * u), dequant_u32(sub[0] + 8 * u + 4)}, signs = 0, scale = sub[1][u];
    uint16_t entry[4];
    for (int l = 0; l < 4; l++) {
      uint32_t q = w[l / 2] >> (16 * (l % 2));
      entry[l] = codebooks.iq2_xs[q & 511];
      signs |= ((q >> 9) & 127) << (7 * l);
    }
    float d = dequant_f16(dequant_u16(sub[2] + 2 * (u / N_UNIT)));
    put_iq2(dst, entry, even_signs(signs), quarter_scale(d, scale & 15), quarter_scale(d, scale >> 4));
  }
}

/* Unit u: quants has its four low bytes and its four bytes of signs, scales its byte of high bits and its scale. */
void pack_iq2_s_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 82) {
    for (int u = 0; u < N_UNIT; u++) {
      memcpy(sub[0] + 64 * i + 8 * u, src + 2 + 4 * u, 4);
      memcpy(sub[0] + 64 * i + 8 * u + 4, src + 34 + 4 * u, 4);
      sub[1][16 * i + 2 * (uint64_t)u] = src[66 + u];
      sub[1][16 * i + 2 * (uint64_t)u + 1] = src[74 + u];
    }
    memcpy(sub[2] + 2 * i, src, 2);
  }
}

void pack_iq2_s_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t u = 0; u < N_UNIT * n_block; u++, dst += 32) {
    uint32_t q = dequant_u32(sub[0] + 8 * u), s = dequant_u16(sub[1] + 2 * u);
    float d = dequant_f16(dequant_u16(sub[2] + 2 * (u / N_UNIT)));
    uint16_t entry[4];
    for (int l = 0; l < 4; l++) entry[l] = codebooks.iq2_s[((q >> (8 * l)) & 255) | ((s >> (2 * l)) & 3) << 8];
    put_iq2(dst, entry, dequant_u32(sub[0] + 8 * u + 4), quarter_scale(d, (s >> 8) & 15), quarter_scale(d, s >> 12));
  }
}

/* ---- IQ3 ---- */

void pack_iq3_xxs_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 98) {
    memcpy(sub[0] + 64 * i, src + 2, 64);
    memcpy(sub[1] + 32 * i, src + 66, 32);
    memcpy(sub[2] + 2 * i, src, 2);
  }
}

void pack_iq3_xxs_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t u = 0; u < N_UNIT * n_block; u++, dst += 32) {
    uint32_t w = dequant_u32(sub[1] + 4 * u), signs = even_signs(w);
    float scale = dequant_f16(dequant_u16(sub[2] + 2 * (u / N_UNIT))) * (0.5f + (float)(w >> 28)) * 0.5f;
    for (int k = 0; k < 8; k++)
      put_four(dst + 4 * k,
               negate(iq3_xxs_magnitudes(spread4(codebooks.iq3_xxs[sub[0][8 * u + (uint64_t)k]])), signs >> (4 * k)),
               scale);
  }
}

/* scales: the block's 8 bytes of high bits, one a unit, then 4 bytes of scales. */
void pack_iq3_s_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 110) {
    memcpy(sub[0] + 64 * i, src + 2, 64);
    memcpy(sub[1] + 32 * i, src + 74, 32);
    memcpy(sub[2] + 12 * i, src + 66, 8);
    memcpy(sub[2] + 12 * i + 8, src + 106, 4);
    memcpy(sub[3] + 2 * i, src, 2);
  }
}

void pack_iq3_s_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++)
    for (uint32_t u = 0; u < N_UNIT; u++, dst += 32) {
      uint32_t high = sub[2][12 * i + u], scales = dequant_u32(sub[2] + 12 * i + 8);
      uint32_t signs = dequant_u32(sub[1] + 32 * i + 4 * u);
      float scale = dequant_f16(dequant_u16(sub[3] + 2 * i)) * (float)(1 + 2 * ((scales >> (4 * u)) & 15));
      for (uint32_t k = 0; k < 8; k++) {
        uint32_t index = sub[0][64 * i + 8 * u + k] | ((high >> k) & 1) << 8;
        put_four(dst + 4 * k, negate(iq3_s_magnitudes(spread4(codebooks.iq3_s[index])), signs >> (4 * k)), scale);
      }
    }
}

/* ---- IQ1 ---- */

/* Eight weights. */
static void put_iq1(float *dst, uint16_t entry, bool down, float scale) {
  float minus = down ? -1.125f : -0.875f; /* -1 and delta: exact */
  for (int k = 0; k < 2; k++) {
    uint32_t codes = spread2((entry >> (8 * k)) & 255u);
    for (int b = 0; b < 4; b++) dst[4 * k + b] = scale * ((float)((codes >> (8 * b)) & 255) + minus);
  }
}

void pack_iq1_s_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 50) {
    memcpy(sub[0] + 32 * i, src + 2, 32);
    memcpy(sub[1] + 16 * i, src + 34, 16);
    memcpy(sub[2] + 2 * i, src, 2);
  }
}

void pack_iq1_s_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t u = 0; u < N_UNIT * n_block; u++, dst += 32) {
    uint32_t q = dequant_u32(sub[0] + 4 * u), h = dequant_u16(sub[1] + 2 * u);
    float scale = dequant_f16(dequant_u16(sub[2] + 2 * (u / N_UNIT))) * (float)(2 * ((h >> 12) & 7) + 1);
    for (int l = 0; l < 4; l++)
      put_iq1(dst + 8 * l, codebooks.iq1[((q >> (8 * l)) & 255) | ((h >> (3 * l)) & 7) << 8], h >> 15, scale);
  }
}

/* scales: d, then the sixteen three-bit scales in order. */
void pack_iq1_m_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 56) {
    uint64_t scales = 0;
    for (int j = 0; j < 4; j++) {
      uint64_t word = dequant_u16(src + 48 + 2 * j);
      scales |= word >> 12 << (4 * j) | (word & 0xfff) << (16 + 12 * j);
    }
    memcpy(sub[0] + 32 * i, src, 32);
    memcpy(sub[1] + 16 * i, src + 32, 16);
    pack_put_u32(sub[2] + 8 * i, (uint32_t)scales);
    pack_put_u32(sub[2] + 8 * i + 4, (uint32_t)(scales >> 32));
  }
}

void pack_iq1_m_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t u = 0; u < N_UNIT * n_block; u++, dst += 32) {
    const uint8_t *s = sub[2] + 8 * (u / N_UNIT);
    uint32_t q = dequant_u32(sub[0] + 4 * u), h = dequant_u16(sub[1] + 2 * u), at = 16 + 6 * (uint32_t)(u % N_UNIT);
    uint32_t scales = (uint32_t)((dequant_u32(s) | (uint64_t)dequant_u32(s + 4) << 32) >> at);
    float d = dequant_f16(dequant_u16(s));
    for (int l = 0; l < 4; l++) {
      uint32_t nibble = (h >> (4 * l)) & 15, scale = (scales >> (3 * (l / 2))) & 7;
      put_iq1(dst + 8 * l, codebooks.iq1[((q >> (8 * l)) & 255) | (nibble & 7) << 8], nibble >> 3,
              d * (float)(2 * scale + 1));
    }
  }
}
