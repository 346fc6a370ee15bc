/* expert_schedule.comp: a stable counting sort of the pairs (row, slot) by expert, and the tiles that follow from it. One workgroup: a
 * thread counts, and later places, one expert's pairs in one part of the list, so that nothing depends on arrival. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_expert_schedule
#include "prelude.glsl"

const uint N_TILE = EXPERT_N_TILE(N_ROW, N_EXPERT_USED, N_EXPERT, TM);
const uint MAX_PARTS = 8;
shared uint counts[N_EXPERT * MAX_PARTS]; /* [expert][part] */
shared uint totals[N_EXPERT];

uint expert_of(uint pair) { return min(ld_ids_uint(4 * pair), uint(N_EXPERT - 1)); }

/* Pairs p to p + 3; of those from n on: no expert. Parts begin at multiples of 4. */
uvec4 experts_of(uint p, uint n) {
  uvec4 e = uvec4(N_EXPERT);
  if (p + 4 <= n) return min(ld_ids_uvec4(4 * p), uvec4(N_EXPERT - 1));
  for (uint i = 0; p + i < n; i++) e[i] = expert_of(p + i);
  return e;
}

/* Tiles of experts below e, and pairs of experts below e. */
void before(uint e, out uint tiles, out uint pairs) {
  tiles = pairs = 0;
  [[dont_unroll]] for (uint i = 0; i < e; i++) {
    tiles += (totals[i] + TM - 1) / TM;
    pairs += totals[i];
  }
}

/* The same for a narrow subgroup (WG is one of at most MAX_PARTS lanes, which go in step): a lane counts and places the pairs of its part,
 * lane 0 lays out the experts. Few iterations: CPU drivers bound them (kernels.def). */
void schedule_narrow(uint n_pair) {
  uint part_pairs = (n_pair + WG - 1) / WG, from = TID * part_pairs, to = min(from + part_pairs, n_pair);
  for (uint i = TID; i < N_EXPERT * MAX_PARTS; i += WG) counts[i] = 0;
  group_barrier();
  for (uint p = from; p < to; p++) counts[expert_of(p) * MAX_PARTS + TID]++;
  group_barrier();
  if (TID == 0) {
    uint tile = 0, at = 0;
    for (uint e = 0; e < N_EXPERT; e++) {
      uint first = at;
      for (uint part = 0; part < WG; part++) {
        uint n = counts[e * MAX_PARTS + part];
        counts[e * MAX_PARTS + part] = at;
        at += n;
      }
      for (uint i = first; i < at; i += TM) st_tiles_uvec4(16 * tile++, uvec4(e, i, min(uint(TM), at - i), 0));
    }
    for (; tile < N_TILE; tile++) st_tiles_uvec4(16 * tile, uvec4(0));
  }
  group_barrier();
  for (uint p = from; p < to; p++) st_pairs_uint(4 * counts[expert_of(p) * MAX_PARTS + TID]++, p);
}

void main() {
  uint n_pair = min(step_word(IMG_STEP_N_ROW), uint(N_ROW)) * N_EXPERT_USED;
  if (WG <= MAX_PARTS) {
    schedule_narrow(n_pair);
    return;
  }
  uint parts = clamp(WG / N_EXPERT, 1, MAX_PARTS), part_pairs = ((n_pair + parts - 1) / parts + 3) / 4 * 4;
  [[dont_unroll]] for (uint i = TID; i < N_EXPERT * parts; i += WG) {
    uint e = i % N_EXPERT, part = i / N_EXPERT, n = 0;
    uint from = part * part_pairs, to = min(from + part_pairs, n_pair);
    for (uint p = from; p < to; p += 4) {
      uvec4 same = uvec4(equal(experts_of(p, to), uvec4(e)));
      n += same.x + same.y + same.z + same.w;
    }
    counts[e * MAX_PARTS + part] = n;
  }
  group_barrier();
  [[dont_unroll]] for (uint e = TID; e < N_EXPERT; e += WG) {
    uint n = 0;
    [[dont_unroll]] for (uint part = 0; part < parts; part++) n += counts[e * MAX_PARTS + part];
    totals[e] = n;
  }
  group_barrier();
  [[dont_unroll]] for (uint i = TID; i < N_EXPERT * parts; i += WG) {
    uint e = i % N_EXPERT, part = i / N_EXPERT, tile, at;
    before(e, tile, at);
    if (part == 0)
      [[dont_unroll]] for (uint k = 0; k * TM < totals[e]; k++)
        st_tiles_uvec4(16 * (tile + k), uvec4(e, at + k * TM, min(uint(TM), totals[e] - k * TM), 0));
    [[dont_unroll]] for (uint k = 0; k < part; k++) at += counts[e * MAX_PARTS + k];
    uint from = part * part_pairs, to = min(from + part_pairs, n_pair);
    for (uint p = from; p < to; p += 4) {
      bvec4 same = equal(experts_of(p, to), uvec4(e));
      if (!any(same)) continue;
      [[unroll]] for (uint k = 0; k < 4; k++)
        if (same[k]) st_pairs_uint(4 * at++, p + k);
    }
  }
  uint used, unused;
  before(N_EXPERT, used, unused);
  [[dont_unroll]] for (uint t = used + TID; t < N_TILE; t += WG) st_tiles_uvec4(16 * t, uvec4(0));
}
