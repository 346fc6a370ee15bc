#include "oracle_ops.h"

#include "dequant.h"

#include <math.h>
#include <string.h>

/* Rows of a weight that are dequantized and multiplied together. */
enum { ORACLE_ROWS = 4, ORACLE_BLOCK = 16 };

/* Four sums side by side: a fixed order whatever the compiler vectorizes. */
typedef double oracle_v4 __attribute__((vector_size(32), aligned(8)));

double oracle_dot(const double *a, const double *b, uint64_t n) {
  oracle_v4 s = {0, 0, 0, 0};
  uint64_t i = 0;
  for (; i + 4 <= n; i += 4) s += *(const oracle_v4 *)(a + i) * *(const oracle_v4 *)(b + i);
  double sum = (s[0] + s[1]) + (s[2] + s[3]);
  for (; i < n; i++) sum += a[i] * b[i];
  return sum;
}

/* out[r * stride] = w[r] . x for ORACLE_ROWS rows of n: x is read once. */
static void oracle_dot_rows(const double *w, const double *x, uint64_t n, double out[ORACLE_ROWS]) {
  const double *w0 = w, *w1 = w + n, *w2 = w + 2 * n, *w3 = w + 3 * n;
  oracle_v4 s0 = {0, 0, 0, 0}, s1 = s0, s2 = s0, s3 = s0;
  uint64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    oracle_v4 v = *(const oracle_v4 *)(x + i);
    s0 += *(const oracle_v4 *)(w0 + i) * v;
    s1 += *(const oracle_v4 *)(w1 + i) * v;
    s2 += *(const oracle_v4 *)(w2 + i) * v;
    s3 += *(const oracle_v4 *)(w3 + i) * v;
  }
  oracle_v4 s[ORACLE_ROWS] = {s0, s1, s2, s3};
  for (int r = 0; r < ORACLE_ROWS; r++) {
    out[r] = (s[r][0] + s[r][1]) + (s[r][2] + s[r][3]);
    for (uint64_t k = i; k < n; k++) out[r] += w[(uint64_t)r * n + k] * x[k];
  }
}

/* n weights as doubles. scratch: n floats. */
static void oracle_weights(const struct gguf_tensor *t, uint64_t row, double *w, float *scratch) {
  uint64_t n = t->dim[0];
  dequant_row(t->format, gguf_row(t, row), scratch, n);
  for (uint64_t i = 0; i < n; i++) w[i] = (double)scratch[i];
}

void oracle_vector(const struct oracle_call *c, const struct gguf_tensor *t, double *w) {
  oracle_weights(t, 0, w, (float *)(c->scratch));
}

uint64_t oracle_scratch(const struct ir_graph *graph, uint32_t n_position) {
  uint64_t columns = 1;
  for (int i = 0; i < graph->n_node; i++) {
    if (graph->node[i].a.group > columns) columns = graph->node[i].a.group;
    for (int k = 0; k < IR_MAX_WEIGHT; k++) {
      const struct gguf_tensor *t = graph->node[i].weight[k];
      if (t && t->dim[0] > columns) columns = t->dim[0];
      if (graph->node[i].op == IR_ROUTER && t && 2 * t->dim[1] > columns) columns = 2 * t->dim[1];
    }
  }
  uint64_t rows = columns * (ORACLE_ROWS + 1); /* the floats, then the rows of doubles */
  return (rows > n_position ? rows : n_position) + 8;
}

double *oracle_thread_scratch(const struct oracle_call *c, unsigned thread) {
  return c->scratch + thread * c->scratch_stride;
}

/* ---- Operations without products ---- */

void oracle_embed(const struct oracle_call *c) {
  uint32_t width = c->node->width;
  for (uint32_t t = 0; t < c->n_row; t++) {
    double *y = c->out + (uint64_t)t * width;
    oracle_weights(c->node->weight[0], c->token[t], y, (float *)c->scratch);
    for (uint32_t i = 0; i < width; i++) y[i] *= c->node->a.scale;
  }
}

void oracle_select(const struct oracle_call *c) {
  uint64_t width = c->node->width;
  for (uint32_t t = 0; t < c->n_row; t++)
    memcpy(c->out + t * width, c->in[0] + c->select[t] * width, width * sizeof *c->out);
}

void oracle_rmsnorm(const struct oracle_call *c) {
  uint32_t group = c->node->a.group;
  double *w = c->scratch + group; /* behind the floats */
  if (c->node->weight[0])
    oracle_vector(c, c->node->weight[0], w);
  else
    for (uint32_t i = 0; i < group; i++) w[i] = 1;
  uint64_t n_group = (uint64_t)c->n_row * (c->node->width / group);
  for (uint64_t g = 0; g < n_group; g++) {
    const double *x = c->in[0] + g * group;
    double scale =
        (c->node->a.scale != 0 ? c->node->a.scale : 1) / sqrt(oracle_dot(x, x, group) / group + c->node->a.eps);
    for (uint32_t i = 0; i < group; i++) c->out[g * group + i] = x[i] * scale * w[i];
  }
}

