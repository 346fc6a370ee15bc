/* topk.glsl: the N_EXPERT_USED experts of a row and their weights (ir_ops.def: ROUTER), best first, ties by lower id. For one subgroup:
 * experts are dealt to its lanes in turn, a lane touches only its own part of `score`. The kernel defines LOGIT(e) and EXPERT_FACTOR(e),
 * which multiplies an expert's weight at last. Sources: see
 * compiler/oracle_router.c. */
#define SCORED (SELECT_BIAS != 0 || N_GROUP > 1) /* by p + bias; otherwise by the logits: the same order, and it does not saturate */
const float NONE = -3.4e38;
shared float score[N_EXPERT];
shared float kept[N_EXPERT_USED]; /* lane 0's */

float topk_logit(uint e) { return LOGIT(e) + (LOGIT_BIAS != 0 ? ld_bias_float(4 * e) : 0.0); }
/* Of a logit. GATING 2: up to a factor that is the same for all. */
float topk_p(float l, float top, float total) {
  return GATING == 1 ? 1.0 / (1.0 + exp(-l)) : GATING == 2 ? exp(l - top) : exp(l - top) / total;
}

/* The best of this lane's experts that comes after (last, last_id) in the order (value down, id up); id N_EXPERT: none. */
void topk_best(float last, uint last_id, bool any, out float best, out uint id) {
  best = NONE;
  id = N_EXPERT;
  [[dont_unroll]] for (uint e = TID % SUBGROUP; e < N_EXPERT; e += SUBGROUP) {
    float v = score[e];
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

/* Sum of the N_GROUP_SUM largest scores of group g: a lane's own, then merged. */
float topk_group(uint g) {
  const uint SIZE = N_EXPERT / N_GROUP;
  float first = NONE, second = NONE;
  [[dont_unroll]] for (uint e = g * SIZE + (TID - g * SIZE) % SUBGROUP; e < (g + 1) * SIZE; e += SUBGROUP) {
    second = max(second, min(first, score[e]));
    first = max(first, score[e]);
  }
  for (uint m = SUBGROUP / 2; m > 0; m /= 2) {
    float other = subgroupShuffleXor(first, m), other_second = subgroupShuffleXor(second, m);
    second = max(min(first, other), max(second, other_second));
    first = max(first, other);
  }
  return N_GROUP_SUM == 1 ? first : first + second;
}

/* Experts outside the N_GROUP_USED best groups are out of the choice. */
void topk_limit_groups() {
  float group[N_GROUP];
  uint keep = 0;
  [[dont_unroll]] for (uint g = 0; g < N_GROUP; g++) group[g] = topk_group(g);
  [[dont_unroll]] for (uint g = 0; g < N_GROUP; g++) {
    uint better = 0;
    [[dont_unroll]] for (uint k = 0; k < N_GROUP; k++)
      better += group[k] > group[g] || (group[k] == group[g] && k < g) ? 1 : 0;
    keep |= better < N_GROUP_USED ? 1u << g : 0u;
  }
  [[dont_unroll]] for (uint e = TID % SUBGROUP; e < N_EXPERT; e += SUBGROUP)
    if ((keep >> (e / (N_EXPERT / N_GROUP)) & 1u) == 0u) score[e] = NONE;
}

void topk_row(uint r) {
  uint lane = TID % SUBGROUP, last_id = 0;
  float top = NONE, total = 0, last = 0, chosen = 0;
  [[dont_unroll]] for (uint e = lane; e < N_EXPERT; e += SUBGROUP) {
    score[e] = topk_logit(e);
    top = max(top, score[e]);
  }
  if (GATING != 1) top = subgroup_max(top);
  if (GATING == 0) {
    [[dont_unroll]] for (uint e = lane; e < N_EXPERT; e += SUBGROUP) total += exp(score[e] - top);
    total = subgroup_sum(total);
  }
  if (SCORED)
    [[dont_unroll]] for (uint e = lane; e < N_EXPERT; e += SUBGROUP)
      score[e] = topk_p(score[e], top, total) + (SELECT_BIAS != 0 ? ld_select_bias_float(4 * e) : 0.0);
  if (N_GROUP > 1) topk_limit_groups();

  [[dont_unroll]] for (uint j = 0; j < N_EXPERT_USED; j++) {
    float best;
    uint id;
    topk_best(last, last_id, j == 0, best, id);
    last = best;
    last_id = min(id, uint(N_EXPERT - 1)); /* NaN compares with nothing: still a valid id */
    float p = topk_p(SCORED ? topk_logit(last_id) : best, top, total);
    chosen += p;
    if (lane == 0) {
      kept[j] = p * EXPERT_FACTOR(last_id);
      st_ids_uint(4 * (r * N_EXPERT_USED + j), last_id);
    }
  }
  float scale = NORM_W != 0 || GATING == 2 ? W_SCALE / max(chosen, 1e-20) : W_SCALE;
  [[dont_unroll]] for (uint j = 0; j < N_EXPERT_USED; j++)
    if (lane == 0) st_weights_float(4 * (r * N_EXPERT_USED + j), kept[j] * scale);
}
