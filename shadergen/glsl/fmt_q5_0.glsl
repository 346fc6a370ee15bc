/* fmt_q5_0.glsl: Q5_0, blocks of 32 with one scale, four bits and a fifth, minus 16. */
struct q5_0_unit { uvec4 q; uint high; float d; };
struct q5_0_block { float d; };
const uint q5_0_STEP = 16, q5_0_UNITS = 1;
uint q5_0_base(uint u) { return 32 * u; }
uint64_t q5_0_high(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 32, 16)); }
uint64_t q5_0_scales(uint n_in, uint n_out) {
  return plane_next(q5_0_high(n_in, n_out), n_out, plane_row(n_in, 32, 4));
}
uint64_t q5_0_mat_stride(uint n_in, uint n_out) {
  return plane_next(q5_0_scales(n_in, n_out), n_out, plane_row(n_in, 32, 2));
}
q5_0_block q5_0_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return q5_0_block(plane_f16(field, matrix + q5_0_scales(n_in, n_out) + row * plane_row(n_in, 32, 2) + 2 * u));
}
q5_0_unit q5_0_load(q5_0_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  q5_0_unit w;
  w.q = mem_ld_uvec4(field, matrix + row * plane_row(n_in, 32, 16) + 16 * u);
  w.high = mem_ld_uint(field, matrix + q5_0_high(n_in, n_out) + row * plane_row(n_in, 32, 4) + 4 * u);
  w.d = b.d;
  return w;
}
vec4 q5_0_lo(q5_0_unit w, uint k) {
  return (bytes_u8((w.q[k] & 0x0f0f0f0fu) | (((w.high >> k) & 0x01010101u) << 4)) - 16.0) * w.d;
}
vec4 q5_0_hi(q5_0_unit w, uint k) {
  return (bytes_u8(((w.q[k] >> 4) & 0x0f0f0f0fu) | (((w.high >> (4 + k)) & 0x01010101u) << 4)) - 16.0) * w.d;
}

#ifdef DOT8
const bool q5_0_MIN = true;
struct q5_0_raw { uvec4 q[2]; uvec2 high; uint s; };
q5_0_raw q5_0_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  q5_0_raw w;
  uint64_t q = matrix + row * plane_row(n_in, 32, 16);
  w.q[0] = mem_ld_uvec4(field, q + 32 * p);
  w.q[1] = mem_ld_uvec4(field, q + 16 * piece_second(n_in, p));
  w.high = mem_ld_uvec2(field, matrix + q5_0_high(n_in, n_out) + row * plane_row(n_in, 32, 4) + 8 * p);
  w.s = mem_ld_uint(field, matrix + q5_0_scales(n_in, n_out) + row * plane_row(n_in, 32, 2) + 4 * p);
  return w;
}
uvec4 q5_0_q8(q5_0_raw w, uint k) { return nibbles_16(w.q, k) | fifth_bits(w.high[k >> 1] >> (4 * (k & 1))); }
void q5_0_dm(q5_0_raw w, uint p, out vec4 d, out vec4 m) {
  d = unpackHalf2x16(w.s).xxyy;
  m = 16.0 * d;
}
#endif
