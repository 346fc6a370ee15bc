/* fmt_iq2_s.glsl: IQ2_S, blocks of 256: ten bits of grid index and eight of signs for eight weights, a four-bit scale for every 16. */
struct iq2_s_unit { uvec2 e; uint signs; float d_lo, d_hi; };
struct iq2_s_block { uvec4 s; float d; }; /* a unit: 8 high bits of its indices, two scales */
const uint iq2_s_STEP = 16, iq2_s_UNITS = 8;
uint iq2_s_base(uint u) { return 32 * u; }
uint64_t iq2_s_scales(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 256, 64)); }
uint64_t iq2_s_d(uint n_in, uint n_out) {
  return plane_next(iq2_s_scales(n_in, n_out), n_out, plane_row(n_in, 256, 16));
}
uint64_t iq2_s_mat_stride(uint n_in, uint n_out) {
  return plane_next(iq2_s_d(n_in, n_out), n_out, plane_row(n_in, 256, 2));
}
iq2_s_block iq2_s_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return iq2_s_block(mem_ld_uvec4(field, matrix + iq2_s_scales(n_in, n_out) + row * plane_row(n_in, 256, 16) + (u >> 3) * 16),
                     plane_f16(field, matrix + iq2_s_d(n_in, n_out) + row * plane_row(n_in, 256, 2) + (u >> 3) * 2));
}
iq2_s_unit iq2_s_load(iq2_s_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uvec2 q = mem_ld_uvec2(field, matrix + row * plane_row(n_in, 256, 64) + 8 * u);
  uint s = b.s[(u >> 1) & 3] >> (16 * (u & 1));
  iq2_s_unit w;
  w.e.x = iq2_s_entry((q.x & 255u) | ((s & 3u) << 8)) | (iq2_s_entry(((q.x >> 8) & 255u) | ((s & 12u) << 6)) << 16);
  w.e.y = iq2_s_entry(((q.x >> 16) & 255u) | ((s & 48u) << 4)) | (iq2_s_entry((q.x >> 24) | ((s & 192u) << 2)) << 16);
  w.signs = q.y;
  w.d_lo = b.d * (0.5 + float((s >> 8) & 15u)) * 0.25;
  w.d_hi = b.d * (0.5 + float((s >> 12) & 15u)) * 0.25;
  return w;
}
vec4 iq2_s_lo(iq2_s_unit w, uint k) { return codes_iq2(w.e.x >> (8 * k), w.signs >> (4 * k)) * w.d_lo; }
vec4 iq2_s_hi(iq2_s_unit w, uint k) { return codes_iq2(w.e.y >> (8 * k), w.signs >> (16 + 4 * k)) * w.d_hi; }

#ifdef DOT8
const bool iq2_s_MIN = false;
struct iq2_s_raw { uvec4 q; uint s, d; };
iq2_s_raw iq2_s_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  return iq2_s_raw(mem_ld_uvec4(field, matrix + row * plane_row(n_in, 256, 64) + 16 * p),
                   mem_ld_uint(field, matrix + iq2_s_scales(n_in, n_out) + row * plane_row(n_in, 256, 16) + 4 * p),
                   mem_ld_uint(field, matrix + iq2_s_d(n_in, n_out) + row * plane_row(n_in, 256, 2) + (p >> 3) * 4));
}
uvec4 iq2_s_q8(iq2_s_raw w, uint k) {
  uint q = w.q[k & 2] >> (16 * (k & 1)), high = w.s >> (16 * (k >> 1) + 4 * (k & 1));
  return codes_iq2_q8(iq2_s_entry((q & 255u) | ((high & 3u) << 8)), iq2_s_entry(((q >> 8) & 255u) | ((high & 12u) << 6)),
                      w.q[(k & 2) + 1] >> (16 * (k & 1)));
}
void iq2_s_dm(iq2_s_raw w, uint p, out vec4 d, out vec4 m) {
  d = piece_half(w.d, p >> 2) * 0.25 *
      (0.5 + vec4((w.s >> 8) & 15u, (w.s >> 12) & 15u, (w.s >> 24) & 15u, w.s >> 28));
}
#endif
