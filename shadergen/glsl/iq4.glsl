/* iq4.glsl: the sixteen values of IQ4_NL and IQ4_XS (PLANES.md, "The sixteen values"). */
vec4 iq4_four(uint w) {
  vec4 x = bytes_u8(w) - 8.0;
  return roundEven((((0.0015 * x + 0.082) * x - 0.011) * x + 11.43) * x + 1.38);
}
