/* fmt_f16.glsl: F16 weights, loaded where they are used. */
struct f16_unit { uint field; uint64_t p; };
struct f16_block { uint unused; };
const uint f16_STEP = 16, f16_UNITS = 1;
uint f16_base(uint u) { return 32 * u; }
uint64_t f16_mat_stride(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 1, 2)); }
f16_block f16_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) { return f16_block(0); }
f16_unit f16_load(f16_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return f16_unit(field, matrix + row * plane_row(n_in, 1, 2) + 64 * u);
}
vec4 f16_four(uvec2 p) { return vec4(unpackHalf2x16(p.x), unpackHalf2x16(p.y)); }
vec4 f16_lo(f16_unit w, uint k) { return f16_four(mem_ld_uvec2(w.field, w.p + 8 * k)); }
vec4 f16_hi(f16_unit w, uint k) { return f16_four(mem_ld_uvec2(w.field, w.p + 32 + 8 * k)); }
