/* fmt_f16.glsl: F16 weights. */
struct f16_unit { uvec4 v[4]; };
const uint f16_STEP = 16;
uint f16_base(uint u) { return 32 * u; }
uint64_t f16_mat_stride(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 1, 2)); }
f16_unit f16_load(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uint64_t a = matrix + row * plane_row(n_in, 1, 2) + 64 * u;
  f16_unit w;
  [[unroll]] for (uint i = 0; i < 4; i++) w.v[i] = mem_ld_uvec4(field, a + 16 * i);
  return w;
}
vec4 f16_pair(uvec2 p) { return vec4(unpackHalf2x16(p.x), unpackHalf2x16(p.y)); }
vec4 f16_lo(f16_unit w, uint k) { return f16_pair((k & 1) != 0 ? w.v[k / 2].zw : w.v[k / 2].xy); }
vec4 f16_hi(f16_unit w, uint k) { return f16_pair((k & 1) != 0 ? w.v[2 + k / 2].zw : w.v[2 + k / 2].xy); }
