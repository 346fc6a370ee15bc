/* fmt_iq1_m.glsl: IQ1_M, blocks of 256: eleven bits of grid index and a delta for eight weights, a three-bit scale for every 16. */
struct iq1_m_unit { uvec2 e; uint h; float d_lo, d_hi; };
struct iq1_m_block { uvec4 h; uvec2 s; }; /* a unit: a nibble an index; d and the scales */
const uint iq1_m_STEP = 16, iq1_m_UNITS = 8;
uint iq1_m_base(uint u) { return 32 * u; }
uint64_t iq1_m_high(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 256, 32)); }
uint64_t iq1_m_scales(uint n_in, uint n_out) {
  return plane_next(iq1_m_high(n_in, n_out), n_out, plane_row(n_in, 256, 16));
}
uint64_t iq1_m_mat_stride(uint n_in, uint n_out) {
  return plane_next(iq1_m_scales(n_in, n_out), n_out, plane_row(n_in, 256, 8));
}
iq1_m_block iq1_m_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return iq1_m_block(mem_ld_uvec4(field, matrix + iq1_m_high(n_in, n_out) + row * plane_row(n_in, 256, 16) + (u >> 3) * 16),
                     mem_ld_uvec2(field, matrix + iq1_m_scales(n_in, n_out) + row * plane_row(n_in, 256, 8) + (u >> 3) * 8));
}
/* Entry of an index whose nibble is the low four bits of h. */
uint iq1_m_of(uint low, uint h) { return iq1_entry((low & 255u) | ((h & 7u) << 8)); }
iq1_m_unit iq1_m_load(iq1_m_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uint q = mem_ld_uint(field, matrix + row * plane_row(n_in, 256, 32) + 4 * u);
  uint at = 16 + 6 * (u & 7);
  uint s = uint(packUint2x32(b.s) >> at);
  float d = unpackHalf2x16(b.s.x).x;
  iq1_m_unit w;
  w.h = b.h[(u >> 1) & 3] >> (16 * (u & 1));
  w.e.x = iq1_m_of(q, w.h) | (iq1_m_of(q >> 8, w.h >> 4) << 16);
  w.e.y = iq1_m_of(q >> 16, w.h >> 8) | (iq1_m_of(q >> 24, w.h >> 12) << 16);
  w.d_lo = d * float(2u * (s & 7u) + 1u);
  w.d_hi = d * float(2u * ((s >> 3) & 7u) + 1u);
  return w;
}
/* e: four codes; down: the sign of their delta. Codes stand for -1, 0, 1. */
vec4 iq1_m_four(uint e, uint down) { return bytes_u8(codes_2(e & 255u)) + ((down & 1u) != 0u ? -1.125 : -0.875); }
vec4 iq1_m_lo(iq1_m_unit w, uint k) { return iq1_m_four(w.e.x >> (8 * k), w.h >> (3 + 4 * (k >> 1))) * w.d_lo; }
vec4 iq1_m_hi(iq1_m_unit w, uint k) { return iq1_m_four(w.e.y >> (8 * k), w.h >> (11 + 4 * (k >> 1))) * w.d_hi; }

#ifdef DOT8
const bool iq1_m_MIN = true;
struct iq1_m_raw { uvec2 q, s; uint high; };
iq1_m_raw iq1_m_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  return iq1_m_raw(mem_ld_uvec2(field, matrix + row * plane_row(n_in, 256, 32) + 8 * p),
                   mem_ld_uvec2(field, matrix + iq1_m_scales(n_in, n_out) + row * plane_row(n_in, 256, 8) + (p >> 2) * 8),
                   mem_ld_uint(field, matrix + iq1_m_high(n_in, n_out) + row * plane_row(n_in, 256, 16) + 4 * p));
}
/* Eight times the weight plus 9. */
uvec4 iq1_m_q8(iq1_m_raw w, uint k) {
  uint q = w.q[k >> 1] >> (16 * (k & 1)), h = w.high >> (8 * k);
  return codes_iq1_q8(iq1_m_of(q, h), iq1_m_of(q >> 8, h >> 4),
                      uvec2((h & 8u) != 0u ? 0u : 0x02020202u, (h & 128u) != 0u ? 0u : 0x02020202u));
}
void iq1_m_dm(iq1_m_raw w, uint p, out vec4 d, out vec4 m) {
  uint s = uint(packUint2x32(w.s) >> (16 + 12 * (p & 3)));
  d = unpackHalf2x16(w.s.x).x * 0.125 *
      (1.0 + 2.0 * vec4(s & 7u, (s >> 3) & 7u, (s >> 6) & 7u, (s >> 9) & 7u));
  m = 9.0 * d;
}
#endif
