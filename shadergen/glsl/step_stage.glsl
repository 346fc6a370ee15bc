/* step_stage.glsl: waiting for the vector of a phase of `step`, and putting it into shared memory. */
shared float squares[WG / SUBGROUP];
float norm_scale = 1; /* of the vector at hand */

const uint MODEL_QUADS = (D_MODEL / 4 + WG - 1) / WG; /* of an invocation */

float squares_scale() {
  float sum = 0;
  [[unroll]] for (uint i = 0; i < WG / SUBGROUP; i++) sum += squares[i];
  return inversesqrt(sum / float(D_MODEL) + EPS);
}

/* The residual stream, times the norm's weights but not its scale: x[i] holds columns 4 (TID + i WG) and on. */
void stage_model(uint place, uint norm_cell, out vec4 x[MODEL_QUADS]) {
  uint64_t norm = cell(norm_cell);
  vec4 n[MODEL_QUADS];
  [[unroll]] for (uint i = 0; i < MODEL_QUADS; i++) {
    uint c = TID + i * WG;
    n[i] = c < D_MODEL / 4 ? mem_ld_vec4(F_table, norm + 16 * c) : vec4(0);
  }
  float sum = 0;
  [[unroll]] for (uint i = 0; i < MODEL_QUADS; i++) {
    uint c = TID + i * WG;
    x[i] = vec4(0);
    if (c < D_MODEL / 4) x[i] = pairs_wait(place + 16 * c, tag_in());
    sum += dot(x[i], x[i]);
    x[i] *= n[i];
    if (c < D_MODEL / 4) vector_put(c, x[i]);
  }
  sum = subgroup_sum(sum);
  if (TID % SUBGROUP == 0) squares[TID / SUBGROUP] = sum;
}

/* Any other vector, of n_group groups of 64 columns: three words of an invocation are under way at a time. */
void stage_plain(uint place, uint n_group) {
  uint n = 16 * n_group;
  uvec4 a = words_load2(place + 16 * min(TID, n - 1)), b = words_load2(place + 16 * min(TID + WG, n - 1));
  uvec4 c = words_load2(place + 16 * min(TID + 2 * WG, n - 1));
  [[dont_unroll]] for (uint i = TID; i < n; i += WG) {
    [[dont_unroll]] while (!pairs_there(a, tag_in()) && wait_left > 0) {
      wait_left--;
      a = words_load2(place + 16 * i);
    }
    vector_put(i, vec4(pair_of(a.xy), pair_of(a.zw)));
    a = b;
    b = c;
    if (i + 3 * WG < n) c = words_load2(place + 16 * (i + 3 * WG));
  }
}
