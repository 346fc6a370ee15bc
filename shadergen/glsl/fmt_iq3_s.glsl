/* fmt_iq3_s.glsl: IQ3_S, blocks of 256: nine bits of grid index and four of signs for four weights, a four-bit scale for every 32. */
struct iq3_s_unit { uvec4 e; uint signs; float d; }; /* e: two entries a word */
struct iq3_s_block { uvec3 s; float d; }; /* a byte of high bits a unit, and four bits of scale a unit */
const uint iq3_s_STEP = 16, iq3_s_UNITS = 8;
uint iq3_s_base(uint u) { return 32 * u; }
uint64_t iq3_s_signs(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 256, 64)); }
uint64_t iq3_s_scales(uint n_in, uint n_out) {
  return plane_next(iq3_s_signs(n_in, n_out), n_out, plane_row(n_in, 256, 32));
}
uint64_t iq3_s_d(uint n_in, uint n_out) {
  return plane_next(iq3_s_scales(n_in, n_out), n_out, plane_row(n_in, 256, 12));
}
uint64_t iq3_s_mat_stride(uint n_in, uint n_out) {
  return plane_next(iq3_s_d(n_in, n_out), n_out, plane_row(n_in, 256, 2));
}
iq3_s_block iq3_s_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uint64_t s = matrix + iq3_s_scales(n_in, n_out) + row * plane_row(n_in, 256, 12) + (u >> 3) * 12;
  return iq3_s_block(uvec3(mem_ld_uint(field, s), mem_ld_uint(field, s + 4), mem_ld_uint(field, s + 8)),
                     plane_f16(field, matrix + iq3_s_d(n_in, n_out) + row * plane_row(n_in, 256, 2) + (u >> 3) * 2));
}
/* Entries of two indices; high: their ninth bits in bits 0 and 1. */
uint iq3_s_two(uint q, uint high) {
  return iq3_s_entry((q & 255u) | ((high & 1u) << 8)) | (iq3_s_entry(((q >> 8) & 255u) | ((high & 2u) << 7)) << 16);
}
iq3_s_unit iq3_s_load(iq3_s_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uvec2 q = mem_ld_uvec2(field, matrix + row * plane_row(n_in, 256, 64) + 8 * u);
  uint h = ((u & 4) != 0 ? b.s.y : b.s.x) >> (8 * (u & 3));
  iq3_s_unit w;
  w.e = uvec4(iq3_s_two(q.x, h), iq3_s_two(q.x >> 16, h >> 2), iq3_s_two(q.y, h >> 4), iq3_s_two(q.y >> 16, h >> 6));
  w.signs = mem_ld_uint(field, matrix + iq3_s_signs(n_in, n_out) + row * plane_row(n_in, 256, 32) + 4 * u);
  w.d = b.d * float(1u + 2u * ((b.s.z >> (4 * (u & 7))) & 15u));
  return w;
}
/* 1 + 2c */
vec4 iq3_s_four(uint e, uint s) { return codes_signed(0x01010101u + 2u * codes_4(e & 0xffffu), s & 15u); }
vec4 iq3_s_lo(iq3_s_unit w, uint k) {
  return iq3_s_four((k < 2 ? w.e.x : w.e.y) >> (16 * (k & 1)), w.signs >> (4 * k)) * w.d;
}
vec4 iq3_s_hi(iq3_s_unit w, uint k) {
  return iq3_s_four((k < 2 ? w.e.z : w.e.w) >> (16 * (k & 1)), w.signs >> (16 + 4 * k)) * w.d;
}

#ifdef DOT8
const bool iq3_s_MIN = false;
struct iq3_s_raw { uvec4 q; uvec2 signs; uint high, s, d; };
iq3_s_raw iq3_s_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  uint64_t s = matrix + iq3_s_scales(n_in, n_out) + row * plane_row(n_in, 256, 12) + (p >> 2) * 12;
  return iq3_s_raw(mem_ld_uvec4(field, matrix + row * plane_row(n_in, 256, 64) + 16 * p),
                   mem_ld_uvec2(field, matrix + iq3_s_signs(n_in, n_out) + row * plane_row(n_in, 256, 32) + 8 * p),
                   mem_ld_uint(field, s + 4 * ((p >> 1) & 1)) >> (16 * (p & 1)), mem_ld_uint(field, s + 8),
                   mem_ld_uint(field, matrix + iq3_s_d(n_in, n_out) + row * plane_row(n_in, 256, 2) + (p >> 3) * 4));
}
uvec4 iq3_s_q8(iq3_s_raw w, uint k) {
  uvec4 m;
  [[unroll]] for (uint j = 0; j < 4; j++) {
    uint c = codes_4(iq3_s_entry(((w.q[k] >> (8 * j)) & 255u) | ((w.high >> (4 * k + j)) & 1u) << 8));
    m[j] = codes_signed_bytes(0x01010101u + 2u * c, (w.signs[k >> 1] >> (16 * (k & 1) + 4 * j)) & 15u);
  }
  return m;
}
void iq3_s_dm(iq3_s_raw w, uint p, out vec4 d, out vec4 m) {
  uint s = w.s >> (8 * (p & 3));
  d = piece_half(w.d, p >> 2) * (1.0 + 2.0 * vec2(s & 15u, (s >> 4) & 15u)).xxyy;
}
#endif
