/* fmt_f32.glsl: F32 weights, loaded where they are used. */
struct f32_unit { uint field; uint64_t p; };
struct f32_block { uint unused; };
const uint f32_STEP = 16, f32_UNITS = 1;
uint f32_base(uint u) { return 32 * u; }
uint64_t f32_mat_stride(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 1, 4)); }
f32_block f32_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) { return f32_block(0); }
f32_unit f32_load(f32_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return f32_unit(field, matrix + row * plane_row(n_in, 1, 4) + 128 * u);
}
vec4 f32_lo(f32_unit w, uint k) { return mem_ld_vec4(w.field, w.p + 16 * k); }
vec4 f32_hi(f32_unit w, uint k) { return mem_ld_vec4(w.field, w.p + 64 + 16 * k); }
