/* scale_k.glsl: the 16 bytes of scales and minima of a Q4_K or Q5_K block, for one pair of units (PLANES.md, "Q4_K and Q5_K"). */
struct scale_k { float d_lo, m_lo, d_hi, m_hi; };
scale_k scale_k_of(uvec4 s, uint g) {
  vec2 d = unpackHalf2x16(s.x);
  uint a = (s.y >> (8 * g)) & 255u, b = (s.z >> (8 * g)) & 255u, c = (s.w >> (8 * g)) & 255u;
  scale_k k;
  k.d_lo = d.x * float(a & 63u);
  k.m_lo = d.y * float(b & 63u);
  k.d_hi = d.x * float(c & 63u);
  k.m_hi = d.y * float((a >> 6) | ((b >> 6) << 2) | ((c >> 6) << 4));
  return k;
}
