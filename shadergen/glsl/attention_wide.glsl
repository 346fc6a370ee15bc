/* attention_wide.glsl: attention for GPUs. A team of LANES lanes takes a position: each lane has CHUNK elements at a time of its key, the
 * products of HEADS heads are added over the team by exchanging halves, so that at the end a lane has one head; then the same lanes take
 * their elements of the value for all heads. Subgroups go through a split's positions on their own, with their own running
 * maximum, and meet once at its end.
 *
 * In flight: the keys of the next DEPTH positions of each team are asked for before the values of the current ones are used. */
const uint DEPTH = (EXTRA >> 8) & 255u; /* positions that a team takes at once */
const uint STAGED = EXTRA >> 16;        /* heads whose sums the subgroups exchange at once */
const uint HP = ATTENTION_ROUND2(HEADS); /* heads, rounded up to a power of two; at most LANES */
const uint K_CHUNK = D_HEAD % 8 == 0 && D_HEAD >= 8 * LANES ? 8 : 4, V_CHUNK = D_HEAD_V % 8 == 0 && D_HEAD_V >= 8 * LANES ? 8 : 4;
/* Chunks, and vectors, of a lane. */
const uint K_CHUNKS = (D_HEAD / K_CHUNK + LANES - 1) / LANES, V_CHUNKS = (D_HEAD_V / V_CHUNK + LANES - 1) / LANES;
const uint K_QUADS = K_CHUNKS * (K_CHUNK / 4), V_QUADS = V_CHUNKS * (V_CHUNK / 4);
const uint K_IN_FLIGHT = DEPTH * K_CHUNKS, V_IN_FLIGHT = DEPTH * V_CHUNKS;
const uint TEAMS = WG / LANES, SUBGROUPS = WG / SUBGROUP, SIDES = SUBGROUP / LANES; /* SIDES: teams of a subgroup */
const uint WEIGHT_QUADS = (HP + 3) / 4; /* vectors for one weight a head */
const uint FADE_AT = DEPTH * SIDES;     /* of wide_weight, in WEIGHT_QUADS */

kv_raw wide_k[K_IN_FLIGHT], wide_v[V_IN_FLIGHT]; /* keys of the round to come, values of this one */
float wide_z[DEPTH];                             /* logits of this lane's head */
/* Slot i of wide_q has head i ^ own: then a lane keeps its first slots and gives the others away, without choosing. */
vec4 wide_q[HP][K_QUADS], wide_acc[HEADS][V_QUADS];
/* Of this lane's head, lane / (LANES / HP): the subgroup's maximum so far, its team's sum of exponentials. */
float wide_top, wide_total;

/* By subgroup: exponentials by position and team, and what the sums so far are multiplied by. */
const uint WEIGHTS = (FADE_AT + 1) * WEIGHT_QUADS, STAGE_QUADS = STAGED * N_QUAD;
shared vec4 wide_weight[SUBGROUPS][WEIGHTS];
shared vec2 wide_sum[SUBGROUPS][HP]; /* maximum and sum */
shared vec2 wide_head[HP];           /* the same of all subgroups */
shared vec4 wide_stage[SUBGROUPS][STAGE_QUADS];
shared vec2 wide_split[HEADS][ATTENTION_MAX_SPLIT];

uint wide_lane() { return TID % LANES; }
uint wide_own() { return wide_lane() / (LANES / HP); }
/* First element of chunk c of this lane, which a lane beyond the end repeats. */
uint wide_element(uint d, uint chunk, uint c) { return min((c * LANES + wide_lane()) * chunk, d - chunk); }
bool wide_inside(uint d, uint chunk, uint c) { return (c * LANES + wide_lane()) * chunk < d; }

/* The sum over a team of its lanes' values of the lane's own head. s: by slot. At each step a lane gives half of its slots to the lane that
 * has the same heads in its first half. */
#define WIDE_EXCHANGE(N)                                                                                               \
  if (HP >= N)                                                                                                         \
    [[unroll]] for (uint i = 0; i < N / 2; i++) s[i] += subgroupShuffleXor(s[i + N / 2], LANES * N / (2 * HP));
