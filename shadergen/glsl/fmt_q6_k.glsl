/* fmt_q6_k.glsl: Q6_K, blocks of 256, six bits minus 32, an int8 scale for every 16 and one f16. */
struct q6_k_unit { uvec4 q; uvec2 high; float d_lo, d_hi; };
struct q6_k_block { uvec4 s; float d; }; /* 16 int8 scales, and f16 d */
const uint q6_k_STEP = 32, q6_k_UNITS = 8;
uint q6_k_base(uint u) { return unit_base_256(u); }
uint64_t q6_k_high(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 256, 128)); }
uint64_t q6_k_scales(uint n_in, uint n_out) {
  return plane_next(q6_k_high(n_in, n_out), n_out, plane_row(n_in, 256, 64));
}
uint64_t q6_k_d(uint n_in, uint n_out) {
  return plane_next(q6_k_scales(n_in, n_out), n_out, plane_row(n_in, 256, 16));
}
uint64_t q6_k_mat_stride(uint n_in, uint n_out) { return plane_next(q6_k_d(n_in, n_out), n_out, plane_row(n_in, 256, 2)); }
q6_k_block q6_k_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return q6_k_block(mem_ld_uvec4(field, matrix + q6_k_scales(n_in, n_out) + row * plane_row(n_in, 256, 16) + (u >> 3) * 16),
                    plane_f16(field, matrix + q6_k_d(n_in, n_out) + row * plane_row(n_in, 256, 2) + (u >> 3) * 2));
}
q6_k_unit q6_k_load(q6_k_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  q6_k_unit w;
  w.q = mem_ld_uvec4(field, matrix + row * plane_row(n_in, 256, 128) + 16 * u);
  w.high = mem_ld_uvec2(field, matrix + q6_k_high(n_in, n_out) + row * plane_row(n_in, 256, 64) + 8 * u);
  uint t = b.s[(u >> 1) & 3] >> (8 * (u & 1));
  w.d_lo = b.d * float(int(t << 24) >> 24);
  w.d_hi = b.d * float(int(t << 8) >> 24);
  return w;
}
vec4 q6_k_lo(q6_k_unit w, uint k) {
  return (bytes_u8((w.q[k] & 0x0f0f0f0fu) | (((w.high.x >> (2 * k)) & 0x03030303u) << 4)) - 32.0) * w.d_lo;
}
vec4 q6_k_hi(q6_k_unit w, uint k) {
  return (bytes_u8(((w.q[k] >> 4) & 0x0f0f0f0fu) | (((w.high.y >> (2 * k)) & 0x03030303u) << 4)) - 32.0) * w.d_hi;
}

#ifdef DOT8
const bool q6_k_MIN = true;
struct q6_k_raw { uvec4 q[2], high; uint s, d; };
q6_k_raw q6_k_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  uint64_t q = matrix + row * plane_row(n_in, 256, 128) + 32 * p;
  q6_k_raw w;
  w.q[0] = mem_ld_uvec4(field, q);
  w.q[1] = mem_ld_uvec4(field, q + 16);
  w.high = mem_ld_uvec4(field, matrix + q6_k_high(n_in, n_out) + row * plane_row(n_in, 256, 64) + 16 * p);
  w.s = mem_ld_uint(field, matrix + q6_k_scales(n_in, n_out) + row * plane_row(n_in, 256, 16) + 4 * p);
  w.d = mem_ld_uint(field, matrix + q6_k_d(n_in, n_out) + row * plane_row(n_in, 256, 2) + (p >> 3) * 4);
  return w;
}
uvec4 q6_k_q8(q6_k_raw w, uint k) {
  return nibbles_32(w.q, k) | four_bits2(w.high[2 * (k & 1) + (k >> 1)]) << 4;
}
void q6_k_dm(q6_k_raw w, uint p, out vec4 d, out vec4 m) {
  d = piece_half(w.d, p >> 2) * bytes_s8(w.s);
  m = 32.0 * d;
}
#endif
