/* dequant_codebook.c: the definitions of the codebook formats: super-blocks of 256 weights whose magnitudes are
 * entries of a fixed grid (codebooks.h), four or eight weights an entry, with signs, small integer scales and one f16.
 *
 * Owns: IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ1_S, IQ1_M. Does not own: the grids' entries.
 * Source: block_iq2_xxs and the other block structures in ggml-common.h, dequantize_row_iq2_xxs and the others in
 * ggml-quants.c (see dequant.h). */
#include "codebooks.h"
#include "dequant.h"

enum { N = 256 }; /* weights a super-block; eight groups of 32 */

/* ---- What the formats share ---- */

static const float iq2_magnitude[] = {8, 25, 43, 0}; /* no entry has code 3 */
static const float iq3_xxs_magnitude[] = {4, 12, 20, 28, 36, 44, 52, 62};

/* Eight sign bits from seven: an even number of weights is negative (ksigns_iq2xs). */
static unsigned even_signs(unsigned seven) {
  return seven | (unsigned)__builtin_parity(seven) << 7;
}

static float with_sign(float magnitude, unsigned signs, int j) {
  return (signs >> j) & 1 ? -magnitude : magnitude;
}

static void put_iq2(float *dst, uint16_t entry, unsigned signs, float scale) {
  for (int j = 0; j < 8; j++) dst[j] = with_sign(scale * iq2_magnitude[codebooks_code2(entry, j)], signs, j);
}

/* Four weights; signs: one bit each. */
static void put_iq3_xxs(float *dst, uint16_t entry, unsigned signs, float scale) {
  for (int j = 0; j < 4; j++) dst[j] = with_sign(scale * iq3_xxs_magnitude[codebooks_code4(entry, j)], signs, j);
}

static void put_iq3_s(float *dst, uint16_t entry, unsigned signs, float scale) {
  for (int j = 0; j < 4; j++) dst[j] = with_sign(scale * (float)(2 * codebooks_code4(entry, j) + 1), signs, j);
}

/* Weights of -1, 0, 1, moved by delta, which is an eighth up or down. */
static void put_iq1(float *dst, uint16_t entry, bool down, float scale) {
  float delta = down ? -0.125f : 0.125f;
  for (int j = 0; j < 8; j++) dst[j] = scale * ((float)((int)codebooks_code2(entry, j) - 1) + delta);
}

/* ---- Two bits ---- */

/* d f16; a group of 32 has 8 bytes: four grid indices, and a word of four times seven sign bits with a four-bit scale
 * on top. w = d * (0.5 + scale) * 0.25 * magnitude. */
void dequant_iq2_xxs_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 66) {
    float d = dequant_f16(dequant_u16(src));
    for (const uint8_t *q = src + 2; q < src + 66; q += 8, dst += 32) {
      uint32_t word = dequant_u32(q + 4);
      float scale = d * (0.5f + (float)(word >> 28)) * 0.25f;
      for (int l = 0; l < 4; l++)
        put_iq2(dst + 8 * l, codebooks.iq2_xxs[q[l]], even_signs((word >> (7 * l)) & 127), scale);
    }
  }
}

/* d f16; 32 u16: nine bits of index, seven of signs; 8 bytes with two four-bit scales, one for every 16 weights. */
void dequant_iq2_xs_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 74) {
    float d = dequant_f16(dequant_u16(src));
    for (int l = 0; l < 32; l++, dst += 8) { /* scales: nibble l / 2 */
      unsigned q = dequant_u16(src + 2 + 2 * l), nibble = (src[66 + l / 4] >> (4 * (l / 2 % 2))) & 15u;
      put_iq2(dst, codebooks.iq2_xs[q & 511], even_signs(q >> 9), d * (0.5f + (float)nibble) * 0.25f);
    }
  }
}

/* d f16; 32 bytes: low eight bits of the indices; 32 bytes of signs; 8 bytes with two high bits of four indices; scales
 * as IQ2_XS. */
