/* step_heads.glsl: what both forms of step_attend.glsl share: queries, keys and values as they are awaited, normed, rotated and stored;
 * softmax over a tile; sums over the sides; splits put together. */
const float LOWEST = -3.0e38;
/* Invocations that share a position's key, for one head and for several. */
const uint LANES_ONE = D_HEAD % 16 == 0 ? 2 : 1, LANES_MANY = D_HEAD % 32 == 0 ? 4 : LANES_ONE;
const uint VALUE_LANES = D_HEAD / 8;                                   /* invocations for a position's values */
const uint VALUE_SIDES = WG / VALUE_LANES > 0 ? WG / VALUE_LANES : 1; /* positions at once */
const uint PAIRS = (D_HEAD / 2 + SUBGROUP - 1) / SUBGROUP; /* of a head's elements, of a lane */
const uint TILE_ONE = WG / LANES_ONE, TILE_MANY = WG / LANES_MANY;
const uint VALUES_ONE = (TILE_ONE + VALUE_SIDES - 1) / VALUE_SIDES, VALUES_MANY = (TILE_MANY + VALUE_SIDES - 1) / VALUE_SIDES;
/* Scores of a tile: of one head, or of several for fewer positions. */
const uint TILE_SCORES = WG / LANES_ONE > ATTEND_HEADS * (WG / LANES_MANY) ? WG / LANES_ONE : ATTEND_HEADS * (WG / LANES_MANY);

shared vec4 head_q[ATTEND_HEADS * D_HEAD / 4], head_k[D_HEAD / 4], head_v[D_HEAD / 4];
shared float tile_score[TILE_SCORES]; /* [heads][positions] */
shared float head_top[ATTEND_HEADS], head_total[ATTEND_HEADS], head_fade[ATTEND_HEADS];
shared vec2 turn_of[max(N_ROT / 2, 1)]; /* (cosine, sine) of the step's position */

vec4 halves(uvec2 v) { return vec4(unpackHalf2x16(v.x), unpackHalf2x16(v.y)); }

/* The slot's first pages; of all layers, so read once a step. */
const uint PAGES_MAX = 256;
shared uvec2 page_of[PAGES_MAX]; /* addresses */
uint64_t page_address(uint slot, uint pos) { return pc.state + uint64_t(step_page(slot, pos)) * PAGE_BYTES; }
uint64_t page_at(uint slot, uint pos) { return pos / 64 < PAGES_MAX ? packUint2x32(page_of[pos / 64]) : page_address(slot, pos); }

void turns_stage(uint pos, uint slot) {
  [[dont_unroll]] for (uint i = TID; i < min(pos / 64 + 1, PAGES_MAX); i += WG) page_of[i] = unpackUint2x32(page_address(slot, 64 * i));
  [[dont_unroll]] for (uint j = TID; j < N_ROT / 2; j += WG)
    turn_of[j] = ROPE_MUL * turns_cos_sin(turns_of(ld_rope_uvec2(8 * j), pos));
}

/* rsqrt of the mean square of n columns from column `first` of the phase's vector, QK_NORM 2. */
float columns_scale(uint first, uint n) {
  float sum = 0;
  [[dont_unroll]] for (uint c = TID; c < n / 4; c += WG) {
    vec4 v = pairs_wait(PLACE_QKV + 4 * first + 16 * c, tag_in());
    sum += dot(v, v);
  }
  sum = subgroup_sum(sum);
  group_barrier();
  if (TID % SUBGROUP == 0) squares[TID / SUBGROUP] = sum;
  group_barrier();
  sum = 0;
  [[unroll]] for (uint i = 0; i < WG / SUBGROUP; i++) sum += squares[i];
  return inversesqrt(sum / float(n) + QK_EPS);
}

/* Element d of head u: the queries', then the key. */
float head_get(uint u, uint n_head, uint d) { return u < n_head ? head_q[(u * D_HEAD + d) / 4][d % 4] : head_k[d / 4][d % 4]; }
void head_set(uint u, uint n_head, uint d, float v) {
  if (u < n_head)
    head_q[(u * D_HEAD + d) / 4][d % 4] = v;
  else
    head_k[d / 4][d % 4] = v;
}
/* Elements 8i .. 8i + 7 of the key or the value as the page has them. */
uvec4 head_half(vec4 a, vec4 b) { return uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw)); }

/* Elements of pair j: those that are rotated together first, then neighbours. */
uvec2 pair_elements(uint j) {
  if (NEOX == 0) return uvec2(2 * j, 2 * j + 1);
  return j < N_ROT / 2 ? uvec2(j, j + N_ROT / 2) : uvec2(2 * j, 2 * j + 1);
}