void oracle_gain(const struct oracle_call *c) {
  double gain;
  oracle_vector(c, c->node->weight[0], &gain);
  for (uint64_t i = 0; i < (uint64_t)c->n_row * c->node->width; i++) c->out[i] = gain * c->in[0][i];
}

void oracle_add(const struct oracle_call *c) {
  uint64_t n = (uint64_t)c->n_row * c->node->width;
  double scale = ir_scale(c->node);
  for (uint64_t i = 0; i < n; i++) c->out[i] = c->in[0][i] + scale * c->in[1][i];
}

static double oracle_sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

static double oracle_glu_of(enum ir_activation activation, double a, double b) {
  switch (activation) {
  case IR_GELU: /* Hendrycks and Gimpel, "Gaussian Error Linear Units", arXiv 1606.08415, the tanh form */
    return 0.5 * a * (1 + tanh(sqrt(2 / acos(-1)) * (a + 0.044715 * a * a * a))) * b;
  case IR_SIGMOID:
    return oracle_sigmoid(a) * b;
  case IR_SWIGLU_OAI:
    a = fmin(a, IR_SWIGLU_LIMIT);
    b = fmax(-IR_SWIGLU_LIMIT, fmin(b, IR_SWIGLU_LIMIT));
    return a * oracle_sigmoid(IR_SWIGLU_ALPHA * a) * (b + 1);
  case IR_SILU:
    break;
  }
  return a * oracle_sigmoid(a) * b;
}

void oracle_glu(const struct oracle_call *c) {
  uint32_t width = c->node->width, a_width = c->in_node[0]->width;
  for (uint32_t t = 0; t < c->n_row; t++)
    for (uint32_t i = 0; i < width; i++) {
      double a = c->in[0][(uint64_t)t * a_width + (a_width == 1 ? 0 : i)];
      uint64_t at = (uint64_t)t * width + i;
      c->out[at] = oracle_glu_of(c->node->a.activation, a, c->in[1][at]);
    }
}

void oracle_combine(const struct oracle_call *c) {
  uint32_t n_used = c->node->a.n_expert_used, width = c->node->width;
  for (uint32_t t = 0; t < c->n_row; t++) {
    const double *x = c->in[0] + (uint64_t)t * n_used * width, *weight = c->in[1] + (uint64_t)t * 2 * n_used + n_used;
    double *y = c->out + (uint64_t)t * width;
    memset(y, 0, width * sizeof *y);
    for (uint32_t s = 0; s < n_used; s++)
      for (uint32_t i = 0; i < width; i++) y[i] += weight[s] * x[(uint64_t)s * width + i];
  }
}

/* ---- Products ---- */

/* A product of one matrix with some rows: y[row[i]] = W x[row[i]]. */
struct oracle_product {
  const struct oracle_call *c;
  const struct gguf_tensor *weight;
  uint64_t first_weight_row, n_in, n_out;
  const uint64_t *x_at, *y_at; /* offsets of the rows in in[0] and out */
  uint64_t n_pair;
};

/* One item: ORACLE_BLOCK outputs, all rows. */
static void oracle_product_item(void *context, uint64_t item, unsigned thread) {
  const struct oracle_product *p = context;
  double *scratch = oracle_thread_scratch(p->c, thread), *w = scratch + p->n_in;
  uint64_t end = (item + 1) * ORACLE_BLOCK < p->n_out ? (item + 1) * ORACLE_BLOCK : p->n_out;
  for (uint64_t o = item * ORACLE_BLOCK; o < end; o += ORACLE_ROWS) {
    uint64_t n = end - o < ORACLE_ROWS ? end - o : ORACLE_ROWS;
    for (uint64_t r = 0; r < ORACLE_ROWS; r++)
      oracle_weights(p->weight, p->first_weight_row + o + (r < n ? r : 0), w + r * p->n_in, (float *)scratch);
    for (uint64_t i = 0; i < p->n_pair; i++) {
      double sums[ORACLE_ROWS];
      oracle_dot_rows(w, p->c->in[0] + p->x_at[i], p->n_in, sums);
      memcpy(p->c->out + p->y_at[i] + o, sums, n * sizeof *sums);
    }
  }
}

