/* sample.comp: one workgroup per select record, after sample_scan: the done rule, the token, its log-probability, the most likely ids.
 *
 * Log-probabilities are those of the unmodified softmax. Suppressed ids are left out of everything else: none of them is sampled.
 * Greedy (temperature 0): largest logit, ties to the lower id. Else, in this order: top_k keeps logits not below the k-th largest; top_p
 * keeps the fewest largest whose softmax mass (among those kept) reaches top_p; min_p keeps p >= min_p * p_max; temperature; then the
 * largest of logit / T + G with Gumbel noise G keyed by (seed, position, id): a sample of the softmax, the same
 * whatever else is in the batch. Ties with a threshold are kept. Sums are made in a fixed order.
 *
 * How: a record without filters is decided by the cells' scores (sampling.glsl). For filters and lists, the need-th largest of the
 * cells' maxima is not above the need-th largest logit; so the logits not below it, which lie in few cells, are the candidates: they are gathered in any
 * order, sorted by counting, and thresholds are places in the sorted row. top_p alone first asks whether the candidates have mass enough. What candidates do not
 * decide, or where there are more than CANDIDATES of them, sample_slow.glsl does. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_sample
#include "prelude.glsl"
#include "group.glsl"
#include "sampling.glsl"

/* Room for candidates; index CANDIDATES takes what is none: CPU drivers want stores to shared memory in uniform control flow. */
const uint CANDIDATES = NARROW ? 256 : 512;
const uint N_BIN = 256, BIN_NONE = WG > 256 ? WG : 256;
shared uint group_id[WG / SUBGROUP];
shared float group_sums[WG / SUBGROUP], group_tops[WG / SUBGROUP];
shared uint bins[BIN_NONE + 1];
shared uint found_key[CANDIDATES + 1], found_id[CANDIDATES + 1];
shared uint sorted_key[CANDIDATES + 1], sorted_id[CANDIDATES + 1]; /* while gathering: sorted_id lists cells */
shared uint n_cell, n_found;

void subgroup_best(inout float v, inout uint id) {
  for (uint m = SUBGROUP / 2; m > 0; m /= 2) {
    float other = subgroupShuffleXor(v, m);
    uint other_id = subgroupShuffleXor(id, m);
    if (better(other, other_id, v, id)) v = other, id = other_id;
  }
}
/* All invocations get the best. */
void group_best(inout float v, inout uint id) {
  subgroup_best(v, id);
  if (WG > SUBGROUP) {
    if (TID % SUBGROUP == 0) {
      group_part[TID / SUBGROUP] = v;
      group_id[TID / SUBGROUP] = id;
    }
    barrier();
    for (uint i = 0; i < WG / SUBGROUP; i++)
      if (better(group_part[i], group_id[i], v, id)) v = group_part[i], id = group_id[i];
    barrier();
  }
}

uint64_t result_word(uint word) { return 4 * uint64_t(IMG_RESULT_HEAD_WORDS + select_ * IMG_RESULT_WORDS + word); }
void list_store(uint i, uint id, float logprob) {
  st_result_uint(result_word(IMG_RESULT_TOP_ID + i), id);
  st_result_float(result_word(IMG_RESULT_TOP_LOGPROB + i), logprob);
}
#include "sample_slow.glsl"

/* ---- cells ---- */
uint64_t cell_at(uint cell) { return 16 * (uint64_t(select_) * N_CELL + min(cell, N_CELL - 1)); }
uint cell_key(uint cell) { return key_of(ld_cells_float(cell_at(cell))); }

/* Of all cells: the largest logit, the sum of exp(logit - top), the best score's id. */
void cells_fold(out float top, out float total, out uint id) {
  float m = LOWEST, s = 0, score = LOWEST;
  id = ~0u;
  [[dont_unroll]] for (uint c = TID; c < N_CELL; c += WG) {
    uvec4 cell = ld_cells_uvec4(cell_at(c));
    float now = max(m, uintBitsToFloat(cell.x));
    s = s * exp(m - now) + uintBitsToFloat(cell.y) * exp(uintBitsToFloat(cell.x) - now);
    m = now;
    if (better(uintBitsToFloat(cell.z), cell.w, score, id)) score = uintBitsToFloat(cell.z), id = cell.w;
  }
  top = subgroup_max(m);
  total = subgroup_sum(s * exp(m - top));
  subgroup_best(score, id);
  if (WG > SUBGROUP) {
    if (TID % SUBGROUP == 0) {
      group_tops[TID / SUBGROUP] = top;
      group_sums[TID / SUBGROUP] = total;
      group_part[TID / SUBGROUP] = score;
      group_id[TID / SUBGROUP] = id;
    }
    barrier();
    for (uint i = 0; i < WG / SUBGROUP; i++) top = max(top, group_tops[i]);
    total = 0;
    for (uint i = 0; i < WG / SUBGROUP; i++) {
      total += group_sums[i] * exp(group_tops[i] - top);
      if (better(group_part[i], group_id[i], score, id)) score = group_part[i], id = group_id[i];
    }
    barrier();
  }
}

