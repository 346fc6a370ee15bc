/* step_vector.glsl: the vector that a product of `step` reads, in shared memory: 16-bit integers with a scale for every 16 values, split in a
 * high and a low byte so that a product of 8-bit numbers does (value = scale * (256 * high + low)); and the sum of every 16 values.
 * A group of 64 columns is X_EACH uvec4: four of high bytes, four of low bytes, the scales and the sums of its runs of 16; odd, so that the groups
 * of neighbouring lanes lie in different banks. */
const uint X_EACH = 11;
const uint X_GROUPS = X_MAX / 64;
const uint X_WORDS = X_GROUPS * X_EACH;
/* Attention keeps its sides' sums, and splits that it puts together, in the same memory. */
const uint X_SIDES = 2 * WG;
const uint X_SPLITS = (ATTEND_SPLITS * (D_HEAD + 2) + 3) / 4;
const uint X_ATTENTION = X_SIDES > X_SPLITS ? X_SIDES : X_SPLITS;
shared uvec4 xs[X_WORDS > X_ATTENTION ? X_WORDS : X_ATTENTION];

/* Columns 4c .. 4c + 3. Four neighbouring invocations with ascending c, a multiple of 4 the first, are here together. */
void vector_put(uint c, vec4 v) {
  vec4 a = abs(v);
  float m = max(max(a.x, a.y), max(a.z, a.w));
  m = max(m, subgroupShuffleXor(m, 1));
  m = max(m, subgroupShuffleXor(m, 2));
  float inverse = m > 0 ? 32639.0 / m : 0.0;
  ivec4 q = ivec4(roundEven(v * inverse)), high = (q + 128) >> 8, low = (q - (high << 8)) & 255;
  int s = q.x + q.y + q.z + q.w;
  s += subgroupShuffleXor(s, 1);
  s += subgroupShuffleXor(s, 2);
  high &= 255;
  uint at = (c / 16) * X_EACH, k = c % 16;
  xs[at + k / 4][k % 4] = uint(high.x | (high.y << 8) | (high.z << 16) | (high.w << 24));
  xs[at + 4 + k / 4][k % 4] = uint(low.x | (low.y << 8) | (low.z << 16) | (low.w << 24));
  if (c % 4 == 0) {
    float scale = m * (1.0 / 32639.0);
    xs[at + 8][k / 4] = floatBitsToUint(scale);
    xs[at + 9][k / 4] = floatBitsToUint(scale * float(s));
  }
}

vec4 vector_scales(uint group) { return uintBitsToFloat(xs[X_EACH * group + 8]); }
vec4 vector_sums(uint group) { return uintBitsToFloat(xs[X_EACH * group + 9]); }
/* Columns 4c .. 4c + 3 as floats. */
vec4 vector_floats(uint c) {
  uint at = (c / 16) * X_EACH, k = c % 16;
  return uintBitsToFloat(xs[at + 8][k / 4]) * (256.0 * bytes_s8(xs[at + k / 4][k % 4]) + bytes_s8(xs[at + 4 + k / 4][k % 4]));
}
int dot4(uint a, uint b) { return dotPacked4x8EXT(int(a), int(b)); }
/* Product of 16 packed weights with run `run` of a group, in units of the run's scale. */
float vector_run(uint group, uvec4 w, uint run) {
  uvec4 h = xs[X_EACH * group + run], l = xs[X_EACH * group + 4 + run];
  int high = dot4(w.x, h.x) + dot4(w.y, h.y) + dot4(w.z, h.z) + dot4(w.w, h.w);
  int low = dot4(w.x, l.x) + dot4(w.y, l.y) + dot4(w.z, l.z) + dot4(w.w, l.w);
  return float(256 * high + low);
}