/* Queries h0 .. h0 + n_head - 1 and the key and value of head kv into shared memory, normed and rotated. */
void attend_heads(uint h0, uint n_head, uint kv) {
  const uint NSUB = WG / SUBGROUP, QUADS = D_HEAD / 4;
  uint lane = TID % SUBGROUP, sub = TID / SUBGROUP;
  /* The norm's weights of the first head that this subgroup takes, before anything is waited for. */
  vec2 weights[PAIRS];
  [[unroll]] for (uint i = 0; i < PAIRS; i++) {
    uvec2 e = pair_elements(min(lane + i * SUBGROUP, uint(D_HEAD / 2 - 1)));
    uint64_t w = cell(sub < n_head ? CELL_Q_NORM : CELL_K_NORM);
    weights[i] = QK_NORM == 1 && sub <= n_head ? vec2(mem_ld_float(F_table, w + 4 * e.x), mem_ld_float(F_table, w + 4 * e.y)) : vec2(1);
  }
  float q_scale = 1, k_scale = 1;
  if (QK_NORM == 2) {
    q_scale = columns_scale(0, Q_COLUMNS);
    k_scale = columns_scale(Q_COLUMNS, K_COLUMNS);
  }
  [[dont_unroll]] for (uint c = TID; c < (n_head + 2) * QUADS; c += WG) {
    uint u = c / QUADS, d = 4 * (c % QUADS);
    uint column = (u < n_head ? (h0 + u) * D_HEAD : u == n_head ? Q_COLUMNS + kv * D_HEAD : Q_COLUMNS + K_COLUMNS + kv * D_HEAD) + d;
    vec4 v = pairs_wait(PLACE_QKV + 4 * column, tag_in());
    if (u > n_head)
      head_v[d / 4] = v;
    else if (u == n_head)
      head_k[d / 4] = v;
    else
      head_q[(u * D_HEAD + d) / 4] = v;
  }
  group_barrier();
  [[dont_unroll]] for (uint u = sub; u <= n_head; u += NSUB) {
    vec2 v[PAIRS];
    float squares = 0, scale = u < n_head ? q_scale : k_scale;
    [[unroll]] for (uint i = 0; i < PAIRS; i++) {
      uint j = lane + i * SUBGROUP;
      uvec2 e = pair_elements(min(j, uint(D_HEAD / 2 - 1)));
      v[i] = vec2(head_get(u, n_head, e.x), head_get(u, n_head, e.y));
      squares += j < D_HEAD / 2 ? dot(v[i], v[i]) : 0.0;
    }
    if (QK_NORM == 1) scale = inversesqrt(subgroup_sum(squares) / float(D_HEAD) + QK_EPS);
    [[unroll]] for (uint i = 0; i < PAIRS; i++) {
      uint j = lane + i * SUBGROUP;
      if (j >= D_HEAD / 2) continue;
      uvec2 e = pair_elements(j);
      vec2 w = weights[i];
      if (QK_NORM != 0) {
        uint64_t a = cell(u < n_head ? CELL_Q_NORM : CELL_K_NORM) + (QK_NORM == 2 ? 4 * D_HEAD * (u < n_head ? h0 + u : kv) : 0);
        w = vec2(mem_ld_float(F_table, a + 4 * e.x), mem_ld_float(F_table, a + 4 * e.y));
      }
      vec2 y = scale * v[i] * w;
      if (j < N_ROT / 2) {
        vec2 t = turn_of[j];
        y = vec2(y.x * t.x - y.y * t.y, y.x * t.y + y.y * t.x);
      }
      head_set(u, n_head, e.x, y.x);
      head_set(u, n_head, e.y, y.y);
    }
  }
  if (TID < ATTEND_HEADS) {
    head_top[TID] = LOWEST;
    head_total[TID] = 0;
  }
}

/* The step's key and value into the page; nobody reads them from there in this step. */
void attend_store(uint64_t page, uint kv, uint pos) {
  uint64_t row = page + uint64_t(kv * 64 + pos % 64) * (2 * D_HEAD), value = row + uint64_t(N_KV_HEAD) * 64 * (2 * D_HEAD);
  [[dont_unroll]] for (uint i = TID; i < D_HEAD / 8; i += WG) {
    mem_st_uvec4(F_state, row + 16 * i, head_half(head_k[2 * i], head_k[2 * i + 1]));
    mem_st_uvec4(F_state, value + 16 * i, head_half(head_v[2 * i], head_v[2 * i + 1]));
  }
}