/* The largest bin above which, itself included, there are at least `need`; need becomes what is missing above it. Each subgroup for itself. */
uint bins_find(inout uint need) {
  const uint EACH = N_BIN / SUBGROUP;
  uint lane = TID % SUBGROUP, own = 0;
  [[dont_unroll]] for (uint c = 0; c < ROLLED(EACH); c++) own += bins[N_BIN - 1 - lane * EACH - c];
  uint upto = own;
  for (uint d = 1; d < SUBGROUP; d *= 2) {
    uint other = subgroupShuffle(upto, lane >= d ? lane - d : 0);
    upto += lane >= d ? other : 0;
  }
  uint at = upto - own, bin = 0, rest = 0;
  bool here = at < need && upto >= need, found = false;
  [[dont_unroll]] for (uint c = 0; c < ROLLED(EACH); c++) {
    uint n = bins[N_BIN - 1 - lane * EACH - c];
    if (here && !found && at + n >= need) {
      bin = N_BIN - 1 - lane * EACH - c;
      rest = need - at;
      found = true;
    }
    at += n;
  }
  for (uint d = SUBGROUP / 2; d > 0; d /= 2) {
    bin |= subgroupShuffleXor(bin, d);
    rest |= subgroupShuffleXor(rest, d);
  }
  need = rest;
  return bin;
}
/* A key not above the need-th largest of the cells' maxima, and little below: its upper 16 bits. 0: there are fewer cells. */
uint cells_bound(uint need) {
  if (need > N_CELL) return 0;
  uint prefix = 0;
  [[dont_unroll]] for (uint shift = 24; shift >= 16; shift -= 8) {
    [[dont_unroll]] for (uint b = TID; b < BIN_NONE + TID; b += WG) bins[b] = 0;
    group_barrier();
    [[dont_unroll]] for (uint first = 0; first < N_CELL; first += WG) {
      uint key = cell_key(first + TID);
      bool in_ = first + TID < N_CELL && (shift == 24 || key >> 24 == prefix >> 24);
      if (NARROW || in_) atomicAdd(bins[in_ ? key >> shift & (N_BIN - 1) : BIN_NONE], 1u);
    }
    group_barrier();
    prefix |= bins_find(need) << shift;
    group_barrier();
  }
  return prefix;
}

