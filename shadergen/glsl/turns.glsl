/* turns.glsl: angles as fractions of a turn, so that position times frequency modulo a turn is exact. */

/* Top 32 bits of the fraction of pos * f turns, f = (low, high) words of a 64-bit fraction (shadergen_rope_turns). */
uint turns_of(uvec2 f, uint pos) {
  uint carry, unused;
  umulExtended(f.x, pos, carry, unused);
  return f.y * pos + carry;
}
/* (cosine, sine) of turns / 2^32. The quadrant is exact; inside it Taylor polynomials on |x| <= pi/4, error below 1e-7. The built-in
 * functions promise 2^-11 only. */
vec2 turns_cos_sin(uint turns) {
  uint quadrant = (turns + 0x20000000u) >> 30;
  float x = float(int(turns - (quadrant << 30))) * 1.4629180792671596e-9; /* 2 pi / 2^32 */
  float y = x * x;
  float c = 1.0 + y * (-0.5 + y * (4.1666667e-2 + y * (-1.3888889e-3 + y * 2.4801587e-5)));
  float s = x + x * y * (-1.6666667e-1 + y * (8.3333333e-3 + y * (-1.9841270e-4 + y * 2.7557319e-6)));
  vec2 v = (quadrant & 1u) != 0u ? vec2(-s, c) : vec2(c, s);
  return (quadrant & 2u) != 0u ? -v : v;
}
