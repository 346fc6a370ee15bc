/* fmt_iq2_xxs.glsl: IQ2_XXS, blocks of 256: eight weights a grid entry, seven sign bits for them, a four-bit scale for every 32. */
struct iq2_xxs_unit { uvec2 e; uint signs; float d; };
struct iq2_xxs_block { float d; };
const uint iq2_xxs_STEP = 16, iq2_xxs_UNITS = 8;
uint iq2_xxs_base(uint u) { return 32 * u; }
uint64_t iq2_xxs_d(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 256, 64)); }
uint64_t iq2_xxs_mat_stride(uint n_in, uint n_out) {
  return plane_next(iq2_xxs_d(n_in, n_out), n_out, plane_row(n_in, 256, 2));
}
iq2_xxs_block iq2_xxs_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return iq2_xxs_block(plane_f16(field, matrix + iq2_xxs_d(n_in, n_out) + row * plane_row(n_in, 256, 2) + (u >> 3) * 2));
}
iq2_xxs_unit iq2_xxs_load(iq2_xxs_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uvec2 q = mem_ld_uvec2(field, matrix + row * plane_row(n_in, 256, 64) + 8 * u);
  iq2_xxs_unit w;
  w.e.x = iq2_xxs_entry(q.x & 255u) | (iq2_xxs_entry((q.x >> 8) & 255u) << 16);
  w.e.y = iq2_xxs_entry((q.x >> 16) & 255u) | (iq2_xxs_entry(q.x >> 24) << 16);
  w.signs = codes_even_signs(q.y);
  w.d = b.d * (0.5 + float(q.y >> 28)) * 0.25;
  return w;
}
vec4 iq2_xxs_lo(iq2_xxs_unit w, uint k) { return codes_iq2(w.e.x >> (8 * k), w.signs >> (4 * k)) * w.d; }
vec4 iq2_xxs_hi(iq2_xxs_unit w, uint k) { return codes_iq2(w.e.y >> (8 * k), w.signs >> (16 + 4 * k)) * w.d; }

#ifdef DOT8
const bool iq2_xxs_MIN = false;
struct iq2_xxs_raw { uvec4 q; uint d; };
iq2_xxs_raw iq2_xxs_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  return iq2_xxs_raw(mem_ld_uvec4(field, matrix + row * plane_row(n_in, 256, 64) + 16 * p),
                     mem_ld_uint(field, matrix + iq2_xxs_d(n_in, n_out) + row * plane_row(n_in, 256, 2) + (p >> 3) * 4));
}
uvec4 iq2_xxs_q8(iq2_xxs_raw w, uint k) {
  uint q = w.q[k & 2] >> (16 * (k & 1));
  return codes_iq2_q8(iq2_xxs_entry(q & 255u), iq2_xxs_entry((q >> 8) & 255u),
                      codes_even_signs(w.q[(k & 2) + 1]) >> (16 * (k & 1)));
}
void iq2_xxs_dm(iq2_xxs_raw w, uint p, out vec4 d, out vec4 m) {
  d = piece_half(w.d, p >> 2) * 0.25 * (0.5 + vec2(w.q.y >> 28, w.q.w >> 28)).xxyy;
}
#endif
