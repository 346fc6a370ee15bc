/* codebook.glsl: reads of the grids of codebook formats (compiler/PLANES.md, "Codebooks"), and the arithmetic on their entries, four
 * weights in the bytes of a word. The table of all grids is the push field `codebook`; a kernel calls codebook_stage() first of all, in
 * uniform control flow, and formats without a codebook have nothing to do there.
 *
 * Wide subgroups: a workgroup copies the grids that it uses into shared memory. NARROW: they are read where they are, since copying costs
 * a CPU more than it saves. */
#define CODEBOOK(NAME, FIRST, COUNT) const uint NAME##_FIRST = FIRST, NAME##_COUNT = COUNT;
#define CODEBOOK_FORMAT(NUMBER, NAME)
#include "codebooks.def"

/* <name>_stage() and <name>_entry(i). A grid starts at a multiple of 16 bytes. */
#define CODEBOOK_OF(NAME)                                                                                              \
  shared uint NAME##_words[NAME##_COUNT / 2];                                                                          \
  void NAME##_stage() {                                                                                                \
    if (NARROW) return;                                                                                                \
    for (uint i = TID; i < NAME##_COUNT / 8; i += WG) {                                                                \
      uvec4 w = ld_codebook_uvec4(2 * NAME##_FIRST + 16 * i);                                                          \
      NAME##_words[4 * i] = w.x, NAME##_words[4 * i + 1] = w.y;                                                        \
      NAME##_words[4 * i + 2] = w.z, NAME##_words[4 * i + 3] = w.w;                                                    \
    }                                                                                                                  \
  }                                                                                                                    \
  uint NAME##_entry(uint i) {                                                                                          \
    uint pair = NARROW ? ld_codebook_uint(2 * NAME##_FIRST + 2 * (i & ~1u)) : NAME##_words[i >> 1];                    \
    return (pair >> (16 * (i & 1))) & 0xffffu;                                                                         \
  }
#if FMT_USED(16)
CODEBOOK_OF(iq2_xxs)
#endif
#if FMT_USED(17)
CODEBOOK_OF(iq2_xs)
#endif
#if FMT_USED(18)
CODEBOOK_OF(iq3_xxs)
#endif
#if FMT_USED(19) || FMT_USED(29)
CODEBOOK_OF(iq1)
#endif
#if FMT_USED(21)
CODEBOOK_OF(iq3_s)
#endif
#if FMT_USED(22)
CODEBOOK_OF(iq2_s)
#endif

void codebook_stage() {
#if FMT_USED(16)
  iq2_xxs_stage();
#endif
#if FMT_USED(17)
  iq2_xs_stage();
#endif
#if FMT_USED(18)
  iq3_xxs_stage();
#endif
#if FMT_USED(19) || FMT_USED(29)
  iq1_stage();
#endif
#if FMT_USED(21)
  iq3_s_stage();
#endif
#if FMT_USED(22)
  iq2_s_stage();
#endif
#if FMT_USED(16) || FMT_USED(17) || FMT_USED(18) || FMT_USED(19) || FMT_USED(21) || FMT_USED(22) || FMT_USED(29)
  group_barrier();
#endif
}

/* Four codes of two bits, lowest first, to a byte each (e: 8 bits), and four of four bits (16 bits). */
uint codes_2(uint e) {
  e = (e | (e << 12)) & 0x000f000fu;
  return (e | (e << 6)) & 0x03030303u;
}
uint codes_4(uint e) {
  e = (e | (e << 8)) & 0x00ff00ffu;
  return (e | (e << 4)) & 0x0f0f0f0fu;
}
/* Bytes of m as signed numbers, negative where s (4 bits) has a bit. */
uint codes_signed_bytes(uint m, uint s) {
  uint b = (s * 0x00204081u) & 0x01010101u;
  return (m ^ (b * 255u)) + b;
}
vec4 codes_signed(uint m, uint s) { return bytes_s8(codes_signed_bytes(m, s)); }
/* A unit's 32 sign bits from the low 28 of a word, seven for every eight weights: the number of negative ones is even. */
uint codes_even_signs(uint w) {
  uint s = (w & 0x7fu) | ((w << 1) & 0x7f00u) | ((w << 2) & 0x7f0000u) | ((w << 3) & 0x7f000000u);
  uint p = s ^ (s >> 4);
  p ^= p >> 2;
  p ^= p >> 1;
  return s | ((p & 0x01010101u) << 7);
}
/* IQ2: weights 8 + 17c + (c >> 1), that is 8, 25, 43. e: two-bit codes from bit 0 on; s: signs from bit 0 on. */
uint codes_iq2_bytes(uint e, uint s) {
  uint c = codes_2(e & 255u);
  return codes_signed_bytes(0x08080808u + 17u * c + ((c >> 1) & 0x01010101u), s & 15u);
}
vec4 codes_iq2(uint e, uint s) { return bytes_s8(codes_iq2_bytes(e, s)); }
/* Two entries: the 16 weights of a run. */
uvec4 codes_iq2_q8(uint e0, uint e1, uint s) {
  return uvec4(codes_iq2_bytes(e0, s), codes_iq2_bytes(e0 >> 8, s >> 4), codes_iq2_bytes(e1, s >> 8),
               codes_iq2_bytes(e1 >> 8, s >> 12));
}
/* IQ1: eight times each code, plus `up` of its entry. */
uvec4 codes_iq1_q8(uint e0, uint e1, uvec2 up) {
  return 8u * uvec4(codes_2(e0 & 255u), codes_2((e0 >> 8) & 255u), codes_2(e1 & 255u), codes_2((e1 >> 8) & 255u)) + up.xxyy;
}
