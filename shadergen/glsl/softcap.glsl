/* softcap.glsl: SOFTCAP * tanh(z / SOFTCAP), exact to some 2^-22 of the result. Far out by exp, which overflows to the right limit (the
 * built-in tanh need not); near zero, where that cancels, by tanh's series. */
float softcap(float z) {
  float x = z / SOFTCAP, y = x * x;
  if (abs(x) < 0.25)
    return z + z * y * (-0.33333333 + y * (0.13333333 + y * (-5.3968254e-2 + y * 2.1869489e-2)));
  return SOFTCAP - 2.0 * SOFTCAP / (exp(2.0 * x) + 1.0);
}
