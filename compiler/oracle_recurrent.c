/* oracle_recurrent.c: the operations with recurrent states in double precision: SHORT_CONV and DELTA_RULE.
 *
 * Owns: oracle_short_conv, oracle_delta_rule. Does not own: the states' memory (oracle.c), which is zero before the
 * first token. Invariants: rows are taken in order. Source: Gated Delta Networks (arXiv 2412.06464, equation 10) and
 * the Qwen3-Next reference implementation (transformers): its gates, and the length of q and k. */
#include "oracle_ops.h"

#include "dequant.h"

#include <math.h>

/* One item: one channel, all rows. The window has the oldest row first. */
static void oracle_conv_item(void *context, uint64_t channel, unsigned thread) {
  (void)thread;
  const struct oracle_call *c = context;
  uint32_t n_tap = c->node->a.n_tap, width = c->node->width;
  float taps[32];
  dequant_row(c->node->weight[0]->format, gguf_row(c->node->weight[0], channel), taps, n_tap);
  double *window = c->recurrent[c->node->a.recurrent] + channel;
  for (uint32_t t = 0; t < c->n_row; t++) {
    double x = c->in[0][(uint64_t)t * width + channel], sum = (double)taps[n_tap - 1] * x;
    for (uint32_t j = 0; j + 1 < n_tap; j++) sum += (double)taps[j] * window[(uint64_t)j * width];
    for (uint32_t j = 0; j + 2 < n_tap; j++) window[(uint64_t)j * width] = window[(uint64_t)(j + 1) * width];
    window[(uint64_t)(n_tap - 2) * width] = x;
    c->out[(uint64_t)t * width + channel] = sum / (1 + exp(-sum));
  }
}

void oracle_short_conv(const struct oracle_call *c) {
  parallel_for(c->pool, c->node->width, oracle_conv_item, (void *)c);
}

/* 1 / the length of x. */
static double oracle_unit(const double *x, uint32_t n, double eps) {
  double sum = 0;
  for (uint32_t i = 0; i < n; i++) sum += x[i] * x[i];
  return 1 / sqrt(sum + eps);
}

/* One row of a head: s is S transposed, [value][key]. */
static void oracle_delta_row(double *s, uint32_t d, const double *q, const double *k, const double *v, double decay,
                             double beta, double eps, double *y) {
  double k_unit = oracle_unit(k, d, eps), q_unit = oracle_unit(q, d, eps) / sqrt(d);
  for (uint32_t j = 0; j < d; j++, s += d) {
    double found = 0, out = 0;
    for (uint32_t i = 0; i < d; i++) found += s[i] * k[i];
    double change = beta * (v[j] - decay * k_unit * found) * k_unit;
    for (uint32_t i = 0; i < d; i++) {
      s[i] = decay * s[i] + change * k[i];
      out += s[i] * q[i];
    }
    y[j] = q_unit * out;
  }
}

/* One item: one head, all rows. */
static void oracle_delta_item(void *context, uint64_t head, unsigned thread) {
  (void)thread;
  const struct oracle_call *c = context;
  const struct ir_attr *a = &c->node->a;
  uint64_t d = a->d_head, key = a->tiled ? head % a->n_kv_head : head / (a->n_head / a->n_kv_head);
  const double *rate = c->scratch + 2 * (uint64_t)a->n_head, *bias = rate + a->n_head;
  double *s = c->recurrent[a->recurrent] + head * d * d;
  for (uint64_t t = 0; t < c->n_row; t++) {
    uint64_t k_at = (t * a->n_kv_head + key) * d, v_at = (t * a->n_head + head) * d;
    double alpha = c->in[3][t * a->n_head + head] + bias[head], beta = c->in[4][t * a->n_head + head];
    double softplus = alpha > 0 ? alpha + log1p(exp(-alpha)) : log1p(exp(alpha));
    oracle_delta_row(s, a->d_head, c->in[0] + k_at, c->in[1] + k_at, c->in[2] + v_at, exp(rate[head] * softplus),
                     1 / (1 + exp(-beta)), a->eps, c->out + v_at);
  }
}

void oracle_delta_rule(const struct oracle_call *c) {
  uint32_t n = c->node->a.n_head;
  for (int i = 0; i < 2; i++) { /* oracle_vector's floats are at the start of the scratch memory */
    double *w = c->scratch + (2 + i) * (uint64_t)n;
    oracle_vector(c, c->node->weight[i], w);
  }
  parallel_for(c->pool, n, oracle_delta_item, (void *)c);
}
