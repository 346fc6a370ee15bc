/* fmt_mxfp4.glsl: MXFP4, blocks of 32 four-bit floats with one power of two. */
#ifndef FP4
#define FP4
#include "fp4.glsl"
#endif
struct mxfp4_unit { uvec4 q; float d; };
struct mxfp4_block { float d; };
const uint mxfp4_STEP = 16, mxfp4_UNITS = 1;
uint mxfp4_base(uint u) { return 32 * u; }
uint64_t mxfp4_scales(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 32, 16)); }
uint64_t mxfp4_mat_stride(uint n_in, uint n_out) {
  return plane_next(mxfp4_scales(n_in, n_out), n_out, plane_row(n_in, 32, 1));
}
mxfp4_block mxfp4_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uint e = plane_u8(field, matrix + mxfp4_scales(n_in, n_out) + row * plane_row(n_in, 32, 1) + u);
  return mxfp4_block(uintBitsToFloat(e < 2 ? 0x00200000u << e : (e - 1) << 23));
}
mxfp4_unit mxfp4_load(mxfp4_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return mxfp4_unit(mem_ld_uvec4(field, matrix + row * plane_row(n_in, 32, 16) + 16 * u), b.d);
}
vec4 mxfp4_lo(mxfp4_unit w, uint k) { return fp4_four(w.q[k] & 0x0f0f0f0fu) * w.d; }
vec4 mxfp4_hi(mxfp4_unit w, uint k) { return fp4_four((w.q[k] >> 4) & 0x0f0f0f0fu) * w.d; }

#ifdef DOT8
const bool mxfp4_MIN = true;
struct mxfp4_raw { uvec4 q[2]; uint s; };
mxfp4_raw mxfp4_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  mxfp4_raw w;
  uint64_t q = matrix + row * plane_row(n_in, 32, 16);
  w.q[0] = mem_ld_uvec4(field, q + 32 * p);
  w.q[1] = mem_ld_uvec4(field, q + 16 * piece_second(n_in, p));
  w.s = mem_ld_uint(field, matrix + mxfp4_scales(n_in, n_out) + row * plane_row(n_in, 32, 1) + (2 * p & ~3u));
  return w;
}
uvec4 mxfp4_q8(mxfp4_raw w, uint k) { return fp4_q8(nibbles_16(w.q, k)); }
float mxfp4_scale(uint e) { return uintBitsToFloat(e < 2 ? 0x00200000u << e : (e - 1) << 23); }
void mxfp4_dm(mxfp4_raw w, uint p, out vec4 d, out vec4 m) {
  uint s = w.s >> (16 * (p & 1));
  d = vec2(mxfp4_scale(s & 255u), mxfp4_scale((s >> 8) & 255u)).xxyy;
  m = 16.0 * d;
}
#endif
