/* attention.comp: online softmax attention over the paged state. One subgroup takes EXTRA query heads that share a key/value
 * head, one row and one split; scores: a lane is a position; values: a lane is a few dimensions. With more than one split, the
 * last one to arrive combines the partial results in split order. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_attention
#include "prelude.glsl"
#include "softcap.glsl"

#define GROUP_HEADS EXTRA
const uint ELEMENT = KV_F32 != 0 ? 4 : 2;
const uint ROW_BYTES = D_HEAD * ELEMENT;                            /* of a key */
const uint VALUE_BYTES = (LATENT != 0 ? D_HEAD : D_HEAD_V) * ELEMENT; /* from value to value */
const uint N_QUAD = D_HEAD_V / 4;                      /* groups of four dimensions of a value */
const uint QUADS = (N_QUAD + SUBGROUP - 1) / SUBGROUP; /* of a lane, in the value loop */
const float LOWEST = -3.0e38;

/* Positions that a wide subgroup takes at once in the value loop. A function: glslang 12 misplaces such constants. */
uint sides() {
  if (N_QUAD < SUBGROUP)
    if (SUBGROUP % N_QUAD == 0) return SUBGROUP / N_QUAD;
  return 1;
}
#define SIDES sides()

vec4 halves(uvec2 v) { return vec4(unpackHalf2x16(v.x), unpackHalf2x16(v.y)); }
vec4 load_quad(uint64_t row, uint quad) {
  return KV_F32 != 0 ? mem_ld_vec4(F_state, row + 16 * quad) : halves(mem_ld_uvec2(F_state, row + 8 * quad));
}

/* Narrow subgroups keep the queries in registers: lane l has the elements l * D_HEAD / 8 and on of every head. */
vec4 q_spread[GROUP_HEADS][D_HEAD / 32];
void spread_queries(uint64_t q) {
  [[unroll]] for (uint h = 0; h < GROUP_HEADS; h++)
    [[unroll]] for (uint t = 0; t < D_HEAD / 32; t++)
      q_spread[h][t] = ld_q_vec4(q + 4 * (h * D_HEAD + TID % 8 * (D_HEAD / 8) + 4 * t));
}
/* q . k for the heads of the group; q: offset of the first. */
void scores(uint64_t key, uint64_t q, out float s[GROUP_HEADS]) {
  [[unroll]] for (uint h = 0; h < GROUP_HEADS; h++) s[h] = 0;
  if (NARROW) {
    [[dont_unroll]] for (uint i = 0; i < 8; i++)
      [[unroll]] for (uint t = 0; t < D_HEAD / 32; t++) {
        vec4 k = load_quad(key, i * (D_HEAD / 32) + t);
        [[unroll]] for (uint h = 0; h < GROUP_HEADS; h++) {
          vec4 v = q_spread[h][t];
          s[h] += dot(k, vec4(subgroupShuffle(v.x, i), subgroupShuffle(v.y, i), subgroupShuffle(v.z, i),
                              subgroupShuffle(v.w, i)));
        }
      }
    return;
  }
  for (uint i = 0; i < D_HEAD / 8; i++) {
    vec4 a, b;
    if (KV_F32 != 0) {
      a = load_quad(key, 2 * i);
      b = load_quad(key, 2 * i + 1);
    } else {
      uvec4 v = mem_ld_uvec4(F_state, key + 16 * i);
      a = halves(v.xy);
      b = halves(v.zw);
    }
    [[unroll]] for (uint h = 0; h < GROUP_HEADS; h++) {
      uint64_t p = q + 4 * (h * D_HEAD + 8 * i);
      s[h] += dot(a, ld_q_vec4(p)) + dot(b, ld_q_vec4(p + 16));
    }
  }
}

float top[GROUP_HEADS], total[GROUP_HEADS]; /* running maximum; this lane's part of the sum of exponentials */
vec4 acc[GROUP_HEADS][QUADS];

