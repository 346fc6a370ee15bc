/* tile.glsl: eight rows of activations times the weights of this invocation's columns, sums in registers. An invocation owns its columns;
 * all invocations of a subgroup multiply the same rows. */
const uint TILE_ROWS = 8;

/* Activations of a unit in eight rows. offset: of each row from x, in floats. */
void tile_load(uint field, uint64_t x, uint offset[TILE_ROWS], uint base, uint step, out act a[TILE_ROWS]) {
  [[unroll]] for (uint j = 0; j < TILE_ROWS; j++) a[j] = act_load(field, x + 4 * uint64_t(offset[j]), base, step);
}
/* acc[j] += UNIT . row j */
#define TILE_ADD(NUMBER, UNIT, FIELD, A, ACC)                                                                          \
  for (uint k_ = 0; k_ < ROLLED(4); k_++) {                                                                                    \
    vec4 lo_ = DECODE(NUMBER, lo)(UNIT, k_), hi_ = DECODE(NUMBER, hi)(UNIT, k_);                                       \
    [[unroll]] for (uint j_ = 0; j_ < TILE_ROWS; j_++)                                                                 \
      ACC[j_] += dot(lo_, act_lo(A[j_], FIELD, DECODE(NUMBER, STEP), k_)) +                                            \
                 dot(hi_, act_hi(A[j_], FIELD, DECODE(NUMBER, STEP), k_));                                             \
  }
/* The same for two columns, or two weights of one column, which share the activations. */
#define TILE_ADD_TWO(NUMBER, UNIT, UNIT2, FIELD, A, ACC, ACC2)                                                         \
  for (uint k_ = 0; k_ < ROLLED(4); k_++) {                                                                                    \
    vec4 lo_ = DECODE(NUMBER, lo)(UNIT, k_), hi_ = DECODE(NUMBER, hi)(UNIT, k_);                                       \
    vec4 lo2_ = DECODE(NUMBER, lo)(UNIT2, k_), hi2_ = DECODE(NUMBER, hi)(UNIT2, k_);                                   \
    [[unroll]] for (uint j_ = 0; j_ < TILE_ROWS; j_++) {                                                               \
      vec4 xl_ = act_lo(A[j_], FIELD, DECODE(NUMBER, STEP), k_), xh_ = act_hi(A[j_], FIELD, DECODE(NUMBER, STEP), k_); \
      ACC[j_] += dot(lo_, xl_) + dot(hi_, xh_);                                                                        \
      ACC2[j_] += dot(lo2_, xl_) + dot(hi2_, xh_);                                                                     \
    }                                                                                                                  \
  }
void tile_zero(out float acc[TILE_ROWS]) {
  [[unroll]] for (uint j = 0; j < TILE_ROWS; j++) acc[j] = 0;
}
