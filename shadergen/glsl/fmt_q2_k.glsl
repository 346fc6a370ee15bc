/* fmt_q2_k.glsl: Q2_K, blocks of 256, two bits, a four-bit scale and minimum for every 16. */
struct q2_k_unit { uvec2 q; vec4 d; }; /* d: scale and minimum of the low run, of the high run */
struct q2_k_block { uvec4 s; vec2 d; };
const uint q2_k_STEP = 16, q2_k_UNITS = 8;
uint q2_k_base(uint u) { return 32 * u; }
uint64_t q2_k_scales(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 256, 64)); }
uint64_t q2_k_d(uint n_in, uint n_out) { return plane_next(q2_k_scales(n_in, n_out), n_out, plane_row(n_in, 256, 16)); }
uint64_t q2_k_mat_stride(uint n_in, uint n_out) { return plane_next(q2_k_d(n_in, n_out), n_out, plane_row(n_in, 256, 4)); }
q2_k_block q2_k_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uint64_t d = matrix + q2_k_d(n_in, n_out) + row * plane_row(n_in, 256, 4) + (u >> 3) * 4;
  return q2_k_block(mem_ld_uvec4(field, matrix + q2_k_scales(n_in, n_out) + row * plane_row(n_in, 256, 16) + (u >> 3) * 16),
                    unpackHalf2x16(mem_ld_uint(field, d)));
}
q2_k_unit q2_k_load(q2_k_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uint t = b.s[(u >> 1) & 3] >> (16 * (u & 1));
  vec4 s = vec4(t & 15u, (t >> 4) & 15u, (t >> 8) & 15u, (t >> 12) & 15u);
  return q2_k_unit(mem_ld_uvec2(field, matrix + row * plane_row(n_in, 256, 64) + 8 * u), s * b.d.xyxy);
}
vec4 q2_k_lo(q2_k_unit w, uint k) { return bytes_u8(bits2(w.q.x, k)) * w.d.x - w.d.y; }
vec4 q2_k_hi(q2_k_unit w, uint k) { return bytes_u8(bits2(w.q.y, k)) * w.d.z - w.d.w; }

#ifdef DOT8
const bool q2_k_MIN = true;
struct q2_k_raw { uvec4 q; uint s, d; };
q2_k_raw q2_k_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  return q2_k_raw(mem_ld_uvec4(field, matrix + row * plane_row(n_in, 256, 64) + 16 * p),
                  mem_ld_uint(field, matrix + q2_k_scales(n_in, n_out) + row * plane_row(n_in, 256, 16) + 4 * p),
                  mem_ld_uint(field, matrix + q2_k_d(n_in, n_out) + row * plane_row(n_in, 256, 4) + (p >> 2) * 4));
}
uvec4 q2_k_q8(q2_k_raw w, uint k) { return four_bits2(w.q[k]); }
void q2_k_dm(q2_k_raw w, uint p, out vec4 d, out vec4 m) {
  vec2 s = unpackHalf2x16(w.d);
  d = s.x * bytes_u8(w.s & 0x0f0f0f0fu);
  m = s.y * bytes_u8((w.s >> 4) & 0x0f0f0f0fu);
}
#endif
