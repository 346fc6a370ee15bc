/* weight.glsl: a unit of 32 weights as floats, and its product with activations. */
struct weight {
  vec4 lo[4], hi[4];
};
/* weight w = unit u of a row of the plane's matrix; NUMBER: format. */
#define WEIGHT_DECODE(NUMBER, W, UNIT)                                                                                 \
  [[unroll]] for (uint k_ = 0; k_ < 4; k_++) {                                                                         \
    W.lo[k_] = DECODE(NUMBER, lo)(UNIT, k_);                                                                           \
    W.hi[k_] = DECODE(NUMBER, hi)(UNIT, k_);                                                                           \
  }
float weight_dot(weight w, act a) {
  float s = 0;
  [[unroll]] for (uint k = 0; k < 4; k++) s += dot(w.lo[k], act_lo(a, k)) + dot(w.hi[k], act_hi(a, k));
  return s;
}