#define WIDE_FOLD(M)                                                                                                   \
  if (LANES / HP > M) s[0] += subgroupShuffleXor(s[0], M);
float wide_team_sum(float s[8]) {
  WIDE_EXCHANGE(8) WIDE_EXCHANGE(4) WIDE_EXCHANGE(2)
  WIDE_FOLD(32) WIDE_FOLD(16) WIDE_FOLD(8) WIDE_FOLD(4) WIDE_FOLD(2) WIDE_FOLD(1)
  return s[0];
}
/* Over the teams of a subgroup. */
#define WIDE_ACROSS(M, HOW)                                                                                            \
  if (M >= LANES && M < SUBGROUP) v = HOW(v, subgroupShuffleXor(v, M));
#define WIDE_ACROSS_ALL(HOW)                                                                                           \
  WIDE_ACROSS(1, HOW) WIDE_ACROSS(2, HOW) WIDE_ACROSS(4, HOW) WIDE_ACROSS(8, HOW) WIDE_ACROSS(16, HOW)                 \
  WIDE_ACROSS(32, HOW) WIDE_ACROSS(64, HOW)
float wide_across_max(float v) {
  WIDE_ACROSS_ALL(max)
  return v;
}
float wide_across_sum(float v) {
  WIDE_ACROSS_ALL(FOLD_ADD)
  return v;
}

void wide_load_queries() {
  uint64_t q = 4 * (uint64_t(row) * Q_STRIDE + head * D_HEAD);
  [[unroll]] for (uint i = 0; i < HP; i++) {
    uint h = i ^ wide_own();
    [[unroll]] for (uint c = 0; c < K_CHUNKS; c++)
      [[unroll]] for (uint j = 0; j < K_CHUNK / 4; j++) {
        vec4 v = ld_q_vec4(q + 4 * (min(h, HEADS - 1) * D_HEAD + wide_element(D_HEAD, K_CHUNK, c) + 4 * j));
        wide_q[i][c * (K_CHUNK / 4) + j] = h < HEADS && wide_inside(D_HEAD, K_CHUNK, c) ? v : vec4(0);
      }
  }
}

/* A round: TEAMS * DEPTH positions of a page, from `first` on; team t takes first + t, first + t + TEAMS and so on. Those outside of
 * low .. end - 1 have weight 0, and a position inside is read for them. */
struct wide_round {
  uint64_t keys;
  uint first, low, end;
};
uint wide_pos(wide_round at, uint i) { return at.first + i * TEAMS + TID / LANES; }
uint wide_pos_inside(wide_round at, uint i) { return clamp(wide_pos(at, i), at.low, at.end - 1); }

void wide_load_keys(wide_round at) {
  [[unroll]] for (uint i = 0; i < DEPTH; i++)
    [[unroll]] for (uint c = 0; c < K_CHUNKS; c++)
      wide_k[i * K_CHUNKS + c] =
          kv_load(at.keys, D_HEAD, K_CHUNK, wide_pos_inside(at, i), wide_element(D_HEAD, K_CHUNK, c));
}
void wide_load_values(wide_round at) {
  uint64_t values = values_of(at.keys);
  [[unroll]] for (uint i = 0; i < DEPTH; i++)
    [[unroll]] for (uint c = 0; c < V_CHUNKS; c++)
      wide_v[i * V_CHUNKS + c] =
          kv_load(values, VALUE_D, V_CHUNK, wide_pos_inside(at, i), wide_element(D_HEAD_V, V_CHUNK, c));
}

