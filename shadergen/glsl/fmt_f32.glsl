/* fmt_f32.glsl: F32 weights. */
struct f32_unit { vec4 v[8]; };
const uint f32_STEP = 16;
uint f32_base(uint u) { return 32 * u; }
uint64_t f32_mat_stride(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 1, 4)); }
f32_unit f32_load(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  uint64_t a = matrix + row * plane_row(n_in, 1, 4) + 128 * u;
  f32_unit w;
  [[unroll]] for (uint i = 0; i < 8; i++) w.v[i] = mem_ld_vec4(field, a + 16 * i);
  return w;
}
vec4 f32_lo(f32_unit w, uint k) { return w.v[k]; }
vec4 f32_hi(f32_unit w, uint k) { return w.v[4 + k]; }
