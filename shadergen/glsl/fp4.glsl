/* fp4.glsl: values of E2M1 quants (PLANES.md, "Values of E2M1, four at once"). */
/* Twice the values of the quants in a word's four bytes, plus 16. */
uint fp4_bytes(uint w) {
  uint m = w & 0x07070707u, big = (m >> 2) & 0x01010101u;
  m += (m & (big * 3)) + ((big & m & (m >> 1)) << 1);
  return 0x10101010u + m - ((m & (((w >> 3) & 0x01010101u) * 15)) << 1);
}
/* Twice the values. */
vec4 fp4_four(uint w) { return bytes_u8(fp4_bytes(w)) - 16.0; }
uvec4 fp4_q8(uvec4 w) { return uvec4(fp4_bytes(w.x), fp4_bytes(w.y), fp4_bytes(w.z), fp4_bytes(w.w)); }
