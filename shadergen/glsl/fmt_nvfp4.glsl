/* fmt_nvfp4.glsl: NVFP4, blocks of 64 four-bit floats, an eight-bit float for every 16. */
#ifndef FP4
#define FP4
#include "fp4.glsl"
#endif
struct nvfp4_unit { uvec4 q; float d_lo, d_hi; };
struct nvfp4_block { uint s; };
const uint nvfp4_STEP = 16, nvfp4_UNITS = 2;
uint nvfp4_base(uint u) { return 32 * u; }
uint64_t nvfp4_scales(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 64, 32)); }
uint64_t nvfp4_mat_stride(uint n_in, uint n_out) {
  return plane_next(nvfp4_scales(n_in, n_out), n_out, plane_row(n_in, 64, 4));
}
nvfp4_block nvfp4_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return nvfp4_block(mem_ld_uint(field, matrix + nvfp4_scales(n_in, n_out) + row * plane_row(n_in, 64, 4) + (u >> 1) * 4));
}
/* Half of what the eight bits mean. */
float nvfp4_scale(uint x) {
  float normal = uintBitsToFloat(((x & 127u) << 20) + (119u << 23));
  return x == 127u ? 0.0 : (x & 120u) == 0 ? float(x & 7u) / 1024.0 : normal;
}
nvfp4_unit nvfp4_load(nvfp4_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uint s = b.s >> (16 * (u & 1));
  return nvfp4_unit(mem_ld_uvec4(field, matrix + row * plane_row(n_in, 64, 32) + 16 * u), nvfp4_scale(s & 255u),
                    nvfp4_scale((s >> 8) & 255u));
}
vec4 nvfp4_lo(nvfp4_unit w, uint k) { return fp4_four(w.q[k] & 0x0f0f0f0fu) * w.d_lo; }
vec4 nvfp4_hi(nvfp4_unit w, uint k) { return fp4_four((w.q[k] >> 4) & 0x0f0f0f0fu) * w.d_hi; }

#ifdef DOT8
const bool nvfp4_MIN = true;
struct nvfp4_raw { uvec4 q[2]; uint s; };
nvfp4_raw nvfp4_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  uint64_t q = matrix + row * plane_row(n_in, 64, 32) + 32 * p;
  return nvfp4_raw(uvec4[2](mem_ld_uvec4(field, q), mem_ld_uvec4(field, q + 16)),
                   mem_ld_uint(field, matrix + nvfp4_scales(n_in, n_out) + row * plane_row(n_in, 64, 4) + 4 * p));
}
uvec4 nvfp4_q8(nvfp4_raw w, uint k) { return fp4_q8(nibbles_16(w.q, k)); }
void nvfp4_dm(nvfp4_raw w, uint p, out vec4 d, out vec4 m) {
  [[unroll]] for (uint k = 0; k < 4; k++) d[k] = nvfp4_scale((w.s >> (8 * k)) & 255u);
  m = 16.0 * d;
}
#endif
