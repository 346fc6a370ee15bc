/* iq4.glsl: the sixteen values of IQ4_NL and IQ4_XS (PLANES.md, "The sixteen values"). */
vec4 iq4_four(uint w) {
  vec4 x = bytes_u8(w) - 8.0;
  return roundEven((((0.0015 * x + 0.082) * x - 0.011) * x + 11.43) * x + 1.38);
}
/* The values of four words of quants, as signed bytes. */
uint iq4_bytes(uint w) {
  ivec4 v = ivec4(iq4_four(w)) & 255;
  return uint(v.x | v.y << 8 | v.z << 16 | v.w << 24);
}
uvec4 iq4_q8(uvec4 w) { return uvec4(iq4_bytes(w.x), iq4_bytes(w.y), iq4_bytes(w.z), iq4_bytes(w.w)); }
