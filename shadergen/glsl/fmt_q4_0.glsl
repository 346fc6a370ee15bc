/* fmt_q4_0.glsl: Q4_0, blocks of 32 with one scale, quants minus 8. */
struct q4_0_unit { uvec4 q; float d; };
struct q4_0_block { float d; };
const uint q4_0_STEP = 16, q4_0_UNITS = 1;
uint q4_0_base(uint u) { return 32 * u; }
uint64_t q4_0_scales(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 32, 16)); }
uint64_t q4_0_mat_stride(uint n_in, uint n_out) {
  return plane_next(q4_0_scales(n_in, n_out), n_out, plane_row(n_in, 32, 2));
}
q4_0_block q4_0_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return q4_0_block(plane_f16(field, matrix + q4_0_scales(n_in, n_out) + row * plane_row(n_in, 32, 2) + 2 * u));
}
q4_0_unit q4_0_load(q4_0_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  q4_0_unit w;
  w.q = mem_ld_uvec4(field, matrix + row * plane_row(n_in, 32, 16) + 16 * u);
  w.d = b.d;
  return w;
}
vec4 q4_0_lo(q4_0_unit w, uint k) { return (bytes_u8(w.q[k] & 0x0f0f0f0fu) - 8.0) * w.d; }
vec4 q4_0_hi(q4_0_unit w, uint k) { return (bytes_u8((w.q[k] >> 4) & 0x0f0f0f0fu) - 8.0) * w.d; }

#ifdef DOT8
const bool q4_0_MIN = true;
struct q4_0_raw { uvec4 q[2]; uint s; };
q4_0_raw q4_0_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  q4_0_raw w;
  uint64_t q = matrix + row * plane_row(n_in, 32, 16);
  w.q[0] = mem_ld_uvec4(field, q + 32 * p);
  w.q[1] = mem_ld_uvec4(field, q + 16 * piece_second(n_in, p));
  w.s = mem_ld_uint(field, matrix + q4_0_scales(n_in, n_out) + row * plane_row(n_in, 32, 2) + 4 * p);
  return w;
}
uvec4 q4_0_q8(q4_0_raw w, uint k) { return nibbles_16(w.q, k); }
void q4_0_dm(q4_0_raw w, uint p, out vec4 d, out vec4 m) {
  d = unpackHalf2x16(w.s).xxyy;
  m = 8.0 * d;
}
#endif