/* ---- candidates ---- */
/* The logits whose keys are not below `bound`, without suppressed ids, into found_*. False: too many. */
bool gather(uint bound) {
  const uint QUADS = CELL / 4;
  if (TID == 0) n_cell = n_found = 0;
  group_barrier();
  [[dont_unroll]] for (uint first = 0; first < N_CELL; first += WG) {
    bool in_ = first + TID < N_CELL && cell_key(first + TID) >= bound;
    if (NARROW || in_) {
      uint at = atomicAdd(n_cell, in_ ? 1u : 0u);
      sorted_id[in_ && at < CANDIDATES ? at : CANDIDATES] = first + TID;
    }
  }
  group_barrier();
  uint n = n_cell * QUADS;
  if (n_cell > CANDIDATES) return false;
  [[dont_unroll]] for (uint first = 0; first < n; first += WG) {
    uint quad = first + TID;
    uint id = sorted_id[min(quad, n - 1) / QUADS] * CELL + quad % QUADS * 4;
    vec4 v = logits4(id);
    uint mask = hidden4(id, n_hidden);
    [[unroll]] for (uint k = 0; k < 4; k++) {
      uint key = key_of(v[k]);
      bool in_ = quad < n && key >= bound && id + k < N_VOCAB && (mask >> k & 1u) == 0;
      if (NARROW || in_) {
        uint at = atomicAdd(n_found, in_ ? 1u : 0u);
        at = in_ && at < CANDIDATES ? at : CANDIDATES;
        found_key[at] = key;
        found_id[at] = id + k;
      }
    }
  }
  group_barrier();
  return n_found <= CANDIDATES;
}
/* found_* into sorted_*: keys down, then ids up. */
void sort(uint n) {
  [[dont_unroll]] for (uint first = 0; first < n; first += WG) {
    uint i = min(first + TID, n - 1), key = found_key[i], id = found_id[i], rank = 0;
    [[dont_unroll]] for (uint k = 0; k < n; k++)
      rank += found_key[k] > key || (found_key[k] == key && found_id[k] < id) ? 1 : 0;
    sorted_key[rank] = key;
    sorted_id[rank] = id;
  }
  group_barrier();
}
/* exp(logit - top) of a place in the sorted row of n; 0 beyond. */
float sorted_mass(uint i, uint n, float top) {
  float mass = exp(key_value(sorted_key[min(i, n - 1)]) - top);
  return i < n ? mass : 0.0;
}
/* The fewest first of n whose mass reaches `need`; 0: all do not. Each subgroup for itself. */
uint sorted_reach(uint n, float top, float need) {
  uint lane = TID % SUBGROUP, reach = 0;
  float before = 0;
  [[dont_unroll]] for (uint first = 0; first < n && reach == 0; first += SUBGROUP) {
    float upto = sorted_mass(first + lane, n, top);
    for (uint d = 1; d < SUBGROUP; d *= 2) {
      float other = subgroupShuffle(upto, lane >= d ? lane - d : 0);
      upto += lane >= d ? other : 0.0;
    }
    /* The first lane that reaches: sums do not fall from lane to lane but for rounding, so the least of those that do. */
    uint at = first + lane < n && before + upto >= need ? SUBGROUP - lane : 0;
    for (uint d = SUBGROUP / 2; d > 0; d /= 2) at = max(at, subgroupShuffleXor(at, d));
    reach = at > 0 ? first + SUBGROUP - at + 1 : 0;
    before += subgroupShuffle(upto, SUBGROUP - 1);
  }
  return reach;
}
/* The first n, and those after them, up to `most`, that tie with the last. */
uint sorted_ties(uint n, uint most) {
  [[dont_unroll]] while (n < most && sorted_key[n] == sorted_key[n - 1]) n++;
  return n;
}
/* What top_k and top_p keep of n sorted candidates; 0: their mass does not reach top_p. total: of all logits. */
uint sorted_keep(uint n, float top, float total, uint top_k, float top_p) {
  if (top_k > 0) {
    n = top_k < n ? sorted_ties(top_k, n) : n;
    total = 0;
    if (top_p < 1.0)
      [[dont_unroll]] for (uint first = 0; first < n; first += SUBGROUP)
        total += subgroup_sum(sorted_mass(first + TID % SUBGROUP, n, top));
  }
  if (!(top_p < 1.0)) return n;
  uint reach = sorted_reach(n, top, top_p * total);
  return reach > 0 ? sorted_ties(reach, n) : top_k > 0 ? n : 0;
}
/* A sample of the first n sorted candidates under min_p; ~0: none. */
uint sorted_sample(uint n, float top, float temperature, float min_p) {
  uvec2 seed = select_seed();
  uint pos = step_select(select_, IMG_SELECT_POS), best = ~0u;
  float v = LOWEST;
  [[dont_unroll]] for (uint first = 0; first < n; first += WG) {
    uint i = min(first + TID, n - 1), id = sorted_id[i];
    float l = key_value(sorted_key[i]);
    if (first + TID >= n || exp(l - top) < min_p) continue;
    float noisy = l / temperature + gumbel(seed, pos, id);
    if (better(noisy, id, v, best)) v = noisy, best = id;
  }
  group_best(v, best);
  return best;
}
/* Whether suppressed id h comes before (l, id). */
bool hidden_beats(uint h, float l, uint id) {
  uint other = step_word(IMG_STEP_SUPPRESS + h);
  return other < N_VOCAB && better(logit(other), other, l, id);
}
/* The n_top most likely ids out of n sorted candidates and the suppressed ids, each at its place among all. */
void sorted_list(uint n, uint n_top, float top, float log_total) {
  n = min(n, n_top);
  [[dont_unroll]] for (uint first = 0; first < n; first += WG) {
    uint i = min(first + TID, n - 1), id = sorted_id[i], place = i;
    float l = key_value(sorted_key[i]);
    [[dont_unroll]] for (uint h = 0; h < n_hidden; h++) place += hidden_beats(h, l, id) ? 1 : 0;
    if (first + TID < n && place < n_top) list_store(place, id, l - top - log_total);
  }
  [[dont_unroll]] for (uint h = 0; h < n_hidden; h++) {
    uint id = step_word(IMG_STEP_SUPPRESS + h), place = 0;
    float l = logit(id);
    [[dont_unroll]] for (uint i = 0; i < n; i++) place += better(key_value(sorted_key[i]), sorted_id[i], l, id) ? 1 : 0;
    [[dont_unroll]] for (uint k = 0; k < n_hidden; k++) place += hidden_beats(k, l, id) ? 1 : 0;
    if (TID == 0 && id < N_VOCAB && place < n_top) list_store(place, id, l - top - log_total);
  }
}

/* The token, and the list of the n_top most likely ids. top, total: without suppressed ids; whole_top, log_total: with them.
 * best: the cells' choice. */
