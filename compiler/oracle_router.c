/* oracle_router.c: the operation ROUTER in double precision: gating, groups, choice, and the margin of the choice.
 *
 * Owns: oracle_router. Does not own: the product (oracle_ops.c). Invariants: scores are the logits where neither a
 * selection bias nor groups need anything else: the order is the same, and it does not saturate. Sources: DeepSeek-V2
 * (arXiv 2405.04434, section 2.2: a group's score is its best), DeepSeek-V3 (arXiv 2412.19437, section 2.1.2, and its
 * reference implementation: a group's score is the sum of its best two, biases count for the choice alone). */
#include "oracle_ops.h"

#include <math.h>
#include <string.h>

/* Keeps a sum of sigmoids from being zero, as the reference implementations do. */
#define ROUTER_TINY 1e-20

/* One row: n_expert doubles each. */
struct oracle_route {
  const struct ir_attr *a;
  double *logit, *p, *score, *group;
  double *bias, *select_bias, *factor; /* NULL: none */
  double *margin;                      /* lowered */
};

/* The place in v's order (value down, index up) behind `last`, or the first when last is n; n: none, of NaNs. */
static uint32_t oracle_next(const double *v, uint32_t n, uint32_t last) {
  uint32_t best = n;
  for (uint32_t i = 0; i < n; i++) {
    bool after = last == n || v[i] < v[last] || (v[i] == v[last] && i > last);
    if (after && (best == n || v[i] > v[best])) best = i;
  }
  return best;
}

static void oracle_lower_margin(const struct oracle_route *r, const double *v, uint32_t n, uint32_t last) {
  uint32_t next = oracle_next(v, n, last);
  if (next < n && v[last] - v[next] < *r->margin) *r->margin = v[last] - v[next];
}

/* logit -> p, score. */
static void oracle_gate(const struct oracle_route *r) {
  uint32_t n = r->a->n_expert;
  double max = -INFINITY, sum = 0;
  for (uint32_t e = 0; e < n && r->bias; e++) r->logit[e] += r->bias[e];
  for (uint32_t e = 0; e < n; e++) max = fmax(max, r->logit[e]);
  for (uint32_t e = 0; e < n; e++) sum += exp(r->logit[e] - max);
  for (uint32_t e = 0; e < n; e++)
    r->p[e] = r->a->gating == IR_GATING_SOFTMAX   ? exp(r->logit[e] - max) / sum
              : r->a->gating == IR_GATING_SIGMOID ? 1 / (1 + exp(-r->logit[e]))
                                                  : r->logit[e];
  if (r->select_bias || r->a->n_group > 1)
    for (uint32_t e = 0; e < n; e++) r->score[e] = r->p[e] + (r->select_bias ? r->select_bias[e] : 0);
  else
    memcpy(r->score, r->logit, n * sizeof *r->score);
}

/* Experts outside the best groups are out of the choice. */
static void oracle_limit_groups(const struct oracle_route *r) {
  const struct ir_attr *a = r->a;
  uint32_t size = a->n_expert / a->n_group, last = a->n_group;
  for (uint32_t g = 0; g < a->n_group; g++) {
    double first = -INFINITY, second = -INFINITY;
    for (uint32_t e = g * size; e < (g + 1) * size; e++) {
      second = fmax(second, fmin(first, r->score[e]));
      first = fmax(first, r->score[e]);
    }
    r->group[g] = a->n_group_sum == 1 ? first : first + second;
  }
  for (uint32_t k = 0; k < a->n_group_used && (k == 0 || last < a->n_group); k++)
    last = oracle_next(r->group, a->n_group, last);
  if (last == a->n_group) return;
  oracle_lower_margin(r, r->group, a->n_group, last);
  for (uint32_t e = 0; e < a->n_expert; e++) {
    uint32_t g = e / size;
    if (!(r->group[g] > r->group[last] || (r->group[g] == r->group[last] && g <= last))) r->score[e] = -INFINITY;
  }
}

/* y: ids, then weights. */
static void oracle_choose(const struct oracle_route *r, double *y) {
  const struct ir_attr *a = r->a;
  uint32_t n = a->n_expert, n_used = a->n_expert_used, last = n;
  double *weight = y + n_used, max = -INFINITY, sum = 0;
  for (uint32_t s = 0; s < n_used; s++) {
    uint32_t best = oracle_next(r->score, n, last);
    if (best < n) last = best;
    y[s] = last < n ? last : n - 1;
    weight[s] = r->p[(uint32_t)y[s]];
    max = fmax(max, weight[s]);
  }
  if (last < n) oracle_lower_margin(r, r->score, n, last);
  if (a->gating == IR_GATING_SOFTMAX_AFTER)
    for (uint32_t s = 0; s < n_used; s++) weight[s] = exp(weight[s] - max);
  for (uint32_t s = 0; s < n_used; s++) sum += weight[s];
  bool divide = a->renormalize || a->gating == IR_GATING_SOFTMAX_AFTER;
  double scale = (a->weight_scale != 0 ? a->weight_scale : 1) / (divide ? fmax(sum, ROUTER_TINY) : 1);
  for (uint32_t s = 0; s < n_used; s++) weight[s] *= r->factor ? scale * r->factor[(uint32_t)y[s]] : scale;
}

/* A row at a time, in the scratch memory behind the threads'. */
void oracle_router(const struct oracle_call *c) {
  const struct ir_attr *a = &c->node->a;
  uint64_t n = a->n_expert, n_in = c->node->weight[0]->dim[0];
  double *at = c->scratch + (parallel_n_thread(c->pool) * c->scratch_stride);
  struct oracle_route r = {.a = a, .logit = at, .p = at + n, .score = at + 2 * n, .group = at + 3 * n};
  if (c->node->weight[1]) oracle_vector(c, c->node->weight[1], r.bias = at + 4 * n);
  if (c->node->weight[2]) oracle_vector(c, c->node->weight[2], r.select_bias = at + 5 * n);
  if (c->node->weight[3]) oracle_vector(c, c->node->weight[3], r.factor = at + 6 * n);
  struct oracle_call call = *c;
  for (uint32_t t = 0; t < c->n_row; t++) {
    call.in[0] = c->in[0] + t * n_in;
    call.n_row = 1;
    r.margin = &c->margin[t];
    oracle_product_rows(&call, r.logit);
    oracle_gate(&r);
    if (a->n_group > 1) oracle_limit_groups(&r);
    oracle_choose(&r, c->out + (uint64_t)t * 2 * a->n_expert_used);
  }
}
