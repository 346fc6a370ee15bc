/* attention.comp: online softmax attention over the paged state. One subgroup takes GROUP_HEADS query heads that share a key/value
 * head, one row and one split; scores: a lane is a position; values: a lane is a few dimensions. With more than one split, the
 * last one to arrive combines the partial results in split order. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_attention
#include "prelude.glsl"

const uint GROUP_HEADS = ATTENTION_GROUP_HEADS(N_HEAD, N_KV_HEAD);
const uint ROW_BYTES = D_HEAD * (KV_F32 != 0 ? 4 : 2);
const uint N_PAIR = D_HEAD / 2;                    /* pairs of dimensions */
const uint PAIRS = (N_PAIR + SUBGROUP - 1) / SUBGROUP; /* pairs a lane */
const float LOWEST = -3.0e38;

/* Positions that a wide subgroup takes at once in the value loop. A function: glslang 12 misplaces such constants. */
uint sides() {
  if (N_PAIR < SUBGROUP)
    if (SUBGROUP % N_PAIR == 0) return SUBGROUP / N_PAIR;
  return 1;
}
#define SIDES sides()

vec2 load_pair(uint64_t row, uint pair) {
  if (KV_F32 != 0) return mem_ld_vec2(F_state, row + 8 * pair);
  return unpackHalf2x16(mem_ld_uint(F_state, row + 4 * pair));
}
/* Elements 8i .. 8i + 7 of a key. */
void load_eight(uint64_t row, uint i, out vec4 a, out vec4 b) {
  if (KV_F32 != 0) {
    a = mem_ld_vec4(F_state, row + 32 * i);
    b = mem_ld_vec4(F_state, row + 32 * i + 16);
  } else {
    uvec4 v = mem_ld_uvec4(F_state, row + 16 * i);
    a = vec4(unpackHalf2x16(v.x), unpackHalf2x16(v.y));
    b = vec4(unpackHalf2x16(v.z), unpackHalf2x16(v.w));
  }
}
/* q . k for the heads of the group; q: offset of the first. */
void scores(uint64_t key, uint64_t q, out float s[GROUP_HEADS]) {
  [[unroll]] for (uint h = 0; h < GROUP_HEADS; h++) s[h] = 0;
  for (uint i = 0; i < D_HEAD / 8; i++) {
    vec4 a, b;
    load_eight(key, i, a, b);
    [[unroll]] for (uint h = 0; h < GROUP_HEADS; h++) {
      uint64_t p = q + 4 * (h * D_HEAD + 8 * i);
      vec4 qa, qb;
      if (NARROW) {
        float v = ld_q_float(p + 4 * (TID % 8));
        qa = vec4(subgroupBroadcast(v, 0), subgroupBroadcast(v, 1), subgroupBroadcast(v, 2), subgroupBroadcast(v, 3));
        qb = vec4(subgroupBroadcast(v, 4), subgroupBroadcast(v, 5), subgroupBroadcast(v, 6), subgroupBroadcast(v, 7));
      } else {
        qa = ld_q_vec4(p);
        qb = ld_q_vec4(p + 16);
      }
      s[h] += dot(a, qa) + dot(b, qb);
    }
  }
}

float top[GROUP_HEADS], total[GROUP_HEADS]; /* running maximum; this lane's part of the sum of exponentials */
vec2 acc[GROUP_HEADS][PAIRS];

/* Positions first .. first + n - 1 (n at most SUBGROUP) of a page. */
void positions(uint64_t keys, uint64_t values, uint64_t q, uint first, uint n) {
  uint lane = TID % SUBGROUP;
  float s[GROUP_HEADS];
  scores(keys + (first + min(lane, n - 1)) * ROW_BYTES, q, s);
  [[unroll]] for (uint h = 0; h < GROUP_HEADS; h++) {
    float v = lane < n ? s[h] * SCALE : LOWEST;
    float new_top = max(top[h], subgroup_max(v));
    float fade = exp(top[h] - new_top);
    s[h] = lane < n ? exp(v - new_top) : 0.0;
    total[h] = total[h] * fade + s[h];
    [[unroll]] for (uint i = 0; i < PAIRS; i++) acc[h][i] *= fade;
    top[h] = new_top;
  }
  uint side = SIDES > 1 ? lane / N_PAIR : 0, pair = SIDES > 1 ? lane % N_PAIR : lane;
  for (uint j = 0; j < n; j += SIDES) {
    uint64_t row = values + (first + min(j + side, n - 1)) * ROW_BYTES;
    vec2 v[PAIRS];
    [[unroll]] for (uint i = 0; i < PAIRS; i++) v[i] = load_pair(row, min(pair + i * SUBGROUP, N_PAIR - 1));
    [[unroll]] for (uint h = 0; h < GROUP_HEADS; h++) {
      /* A lane beyond n has weight 0. */
      float w = SIDES > 1 ? subgroupShuffle(s[h], (j + side) % SUBGROUP) : subgroupBroadcast(s[h], j);
      if (SIDES > 1 && j + side >= n) w = 0;
      [[unroll]] for (uint i = 0; i < PAIRS; i++) acc[h][i] += w * v[i];
    }
  }
}