/* Scores of a tile to exponentials; what the sums so far are to be multiplied by in head_fade. */
void attend_softmax(uint n_head, uint n_tile) {
  const uint NSUB = WG / SUBGROUP;
  uint lane = TID % SUBGROUP;
  [[dont_unroll]] for (uint h = TID / SUBGROUP; h < n_head; h += NSUB) {
    float top = head_top[h], sum = 0, best = top;
    [[dont_unroll]] for (uint i = lane; i < n_tile; i += SUBGROUP) best = max(best, tile_score[h * n_tile + i]);
    best = subgroup_max(best);
    [[dont_unroll]] for (uint i = lane; i < n_tile; i += SUBGROUP) {
      float v = tile_score[h * n_tile + i], e = v > LOWEST ? exp(v - best) : 0.0;
      tile_score[h * n_tile + i] = e;
      sum += e;
    }
    sum = subgroup_sum(sum);
    if (lane == 0) {
      head_fade[h] = exp(top - best);
      head_total[h] = head_total[h] * head_fade[h] + sum;
      head_top[h] = best;
    }
  }
}

float sink_of(uint h) { return SINKS != 0 ? mem_ld_float(F_table, cell(CELL_SINKS) + 4 * h) : LOWEST; }

/* Bytes into the exchange of what split `split` of head h hands to the one that puts the splits together: D_HEAD sums, top, total. */
uint split_place(uint h, uint split) { return PLACE_SPLITS + 8 * ((h * ATTEND_SPLITS + split) * (D_HEAD + 2)); }

/* Adds the sides in xs for head h, the k-th of this workgroup's. */
void attend_put(uint h, uint k, uint split, uint n_split) {
  float top = head_top[k], total = head_total[k], fade = 1;
  if (n_split == 1 && SINKS != 0) {
    float best = max(top, sink_of(h));
    fade = exp(top - best);
    total = total * fade + exp(sink_of(h) - best);
  }
  /* EIGHT invocations add the sides of two elements. */
  const uint EIGHT = WG >= 4 * D_HEAD && SUBGROUP >= 8 ? 8 : 1;
  [[dont_unroll]] for (uint j0 = 0; j0 < D_HEAD / 2; j0 += WG / EIGHT) {
    uint j = min(j0 + TID / EIGHT, uint(D_HEAD / 2 - 1)), d = 2 * j;
    vec2 v = vec2(0);
    [[dont_unroll]] for (uint i = TID % EIGHT; i < VALUE_SIDES; i += EIGHT) {
      uint at = 2 * (i * VALUE_LANES + d / 8) + (d / 4) % 2;
      v += uintBitsToFloat(d % 4 == 0 ? xs[at].xy : xs[at].zw);
    }
    for (uint m = 1; m < EIGHT; m *= 2) v += vec2(subgroupShuffleXor(v.x, m), subgroupShuffleXor(v.y, m));
    if (TID % EIGHT != 0 || j0 + TID / EIGHT >= D_HEAD / 2) continue;
    if (n_split == 1) {
      v *= fade / total;
      pair_store(PLACE_ATTENTION + 4 * (h * D_HEAD + d), v.x, v.y, tag_out());
    } else {
      float_store(split_place(h, split) + 8 * d, v.x, tag_out());
      float_store(split_place(h, split) + 8 * (d + 1), v.y, tag_out());
    }
  }
  if (n_split > 1 && TID < 2) float_store(split_place(h, split) + 8 * (D_HEAD + TID), TID == 0 ? top : total, tag_out());
}

/* Puts the splits of head h together, in order. */
void attend_combine(uint h, uint n_split) {
  const uint EACH = D_HEAD + 2;
  group_barrier();
  [[dont_unroll]] for (uint i = TID; i < n_split * EACH; i += WG)
    xs[i / 4][i % 4] = floatBitsToUint(float_wait(split_place(h, 0) + 8 * i, tag_out()));
  group_barrier();
#define SPLIT_VALUE(S, D) uintBitsToFloat(xs[((S) * EACH + (D)) / 4][((S) * EACH + (D)) % 4])
  float best = sink_of(h), total;
  [[dont_unroll]] for (uint i = 0; i < n_split; i++) best = max(best, SPLIT_VALUE(i, D_HEAD));
  total = SINKS != 0 ? exp(sink_of(h) - best) : 0.0;
  [[dont_unroll]] for (uint i = 0; i < n_split; i++) total += exp(SPLIT_VALUE(i, D_HEAD) - best) * SPLIT_VALUE(i, D_HEAD + 1);
  [[dont_unroll]] for (uint j = TID; j < D_HEAD / 2; j += WG) {
    vec2 v = vec2(0);
    [[dont_unroll]] for (uint i = 0; i < n_split; i++)
      v += exp(SPLIT_VALUE(i, D_HEAD) - best) * vec2(SPLIT_VALUE(i, 2 * j), SPLIT_VALUE(i, 2 * j + 1));
    v /= total;
    pair_store(PLACE_ATTENTION + 4 * (h * D_HEAD + 2 * j), v.x, v.y, tag_out());
  }
}
