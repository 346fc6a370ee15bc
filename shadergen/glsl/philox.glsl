/* philox.glsl: Philox-4x32-10, a counter-based random generator. Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As
 * Easy as 1, 2, 3", SC 2011. */
uvec4 philox(uvec4 counter, uvec2 key) {
  [[dont_unroll]] for (uint i = 0; i < 10; i++) {
    uint hi0, lo0, hi1, lo1;
    umulExtended(0xd2511f53u, counter.x, hi0, lo0);
    umulExtended(0xcd9e8d57u, counter.z, hi1, lo1);
    counter = uvec4(hi1 ^ counter.y ^ key.x, lo1, hi0 ^ counter.w ^ key.y, lo0);
    key += uvec2(0x9e3779b9u, 0xbb67ae85u);
  }
  return counter;
}