void store_y(uint r, uint h, uint pair, vec2 v) { st_y_vec2(4 * (uint64_t(r) * Y_STRIDE + h * D_HEAD + 2 * pair), v); }
uint64_t partial_of(uint r, uint h, uint split) {
  return pc.partial + 4 * (((uint64_t(r) * N_HEAD + h) * N_SPLIT + split) * (D_HEAD + 4));
}

/* Combines the splits of a head. Once a step: not worth the code (and the CPU driver's time to make it) of unrolling. */
void combine(uint r, uint h) {
  float best = LOWEST, sum = 0;
  [[dont_unroll]] for (uint i = 0; i < N_SPLIT; i++) best = max(best, mem_ld_shared(F_partial, partial_of(r, h, i) + 4 * D_HEAD));
  vec2 out_[PAIRS];
  [[unroll]] for (uint i = 0; i < PAIRS; i++) out_[i] = vec2(0);
  [[dont_unroll]] for (uint i = 0; i < N_SPLIT; i++) {
    uint64_t p = partial_of(r, h, i);
    float w = exp(mem_ld_shared(F_partial, p + 4 * D_HEAD) - best);
    sum += w * mem_ld_shared(F_partial, p + 4 * D_HEAD + 4);
    [[unroll]] for (uint k = 0; k < PAIRS; k++) {
      uint pair = min(TID % SUBGROUP + k * SUBGROUP, N_PAIR - 1);
      out_[k] += w * vec2(mem_ld_shared(F_partial, p + 8 * pair), mem_ld_shared(F_partial, p + 8 * pair + 4));
    }
  }
  [[unroll]] for (uint k = 0; k < PAIRS; k++) {
    uint pair = TID + k * SUBGROUP;
    if (TID < SUBGROUP && pair < N_PAIR) store_y(r, h, pair, out_[k] / sum);
  }
}

void main() {
  uint h0 = gl_WorkGroupID.x * GROUP_HEADS, r = gl_WorkGroupID.y, split = gl_WorkGroupID.z;
  if (r >= step_word(IMG_STEP_N_ROW)) return;
  uint n_pos = step_row_pos(r) + 1, slot = step_row_slot(r), kv = h0 / (N_HEAD / N_KV_HEAD);
  uint64_t q = 4 * (uint64_t(r) * Q_STRIDE + h0 * D_HEAD);
  [[unroll]] for (uint h = 0; h < GROUP_HEADS; h++) {
    top[h] = LOWEST;
    total[h] = 0;
    [[unroll]] for (uint i = 0; i < PAIRS; i++) acc[h][i] = vec2(0);
  }
  for (uint page = split; 64 * page < n_pos; page += N_SPLIT) {
    uint64_t keys = pc.state + uint64_t(step_page(slot, 64 * page)) * PAGE_BYTES + uint64_t(kv * 64) * ROW_BYTES;
    uint n = min(64, n_pos - 64 * page);
    for (uint first = 0; first < n; first += SUBGROUP)
      positions(keys, keys + uint64_t(N_KV_HEAD * 64) * ROW_BYTES, q, first, min(SUBGROUP, n - first));
  }
  [[unroll]] for (uint h = 0; h < GROUP_HEADS; h++) {
    float sum = subgroup_sum(total[h]);
    [[unroll]] for (uint i = 0; i < PAIRS; i++) {
      for (uint m = N_PAIR; SIDES > 1 && m < SUBGROUP; m *= 2)
        acc[h][i] += vec2(subgroupShuffleXor(acc[h][i].x, m), subgroupShuffleXor(acc[h][i].y, m));
      uint pair = TID + i * SUBGROUP;
      if (TID >= SUBGROUP || pair >= N_PAIR) continue;
      if (N_SPLIT == 1) {
        store_y(r, h0 + h, pair, acc[h][i] / sum);
      } else {
        mem_st_shared(F_partial, partial_of(r, h0 + h, split) + 8 * pair, acc[h][i].x);
        mem_st_shared(F_partial, partial_of(r, h0 + h, split) + 8 * pair + 4, acc[h][i].y);
      }
    }
    if (N_SPLIT > 1 && TID == 0) {
      mem_st_shared(F_partial, partial_of(r, h0 + h, split) + 4 * D_HEAD, top[h]);
      mem_st_shared(F_partial, partial_of(r, h0 + h, split) + 4 * D_HEAD + 4, sum);
    }
  }
  if (N_SPLIT > 1 && arrive_last(F_counter, pc.counter + 4 * (r * N_HEAD + h0), N_SPLIT))
    for (uint h = 0; h < GROUP_HEADS; h++) combine(r, h0 + h);
}
