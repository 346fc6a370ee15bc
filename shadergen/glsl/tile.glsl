/* tile.glsl: eight rows of activations times the weights of this invocation's column, sums in registers. An invocation owns a column;
 * all invocations of a subgroup multiply the same rows. */
const uint TILE_ROWS = 8;

/* acc[j] += weights of unit with base and step . row j. x: address that offsets (in floats) count from. */
void tile_add(weight w, uint field, uint64_t x, uint offset[TILE_ROWS], uint base, uint step, inout float acc[TILE_ROWS]) {
  [[unroll]] for (uint j = 0; j < TILE_ROWS; j++)
    acc[j] += weight_dot(w, act_load(field, x + 4 * uint64_t(offset[j]), base, step));
}
/* The same for two columns, or two weights of one column, which share the activations' loads. */
void tile_add2(weight w, weight w2, uint field, uint64_t x, uint offset[TILE_ROWS], uint base, uint step,
               inout float acc[TILE_ROWS], inout float acc2[TILE_ROWS]) {
  [[unroll]] for (uint j = 0; j < TILE_ROWS; j++) {
    act a = act_load(field, x + 4 * uint64_t(offset[j]), base, step);
    [[unroll]] for (uint k = 0; k < 4; k++) {
      vec4 lo = act_lo(a, k), hi = act_hi(a, k);
      acc[j] += dot(w.lo[k], lo) + dot(w.hi[k], hi);
      acc2[j] += dot(w2.lo[k], lo) + dot(w2.hi[k], hi);
    }
  }
}
void tile_zero(out float acc[TILE_ROWS]) {
  [[unroll]] for (uint j = 0; j < TILE_ROWS; j++) acc[j] = 0;
}
