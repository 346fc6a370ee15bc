/* fmt_bf16.glsl: BF16 weights, loaded where they are used. */
struct bf16_unit { uint field; uint64_t p; };
struct bf16_block { uint unused; };
const uint bf16_STEP = 16, bf16_UNITS = 1;
uint bf16_base(uint u) { return 32 * u; }
uint64_t bf16_mat_stride(uint n_in, uint n_out) { return plane_next(0, n_out, plane_row(n_in, 1, 2)); }
bf16_block bf16_open(uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) { return bf16_block(0); }
bf16_unit bf16_load(bf16_block b, uint field, uint64_t matrix, uint n_in, uint n_out, uint row, uint u) {
  return bf16_unit(field, matrix + row * plane_row(n_in, 1, 2) + 64 * u);
}
vec4 bf16_four(uvec2 p) { return uintBitsToFloat(uvec4(p.x << 16, p.x & 0xffff0000u, p.y << 16, p.y & 0xffff0000u)); }
vec4 bf16_lo(bf16_unit w, uint k) { return bf16_four(mem_ld_uvec2(w.field, w.p + 8 * k)); }
vec4 bf16_hi(bf16_unit w, uint k) { return bf16_four(mem_ld_uvec2(w.field, w.p + 32 + 8 * k)); }
