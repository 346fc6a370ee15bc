/* fmt_iq4_xs.glsl: IQ4_XS, blocks of 256, quants that number sixteen values, a six-bit scale for every 32 and one f16. */
#ifndef IQ4
#define IQ4
#include "iq4.glsl"
#endif
struct iq4_xs_unit { uvec4 q; float d; };
struct iq4_xs_block { uvec2 s; };
const uint iq4_xs_STEP = 16, iq4_xs_UNITS = 8;
uint iq4_xs_base(uint u) { return 32 * u; }
uint64_t iq4_xs_scales(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 256, 128)); }
uint64_t iq4_xs_mat_stride(uint n_in, uint n_out) {
  return plane_next(iq4_xs_scales(n_in, n_out), n_out, plane_row(n_in, 256, 8));
}
iq4_xs_block iq4_xs_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return iq4_xs_block(mem_ld_uvec2(field, matrix + iq4_xs_scales(n_in, n_out) + row * plane_row(n_in, 256, 8) + (u >> 3) * 8));
}
iq4_xs_unit iq4_xs_load(iq4_xs_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uint j = u & 7, scale = ((b.s.y >> (4 * j)) & 15u) | (((b.s.x >> (16 + 2 * j)) & 3u) << 4);
  return iq4_xs_unit(mem_ld_uvec4(field, matrix + row * plane_row(n_in, 256, 128) + 16 * u),
                     unpackHalf2x16(b.s.x).x * (float(scale) - 32.0));
}
vec4 iq4_xs_lo(iq4_xs_unit w, uint k) { return iq4_four(w.q[k] & 0x0f0f0f0fu) * w.d; }
vec4 iq4_xs_hi(iq4_xs_unit w, uint k) { return iq4_four((w.q[k] >> 4) & 0x0f0f0f0fu) * w.d; }

#ifdef DOT8
const bool iq4_xs_MIN = false;
struct iq4_xs_raw { uvec4 q[2]; uvec2 s; };
iq4_xs_raw iq4_xs_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  uint64_t q = matrix + row * plane_row(n_in, 256, 128) + 32 * p;
  return iq4_xs_raw(uvec4[2](mem_ld_uvec4(field, q), mem_ld_uvec4(field, q + 16)),
                    mem_ld_uvec2(field, matrix + iq4_xs_scales(n_in, n_out) + row * plane_row(n_in, 256, 8) + (p >> 2) * 8));
}
uvec4 iq4_xs_q8(iq4_xs_raw w, uint k) { return iq4_q8(nibbles_16(w.q, k)); }
void iq4_xs_dm(iq4_xs_raw w, uint p, out vec4 d, out vec4 m) {
  uint low = w.s.y >> (8 * (p & 3)), high = w.s.x >> (16 + 4 * (p & 3));
  uvec2 scale = uvec2((low & 15u) | (high & 3u) << 4, ((low >> 4) & 15u) | ((high >> 2) & 3u) << 4);
  d = unpackHalf2x16(w.s.x).x * (vec2(scale) - 32.0).xxyy;
}
#endif
