/* fmt_iq4_nl.glsl: IQ4_NL, blocks of 32 with one scale, quants that number sixteen values. */
#ifndef IQ4
#define IQ4
#include "iq4.glsl"
#endif
struct iq4_nl_unit { uvec4 q; float d; };
struct iq4_nl_block { float d; };
const uint iq4_nl_STEP = 16, iq4_nl_UNITS = 1;
uint iq4_nl_base(uint u) { return 32 * u; }
uint64_t iq4_nl_scales(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 32, 16)); }
uint64_t iq4_nl_mat_stride(uint n_in, uint n_out) {
  return plane_next(iq4_nl_scales(n_in, n_out), n_out, plane_row(n_in, 32, 2));
}
iq4_nl_block iq4_nl_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return iq4_nl_block(plane_f16(field, matrix + iq4_nl_scales(n_in, n_out) + row * plane_row(n_in, 32, 2) + 2 * u));
}
iq4_nl_unit iq4_nl_load(iq4_nl_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return iq4_nl_unit(mem_ld_uvec4(field, matrix + row * plane_row(n_in, 32, 16) + 16 * u), b.d);
}
vec4 iq4_nl_lo(iq4_nl_unit w, uint k) { return iq4_four(w.q[k] & 0x0f0f0f0fu) * w.d; }
vec4 iq4_nl_hi(iq4_nl_unit w, uint k) { return iq4_four((w.q[k] >> 4) & 0x0f0f0f0fu) * w.d; }

#ifdef DOT8
const bool iq4_nl_MIN = false;
struct iq4_nl_raw { uvec4 q[2]; uint s; };
iq4_nl_raw iq4_nl_fetch(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint p) {
  iq4_nl_raw w;
  uint64_t q = matrix + row * plane_row(n_in, 32, 16);
  w.q[0] = mem_ld_uvec4(field, q + 32 * p);
  w.q[1] = mem_ld_uvec4(field, q + 16 * piece_second(n_in, p));
  w.s = mem_ld_uint(field, matrix + iq4_nl_scales(n_in, n_out) + row * plane_row(n_in, 32, 2) + 4 * p);
  return w;
}
uvec4 iq4_nl_q8(iq4_nl_raw w, uint k) { return iq4_q8(nibbles_16(w.q, k)); }
void iq4_nl_dm(iq4_nl_raw w, uint p, out vec4 d, out vec4 m) { d = unpackHalf2x16(w.s).xxyy; }
#endif
