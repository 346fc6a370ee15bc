/* fmt_tq2_0.glsl: TQ2_0, blocks of 256 with one scale, two bits minus 1. */
struct tq2_0_unit { uvec2 q; float d; };
struct tq2_0_block { float d; };
const uint tq2_0_STEP = 16, tq2_0_UNITS = 8;
uint tq2_0_base(uint u) { return 32 * u; }
uint64_t tq2_0_scales(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 256, 64)); }
uint64_t tq2_0_mat_stride(uint n_in, uint n_out) {
  return plane_next(tq2_0_scales(n_in, n_out), n_out, plane_row(n_in, 256, 2));
}
tq2_0_block tq2_0_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return tq2_0_block(plane_f16(field, matrix + tq2_0_scales(n_in, n_out) + row * plane_row(n_in, 256, 2) + (u >> 3) * 2));
}
tq2_0_unit tq2_0_load(tq2_0_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return tq2_0_unit(mem_ld_uvec2(field, matrix + row * plane_row(n_in, 256, 64) + 8 * u), b.d);
}
vec4 tq2_0_lo(tq2_0_unit w, uint k) { return (bytes_u8(bits2(w.q.x, k)) - 1.0) * w.d; }
vec4 tq2_0_hi(tq2_0_unit w, uint k) { return (bytes_u8(bits2(w.q.y, k)) - 1.0) * w.d; }

#ifdef DOT8
const bool tq2_0_MIN = true;
struct tq2_0_raw { uvec4 q; uint d; };
tq2_0_raw tq2_0_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  return tq2_0_raw(mem_ld_uvec4(field, matrix + row * plane_row(n_in, 256, 64) + 16 * p),
                   mem_ld_uint(field, matrix + tq2_0_scales(n_in, n_out) + row * plane_row(n_in, 256, 2) + (p >> 3) * 4));
}
uvec4 tq2_0_q8(tq2_0_raw w, uint k) { return four_bits2(w.q[k]); }
void tq2_0_dm(tq2_0_raw w, uint p, out vec4 d, out vec4 m) { d = m = vec4(piece_half(w.d, p >> 2)); }
#endif
