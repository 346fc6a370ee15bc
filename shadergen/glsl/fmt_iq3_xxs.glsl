/* fmt_iq3_xxs.glsl: IQ3_XXS, blocks of 256: four weights a grid entry, seven sign bits for eight, a four-bit scale for every 32. */
struct iq3_xxs_unit { uvec4 e; uint signs; float d; }; /* e: two entries a word */
struct iq3_xxs_block { float d; };
const uint iq3_xxs_STEP = 16, iq3_xxs_UNITS = 8;
uint iq3_xxs_base(uint u) { return 32 * u; }
uint64_t iq3_xxs_signs(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 256, 64)); }
uint64_t iq3_xxs_d(uint n_in, uint n_out) {
  return plane_next(iq3_xxs_signs(n_in, n_out), n_out, plane_row(n_in, 256, 32));
}
uint64_t iq3_xxs_mat_stride(uint n_in, uint n_out) {
  return plane_next(iq3_xxs_d(n_in, n_out), n_out, plane_row(n_in, 256, 2));
}
iq3_xxs_block iq3_xxs_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return iq3_xxs_block(plane_f16(field, matrix + iq3_xxs_d(n_in, n_out) + row * plane_row(n_in, 256, 2) + (u >> 3) * 2));
}
uint iq3_xxs_two(uint q) { return iq3_xxs_entry(q & 255u) | (iq3_xxs_entry((q >> 8) & 255u) << 16); }
iq3_xxs_unit iq3_xxs_load(iq3_xxs_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uvec2 q = mem_ld_uvec2(field, matrix + row * plane_row(n_in, 256, 64) + 8 * u);
  uint s = mem_ld_uint(field, matrix + iq3_xxs_signs(n_in, n_out) + row * plane_row(n_in, 256, 32) + 4 * u);
  iq3_xxs_unit w;
  w.e = uvec4(iq3_xxs_two(q.x), iq3_xxs_two(q.x >> 16), iq3_xxs_two(q.y), iq3_xxs_two(q.y >> 16));
  w.signs = codes_even_signs(s);
  w.d = b.d * (0.5 + float(s >> 28)) * 0.5;
  return w;
}
/* 4 + 8c, and 62 for c = 7. */
vec4 iq3_xxs_four(uint e, uint s) {
  uint c = codes_4(e & 0xffffu);
  return codes_signed(0x04040404u + 8u * c + (((c + 0x01010101u) >> 2) & 0x02020202u), s & 15u);
}
vec4 iq3_xxs_lo(iq3_xxs_unit w, uint k) {
  return iq3_xxs_four((k < 2 ? w.e.x : w.e.y) >> (16 * (k & 1)), w.signs >> (4 * k)) * w.d;
}
vec4 iq3_xxs_hi(iq3_xxs_unit w, uint k) {
  return iq3_xxs_four((k < 2 ? w.e.z : w.e.w) >> (16 * (k & 1)), w.signs >> (16 + 4 * k)) * w.d;
}

#ifdef DOT8
const bool iq3_xxs_MIN = false;
struct iq3_xxs_raw { uvec4 q; uvec2 signs; uint d; };
iq3_xxs_raw iq3_xxs_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  return iq3_xxs_raw(mem_ld_uvec4(field, matrix + row * plane_row(n_in, 256, 64) + 16 * p),
                     mem_ld_uvec2(field, matrix + iq3_xxs_signs(n_in, n_out) + row * plane_row(n_in, 256, 32) + 8 * p),
                     mem_ld_uint(field, matrix + iq3_xxs_d(n_in, n_out) + row * plane_row(n_in, 256, 2) + (p >> 3) * 4));
}
uvec4 iq3_xxs_q8(iq3_xxs_raw w, uint k) {
  uint signs = codes_even_signs(w.signs[k >> 1]) >> (16 * (k & 1));
  uvec4 m;
  [[unroll]] for (uint j = 0; j < 4; j++) {
    uint c = codes_4(iq3_xxs_entry((w.q[k] >> (8 * j)) & 255u));
    m[j] = codes_signed_bytes(0x04040404u + 8u * c + (((c + 0x01010101u) >> 2) & 0x02020202u), (signs >> (4 * j)) & 15u);
  }
  return m;
}
void iq3_xxs_dm(iq3_xxs_raw w, uint p, out vec4 d, out vec4 m) {
  d = piece_half(w.d, p >> 2) * 0.5 * (0.5 + vec2(w.signs >> 28)).xxyy;
}
#endif
