/* fmt_q4_1.glsl: Q4_1, blocks of 32 with a scale and a minimum. */
struct q4_1_unit { uvec4 q; vec2 d; };
struct q4_1_block { vec2 d; }; /* scale, minimum */
const uint q4_1_STEP = 16, q4_1_UNITS = 1;
uint q4_1_base(uint u) { return 32 * u; }
uint64_t q4_1_scales(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 32, 16)); }
uint64_t q4_1_mat_stride(uint n_in, uint n_out) {
  return plane_next(q4_1_scales(n_in, n_out), n_out, plane_row(n_in, 32, 4));
}
q4_1_block q4_1_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uint64_t p = matrix + q4_1_scales(n_in, n_out) + row * plane_row(n_in, 32, 4) + 4 * u;
  return q4_1_block(unpackHalf2x16(mem_ld_uint(field, p)));
}
q4_1_unit q4_1_load(q4_1_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  q4_1_unit w;
  w.q = mem_ld_uvec4(field, matrix + row * plane_row(n_in, 32, 16) + 16 * u);
  w.d = b.d;
  return w;
}
vec4 q4_1_lo(q4_1_unit w, uint k) { return bytes_u8(w.q[k] & 0x0f0f0f0fu) * w.d.x + w.d.y; }
vec4 q4_1_hi(q4_1_unit w, uint k) { return bytes_u8((w.q[k] >> 4) & 0x0f0f0f0fu) * w.d.x + w.d.y; }

#ifdef DOT8
const bool q4_1_MIN = true;
struct q4_1_raw { uvec4 q[2]; uvec2 s; };
q4_1_raw q4_1_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  q4_1_raw w;
  uint64_t q = matrix + row * plane_row(n_in, 32, 16);
  w.q[0] = mem_ld_uvec4(field, q + 32 * p);
  w.q[1] = mem_ld_uvec4(field, q + 16 * piece_second(n_in, p));
  w.s = mem_ld_uvec2(field, matrix + q4_1_scales(n_in, n_out) + row * plane_row(n_in, 32, 4) + 8 * p);
  return w;
}
uvec4 q4_1_q8(q4_1_raw w, uint k) { return nibbles_16(w.q, k); }
void q4_1_dm(q4_1_raw w, uint p, out vec4 d, out vec4 m) {
  vec4 s = vec4(unpackHalf2x16(w.s.x), unpackHalf2x16(w.s.y));
  d = s.xxzz;
  m = -s.yyww;
}
#endif
