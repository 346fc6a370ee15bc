/* fmt_bf16.glsl: BF16 weights. */
struct bf16_unit { uvec4 v[4]; };
const uint bf16_STEP = 16;
uint bf16_base(uint u) { return 32 * u; }
uint64_t bf16_mat_stride(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 1, 2)); }
bf16_unit bf16_load(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uint64_t a = matrix + row * plane_row(n_in, 1, 2) + 64 * u;
  bf16_unit w;
  [[unroll]] for (uint i = 0; i < 4; i++) w.v[i] = mem_ld_uvec4(field, a + 16 * i);
  return w;
}
vec4 bf16_pair(uvec2 p) { return uintBitsToFloat(uvec4(p.x << 16, p.x & 0xffff0000u, p.y << 16, p.y & 0xffff0000u)); }
vec4 bf16_lo(bf16_unit w, uint k) { return bf16_pair((k & 1) != 0 ? w.v[k / 2].zw : w.v[k / 2].xy); }
vec4 bf16_hi(bf16_unit w, uint k) { return bf16_pair((k & 1) != 0 ? w.v[2 + k / 2].zw : w.v[2 + k / 2].xy); }
