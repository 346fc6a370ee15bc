/* dot_rows.glsl: the loop of dot.glsl for one weight format. Included once a format of a kernel, which defines
 *   DOT_NAME(WHAT)     names of this format's functions
 *   DOT_FORMAT         its number
 *   DOT_NAME(fetch)(row, p)    a raw piece of a row of weights; rows behind the last are clamped
 *   DOT_PIECE(p)       its number in its matrix's row
 *   dot_begin()        what waits for other things than weights: called after the first loads are on their way, in uniform control flow
 *   dot_finish(row, r, sum)   stores the products of rows row .. row + WEIGHT_ROWS - 1 with row r of the activations, which are the same in
 *                      all lanes of the team */
#define DOT_RAW DECODE(DOT_FORMAT, raw)

/* Rows first .. first + EXTRA - 1, WEIGHT_ROWS at once. Call in uniform control flow. */
void DOT_NAME(rows)(uint first) {
  const uint steps = LANE_STEPS, total = EXTRA / WEIGHT_ROWS * LANE_STEPS, lane = TID % LANES;
  DOT_RAW ahead[AHEAD][2];
  if (!NARROW)
    [[unroll]] for (uint a = 0; a < AHEAD; a++)
      [[unroll]] for (uint i = 0; i < WEIGHT_ROWS; i++) {
        uint s = a < total ? a : total - 1;
        ahead[a][i] = DOT_NAME(fetch)(first + s / steps * WEIGHT_ROWS + i, min(s % steps * LANES + lane, uint(DOT_PIECES - 1)));
      }
  dot_begin();
  if (CHUNKS == 1) dot_stage(0, true);
  precise float acc[2][DOT_ROWS];
  [[dont_unroll]] for (uint s0 = 0; s0 < total; s0 += NARROW ? 1 : AHEAD)
    [[unroll]] for (uint a = 0; a < (NARROW ? 1 : AHEAD); a++) {
      uint s = s0 + a, j = s % steps, p = min(j * LANES + lane, uint(DOT_PIECES - 1)), row = first + s / steps * WEIGHT_ROWS;
      if (s >= total) continue;
      if (CHUNKS > 1 && j % CHUNK_STEPS == 0) {
        if (s > 0) group_barrier();
        dot_stage(j / CHUNK_STEPS, s < steps);
      }
      if (j == 0)
        [[unroll]] for (uint i = 0; i < WEIGHT_ROWS; i++)
          [[unroll]] for (uint r = 0; r < DOT_ROWS; r++) acc[i][r] = 0;
      DOT_RAW now[2];
      vec4 d[2], m[2];
      [[unroll]] for (uint i = 0; i < WEIGHT_ROWS; i++) {
        if (NARROW) {
          now[i] = DOT_NAME(fetch)(row + i, p);
        } else {
          now[i] = ahead[a][i];
          uint next = s + AHEAD;
          if (next < total)
            ahead[a][i] = DOT_NAME(fetch)(first + next / steps * WEIGHT_ROWS + i,
                                          min(next % steps * LANES + lane, uint(DOT_PIECES - 1)));
        }
        DECODE(DOT_FORMAT, dm)(now[i], DOT_PIECE(p), d[i], m[i]);
      }
      [[unroll]] for (uint k = 0; k < ROLLED(4); k++) {
        uvec4 w[2];
        [[unroll]] for (uint i = 0; i < WEIGHT_ROWS; i++) w[i] = DECODE(DOT_FORMAT, q8)(now[i], k);
        [[unroll]] for (uint r = 0; r < ROLLED(DOT_ROWS); r++) {
          uint at = (4 * r + k) * CHUNK + j % CHUNK_STEPS * LANES + lane;
          uvec4 high = dot_high[at], low = dot_low[at];
          vec2 scale = dot_scale[at];
          [[unroll]] for (uint i = 0; i < WEIGHT_ROWS; i++) {
            acc[i][r] = fma(d[i][k] * scale.x, float((dot_8(w[i], high) << 8) + dot_8(w[i], low)), acc[i][r]);
            if (DECODE(DOT_FORMAT, MIN)) acc[i][r] = fma(-m[i][k], scale.y, acc[i][r]);
          }
        }
      }
      if (j == steps - 1)
        [[unroll]] for (uint r = 0; r < ROLLED(DOT_ROWS); r++) {
          vec2 sum = vec2(0);
          [[unroll]] for (uint i = 0; i < WEIGHT_ROWS; i++) sum[i] = lanes_sum(acc[i][r]);
          dot_finish(row, r, sum);
        }
    }
}
#undef DOT_RAW
