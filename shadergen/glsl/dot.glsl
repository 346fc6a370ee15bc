/* dot.glsl: products of rows of weights with few rows of activations in packed 8-bit integer dot products.
 *
 * The workgroup stages its activations in shared memory: 16-bit integers, a scale for every run of 16, split in a high and a low byte
 * (x = scale * (256 * high + low), both signed), and the run's sum times its scale for weights that have a minimum. A row of weights is cut
 * into pieces of 64 (formats.glsl), which the LANES invocations of a team take in turn: lane l has pieces l, l + LANES, ... A team computes
 * EXTRA rows of weights, WEIGHT_ROWS at once, which share the reads of activations. Loads of weights run AHEAD pieces ahead of their use, the first of them before anything that waits. (NARROW: code costs more than waiting; one row, nothing ahead.)
 *
 * The sum of one row of activations is formed in the same order and with the same roundings whatever N_ROW is: per lane in the order of its
 * pieces, then over the lanes.
 *
 * A kernel defines DOT_ROWS (rows of activations that a workgroup stages), DOT_PIECES (pieces a row), and
 *   vec4 stage_value(r, e)      elements e .. e + 3 of row r; 0 <= e < 64 * DOT_PIECES, a multiple of 4; zeros behind the row's end
 *   float stage_factor(r, e)    multiplies them
 * and, when it has a norm, DOT_NORM and
 *   vec4 stage_gain(e)          multiplies the values in the manner of a norm's weight when NORM is not 0; row_square[r] is then the sum of the
 *                               row's squares without it */
#extension GL_EXT_integer_dot_product : require

/* Pieces of a row that a lane takes, and pieces staged at once (kernels.def). */
#define LANE_STEPS DOT_STEPS(DOT_PIECES, LANES)
#define CHUNK_STEPS DOT_CHUNK_STEPS(DOT_PIECES, DOT_ROWS, LANES)
#define CHUNK (CHUNK_STEPS * LANES)
#define CHUNKS ((LANE_STEPS + CHUNK_STEPS - 1) / CHUNK_STEPS)

/* Pieces loaded ahead, and rows of weights at once, of which EXTRA is a multiple: what registers hold. */
#define AHEAD (DOT_ROWS > 2 ? 1 : 2)
#define WEIGHT_ROWS (NARROW || EXTRA < 2 ? 1u : 2u)

/* Run k of piece p of row r is at (4 * r + k) * CHUNK + p: lanes next to each other read next to each other. */
shared uvec4 dot_high[4 * DOT_ROWS * CHUNK];
shared uvec4 dot_low[4 * DOT_ROWS * CHUNK];
shared vec2 dot_scale[4 * DOT_ROWS * CHUNK]; /* scale, scale * sum */
#ifdef DOT_NORM
shared float dot_squares[4 * DOT_ROWS * CHUNK];
float row_square[DOT_ROWS]; /* sums of squares; before the last chunk is staged, this lane's share */
#endif

/* What the kernel defines. */
vec4 stage_value(uint r, uint e);
float stage_factor(uint r, uint e);
#ifdef DOT_NORM
vec4 stage_gain(uint e);
#endif
void dot_begin();
void dot_finish(uint row, uint r, vec2 sum);

/* Stages a value's four elements: number t of row r's in the chunk, that is elements e and on. */
void dot_stage_four(uint r, uint t, vec4 v, vec4 gain, float factor) {
  uint at = (4 * r + (t >> 2) % 4) * CHUNK + t / 16;
#ifdef DOT_NORM
  if (NORM != 0) {
    float square = fma(v.x, v.x, fma(v.y, v.y, fma(v.z, v.z, v.w * v.w)));
    square += subgroupShuffleXor(square, 1);
    square += subgroupShuffleXor(square, 2);
    if (t % 4 == 0) dot_squares[at] = square;
    v *= gain;
  }
#endif
  float most = max(max(abs(v.x), abs(v.y)), max(abs(v.z), abs(v.w)));
  most = max(most, subgroupShuffleXor(most, 1));
  most = max(most, subgroupShuffleXor(most, 2));
  precise vec4 scaled = v * (most > 1e-30 ? 32512.0 / most : 0.0);
  ivec4 q = ivec4(roundEven(scaled));
  ivec4 high = (q + 128) >> 8;
  int sum = q.x + q.y + q.z + q.w;
  sum += subgroupShuffleXor(sum, 1);
  sum += subgroupShuffleXor(sum, 2);
  q &= 255, high &= 255;
  dot_high[at][t % 4] = uint(high.x | high.y << 8 | high.z << 16 | high.w << 24);
  dot_low[at][t % 4] = uint(q.x | q.y << 8 | q.z << 16 | q.w << 24);
  precise float scale = most * (1.0 / 32512.0) * factor;
  if (t % 4 == 0) dot_scale[at] = vec2(scale, scale * float(sum));
}

/* Stages pieces chunk * CHUNK and on of every row: four invocations a run, four values each; an invocation's loads before its arithmetic.
 * first: not staged before. */
void dot_stage(uint chunk, bool first) {
  const uint n = 16 * DOT_ROWS * CHUNK, some = NARROW ? 1 : 4;
  [[dont_unroll]] for (uint i0 = TID; i0 < n; i0 += some * WG) {
    vec4 v[4], gain[4];
    float factor[4];
    [[unroll]] for (uint k = 0; k < some; k++) {
      uint i = i0 + k * WG, e = 64 * CHUNK * chunk + 4 * (i % (16 * CHUNK));
      v[k] = gain[k] = vec4(0);
      factor[k] = 1;
      if (i >= n || e >= 64 * DOT_PIECES) continue;
      v[k] = stage_value(i / (16 * CHUNK), e);
      factor[k] = stage_factor(i / (16 * CHUNK), e);
#ifdef DOT_NORM
      if (NORM != 0) gain[k] = stage_gain(e);
#endif
    }
    [[unroll]] for (uint k = 0; k < some; k++) {
      uint i = i0 + k * WG;
      if (i < n) dot_stage_four(i / (16 * CHUNK), i % (16 * CHUNK), v[k], gain[k], factor[k]);
    }
  }
  group_barrier();
#ifdef DOT_NORM
  if (NORM != 0 && first)
    [[unroll]] for (uint r = 0; r < DOT_ROWS; r++) {
      float square = chunk == 0 ? 0.0 : row_square[r];
      for (uint p = TID % LANES; p < CHUNK; p += LANES) /* in the order of pieces, whatever CHUNK is */
        [[unroll]] for (uint k = 0; k < 4; k++) square += dot_squares[(4 * r + k) * CHUNK + p];
      row_square[r] = chunk == CHUNKS - 1 ? lanes_sum(square) : square;
    }
#endif
}
int dot_8(uvec4 a, uvec4 b) {
  return dotPacked4x8EXT(int(a.x), int(b.x)) + dotPacked4x8EXT(int(a.y), int(b.y)) +
         dotPacked4x8EXT(int(a.z), int(b.z)) + dotPacked4x8EXT(int(a.w), int(b.w));
}
