/* fmt_q8_0.glsl: Q8_0, blocks of 32 with one scale. */
struct q8_0_unit { uvec4 lo, hi; float d; };
struct q8_0_block { float d; };
const uint q8_0_STEP = 16, q8_0_UNITS = 1;
uint q8_0_base(uint u) { return 32 * u; }
uint64_t q8_0_scales(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 32, 32)); }
uint64_t q8_0_mat_stride(uint n_in, uint n_out) {
  return plane_next(q8_0_scales(n_in, n_out), n_out, plane_row(n_in, 32, 2));
}
q8_0_block q8_0_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return q8_0_block(plane_f16(field, matrix + q8_0_scales(n_in, n_out) + row * plane_row(n_in, 32, 2) + 2 * u));
}
q8_0_unit q8_0_load(q8_0_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uint64_t a = matrix + row * plane_row(n_in, 32, 32) + 32 * u;
  q8_0_unit w;
  w.lo = mem_ld_uvec4(field, a);
  w.hi = mem_ld_uvec4(field, a + 16);
  w.d = b.d;
  return w;
}
vec4 q8_0_lo(q8_0_unit w, uint k) { return bytes_s8(w.lo[k]) * w.d; }
vec4 q8_0_hi(q8_0_unit w, uint k) { return bytes_s8(w.hi[k]) * w.d; }

#ifdef DOT8
const bool q8_0_MIN = false;
struct q8_0_raw { uvec4 q[4]; uint s; };
q8_0_raw q8_0_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  uint64_t q = matrix + row * plane_row(n_in, 32, 32), second = q + 32 * piece_second(n_in, p);
  q += 64 * p;
  return q8_0_raw(uvec4[4](mem_ld_uvec4(field, q), mem_ld_uvec4(field, q + 16), mem_ld_uvec4(field, second),
                           mem_ld_uvec4(field, second + 16)),
                  mem_ld_uint(field, matrix + q8_0_scales(n_in, n_out) + row * plane_row(n_in, 32, 2) + 4 * p));
}
uvec4 q8_0_q8(q8_0_raw w, uint k) { return w.q[k]; }
void q8_0_dm(q8_0_raw w, uint p, out vec4 d, out vec4 m) { d = unpackHalf2x16(w.s).xxyy; }
#endif
