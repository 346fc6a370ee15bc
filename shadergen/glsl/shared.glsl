/* shared.glsl: what the sum over a row's experts begins with, by SHARED (kernels.def). */
float shared_scale(uint r) {
  return SHARED == 2 ? 1.0 / (1.0 + exp(-ld_shared_gate_float(4 * r))) : 1.0;
}
