/* topk.glsl: softmax over a row's expert logits and its N_EXPERT_USED largest, by value, ties by lower id. For one subgroup:
 * experts are dealt to its lanes in turn, a lane touches only its own part of `logit`. The kernel defines LOGIT(e). */
shared float logit[N_EXPERT];
shared float kept[N_EXPERT_USED]; /* lane 0's */

/* The best of this lane's experts that comes after (last, last_id) in the order (value down, id up); id N_EXPERT: none. */
void topk_best(float last, uint last_id, bool any, out float best, out uint id) {
  best = -3.4e38;
  id = N_EXPERT;
  [[dont_unroll]] for (uint e = TID % SUBGROUP; e < N_EXPERT; e += SUBGROUP) {
    float v = logit[e];
    bool after = any || v < last || (v == last && e > last_id);
    if (after && (v > best || id == N_EXPERT)) {
      best = v;
      id = e;
    }
  }
  for (uint m = SUBGROUP / 2; m > 0; m /= 2) {
    float other = subgroupShuffleXor(best, m);
    uint other_id = subgroupShuffleXor(id, m);
    if (other_id < N_EXPERT && (id == N_EXPERT || other > best || (other == best && other_id < id))) {
      best = other;
      id = other_id;
    }
  }
}

void topk_row(uint r) {
  uint lane = TID % SUBGROUP, last_id = 0;
  float top = -3.4e38, total = 0, last = 0, chosen = 0;
  [[dont_unroll]] for (uint e = lane; e < N_EXPERT; e += SUBGROUP) {
    logit[e] = LOGIT(e);
    top = max(top, logit[e]);
  }
  top = subgroup_max(top);
  [[dont_unroll]] for (uint e = lane; e < N_EXPERT; e += SUBGROUP) total += exp(logit[e] - top);
  total = subgroup_sum(total);

  [[dont_unroll]] for (uint j = 0; j < N_EXPERT_USED; j++) {
    float best;
    uint id;
    topk_best(last, last_id, j == 0, best, id);
    last = best;
    last_id = min(id, uint(N_EXPERT - 1)); /* NaN compares with nothing: still a valid id */
    float p = exp(best - top) / total;
    chosen += p;
    if (lane == 0) {
      kept[j] = p;
      st_ids_uint(4 * (r * N_EXPERT_USED + j), last_id);
    }
  }
  float scale = NORM_W != 0 ? W_SCALE / chosen : W_SCALE;
  [[dont_unroll]] for (uint j = 0; j < N_EXPERT_USED; j++)
    if (lane == 0) st_weights_float(4 * (r * N_EXPERT_USED + j), kept[j] * scale);
}
