/* step_choose.glsl: router logits, and the choice of experts that every workgroup of `step` makes for itself, by the same rule and so alike
 * (ir_ops.def: ROUTER; topk.glsl): best first, ties by lower id. */
shared float logit[N_EXPERT + 1]; /* the last: the shared expert's gate */
shared uint chosen[N_EXPERT_USED + 1];
shared float chosen_logit[N_EXPERT_USED + 1];
shared float chosen_weight[N_EXPERT_USED + 1];
shared float shared_weight;
shared float router_part[WG / SUBGROUP];

/* Invocations that count an expert's betters together. */
const uint CHOOSE_PARTS = WG >= 4 * N_EXPERT ? 4 : 1;

void choose() {
  [[dont_unroll]] for (uint e = TID; e < N_EXPERT + (SHARED_GATE != 0 ? 1 : 0); e += WG) logit[e] = float_wait(PLACE_LOGITS + 8 * e, tag_in());
  group_barrier();
  [[dont_unroll]] for (uint e0 = 0; e0 < N_EXPERT; e0 += WG / CHOOSE_PARTS) {
    uint e = e0 + TID / CHOOSE_PARTS, rank = 0;
    float mine = logit[min(e, uint(N_EXPERT - 1))];
    const uint AT_ONCE = N_EXPERT % (8 * CHOOSE_PARTS) == 0 ? 8 : 1;
    [[dont_unroll]] for (uint k0 = TID % CHOOSE_PARTS; k0 < N_EXPERT; k0 += AT_ONCE * CHOOSE_PARTS)
      [[unroll]] for (uint i = 0; i < AT_ONCE; i++) {
        uint k = k0 + i * CHOOSE_PARTS;
        float other = logit[k];
        rank += other > mine || (other == mine && k < e) ? 1 : 0;
      }
    if (CHOOSE_PARTS > 1) {
      rank += subgroupShuffleXor(rank, 1);
      rank += subgroupShuffleXor(rank, 2);
    }
    if (TID % CHOOSE_PARTS == 0 && e < N_EXPERT && rank < N_EXPERT_USED) {
      chosen[rank] = e;
      chosen_logit[rank] = mine;
    }
  }
  group_barrier();
  /* The weights are read behind the next barrier. The lanes of the first subgroup take the chosen in turn. */
  if (TID < SUBGROUP) {
    float top = chosen_logit[0], total = 0, sum = 0;
    if (GATING == 0 && NORM_W == 0) {
      [[dont_unroll]] for (uint e = TID; e < N_EXPERT; e += SUBGROUP) total += exp(logit[e] - top);
      total = subgroup_sum(total);
    }
    [[dont_unroll]] for (uint k0 = 0; k0 < N_EXPERT_USED; k0 += SUBGROUP) {
      float l = chosen_logit[min(k0 + TID, uint(N_EXPERT_USED - 1))];
      float p = GATING == 1 ? 1.0 / (1.0 + exp(-l)) : exp(l - top);
      if (GATING == 0 && NORM_W == 0) p /= total;
      sum += subgroup_sum(k0 + TID < N_EXPERT_USED ? p : 0.0);
      if (k0 + TID < N_EXPERT_USED) chosen_weight[k0 + TID] = p;
    }
    float scale = NORM_W != 0 || GATING == 2 ? W_SCALE / max(sum, 1e-20) : W_SCALE;
    [[dont_unroll]] for (uint k = TID; k < N_EXPERT_USED; k += SUBGROUP) chosen_weight[k] *= scale;
    if (TID == 0) shared_weight = SHARED_GATE != 0 ? 1.0 / (1.0 + exp(-logit[N_EXPERT])) : 1.0;
  }
}

/* A workgroup takes whole rows of the router's matrix; its invocations hold the columns that they stage. */
void router() {
  const uint NSUB = WG / SUBGROUP, N_ROW = N_EXPERT + (SHARED_GATE != 0 ? 1 : 0);
  uint each = rows_each(N_ROW, 1), n = rows_here(N_ROW, each), first = gl_WorkGroupID.x * each;
  vec4 x[MODEL_QUADS], w[MODEL_QUADS];
#define ROUTER_ROW(R)                                                                                                  \
  {                                                                                                                    \
    uint64_t row = (R) < N_EXPERT ? cell(CELL_ROUTER) + uint64_t(R) * (4 * D_MODEL) : cell(CELL_SHARED_WEIGHT); \
    [[unroll]] for (uint i = 0; i < MODEL_QUADS; i++) {                                                                \
      uint c = TID + i * WG;                                                                                           \
      w[i] = c < D_MODEL / 4 ? mem_ld_vec4(F_table, row + 16 * c) : vec4(0);                                           \
    }                                                                                                                  \
  }
  ROUTER_ROW(min(first, N_ROW - 1))
  stage_model(PLACE_MIDDLE, CELL_FFN_NORM, x);
  [[dont_unroll]] for (uint r = 0; r < max(n, 1); r++) {
    float sum = 0;
    [[unroll]] for (uint i = 0; i < MODEL_QUADS; i++) sum += dot(x[i], w[i]);
    sum = subgroup_sum(sum);
    if (TID % SUBGROUP == 0) router_part[TID / SUBGROUP] = sum;
    group_barrier();
    if (r == 0) norm_scale = squares_scale();
    if (TID == 0 && r < n) {
      float v = 0;
      [[unroll]] for (uint i = 0; i < NSUB; i++) v += router_part[i];
      v *= norm_scale;
      if ((BIASES & BIAS_ROUTER) != 0 && first + r < N_EXPERT) v += bias_at(CELL_ROUTER_BIAS, first + r);
      float_store(PLACE_LOGITS + 8 * (first + r), v, tag_out());
    }
    if (r + 1 < n) ROUTER_ROW(first + r + 1)
    group_barrier();
  }
}
