/* fmt_tq1_0.glsl: TQ1_0, blocks of 256 with one scale, five base-3 digits minus 1 a byte. The bytes of a block serve several of its units,
 * so the block has them all. */
struct tq1_0_unit { uvec4 lo, hi; uint power_lo, power_hi; float d; };
struct tq1_0_block { uvec4 q[3]; uint tail; float d; };
const uint tq1_0_STEP = 16, tq1_0_UNITS = 8;
uint tq1_0_base(uint u) { return 32 * u; }
uint64_t tq1_0_tail(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 256, 48)); }
uint64_t tq1_0_scales(uint n_in, uint n_out) {
  return plane_next(tq1_0_tail(n_in, n_out), n_out, plane_row(n_in, 256, 4));
}
uint64_t tq1_0_mat_stride(uint n_in, uint n_out) {
  return plane_next(tq1_0_scales(n_in, n_out), n_out, plane_row(n_in, 256, 2));
}
tq1_0_block tq1_0_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uint64_t q = matrix + row * plane_row(n_in, 256, 48) + (u >> 3) * 48;
  tq1_0_block b;
  [[unroll]] for (uint i = 0; i < 3; i++) b.q[i] = mem_ld_uvec4(field, q + 16 * i);
  b.tail = mem_ld_uint(field, matrix + tq1_0_tail(n_in, n_out) + row * plane_row(n_in, 256, 4) + (u >> 3) * 4);
  b.d = plane_f16(field, matrix + tq1_0_scales(n_in, n_out) + row * plane_row(n_in, 256, 2) + (u >> 3) * 2);
  return b;
}
/* 3^n, n 0 .. 4 */
uint tq1_0_power(uint n) { return n < 4 ? (0x1b090301u >> (8 * n)) & 255u : 81u; }
/* Bytes times a power of 3, without what overflows. */
uint tq1_0_shift(uint w, uint power) {
  return (((w & 0x00ff00ffu) * power) & 0x00ff00ffu) | ((((w >> 8) & 0x00ff00ffu) * power & 0x00ff00ffu) << 8);
}
tq1_0_unit tq1_0_load(tq1_0_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uint j = u & 7;
  tq1_0_unit w;
  w.lo = j < 5 ? b.q[0] : b.q[2];
  w.hi = j < 5 ? b.q[1] : b.q[2];
  w.power_lo = tq1_0_power(j < 5 ? j : 2 * (j - 5));
  w.power_hi = tq1_0_power(j < 5 ? j : 2 * (j - 5) + 1);
  if (j == 7) { /* the last run: four bytes at four powers */
    w.hi = uvec4(b.tail, tq1_0_shift(b.tail, 3), tq1_0_shift(b.tail, 9), tq1_0_shift(b.tail, 27));
    w.power_hi = 1;
  }
  w.d = b.d;
  return w;
}
/* The digits of four bytes, at the top of each after the multiplication by 3^n. */
vec4 tq1_0_four(uint w, uint power) {
  uint s = tq1_0_shift(w, power);
  return bytes_u8((((s & 0x00ff00ffu) * 3 >> 8) & 0x00030003u) | ((((s >> 8) & 0x00ff00ffu) * 3) & 0x03000300u)) - 1.0;
}
vec4 tq1_0_lo(tq1_0_unit w, uint k) { return tq1_0_four(w.lo[k], w.power_lo) * w.d; }
vec4 tq1_0_hi(tq1_0_unit w, uint k) { return tq1_0_four(w.hi[k], w.power_hi) * w.d; }