uint choose(uint n_top, float top, float total, uint best, float whole_top, float log_total) {
  float temperature = select_temperature(), top_p = select_top_p(), min_p = select_min_p();
  uint top_k = select_top_k(), bound = ~0u, need = n_top;
  bool filtered = temperature > 0.0 && !unfiltered(top_k, top_p, min_p);
  if (!filtered && n_top == 0) return best;
  if (filtered) need = max(need, top_k > 0 ? top_k : top_p < 1.0 ? min(128u, (N_CELL + 3) / 4) : 0u);
  if (need > 0) bound = cells_bound(need);
  /* min_p alone: logits that it may keep, by more than exp and the sum may be off. */
  if (filtered && top_k == 0 && !(top_p < 1.0)) bound = min(bound, key_of(top + log(min_p) - 0.001 - 1e-6 * abs(top)));
  bool few = need <= CANDIDATES && gather(bound);
  uint n = few ? n_found : 0, keep = 0;
  if (few && n > 0) {
    sort(n);
    keep = filtered ? sorted_keep(n, top, total, top_k, top_p) : 0;
  }
  if (few && n + n_hidden >= n_top)
    sorted_list(n, n_top, whole_top, log_total);
  else
    slow_list(n_top, whole_top, log_total);
  if (!filtered) return best;
  uint id = keep > 0 ? sorted_sample(keep, top, temperature, min_p)
                     : slow_sample(top, temperature, top_k, top_p, min_p, top_k > 0 ? bound : 0);
  return id == ~0u ? best : id;
}

/* Whether one of the step's stop ids is `id`. */
bool stops(uint id) {
  float stop = 0;
  uint n = min(step_word(IMG_STEP_N_STOP), uint(IMG_MAX_STOP));
  [[dont_unroll]] for (uint i = TID % SUBGROUP; i < IMG_MAX_STOP; i += SUBGROUP)
    stop = i < n && step_word(IMG_STEP_STOP + i) == id ? 1 : stop;
  return subgroup_max(stop) > 0 && (step_select(select_, IMG_SELECT_FLAGS) & IMG_SELECT_FLAG_IGNORE_STOP) == 0;
}

void main() {
  float top, total;
  uint best;
  select_ = gl_WorkGroupID.x;
  if (select_ == 0 && TID == 0) st_result_uint(4 * IMG_RESULT_NUMBER, step_word(IMG_STEP_NUMBER));
  cells_fold(top, total, best); /* first, beside the loads that say whether it is wanted */
  if (select_ >= step_word(IMG_STEP_N_SELECT)) return;
  uint row = step_select(select_, IMG_SELECT_ROW);
  uint64_t slot = 4 * uint64_t(step_select(select_, IMG_SELECT_SLOT) * IMG_SLOT_WORDS);
  bool own_token = int(step_row_token(row)) >= 0;
  if (!own_token && ld_slot_uint(slot + 4 * IMG_SLOT_DONE) != 0) {
    if (TID == 0) {
      st_result_uint(result_word(IMG_RESULT_TOKEN), ~0u);
      st_result_uint(result_word(IMG_RESULT_DONE), 1);
      st_result_float(result_word(IMG_RESULT_LOGPROB), 0.0);
    }
    return;
  }

  n_hidden = hidden_count();
  float whole_top = top;
  [[dont_unroll]] for (uint i = 0; i < n_hidden; i++)
    if (step_word(IMG_STEP_SUPPRESS + i) < N_VOCAB) whole_top = max(whole_top, logit(step_word(IMG_STEP_SUPPRESS + i)));
  float whole = total * exp(top - whole_top);
  [[dont_unroll]] for (uint i = 0; i < n_hidden; i++)
    if (step_word(IMG_STEP_SUPPRESS + i) < N_VOCAB) whole += exp(logit(step_word(IMG_STEP_SUPPRESS + i)) - whole_top);
  float log_total = log(whole);

  uint n_top = min(min(step_select(select_, IMG_SELECT_N_TOP), uint(IMG_MAX_TOP)), uint(N_VOCAB));
  uint id = min(choose(n_top, top, total, best, whole_top, log_total), uint(N_VOCAB - 1)); /* NaN compares with nothing: still a valid id */
  float logprob = logit(id) - whole_top - log_total;
  bool stop = stops(id);
  if (TID == 0) {
    st_slot_uint(slot + 4 * IMG_SLOT_TOKEN, id);
    st_slot_uint(slot + 4 * IMG_SLOT_DONE, stop ? 1 : 0);
    st_result_uint(result_word(IMG_RESULT_TOKEN), id);
    st_result_uint(result_word(IMG_RESULT_DONE), stop ? 1 : 0);
    st_result_float(result_word(IMG_RESULT_LOGPROB), logprob);
  }
}