void dequant_iq2_s_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 82) {
    float d = dequant_f16(dequant_u16(src));
    for (int l = 0; l < 32; l++, dst += 8) {
      unsigned high = (src[66 + l / 4] >> (2 * (l % 4))) & 3u, nibble = (src[74 + l / 4] >> (4 * (l / 2 % 2))) & 15u;
      put_iq2(dst, codebooks.iq2_s[src[2 + l] | high << 8], src[34 + l], d * (0.5f + (float)nibble) * 0.25f);
    }
  }
}

/* ---- Three bits ---- */

/* d f16; 64 indices, one for four weights; a word a group as IQ2_XXS has it. w = d * (0.5 + scale) * 0.5 * magnitude.
 */
void dequant_iq3_xxs_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 98) {
    float d = dequant_f16(dequant_u16(src));
    for (int l = 0; l < 64; l++, dst += 4) {
      uint32_t word = dequant_u32(src + 66 + 4 * (l / 8));
      unsigned signs = even_signs((word >> (7 * (l / 2 % 4))) & 127);
      put_iq3_xxs(dst, codebooks.iq3_xxs[src[2 + l]], signs >> (4 * (l % 2)), d * (0.5f + (float)(word >> 28)) * 0.5f);
    }
  }
}

/* d f16; 64 bytes: low eight bits of the indices; 8 bytes with the high bit of eight indices; 32 bytes of signs; 4
 * bytes with two four-bit scales, one for every 32 weights. w = d * (1 + 2 * scale) * magnitude. */
void dequant_iq3_s_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 110) {
    float d = dequant_f16(dequant_u16(src));
    for (int l = 0; l < 64; l++, dst += 4) {
      unsigned high = (src[66 + l / 8] >> (l % 8)) & 1u, nibble = (src[106 + l / 16] >> (4 * (l / 8 % 2))) & 15u;
      put_iq3_s(dst, codebooks.iq3_s[src[2 + l] | high << 8], src[74 + l / 2] >> (4 * (l % 2)),
                d * (float)(1 + 2 * nibble));
    }
  }
}

/* ---- One bit and a half ---- */

/* d f16; 32 bytes: low eight bits of the indices; 8 u16, one a group: three high bits of four indices, a three-bit
 * scale, the direction of delta. w = d * (2 * scale + 1) * (grid + delta). */
void dequant_iq1_s_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 50) {
    float d = dequant_f16(dequant_u16(src));
    for (int l = 0; l < 32; l++, dst += 8) {
      unsigned high = dequant_u16(src + 34 + 2 * (l / 4)), top = (high >> (3 * (l % 4))) & 7u;
      put_iq1(dst, codebooks.iq1[src[2 + l] | top << 8], high >> 15, d * (float)(2 * ((high >> 12) & 7u) + 1));
    }
  }
}

/* 32 bytes: low eight bits of the indices; 16 bytes with two nibbles, one an index: three high bits and the direction
 * of its delta; four u16 with four three-bit scales each, one for every 16 weights, and on top of them the nibbles of
 * the f16 d. */
void dequant_iq1_m_row(const uint8_t *src, float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 56) {
    unsigned scales[4], bits = 0;
    for (int j = 0; j < 4; j++) {
      scales[j] = dequant_u16(src + 48 + 2 * j);
      bits |= scales[j] >> 12 << (4 * j);
    }
    float d = dequant_f16((uint16_t)bits);
    for (int l = 0; l < 32; l++, dst += 8) {
      unsigned nibble = (src[32 + l / 2] >> (4 * (l % 2))) & 15u;
      unsigned scale = (scales[l / 8] >> (3 * (l / 2 % 4))) & 7u;
      put_iq1(dst, codebooks.iq1[src[l] | (nibble & 7u) << 8], nibble >> 3, d * (float)(2 * scale + 1));
    }
  }
}
