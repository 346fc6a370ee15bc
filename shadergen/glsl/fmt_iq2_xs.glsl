/* fmt_iq2_xs.glsl: IQ2_XS, blocks of 256: nine bits of grid index and seven of signs for eight weights, a four-bit scale for every 16. */
struct iq2_xs_unit { uvec2 e; uint signs; float d_lo, d_hi; };
struct iq2_xs_block { uvec2 s; float d; }; /* eight bytes of scales */
const uint iq2_xs_STEP = 16, iq2_xs_UNITS = 8;
uint iq2_xs_base(uint u) { return 32 * u; }
uint64_t iq2_xs_scales(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 256, 64)); }
uint64_t iq2_xs_d(uint n_in, uint n_out) {
  return plane_next(iq2_xs_scales(n_in, n_out), n_out, plane_row(n_in, 256, 8));
}
uint64_t iq2_xs_mat_stride(uint n_in, uint n_out) {
  return plane_next(iq2_xs_d(n_in, n_out), n_out, plane_row(n_in, 256, 2));
}
iq2_xs_block iq2_xs_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return iq2_xs_block(mem_ld_uvec2(field, matrix + iq2_xs_scales(n_in, n_out) + row * plane_row(n_in, 256, 8) + (u >> 3) * 8),
                      plane_f16(field, matrix + iq2_xs_d(n_in, n_out) + row * plane_row(n_in, 256, 2) + (u >> 3) * 2));
}
iq2_xs_unit iq2_xs_load(iq2_xs_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uvec2 q = mem_ld_uvec2(field, matrix + row * plane_row(n_in, 256, 64) + 8 * u);
  uint s = b.s[(u >> 2) & 1] >> (8 * (u & 3));
  iq2_xs_unit w;
  w.e.x = iq2_xs_entry(q.x & 511u) | (iq2_xs_entry((q.x >> 16) & 511u) << 16);
  w.e.y = iq2_xs_entry(q.y & 511u) | (iq2_xs_entry((q.y >> 16) & 511u) << 16);
  uvec2 seven = (q >> 9) & 0x007f007fu; /* two runs of seven bits in each */
  seven = (seven | (seven >> 9)) & 0x3fffu;
  w.signs = codes_even_signs(seven.x | (seven.y << 14));
  w.d_lo = b.d * (0.5 + float(s & 15u)) * 0.25;
  w.d_hi = b.d * (0.5 + float((s >> 4) & 15u)) * 0.25;
  return w;
}
vec4 iq2_xs_lo(iq2_xs_unit w, uint k) { return codes_iq2(w.e.x >> (8 * k), w.signs >> (4 * k)) * w.d_lo; }
vec4 iq2_xs_hi(iq2_xs_unit w, uint k) { return codes_iq2(w.e.y >> (8 * k), w.signs >> (16 + 4 * k)) * w.d_hi; }

#ifdef DOT8
const bool iq2_xs_MIN = false;
struct iq2_xs_raw { uvec4 q; uint s, d; };
iq2_xs_raw iq2_xs_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  return iq2_xs_raw(mem_ld_uvec4(field, matrix + row * plane_row(n_in, 256, 64) + 16 * p),
                    mem_ld_uint(field, matrix + iq2_xs_scales(n_in, n_out) + row * plane_row(n_in, 256, 8) + (p >> 1) * 4),
                    mem_ld_uint(field, matrix + iq2_xs_d(n_in, n_out) + row * plane_row(n_in, 256, 2) + (p >> 3) * 4));
}
uvec4 iq2_xs_q8(iq2_xs_raw w, uint k) {
  uint seven = (w.q[k] >> 9) & 0x007f007fu;
  return codes_iq2_q8(iq2_xs_entry(w.q[k] & 511u), iq2_xs_entry((w.q[k] >> 16) & 511u),
                      codes_even_signs((seven | seven >> 9) & 0x3fffu));
}
void iq2_xs_dm(iq2_xs_raw w, uint p, out vec4 d, out vec4 m) {
  uint s = w.s >> (16 * (p & 1));
  d = piece_half(w.d, p >> 2) * 0.25 * (0.5 + vec4(s & 15u, (s >> 4) & 15u, (s >> 8) & 15u, (s >> 12) & 15u));
}
#endif
