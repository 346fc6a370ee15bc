/* glu.glsl: act(a) * b by ACTIVATION (enum ir_activation; ir_ops.def has the formulas). The tanh form of GELU is written with
 * a sigmoid: (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), which cannot overflow to a NaN. */
float glu(float a, float b) {
  if (ACTIVATION == 1) return a / (1.0 + exp(-1.5957691216057308 * (a + 0.044715 * a * a * a))) * b; /* 2 sqrt(2 / pi) */
  if (ACTIVATION == 2) return b / (1.0 + exp(-a));
  if (ACTIVATION == 3) {
    a = min(a, 7.0);
    return a / (1.0 + exp(-1.702 * a)) * (clamp(b, -7.0, 7.0) + 1.0);
  }
  return a / (1.0 + exp(-a)) * b;
}
