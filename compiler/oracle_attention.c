/* oracle_attention.c: ROPE, CONCAT, ATTENTION and SOFTCAP in double precision (the other operations: oracle_ops.c). */
#include "oracle_ops.h"

#include <math.h>
#include <string.h>

void oracle_rope(const struct oracle_call *c) {
  const struct ir_attr *a = &c->node->a;
  const struct ir_rope *rope = &c->graph->rope[a->rope];
  uint32_t half = rope->n_rot / 2;
  memcpy(c->out, c->in[0], (uint64_t)c->n_row * c->node->width * sizeof *c->out);
  for (uint32_t t = 0; t < c->n_row; t++)
    for (uint32_t j = 0; j < half; j++) {
      double angle = (double)(c->position + t) * rope->inv_freq[j];
      double cosine = rope->scale * cos(angle), sine = rope->scale * sin(angle);
      uint32_t first = rope->pairs == IR_ROPE_HALVES ? j : 2 * j;
      uint32_t second = rope->pairs == IR_ROPE_HALVES ? j + half : 2 * j + 1;
      for (uint32_t h = 0; h < a->n_head; h++) {
        double *y = c->out + (uint64_t)t * c->node->width + (uint64_t)h * a->d_head;
        double x0 = y[first], x1 = y[second];
        y[first] = x0 * cosine - x1 * sine;
        y[second] = x0 * sine + x1 * cosine;
      }
    }
}

void oracle_concat(const struct oracle_call *c) {
  const struct ir_attr *a = &c->node->a;
  uint64_t da = c->in_node[0]->width / a->n_head, db = c->in_node[1]->width / a->n_kv_head;
  for (uint64_t i = 0; i < (uint64_t)c->n_row * a->n_head; i++) {
    uint64_t t = i / a->n_head, h = a->n_kv_head == 1 ? 0 : i % a->n_head;
    memcpy(c->out + i * (da + db), c->in[0] + i * da, da * sizeof(double));
    memcpy(c->out + i * (da + db) + da, c->in[1] + (t * a->n_kv_head + h) * db, db * sizeof(double));
  }
}

void oracle_softcap(const struct oracle_call *c) {
  double cap = c->node->a.softcap;
  for (uint64_t i = 0; i < (uint64_t)c->n_row * c->node->width; i++) c->out[i] = cap * tanh(c->in[0][i] / cap);
}

/* ---- Attention ---- */

/* The keys and values of a state: heads of d columns, value_step apart from position to position. */
struct oracle_heads {
  const double *k, *v;
  uint64_t d, d_value, k_step, v_step, v_width; /* v_width: from head to head */
};

static struct oracle_heads oracle_heads(const struct oracle_call *c) {
  const struct ir_attr *a = &c->node->a;
  bool shared = c->node->in[1] == c->node->in[2];
  uint64_t d_value = a->d_head_value ? a->d_head_value : a->d_head, v_width = shared ? a->d_head : d_value;
  const struct oracle_state *state = &c->state[a->state];
  return (struct oracle_heads){.k = state->k,
                               .v = shared ? state->k : state->v,
                               .d = a->d_head,
                               .d_value = d_value,
                               .k_step = (uint64_t)a->n_kv_head * a->d_head,
                               .v_step = (uint64_t)a->n_kv_head * v_width,
                               .v_width = v_width};
}

/* The sinks' logits lie behind the threads' scratch memory (oracle_attention puts them there). */
static const double *oracle_sinks(const struct oracle_call *c) {
  return c->scratch + parallel_n_thread(c->pool) * c->scratch_stride;
}

/* Logits of the positions first .. t into p[first ..], then their probabilities. */
static void oracle_softmax(const struct oracle_call *c, const struct oracle_heads *s, const double *q, uint32_t head,
                           uint32_t first, uint32_t end, double *p) {
  const struct ir_attr *a = &c->node->a;
  uint64_t at = (uint64_t)(head / (a->n_head / a->n_kv_head)) * s->d;
  bool sink = c->node->weight[0];
  double max = sink ? oracle_sinks(c)[head] : -INFINITY, sum = 0;
  for (uint32_t i = first; i < end; i++) {
    p[i] = a->scale * oracle_dot(q, s->k + i * s->k_step + at, s->d);
    if (a->softcap > 0) p[i] = a->softcap * tanh(p[i] / a->softcap);
    if (p[i] > max) max = p[i];
  }
  if (sink) sum = exp(oracle_sinks(c)[head] - max);
  for (uint32_t i = first; i < end; i++) sum += p[i] = exp(p[i] - max);
  for (uint32_t i = first; i < end; i++) p[i] /= sum;
}

/* One item: one head of one row. */
static void oracle_attention_item(void *context, uint64_t item, unsigned thread) {
  const struct oracle_call *c = context;
  const struct ir_attr *a = &c->node->a;
  struct oracle_heads s = oracle_heads(c);
  uint32_t t = (uint32_t)(item / a->n_head), h = (uint32_t)(item % a->n_head), end = c->position + t + 1;
  uint32_t first = a->window && end > a->window ? end - a->window : 0;
  double *p = oracle_thread_scratch(c, thread), *y = c->out + item * s.d_value;
  oracle_softmax(c, &s, c->in[0] + item * s.d, h, first, end, p);
  memset(y, 0, s.d_value * sizeof *y);
  for (uint32_t i = first; i < end; i++) {
    const double *v = s.v + i * s.v_step + h / (a->n_head / a->n_kv_head) * s.v_width;
    for (uint32_t e = 0; e < s.d_value; e++) y[e] += p[i] * v[e];
  }
}

void oracle_attention(const struct oracle_call *c) {
  struct oracle_heads s = oracle_heads(c);
  struct oracle_state *state = &c->state[c->node->a.state];
  memcpy(state->k + c->position * s.k_step, c->in[1], c->n_row * s.k_step * sizeof(double));
  if (c->node->in[1] != c->node->in[2])
    memcpy(state->v + c->position * s.v_step, c->in[2], c->n_row * s.v_step * sizeof(double));
  if (c->node->weight[0])
    oracle_vector(c, c->node->weight[0], c->scratch + parallel_n_thread(c->pool) * c->scratch_stride);
  parallel_for(c->pool, (uint64_t)c->n_row * c->node->a.n_head, oracle_attention_item, (void *)c);
}