static void oracle_product(struct oracle_product *p) {
  parallel_for(p->c->pool, (p->n_out + ORACLE_BLOCK - 1) / ORACLE_BLOCK, oracle_product_item, p);
}

/* Some hundreds of rows at a time. */
void oracle_product_rows(const struct oracle_call *c, double *out) {
  enum { MAX = 512 };
  uint64_t x_at[MAX], y_at[MAX];
  const struct gguf_tensor *w = c->node->weight[0];
  struct oracle_call call = *c;
  call.out = out;
  struct oracle_product p = {&call, w, 0, w->dim[0], w->dim[1], x_at, y_at, 0};
  for (uint32_t first = 0; first < c->n_row; first += MAX) {
    p.n_pair = c->n_row - first < MAX ? c->n_row - first : MAX;
    for (uint32_t i = 0; i < p.n_pair; i++) {
      x_at[i] = (uint64_t)(first + i) * p.n_in;
      y_at[i] = (uint64_t)(first + i) * p.n_out;
    }
    oracle_product(&p);
  }
}

void oracle_linear(const struct oracle_call *c) {
  oracle_product_rows(c, c->out);
  const struct gguf_tensor *bias = c->node->weight[1];
  uint32_t n_out = c->node->width;
  double *b = c->scratch + n_out, scale = ir_scale(c->node);
  if (bias) oracle_vector(c, bias, b);
  for (uint32_t t = 0; t < c->n_row; t++)
    for (uint32_t o = 0; o < n_out; o++) {
      double *y = &c->out[(uint64_t)t * n_out + o];
      *y = scale * (*y + (bias ? b[o] : 0));
    }
}

/* y[t][s] += bias[id of slot s] */
static void oracle_expert_bias(const struct oracle_call *c, uint64_t n_out) {
  const struct ir_attr *a = &c->node->a;
  double *b = c->scratch + n_out;
  for (uint32_t e = 0; e < a->n_expert; e++) {
    bool read = false;
    for (uint64_t p = 0; p < (uint64_t)c->n_row * a->n_expert_used; p++) {
      if (c->in[1][p / a->n_expert_used * 2 * a->n_expert_used + p % a->n_expert_used] != e) continue;
      if (!read) oracle_weights(c->node->weight[1], e, b, (float *)c->scratch);
      read = true;
      for (uint64_t o = 0; o < n_out; o++) c->out[p * n_out + o] += b[o];
    }
  }
}

void oracle_head_linear(const struct oracle_call *c) {
  enum { MAX = 512 };
  uint64_t x_at[MAX], y_at[MAX];
  const struct gguf_tensor *w = c->node->weight[0];
  uint64_t n_head = c->node->a.n_head, n_in = w->dim[0], n_out = w->dim[1];
  for (uint64_t h = 0; h < n_head; h++)
    for (uint32_t first = 0; first < c->n_row; first += MAX) {
      struct oracle_product p = {c, w, h * n_out, n_in, n_out, x_at, y_at, 0};
      p.n_pair = c->n_row - first < MAX ? c->n_row - first : MAX;
      for (uint32_t i = 0; i < p.n_pair; i++) {
        x_at[i] = ((first + i) * n_head + h) * n_in;
        y_at[i] = ((first + i) * n_head + h) * n_out;
      }
      oracle_product(&p);
    }
}

/* One expert at a time over the rows that chose it: its weights are dequantized once. */
void oracle_expert_linear(const struct oracle_call *c) {
  enum { MAX = 1024 };
  uint64_t x_at[MAX], y_at[MAX];
  const struct ir_attr *a = &c->node->a;
  const struct gguf_tensor *w = c->node->weight[0];
  uint64_t n_in = w->dim[0], n_out = w->dim[1], x_width = c->in_node[0]->width;
  uint64_t slot_step = x_width == n_in ? 0 : n_in; /* one row of x for all slots, or one a slot */
  struct oracle_product p = {c, w, 0, n_in, n_out, x_at, y_at, 0};
  for (uint32_t e = 0; e < a->n_expert; e++) {
    p.first_weight_row = e * n_out;
    for (uint32_t t = 0; t < c->n_row; t++)
      for (uint32_t s = 0; s < a->n_expert_used; s++) {
        if (c->in[1][(uint64_t)t * 2 * a->n_expert_used + s] != e) continue;
        x_at[p.n_pair] = t * x_width + s * slot_step;
        y_at[p.n_pair] = ((uint64_t)t * a->n_expert_used + s) * n_out;
        if (++p.n_pair < MAX) continue;
        oracle_product(&p);
        p.n_pair = 0;
      }
    if (p.n_pair) oracle_product(&p);
    p.n_pair = 0;
  }
  if (c->node->weight[1]) oracle_expert_bias(c, n_out);
}
