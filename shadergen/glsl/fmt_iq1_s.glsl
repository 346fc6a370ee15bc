/* fmt_iq1_s.glsl: IQ1_S, blocks of 256: eleven bits of grid index for eight weights, a three-bit scale and a delta for every 32. */
struct iq1_s_unit { uvec2 e; float d, add; };
struct iq1_s_block { uvec4 h; float d; }; /* a unit: four times three high bits, scale, direction of delta */
const uint iq1_s_STEP = 16, iq1_s_UNITS = 8;
uint iq1_s_base(uint u) { return 32 * u; }
uint64_t iq1_s_high(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 256, 32)); }
uint64_t iq1_s_d(uint n_in, uint n_out) {
  return plane_next(iq1_s_high(n_in, n_out), n_out, plane_row(n_in, 256, 16));
}
uint64_t iq1_s_mat_stride(uint n_in, uint n_out) {
  return plane_next(iq1_s_d(n_in, n_out), n_out, plane_row(n_in, 256, 2));
}
iq1_s_block iq1_s_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return iq1_s_block(mem_ld_uvec4(field, matrix + iq1_s_high(n_in, n_out) + row * plane_row(n_in, 256, 16) + (u >> 3) * 16),
                     plane_f16(field, matrix + iq1_s_d(n_in, n_out) + row * plane_row(n_in, 256, 2) + (u >> 3) * 2));
}
iq1_s_unit iq1_s_load(iq1_s_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uint q = mem_ld_uint(field, matrix + row * plane_row(n_in, 256, 32) + 4 * u);
  uint h = (b.h[(u >> 1) & 3] >> (16 * (u & 1))) & 0xffffu;
  iq1_s_unit w;
  w.e.x = iq1_entry((q & 255u) | ((h & 7u) << 8)) | (iq1_entry(((q >> 8) & 255u) | ((h & 0x38u) << 5)) << 16);
  w.e.y = iq1_entry(((q >> 16) & 255u) | ((h & 0x1c0u) << 2)) | (iq1_entry((q >> 24) | ((h & 0xe00u) >> 1)) << 16);
  w.d = b.d * float(2u * ((h >> 12) & 7u) + 1u);
  w.add = (h & 0x8000u) != 0u ? -1.125 : -0.875; /* codes stand for -1, 0, 1 */
  return w;
}
vec4 iq1_s_lo(iq1_s_unit w, uint k) { return (bytes_u8(codes_2((w.e.x >> (8 * k)) & 255u)) + w.add) * w.d; }
vec4 iq1_s_hi(iq1_s_unit w, uint k) { return (bytes_u8(codes_2((w.e.y >> (8 * k)) & 255u)) + w.add) * w.d; }

#ifdef DOT8
const bool iq1_s_MIN = true;
struct iq1_s_raw { uvec2 q; uint high, d; };
iq1_s_raw iq1_s_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  return iq1_s_raw(mem_ld_uvec2(field, matrix + row * plane_row(n_in, 256, 32) + 8 * p),
                   mem_ld_uint(field, matrix + iq1_s_high(n_in, n_out) + row * plane_row(n_in, 256, 16) + 4 * p),
                   mem_ld_uint(field, matrix + iq1_s_d(n_in, n_out) + row * plane_row(n_in, 256, 2) + (p >> 3) * 4));
}
/* Eight times the weight plus 9. */
uvec4 iq1_s_q8(iq1_s_raw w, uint k) {
  uint q = w.q[k >> 1] >> (16 * (k & 1)), h = w.high >> (16 * (k >> 1)), bits = h >> (6 * (k & 1));
  uint up = (h & 0x8000u) != 0u ? 0u : 0x02020202u;
  return codes_iq1_q8(iq1_entry((q & 255u) | ((bits & 7u) << 8)), iq1_entry(((q >> 8) & 255u) | ((bits & 0x38u) << 5)),
                      uvec2(up));
}
void iq1_s_dm(iq1_s_raw w, uint p, out vec4 d, out vec4 m) {
  d = piece_half(w.d, p >> 2) * 0.125 * (1.0 + 2.0 * vec2((w.high >> 12) & 7u, (w.high >> 28) & 7u)).xxyy;
  m = 9.0 * d;
}
#endif