/* Positions first .. first + n - 1 (n at most SUBGROUP) of a page. */
void positions(uint64_t keys, uint64_t values, uint64_t q, uint first, uint n) {
  uint lane = TID % SUBGROUP;
  float s[GROUP_HEADS];
  scores(keys + (first + min(lane, n - 1)) * ROW_BYTES, q, s);
  [[unroll]] for (uint h = 0; h < GROUP_HEADS; h++) {
    float z = s[h] * SCALE;
    if (SOFTCAP > 0) z = softcap(z);
    float v = lane < n ? z : LOWEST;
    float new_top = max(top[h], subgroup_max(v));
    float fade = exp(top[h] - new_top);
    s[h] = lane < n ? exp(v - new_top) : 0.0;
    total[h] = total[h] * fade + s[h];
    [[unroll]] for (uint i = 0; i < QUADS; i++) acc[h][i] *= fade;
    top[h] = new_top;
  }
  uint side = SIDES > 1 ? lane / N_QUAD : 0, quad = SIDES > 1 ? lane % N_QUAD : lane;
  [[dont_unroll]] for (uint j = 0; j < n; j += SIDES) {
    uint64_t row = values + (first + min(j + side, n - 1)) * VALUE_BYTES;
    vec4 v[QUADS];
    [[unroll]] for (uint i = 0; i < QUADS; i++) v[i] = load_quad(row, min(quad + i * SUBGROUP, N_QUAD - 1));
    [[unroll]] for (uint h = 0; h < GROUP_HEADS; h++) {
      float w = subgroupShuffle(s[h], (j + side) % SUBGROUP);
      if (SIDES > 1 && j + side >= n) w = 0; /* a side beyond n */
      [[unroll]] for (uint i = 0; i < QUADS; i++) acc[h][i] += w * v[i];
    }
  }
}

void store_y(uint r, uint h, uint quad, vec4 v) { st_y_vec4(4 * (uint64_t(r) * Y_STRIDE + h * D_HEAD_V + 4 * quad), v); }
uint64_t partial_of(uint r, uint h, uint split) {
  return pc.partial + 4 * (((uint64_t(r) * N_HEAD + h) * N_SPLIT + split) * (D_HEAD_V + 4));
}
vec4 load_partial(uint64_t p, uint quad) {
  return vec4(mem_ld_shared(F_partial, p + 16 * quad), mem_ld_shared(F_partial, p + 16 * quad + 4),
              mem_ld_shared(F_partial, p + 16 * quad + 8), mem_ld_shared(F_partial, p + 16 * quad + 12));
}

/* A head's sink: below all logits where there is none. */
float sink_of(uint h) { return SINKS != 0 ? ld_sinks_float(4 * h) : LOWEST; }
/* What it adds to a sum of exponentials relative to `top`. */
float sink_weight(uint h, float top) { return SINKS != 0 ? exp(sink_of(h) - top) : 0.0; }

/* Combines the splits of a head, in order. Once a step: not worth the code (and the CPU driver's time to make it) of unrolling. */
void combine(uint r, uint h) {
  float best = sink_of(h), sum;
  [[dont_unroll]] for (uint i = 0; i < N_SPLIT; i++) best = max(best, mem_ld_shared(F_partial, partial_of(r, h, i) + 4 * D_HEAD_V));
  sum = sink_weight(h, best);
  vec4 y[QUADS];
  [[unroll]] for (uint k = 0; k < QUADS; k++) y[k] = vec4(0);
  [[dont_unroll]] for (uint i = 0; i < N_SPLIT; i++) {
    uint64_t p = partial_of(r, h, i);
    float w = exp(mem_ld_shared(F_partial, p + 4 * D_HEAD_V) - best);
    sum += w * mem_ld_shared(F_partial, p + 4 * D_HEAD_V + 4);
    [[unroll]] for (uint k = 0; k < QUADS; k++)
      y[k] += w * load_partial(p, min(TID % SUBGROUP + k * SUBGROUP, N_QUAD - 1));
  }
  [[unroll]] for (uint k = 0; k < QUADS; k++) {
    uint quad = TID + k * SUBGROUP;
    if (TID < SUBGROUP && quad < N_QUAD) store_y(r, h, quad, y[k] / sum);
  }
}

