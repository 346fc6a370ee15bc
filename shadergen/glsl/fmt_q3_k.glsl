/* fmt_q3_k.glsl: Q3_K, blocks of 256, two bits and a third, minus 4, a six-bit scale for every 16 and one f16. */
struct q3_k_unit { uvec2 q; uint high; float d_lo, d_hi; };
struct q3_k_block { uvec3 s; float d; };
const uint q3_k_STEP = 16, q3_k_UNITS = 8;
uint q3_k_base(uint u) { return 32 * u; }
uint64_t q3_k_high(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 256, 64)); }
uint64_t q3_k_scales(uint n_in, uint n_out) {
  return plane_next(q3_k_high(n_in, n_out), n_out, plane_row(n_in, 256, 32));
}
uint64_t q3_k_d(uint n_in, uint n_out) { return plane_next(q3_k_scales(n_in, n_out), n_out, plane_row(n_in, 256, 12)); }
uint64_t q3_k_mat_stride(uint n_in, uint n_out) { return plane_next(q3_k_d(n_in, n_out), n_out, plane_row(n_in, 256, 2)); }
q3_k_block q3_k_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uint64_t s = matrix + q3_k_scales(n_in, n_out) + row * plane_row(n_in, 256, 12) + (u >> 3) * 12;
  return q3_k_block(uvec3(mem_ld_uint(field, s), mem_ld_uint(field, s + 4), mem_ld_uint(field, s + 8)),
                    plane_f16(field, matrix + q3_k_d(n_in, n_out) + row * plane_row(n_in, 256, 2) + (u >> 3) * 2));
}
q3_k_unit q3_k_load(q3_k_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  q3_k_unit w;
  w.q = mem_ld_uvec2(field, matrix + row * plane_row(n_in, 256, 64) + 8 * u);
  w.high = mem_ld_uint(field, matrix + q3_k_high(n_in, n_out) + row * plane_row(n_in, 256, 32) + 4 * u);
  uvec3 s = b.s >> (4 * (u & 7));
  w.d_lo = b.d * (float((s.x & 15u) | ((s.z & 3u) << 4)) - 32.0);
  w.d_hi = b.d * (float((s.y & 15u) | ((s.z & 12u) << 2)) - 32.0);
  return w;
}
vec4 q3_k_lo(q3_k_unit w, uint k) {
  return (bytes_u8(bits2(w.q.x, k) | (((w.high >> k) & 0x01010101u) << 2)) - 4.0) * w.d_lo;
}
vec4 q3_k_hi(q3_k_unit w, uint k) {
  return (bytes_u8(bits2(w.q.y, k) | (((w.high >> (4 + k)) & 0x01010101u) << 2)) - 4.0) * w.d_hi;
}

#ifdef DOT8
const bool q3_k_MIN = true;
struct q3_k_raw { uvec4 q; uvec2 high; uvec3 s; uint d; };
q3_k_raw q3_k_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  uint64_t s = matrix + q3_k_scales(n_in, n_out) + row * plane_row(n_in, 256, 12) + (p >> 2) * 12;
  return q3_k_raw(mem_ld_uvec4(field, matrix + row * plane_row(n_in, 256, 64) + 16 * p),
                  mem_ld_uvec2(field, matrix + q3_k_high(n_in, n_out) + row * plane_row(n_in, 256, 32) + 8 * p),
                  uvec3(mem_ld_uint(field, s), mem_ld_uint(field, s + 4), mem_ld_uint(field, s + 8)),
                  mem_ld_uint(field, matrix + q3_k_d(n_in, n_out) + row * plane_row(n_in, 256, 2) + (p >> 3) * 4));
}
uvec4 q3_k_q8(q3_k_raw w, uint k) {
  return four_bits2(w.q[k]) | fifth_bits(w.high[k >> 1] >> (4 * (k & 1))) >> 2;
}
void q3_k_dm(q3_k_raw w, uint p, out vec4 d, out vec4 m) {
  uvec3 s = w.s >> (8 * (p & 3));
  uvec4 n = uvec4((s.x & 15u) | ((s.z & 3u) << 4), (s.y & 15u) | ((s.z & 12u) << 2),
                  ((s.x >> 4) & 15u) | (((s.z >> 4) & 3u) << 4), ((s.y >> 4) & 15u) | (((s.z >> 4) & 12u) << 2));
  d = piece_half(w.d, p >> 2) * (vec4(n) - 32.0);
  m = 4.0 * d;
}
#endif
