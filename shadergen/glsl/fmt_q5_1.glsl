/* fmt_q5_1.glsl: Q5_1, blocks of 32 with a scale and a minimum, four bits and a fifth. */
struct q5_1_unit { uvec4 q; uint high; vec2 d; };
struct q5_1_block { vec2 d; }; /* scale, minimum */
const uint q5_1_STEP = 16, q5_1_UNITS = 1;
uint q5_1_base(uint u) { return 32 * u; }
uint64_t q5_1_high(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 32, 16)); }
uint64_t q5_1_scales(uint n_in, uint n_out) {
  return plane_next(q5_1_high(n_in, n_out), n_out, plane_row(n_in, 32, 4));
}
uint64_t q5_1_mat_stride(uint n_in, uint n_out) {
  return plane_next(q5_1_scales(n_in, n_out), n_out, plane_row(n_in, 32, 4));
}
q5_1_block q5_1_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uint64_t p = matrix + q5_1_scales(n_in, n_out) + row * plane_row(n_in, 32, 4) + 4 * u;
  return q5_1_block(unpackHalf2x16(mem_ld_uint(field, p)));
}
q5_1_unit q5_1_load(q5_1_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  q5_1_unit w;
  w.q = mem_ld_uvec4(field, matrix + row * plane_row(n_in, 32, 16) + 16 * u);
  w.high = mem_ld_uint(field, matrix + q5_1_high(n_in, n_out) + row * plane_row(n_in, 32, 4) + 4 * u);
  w.d = b.d;
  return w;
}
vec4 q5_1_lo(q5_1_unit w, uint k) {
  return bytes_u8((w.q[k] & 0x0f0f0f0fu) | (((w.high >> k) & 0x01010101u) << 4)) * w.d.x + w.d.y;
}
vec4 q5_1_hi(q5_1_unit w, uint k) {
  return bytes_u8(((w.q[k] >> 4) & 0x0f0f0f0fu) | (((w.high >> (4 + k)) & 0x01010101u) << 4)) * w.d.x + w.d.y;
}

#ifdef DOT8
const bool q5_1_MIN = true;
struct q5_1_raw { uvec4 q[2]; uvec2 high; uvec2 s; };
q5_1_raw q5_1_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  q5_1_raw w;
  uint64_t q = matrix + row * plane_row(n_in, 32, 16);
  w.q[0] = mem_ld_uvec4(field, q + 32 * p);
  w.q[1] = mem_ld_uvec4(field, q + 16 * piece_second(n_in, p));
  w.high = mem_ld_uvec2(field, matrix + q5_1_high(n_in, n_out) + row * plane_row(n_in, 32, 4) + 8 * p);
  w.s = mem_ld_uvec2(field, matrix + q5_1_scales(n_in, n_out) + row * plane_row(n_in, 32, 4) + 8 * p);
  return w;
}
uvec4 q5_1_q8(q5_1_raw w, uint k) { return nibbles_16(w.q, k) | fifth_bits(w.high[k >> 1] >> (4 * (k & 1))); }
void q5_1_dm(q5_1_raw w, uint p, out vec4 d, out vec4 m) {
  vec4 s = vec4(unpackHalf2x16(w.s.x), unpackHalf2x16(w.s.y));
  d = s.xxzz;
  m = -s.yyww;
}
#endif