/* Hands a split's sums of a head to the last one to arrive. */
void store_partial(uint r, uint h, uint split, uint quad, vec4 v) {
  uint64_t p = partial_of(r, h, split) + 16 * quad;
  [[unroll]] for (uint i = 0; i < 4; i++) mem_st_shared(F_partial, p + 4 * i, v[i]);
}

void main() {
  uint h0 = gl_WorkGroupID.x * GROUP_HEADS, r = gl_WorkGroupID.y, split = gl_WorkGroupID.z;
  if (r >= step_word(IMG_STEP_N_ROW)) return;
  uint n_pos = step_row_pos(r) + 1, slot = step_row_slot(r), kv = h0 / (N_HEAD / N_KV_HEAD);
  uint64_t q = 4 * (uint64_t(r) * Q_STRIDE + h0 * D_HEAD);
  if (NARROW) spread_queries(q);
  [[unroll]] for (uint h = 0; h < GROUP_HEADS; h++) {
    top[h] = LOWEST;
    total[h] = 0;
    [[unroll]] for (uint i = 0; i < QUADS; i++) acc[h][i] = vec4(0);
  }
  uint begin = WINDOW > 0 && n_pos > WINDOW ? n_pos - WINDOW : 0, page = split;
  /* The first page of this split that has a position in the window. */
  if (WINDOW > 0) page = begin / 64 + (split + N_SPLIT - begin / 64 % N_SPLIT) % N_SPLIT;
  for (; 64 * page < n_pos; page += N_SPLIT) {
    uint64_t layer = pc.state + uint64_t(step_page(slot, 64 * page)) * PAGE_BYTES;
    uint64_t keys = layer + uint64_t(kv * 64) * ROW_BYTES, values = keys;
    if (LATENT == 0) values = layer + uint64_t(N_KV_HEAD * 64) * ROW_BYTES + uint64_t(kv * 64) * VALUE_BYTES;
    uint n = min(64, n_pos - 64 * page), first = 0;
    if (WINDOW > 0 && begin > 64 * page) first = begin - 64 * page;
    for (; first < n; first += SUBGROUP) positions(keys, values, q, first, min(SUBGROUP, n - first));
  }
  [[unroll]] for (uint h = 0; h < GROUP_HEADS; h++) {
    float sum = subgroup_sum(total[h]), fade = 1;
    if (N_SPLIT == 1 && SINKS != 0) {
      float new_top = max(top[h], sink_of(h0 + h));
      fade = exp(top[h] - new_top);
      sum = sum * fade + sink_weight(h0 + h, new_top);
    }
    [[unroll]] for (uint i = 0; i < QUADS; i++) {
      for (uint m = N_QUAD; SIDES > 1 && m < SUBGROUP; m *= 2)
        acc[h][i] += vec4(subgroupShuffleXor(acc[h][i].x, m), subgroupShuffleXor(acc[h][i].y, m),
                          subgroupShuffleXor(acc[h][i].z, m), subgroupShuffleXor(acc[h][i].w, m));
      uint quad = TID + i * SUBGROUP;
      if (TID >= SUBGROUP || quad >= N_QUAD) continue;
      if (N_SPLIT == 1)
        store_y(r, h0 + h, quad, SINKS != 0 ? acc[h][i] * (fade / sum) : acc[h][i] / sum);
      else
        store_partial(r, h0 + h, split, quad, acc[h][i]);
    }
    if (N_SPLIT > 1 && TID == 0) {
      mem_st_shared(F_partial, partial_of(r, h0 + h, split) + 4 * D_HEAD_V, top[h]);
      mem_st_shared(F_partial, partial_of(r, h0 + h, split) + 4 * D_HEAD_V + 4, sum);
    }
  }
  if (N_SPLIT > 1 && arrive_last(F_counter, pc.counter + 4 * (r * N_HEAD + h0), N_SPLIT))
    [[dont_unroll]] for (uint h = 0; h < GROUP_HEADS; h++) combine(r, h0 + h);
}
