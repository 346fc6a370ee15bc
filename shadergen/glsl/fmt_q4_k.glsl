/* fmt_q4_k.glsl: Q4_K, blocks of 256, six-bit scales and minima for every 32. */
#ifndef SCALE_K
#define SCALE_K
#include "scale_k.glsl"
#endif
struct q4_k_unit { uvec4 q; scale_k s; };
struct q4_k_block { uvec4 s; };
const uint q4_k_STEP = 32, q4_k_UNITS = 8;
uint q4_k_base(uint u) { return unit_base_256(u); }
uint64_t q4_k_scales(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 256, 128)); }
uint64_t q4_k_mat_stride(uint n_in, uint n_out) {
  return plane_next(q4_k_scales(n_in, n_out), n_out, plane_row(n_in, 256, 16));
}
q4_k_block q4_k_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return q4_k_block(mem_ld_uvec4(field, matrix + q4_k_scales(n_in, n_out) + row * plane_row(n_in, 256, 16) + (u >> 3) * 16));
}
q4_k_unit q4_k_load(q4_k_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  q4_k_unit w;
  w.q = mem_ld_uvec4(field, matrix + row * plane_row(n_in, 256, 128) + 16 * u);
  w.s = scale_k_of(b.s, (u >> 1) & 3);
  return w;
}
vec4 q4_k_lo(q4_k_unit w, uint k) { return bytes_u8(w.q[k] & 0x0f0f0f0fu) * w.s.d_lo - w.s.m_lo; }
vec4 q4_k_hi(q4_k_unit w, uint k) { return bytes_u8((w.q[k] >> 4) & 0x0f0f0f0fu) * w.s.d_hi - w.s.m_hi; }

#ifdef DOT8
const bool q4_k_MIN = true;
struct q4_k_raw { uvec4 q[2], s; };
q4_k_raw q4_k_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  uint64_t q = matrix + row * plane_row(n_in, 256, 128) + 32 * p;
  q4_k_raw w;
  w.q[0] = mem_ld_uvec4(field, q);
  w.q[1] = mem_ld_uvec4(field, q + 16);
  w.s = mem_ld_uvec4(field, matrix + q4_k_scales(n_in, n_out) + row * plane_row(n_in, 256, 16) + (p >> 2) * 16);
  return w;
}
uvec4 q4_k_q8(q4_k_raw w, uint k) { return nibbles_32(w.q, k); }
void q4_k_dm(q4_k_raw w, uint p, out vec4 d, out vec4 m) {
  scale_k s = scale_k_of(w.s, p & 3);
  d = vec2(s.d_lo, s.d_hi).xxyy;
  m = vec2(s.m_lo, s.m_hi).xxyy;
}
#endif