void wide_logits(wide_round at) {
  [[unroll]] for (uint i = 0; i < DEPTH; i++) {
    float s[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    [[unroll]] for (uint c = 0; c < K_CHUNKS; c++) {
      uint e = wide_element(D_HEAD, K_CHUNK, c);
      [[unroll]] for (uint j = 0; j < K_CHUNK / 4; j++) {
        vec4 v = kv_quad(wide_k[i * K_CHUNKS + c], e, j > 0);
        [[unroll]] for (uint h = 0; h < HP; h++) {
          vec4 q = wide_q[h][c * (K_CHUNK / 4) + j];
          s[h] = fma(v.w, q.w, fma(v.z, q.z, fma(v.y, q.y, fma(v.x, q.x, s[h]))));
        }
      }
    }
    bool inside = wide_pos(at, i) >= at.low && wide_pos(at, i) < at.end;
    float z = logit(wide_team_sum(s));
    wide_z[i] = inside ? z : LOWEST;
  }
}

/* Exponentials of the logits into wide_weight, and the running maximum and sum. */
void wide_weights() {
  uint g = TID / SUBGROUP, team = TID % SUBGROUP / LANES, own = wide_own();
  float best = wide_z[0];
  [[unroll]] for (uint i = 1; i < DEPTH; i++) best = max(best, wide_z[i]);
  best = max(wide_top, wide_across_max(best));
  float fade = exp(wide_top - best);
  wide_top = best;
  wide_total *= fade;
  subgroupBarrier(); /* the last round's weights have been read */
  bool writes = wide_lane() % (LANES / HP) == 0;
  [[unroll]] for (uint i = 0; i < DEPTH; i++) {
    float e = wide_z[i] > LOWEST ? exp(wide_z[i] - best) : 0;
    wide_total += e;
    if (writes) wide_weight[g][(i * SIDES + team) * WEIGHT_QUADS + own / 4][own % 4] = e;
  }
  if (writes && team == 0) wide_weight[g][FADE_AT * WEIGHT_QUADS + own / 4][own % 4] = fade;
  subgroupBarrier();
}
/* A weight a head: the vectors at `at`. */
void wide_read_weights(uint at, out vec4 w[2]) {
  [[unroll]] for (uint i = 0; i < 2; i++) w[i] = wide_weight[TID / SUBGROUP][at * WEIGHT_QUADS + min(i, WEIGHT_QUADS - 1)];
}

void wide_fade() {
  vec4 fade[2];
  wide_read_weights(FADE_AT, fade);
  if (fade[0] == vec4(1) && fade[1] == vec4(1)) return; /* as in most rounds */
  [[unroll]] for (uint h = 0; h < HEADS; h++)
    [[unroll]] for (uint c = 0; c < V_QUADS; c++) wide_acc[h][c] *= fade[h / 4][h % 4];
}

void wide_values(wide_round at) {
  uint team = TID % SUBGROUP / LANES;
  wide_fade();
  [[unroll]] for (uint i = 0; i < DEPTH; i++) {
    vec4 w[2];
    wide_read_weights(i * SIDES + team, w);
    [[unroll]] for (uint c = 0; c < V_CHUNKS; c++) {
      uint e = wide_element(D_HEAD_V, V_CHUNK, c);
      [[unroll]] for (uint j = 0; j < V_CHUNK / 4; j++) {
        vec4 v = kv_quad(wide_v[i * V_CHUNKS + c], e, j > 0);
        [[unroll]] for (uint h = 0; h < HEADS; h++) wide_acc[h][c * (V_CHUNK / 4) + j] += w[h / 4][h % 4] * v;
      }
    }
  }
}

/* ---- Where the split's positions are ---- */

/* A round of the page of the sequence that has the state's page `entry`. */
wide_round wide_round_of(uint index, uint entry, uint first) {
  uint n = min(64, n_pos - 64 * index), low = 0;
  if (WINDOW > 0 && begin > 64 * index) low = begin - 64 * index;
  return wide_round(keys_of(entry), first, low, n);
}

void wide_walk(uint slot) {
  uint index = page + split, last = page + n_page;
  uint entry = step_page(slot, 64 * index), ahead = step_page(slot, 64 * min(index + live, last - 1));
  wide_round at = wide_round_of(index, entry, 0);
  wide_load_keys(at);
  wide_load_queries();
  bool more = true;
  while (more) {
    wide_load_values(at);
    wide_logits(at);
    /* The next round: of this page, or of the split's next. */
    wide_round next = at;
    next.first += TEAMS * DEPTH;
    if (next.first >= at.end) {
      index += live;
      more = index < last;
      if (more) {
        next = wide_round_of(index, ahead, 0);
        ahead = step_page(slot, 64 * min(index + live, last - 1));
      }
    }
    if (more) wide_load_keys(next);
    wide_weights();
    wide_values(at);
    at = next;
  }
}

/* ---- The split's end ---- */

/* wide_acc becomes relative to the workgroup's maximum, which is in wide_head with the sum. */
void wide_meet() {
  uint g = TID / SUBGROUP, own = wide_own();
  wide_total = wide_across_sum(wide_total);
  bool writes = TID % SUBGROUP < LANES && wide_lane() % (LANES / HP) == 0;
  if (writes) wide_sum[g][own] = vec2(wide_top, wide_total);
  barrier();
  float best = LOWEST, sum = 0;
  [[unroll]] for (uint i = 0; i < SUBGROUPS; i++) best = max(best, wide_sum[i][own].x);
  [[unroll]] for (uint i = 0; i < SUBGROUPS; i++) sum += wide_sum[i][own].y * exp(wide_sum[i][own].x - best);
  if (writes) {
    wide_weight[g][FADE_AT * WEIGHT_QUADS + own / 4][own % 4] = exp(wide_top - best);
    if (g == 0) wide_head[own] = vec2(best, sum);
  }
  subgroupBarrier();
  wide_fade();
}

/* A quad of head h's sums: into y, or to the last split to arrive. */
void wide_store(uint h, uint quad, vec4 v) {
  float best = wide_head[h].x, sum = wide_head[h].y;
  if (live > 1) {
    mem_st_shared_vec4(F_partial, partial_of(head + h, split) + 16 * quad, v);
    return;
  }
  float top = max(best, sink_of(head + h)), fade = SINKS != 0 ? exp(best - top) : 1;
  store_y(head + h, quad, v * (fade / (sum * fade + sink_weight(head + h, top))));
}

/* Adds the subgroups' sums, STAGED heads at a time, in order of subgroups. Control flow is uniform for the sake of CPU drivers. */
void wide_join() {
  uint g = TID / SUBGROUP;
  [[unroll]] for (uint from = 0; from < HEADS; from += STAGED) {
    barrier(); /* wide_head is there; the stage has been read */
    [[unroll]] for (uint h = 0; h < STAGED; h++)
      [[unroll]] for (uint c = 0; c < V_CHUNKS; c++)
        [[unroll]] for (uint j = 0; j < V_CHUNK / 4; j++) {
          if (from + h >= HEADS) continue;
          vec4 a = wide_acc[from + h][c * (V_CHUNK / 4) + j];
          if (SUBGROUP > LANES)
            a = vec4(wide_across_sum(a.x), wide_across_sum(a.y), wide_across_sum(a.z), wide_across_sum(a.w));
          if (TID % SUBGROUP < LANES && wide_inside(D_HEAD_V, V_CHUNK, c))
            wide_stage[g][h * N_QUAD + wide_element(D_HEAD_V, V_CHUNK, c) / 4 + j] = a;
        }
    barrier();
    for (uint i = TID; i - TID < STAGED * N_QUAD; i += WG) {
      uint item = min(i, STAGED * N_QUAD - 1);
      vec4 a = wide_stage[0][item];
      [[unroll]] for (uint k = 1; k < SUBGROUPS; k++) a += wide_stage[k][item];
      if (i < STAGED * N_QUAD && from + item / N_QUAD < HEADS) wide_store(from + item / N_QUAD, item % N_QUAD, a);
    }
  }
}

/* ---- The last split ---- */

/* Weights of the splits into wide_split: a subgroup takes a head. */
void wide_split_weights() {
  uint lane = TID % SUBGROUP;
  for (uint base = 0; base < HEADS; base += SUBGROUPS) {
    uint h = min(base + TID / SUBGROUP, HEADS - 1);
    bool mine = base + TID / SUBGROUP < HEADS;
    float best = LOWEST, sum = 0;
    for (uint i = lane; i - lane < live; i += SUBGROUP) {
      uint64_t p = partial_of(head + h, min(i, live - 1)) + 4 * D_HEAD_V;
      vec2 v = vec2(mem_ld_shared(F_partial, p), mem_ld_shared(F_partial, p + 4));
      if (mine && i < live) wide_split[h][i] = v;
      best = max(best, v.x);
    }
    best = max(subgroup_max(best), sink_of(head + h));
    for (uint i = lane; i - lane < live; i += SUBGROUP)
      if (i < live) sum += wide_split[h][i].y * exp(wide_split[h][i].x - best);
    sum = subgroup_sum(sum) + sink_weight(head + h, best);
    for (uint i = lane; i - lane < live; i += SUBGROUP)
      if (mine && i < live) wide_split[h][i].x = exp(wide_split[h][i].x - best) / sum;
  }
}

/* A column is a quad of a head. PARTS invocations share one, each adds every PARTS-th split, and their sums are added in order. */
const uint COLUMNS = HEADS * N_QUAD, AT_ONCE = 16; /* partial sums in flight */
const uint ABREAST = COLUMNS < WG ? COLUMNS : WG, SHARES = WG / ABREAST, ROOM = SUBGROUPS * STAGED / HEADS;
const uint PARTS = SHARES < ROOM ? SHARES : ROOM; /* as many as wide_stage has room for */

void wide_combine() {
  uint part = min(TID / ABREAST, PARTS - 1);
  for (uint base = 0; base < COLUMNS; base += ABREAST) {
    uint column = min(base + TID % ABREAST, COLUMNS - 1), h = column / N_QUAD, quad = column % N_QUAD;
    bool stores = TID < ABREAST && base + TID < COLUMNS;
    uint64_t p = partial_of(head + h, 0) + 16 * quad;
    vec4 y = vec4(0);
    for (uint first = 0; first < live; first += PARTS * AT_ONCE) {
      vec4 v[AT_ONCE];
      [[unroll]] for (uint k = 0; k < AT_ONCE; k++)
        v[k] = mem_ld_shared_vec4(F_partial, p + 4 * min(first + k * PARTS + part, live - 1) * (D_HEAD_V + 4));
      if (base == 0 && first == 0) { /* while the first of them come */
        wide_split_weights();
        barrier();
      }
      [[unroll]] for (uint k = 0; k < AT_ONCE; k++) {
        uint i = first + k * PARTS + part;
        y += (i < live ? wide_split[h][min(i, live - 1)].x : 0) * v[k];
      }
    }
    if (PARTS > 1) { /* then COLUMNS is ABREAST */
      if (TID < PARTS * ABREAST) wide_stage[TID / STAGE_QUADS][TID % STAGE_QUADS] = y;
      barrier();
      y = vec4(0);
      [[unroll]] for (uint k = 0; k < PARTS; k++) {
        uint i = k * ABREAST + TID % ABREAST;
        y += wide_stage[i / STAGE_QUADS][i % STAGE_QUADS];
      }
    }
    if (stores) store_y(head + h, quad, y);
  }
}

void attend_wide(uint slot) {
  [[unroll]] for (uint h = 0; h < HEADS; h++)
    [[unroll]] for (uint i = 0; i < V_QUADS; i++) wide_acc[h][i] = vec4(0);
  wide_top = LOWEST;
  wide_total = 0;
  wide_walk(slot);
  wide_meet();
  wide_join();
  if (live == 1) return;
  if (TID < HEADS) {
    uint64_t p = partial_of(head + TID, split) + 4 * D_HEAD_V;
    mem_st_shared(F_partial, p, wide_head[TID].x);
    mem_st_shared(F_partial, p + 4, wide_head[TID].y);
  }
  if (arrive_last(F_counter, pc.counter + 4 * (row * N_HEAD + head), live)) wide_combine();
}
