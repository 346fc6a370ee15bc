/* attention_narrow.glsl: attention for subgroups of up to 8 (a CPU). Scores: a lane is a position; values: a lane is a few dimensions.
 * A workgroup should be one subgroup; all of them do the same, the first stores. */
const uint QUADS = (N_QUAD + SUBGROUP - 1) / SUBGROUP; /* of a lane, in the value loop */
const uint SPREAD = D_HEAD / (4 * SUBGROUP);           /* of a lane, of a query */
uint narrow_lane() { return TID % SUBGROUP; }
bool narrow_stores(uint k) { return TID < SUBGROUP && TID + k * SUBGROUP < N_QUAD; }

/* Four elements from a page. */
vec4 narrow_quad(uint64_t head, uint d, uint pos, uint quad) {
  return kv_quad(kv_load(head, d, 4, pos, 4 * quad), 4 * quad, false);
}

/* Lane l has the elements 4 * l * SPREAD and on of every head. */
vec4 q_spread[HEADS][SPREAD];
void spread_queries(uint64_t q) {
  [[unroll]] for (uint h = 0; h < HEADS; h++)
    [[unroll]] for (uint t = 0; t < SPREAD; t++)
      q_spread[h][t] = ld_q_vec4(q + 4 * (h * D_HEAD + 4 * (narrow_lane() * SPREAD + t)));
}
/* q . k for the heads of the group. */
void narrow_scores(uint64_t keys, uint pos, out float s[HEADS]) {
  [[unroll]] for (uint h = 0; h < HEADS; h++) s[h] = 0;
  [[dont_unroll]] for (uint i = 0; i < SUBGROUP; i++)
    [[unroll]] for (uint t = 0; t < SPREAD; t++) {
      vec4 k = narrow_quad(keys, D_HEAD, pos, i * SPREAD + t);
      [[unroll]] for (uint h = 0; h < HEADS; h++) {
        vec4 v = q_spread[h][t];
        s[h] += dot(k, vec4(subgroupShuffle(v.x, i), subgroupShuffle(v.y, i), subgroupShuffle(v.z, i),
                            subgroupShuffle(v.w, i)));
      }
    }
}

float narrow_top[HEADS], narrow_total[HEADS]; /* running maximum; this lane's part of the sum of exponentials */
vec4 narrow_acc[HEADS][QUADS];

/* Positions first .. first + n - 1 (n at most SUBGROUP) of a page. */
void narrow_positions(uint64_t keys, uint64_t values, uint first, uint n) {
  uint lane = narrow_lane();
  float s[HEADS];
  narrow_scores(keys, first + min(lane, n - 1), s);
  [[unroll]] for (uint h = 0; h < HEADS; h++) {
    float v = lane < n ? logit(s[h]) : LOWEST;
    float new_top = max(narrow_top[h], subgroup_max(v));
    float fade = exp(narrow_top[h] - new_top);
    s[h] = lane < n ? exp(v - new_top) : 0.0;
    narrow_total[h] = narrow_total[h] * fade + s[h];
    [[unroll]] for (uint i = 0; i < QUADS; i++) narrow_acc[h][i] *= fade;
    narrow_top[h] = new_top;
  }
  [[dont_unroll]] for (uint j = 0; j < n; j++) {
    vec4 v[QUADS];
    [[unroll]] for (uint i = 0; i < QUADS; i++)
      v[i] = narrow_quad(values, VALUE_D, first + j, min(lane + i * SUBGROUP, N_QUAD - 1));
    [[unroll]] for (uint h = 0; h < HEADS; h++) {
      float w = subgroupShuffle(s[h], j);
      [[unroll]] for (uint i = 0; i < QUADS; i++) narrow_acc[h][i] += w * v[i];
    }
  }
}

vec4 narrow_load_partial(uint64_t p, uint quad) {
  return vec4(mem_ld_shared(F_partial, p + 16 * quad), mem_ld_shared(F_partial, p + 16 * quad + 4),
              mem_ld_shared(F_partial, p + 16 * quad + 8), mem_ld_shared(F_partial, p + 16 * quad + 12));
}

/* Combines the splits of a head, in order. Once a step: not worth the code (and the driver's time to make it) of unrolling. */
void narrow_combine(uint h) {
  float best = sink_of(h), sum;
  [[dont_unroll]] for (uint i = 0; i < live; i++)
    best = max(best, mem_ld_shared(F_partial, partial_of(h, i) + 4 * D_HEAD_V));
  sum = sink_weight(h, best);
  vec4 y[QUADS];
  [[unroll]] for (uint k = 0; k < QUADS; k++) y[k] = vec4(0);
  [[dont_unroll]] for (uint i = 0; i < live; i++) {
    uint64_t p = partial_of(h, i);
    float w = exp(mem_ld_shared(F_partial, p + 4 * D_HEAD_V) - best);
    sum += w * mem_ld_shared(F_partial, p + 4 * D_HEAD_V + 4);
    [[unroll]] for (uint k = 0; k < QUADS; k++) y[k] += w * narrow_load_partial(p, min(narrow_lane() + k * SUBGROUP, N_QUAD - 1));
  }
  [[unroll]] for (uint k = 0; k < QUADS; k++)
    if (narrow_stores(k)) store_y(h, TID + k * SUBGROUP, y[k] / sum);
}

/* Hands the sums of head h of the group to the last split to arrive. */
void narrow_store_partial(uint h, float sum) {
  uint64_t p = partial_of(head + h, split);
  [[unroll]] for (uint k = 0; k < QUADS; k++)
    if (narrow_stores(k))
      [[unroll]] for (uint i = 0; i < 4; i++)
        mem_st_shared(F_partial, p + 16 * (TID + k * SUBGROUP) + 4 * i, narrow_acc[h][k][i]);
  if (TID == 0) {
    mem_st_shared(F_partial, p + 4 * D_HEAD_V, narrow_top[h]);
    mem_st_shared(F_partial, p + 4 * D_HEAD_V + 4, sum);
  }
}

void attend_narrow(uint slot) {
  spread_queries(4 * (uint64_t(row) * Q_STRIDE + head * D_HEAD));
  [[unroll]] for (uint h = 0; h < HEADS; h++) {
    narrow_top[h] = LOWEST;
    narrow_total[h] = 0;
    [[unroll]] for (uint i = 0; i < QUADS; i++) narrow_acc[h][i] = vec4(0);
  }
  for (uint p = page + split; p < page + n_page; p += live) {
    uint64_t keys = keys_of(step_page(slot, 64 * p)), values = values_of(keys);
    uint n = min(64, n_pos - 64 * p), first = 0;
    if (WINDOW > 0 && begin > 64 * p) first = begin - 64 * p;
    for (; first < n; first += SUBGROUP) narrow_positions(keys, values, first, min(SUBGROUP, n - first));
  }
  [[unroll]] for (uint h = 0; h < HEADS; h++) {
    float sum = subgroup_sum(narrow_total[h]);
    if (live > 1) {
      narrow_store_partial(h, sum);
      continue;
    }
    float top = max(narrow_top[h], sink_of(head + h)), fade = SINKS != 0 ? exp(narrow_top[h] - top) : 1;
    sum = sum * fade + sink_weight(head + h, top);
    [[unroll]] for (uint k = 0; k < QUADS; k++)
      if (narrow_stores(k)) store_y(head + h, TID + k * SUBGROUP, narrow_acc[h][k] * fade / sum);
  }
  if (live > 1 && arrive_last(F_counter, pc.counter + 4 * (row * N_HEAD + head), live))
    [[dont_unroll]] for (uint h = 0; h < HEADS; h++) narrow_combine(head + h);
}
