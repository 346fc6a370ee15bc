/* test_experts_kinds.c: what families vary in a mixture of experts: how routers choose and weigh, biases, activations,
 * the shared expert's row, GLUs alone; each parameter on and off. The plain forms and all formats: test_experts.c. */
#include "ir.h"
#include "kernel_case.h"
#include "kernel_oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_ROW 512

static void set_params(struct kernel_case *c, const struct shadergen_param *params, size_t n) {
  for (size_t i = 0; i < n; i++) kernel_case_param(c, params[i].name, params[i].value);
}
#define SET_PARAMS(C, ...)                                                                                             \
  do {                                                                                                                 \
    const struct shadergen_param params_[] = {__VA_ARGS__};                                                            \
    set_params(C, params_, sizeof params_ / sizeof *params_);                                                          \
  } while (0)

static void *checked_calloc(size_t n, size_t bytes) {
  void *p = calloc(n ? n : 1, bytes);
  assert_non_null(p);
  return p;
}

/* Modules take long to make on a CPU: only some cases run instrumented, too. */
static void run(struct kernel_case *c, bool instrumented) {
  if (instrumented)
    kernel_case_run(c);
  else
    kernel_case_run_plain(c);
}

static double sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

/* ---- routers ---- */

struct choice {
  uint32_t n_expert, n_used;
  int gating; /* enum ir_gating */
  bool logit_bias, select_bias;
  uint32_t n_group, n_group_used, n_group_sum;
  bool norm_w;
  double scale;
};

/* How many of v are before v[i] in the order (value down, index up), among those of which `in` is true. */
static uint32_t rank_of(const double *v, const bool *in, uint32_t n, uint32_t i) {
  uint32_t rank = 0;
  for (uint32_t k = 0; k < n; k++) rank += in[k] && (v[k] > v[i] || (v[k] == v[i] && k < i));
  return rank;
}

/* The sum of the n_sum largest scores of a group. */
static double group_score(const double *score, uint32_t size, uint32_t n_sum) {
  bool *all = checked_calloc(size, sizeof *all);
  double sum = 0;
  memset(all, 1, size);
  for (uint32_t i = 0; i < size; i++)
    if (rank_of(score, all, size, i) < n_sum) sum += score[i];
  free(all);
  return sum;
}

/* in: experts of the groups that are kept. */
static void keep_groups(const struct choice *k, const double *score, bool *in) {
  uint32_t size = k->n_expert / k->n_group;
  double *group = checked_calloc(k->n_group, sizeof *group);
  bool *all = checked_calloc(k->n_group, sizeof *all);
  memset(all, 1, k->n_group);
  for (uint32_t g = 0; g < k->n_group; g++) group[g] = group_score(score + g * size, size, k->n_group_sum);
  for (uint32_t e = 0; e < k->n_expert; e++)
    in[e] = k->n_group == 1 || rank_of(group, all, k->n_group, e / size) < k->n_group_used;
  free(group), free(all);
}

/* The definition of ROUTER in ir_ops.def, by ranks. */
static void choose(const struct choice *k, const float *logits, const float *bias, const float *select_bias,
                   uint32_t *ids, double *weights) {
  uint32_t n = k->n_expert;
  double *p = checked_calloc(n, sizeof *p), *score = checked_calloc(n, sizeof *score), top = -1e300, total = 0;
  bool *in = checked_calloc(n, sizeof *in);
  for (uint32_t e = 0; e < n; e++) p[e] = (double)logits[e] + (k->logit_bias ? bias[e] : 0);
  for (uint32_t e = 0; e < n; e++) top = fmax(top, p[e]);
  for (uint32_t e = 0; e < n; e++) total += exp(p[e] - top);
  for (uint32_t e = 0; e < n; e++) {
    if (k->gating == IR_GATING_SOFTMAX) p[e] = exp(p[e] - top) / total;
    if (k->gating == IR_GATING_SIGMOID) p[e] = sigmoid(p[e]);
    score[e] = p[e] + (k->select_bias ? select_bias[e] : 0);
  }
  keep_groups(k, score, in);
  double sum = 0;
  for (uint32_t e = 0; e < n; e++) {
    uint32_t rank = rank_of(score, in, n, e);
    if (!in[e] || rank >= k->n_used) continue;
    ids[rank] = e;
    weights[rank] = k->gating == IR_GATING_SOFTMAX_AFTER ? exp(p[e] - top) : p[e];
    sum += weights[rank];
  }
  bool divide = k->norm_w || k->gating == IR_GATING_SOFTMAX_AFTER;
  for (uint32_t j = 0; j < k->n_used; j++) weights[j] *= k->scale / (divide ? sum : 1);
  free(p), free(score), free(in);
}

static const struct choice choices[] = {
    {16, 4, IR_GATING_SIGMOID, false, false, 1, 1, 2, false, 1},
    {60, 4, IR_GATING_SIGMOID, false, true, 1, 1, 2, true, 2.5},
    {40, 8, IR_GATING_SOFTMAX_AFTER, false, false, 1, 1, 2, false, 1},
    {32, 4, IR_GATING_SOFTMAX_AFTER, true, false, 1, 1, 2, false, 1},
    {64, 6, IR_GATING_SOFTMAX, false, true, 1, 1, 2, true, 1},
    {33, 10, IR_GATING_SOFTMAX, true, true, 1, 1, 2, false, 0.5},
    {160, 6, IR_GATING_SOFTMAX, false, false, 8, 3, 1, false, 16},
    {256, 8, IR_GATING_SIGMOID, false, true, 8, 4, 2, true, 2.5},
    {15, 6, IR_GATING_SIGMOID, true, true, 5, 2, 2, true, 1},
    {96, 12, IR_GATING_SIGMOID, false, false, 32, 6, 2, true, 1},
    {512, 10, IR_GATING_SOFTMAX, false, false, 1, 1, 2, true, 1},
    {512, 64, IR_GATING_SIGMOID, false, true, 16, 4, 1, true, 1},
    {3, 3, IR_GATING_SIGMOID, false, false, 1, 1, 2, true, 1},
};

static void set_choice(struct kernel_case *c, const struct choice *k, uint32_t rows) {
  SET_PARAMS(c, {"N_EXPERT", k->n_expert}, {"N_EXPERT_USED", k->n_used}, {"N_ROW", rows}, {"MAX_ROW", MAX_ROW},
             {"NORM_W", k->norm_w}, {"W_SCALE", k->scale}, {"GATING", k->gating}, {"LOGIT_BIAS", k->logit_bias},
             {"SELECT_BIAS", k->select_bias}, {"N_GROUP", k->n_group}, {"N_GROUP_USED", k->n_group_used},
             {"N_GROUP_SUM", k->n_group_sum});
}

/* Rows that were computed against the reference; biases and groups must make a difference to what is chosen. */
static void check_choice(const char *what, const struct choice *k, uint32_t live, const float *logits,
                         const float *bias, const float *select_bias, const uint32_t *ids, const float *weights) {
  uint32_t *want_ids = checked_calloc(k->n_used, 4), n_other = 0;
  double *want = checked_calloc(k->n_used, sizeof *want);
  for (uint32_t r = 0; r < live; r++) {
    const float *row = logits + (size_t)r * k->n_expert;
    choose(k, row, bias, select_bias, want_ids, want);
    if (memcmp(ids + r * k->n_used, want_ids, k->n_used * 4))
      fail_msg("%s of %u experts, gating %d: row %u: other experts", what, k->n_expert, k->gating, r);
    for (uint32_t j = 0; j < k->n_used; j++)
      if (!(fabs(weights[r * k->n_used + j] - want[j]) < 4e-6 * k->scale))
        fail_msg("%s of %u experts, gating %d: row %u weight %u: %g, the reference %g", what, k->n_expert, k->gating, r,
                 j, weights[r * k->n_used + j], want[j]);
    struct choice other = *k;
    other.select_bias = false;
    other.n_group = 1;
    choose(&other, row, bias, select_bias, want_ids, want);
    n_other += memcmp(ids + r * k->n_used, want_ids, k->n_used * 4) != 0;
  }
  if ((k->select_bias || k->n_group > 1) && n_other == 0)
    fail_msg("%s of %u experts: bias and groups make no difference: the case is worthless", what, k->n_expert);
  free(want_ids), free(want);
}

static void test_topk_kinds(void **state) {
  (void)state;
  enum { ROWS = 9, LIVE = 8 };
  struct oracle_rng rng = {21};
  uint64_t step_bytes;
  uint32_t *step = oracle_step(&rng, MAX_ROW, LIVE, 1, 1, NULL, NULL, &step_bytes);
  for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
    const struct choice *k = &choices[i];
    float *logits = oracle_floats(&rng, ROWS * k->n_expert), *bias = oracle_floats(&rng, k->n_expert),
          *select_bias = oracle_floats(&rng, k->n_expert);
    for (uint32_t n = 0; n < ROWS * k->n_expert; n++) logits[n] *= 3;
    struct kernel_case c;
    kernel_case_init(&c, KERNEL_TOPK);
    set_choice(&c, k, ROWS);
    kernel_case_bind(&c, "logits", logits, 0);
    if (k->logit_bias) kernel_case_bind(&c, "bias", bias, 0);
    if (k->select_bias) kernel_case_bind(&c, "select_bias", select_bias, 0);
    kernel_case_bind(&c, "step", step, step_bytes);
    float *weights = kernel_case_bind(&c, "weights", NULL, 0);
    uint32_t *ids = kernel_case_bind(&c, "ids", NULL, 0);
    run(&c, i % 4 == 3);
    check_choice("topk", k, LIVE, logits, bias, select_bias, ids, weights);
    assert_int_equal(ids[LIVE * k->n_used], VKH_POISON);
    kernel_case_deinit(&c);
    free(logits), free(bias), free(select_bias);
  }
  free(step);
}

/* The fused form: its logits are those of x, normed. */
static void test_router_kinds(void **state) {
  (void)state;
  enum { D = 256, ROWS = 2 };
  static const size_t some[] = {1, 3, 7, 8};
  struct oracle_rng rng = {22};
  uint64_t step_bytes;
  uint32_t *step = oracle_step(&rng, MAX_ROW, ROWS, 1, 1, NULL, NULL, &step_bytes);
  for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
    const struct choice *k = &choices[some[i]];
    struct oracle_weight w;
    oracle_weight_init(&w, &rng, 0, D, k->n_expert, 1);
    float *x = oracle_floats(&rng, ROWS * D), *norm = oracle_floats(&rng, D), *bias = oracle_floats(&rng, k->n_expert),
          *select_bias = oracle_floats(&rng, k->n_expert), *logits = checked_calloc(ROWS * k->n_expert, sizeof *logits);
    for (int n = 0; n < D; n++) norm[n] *= 0.2f;
    struct kernel_case c;
    kernel_case_init(&c, KERNEL_ROUTER);
    set_choice(&c, k, ROWS);
    SET_PARAMS(&c, {"FMT", 0}, {"D_MODEL", D});
    kernel_case_bind(&c, "x", x, 0);
    kernel_case_bind(&c, "norm", norm, 0);
    kernel_case_bind(&c, "weight", w.plane, w.bytes);
    if (k->logit_bias) kernel_case_bind(&c, "bias", bias, 0);
    if (k->select_bias) kernel_case_bind(&c, "select_bias", select_bias, 0);
    kernel_case_bind(&c, "step", step, step_bytes);
    float *weights = kernel_case_bind(&c, "weights", NULL, 0);
    uint32_t *ids = kernel_case_bind(&c, "ids", NULL, 0), *counter = kernel_case_bind(&c, "counter", NULL, 0);
    memset(counter, 0, ROWS * 4);
    run(&c, i == 1);
    for (uint32_t r = 0; r < ROWS; r++) {
      double v[D], squares = 0;
      for (int n = 0; n < D; n++) squares += (double)x[r * D + n] * x[r * D + n];
      for (int n = 0; n < D; n++) v[n] = x[r * D + n] / sqrt(squares / D + (double)1e-6f) * norm[n];
      for (uint32_t e = 0; e < k->n_expert; e++) logits[r * k->n_expert + e] = (float)oracle_dot(&w, 0, e, v);
    }
    check_choice("router", k, ROWS, logits, bias, select_bias, ids, weights);
    kernel_case_deinit(&c);
    oracle_weight_deinit(&w);
    free(x), free(norm), free(bias), free(select_bias), free(logits);
  }
  free(step);
}

/* ---- activations ---- */

static double glu_of(int activation, double a, double b) {
  double cube = a + 0.044715 * a * a * a;
  switch (activation) {
  case IR_GELU:
    return a / 2 * (1 + tanh(sqrt(2 / 3.14159265358979323846) * cube)) * b;
  case IR_SIGMOID:
    return sigmoid(a) * b;
  case IR_SWIGLU_OAI:
    return fmin(a, 7) * sigmoid(1.702 * fmin(a, 7)) * (fmax(-7, fmin(b, 7)) + 1);
  default:
    return a * sigmoid(a) * b;
  }
}

static void test_glu(void **state) {
  (void)state;
  enum { N = 132, ROWS = 5, LIVE = 4 };
  struct oracle_rng rng = {23};
  uint64_t step_bytes;
  uint32_t *step = oracle_step(&rng, MAX_ROW, LIVE, 1, 1, NULL, NULL, &step_bytes);
  for (int activation = 0; activation < 4; activation++)
    for (int one = 0; one < 2; one++) {
      float *a = oracle_floats(&rng, ROWS * N), *b = oracle_floats(&rng, ROWS * N);
      double want[LIVE * N];
      for (int i = 0; i < ROWS * N; i++) a[i] *= 6, b[i] *= 10;
      if (!one) a[1] = 200, a[2] = -200; /* far out: no NaN */
      struct kernel_case c;
      kernel_case_init(&c, KERNEL_GLU);
      SET_PARAMS(&c, {"N_COL", N}, {"N_ROW", ROWS}, {"MAX_ROW", MAX_ROW}, {"ACTIVATION", activation}, {"A_ONE", one});
      kernel_case_bind(&c, "a", a, 0);
      kernel_case_bind(&c, "b", b, 0);
      kernel_case_bind(&c, "step", step, step_bytes);
      float *y = kernel_case_bind(&c, "y", NULL, 0);
      kernel_case_run(&c);
      for (int i = 0; i < LIVE * N; i++) want[i] = glu_of(activation, a[one ? i / N : i], b[i]);
      oracle_check("glu", y, want, NULL, LIVE * N);
      assert_true(isnan(y[LIVE * N]));
      kernel_case_deinit(&c);
      free(a), free(b);
    }
  free(step);
}

/* ---- experts ---- */

enum { N_EXPERT = 5, N_USED = 3, D_IN = 256, D_OUT = 35, TM = 8 };

/* Rows, their experts, and a schedule of them. */
struct batch {
  uint32_t live, n_row, n_pair;
  uint32_t *ids, *tiles, *pairs, *step;
  uint64_t step_bytes;
  bool routed;
};

static void batch_init(struct batch *b, struct oracle_rng *rng, uint32_t live, bool routed) {
  *b = (struct batch){.live = live, .n_row = live + 1, .routed = routed, .n_pair = live * (routed ? N_USED : 1)};
  uint32_t n_tile = EXPERT_N_TILE(b->n_row, N_USED, N_EXPERT, TM), t = 0, at = 0;
  b->ids = checked_calloc(b->n_row * N_USED, 4);
  b->pairs = checked_calloc(b->n_row * N_USED, 4);
  b->tiles = checked_calloc(4 * n_tile, 4);
  b->step = oracle_step(rng, MAX_ROW, live, 1, 1, NULL, NULL, &b->step_bytes);
  for (uint32_t r = 0; r < live && routed; r++)
    for (uint32_t j = 0, first = oracle_u32(rng); j < N_USED; j++) b->ids[r * N_USED + j] = (first + j) % N_EXPERT;
  for (uint32_t e = 0; e < N_EXPERT; e++) {
    uint32_t first = at;
    for (uint32_t p = 0; p < b->n_pair; p++)
      if (b->ids[p] == e) b->pairs[at++] = p;
    for (uint32_t i = first; i < at; i += TM, t++) {
      const uint32_t tile[4] = {e, i, at - i < TM ? at - i : TM, 0};
      memcpy(b->tiles + 4 * t, tile, sizeof tile);
    }
  }
}

static void batch_deinit(struct batch *b) {
  free(b->ids), free(b->tiles), free(b->pairs), free(b->step);
}

static void batch_bind(struct kernel_case *c, const struct batch *b, bool gemm) {
  kernel_case_bind(c, "step", b->step, b->step_bytes);
  if (b->routed && gemm) kernel_case_bind(c, "tiles", b->tiles, 0);
  if (b->routed && gemm) kernel_case_bind(c, "pairs", b->pairs, 0);
  if (b->routed && !gemm) kernel_case_bind(c, "ids", b->ids, 0);
}

static void run_gate_up(struct oracle_rng *rng, const struct batch *b, bool gemm, int activation, bool bias,
                        bool instrumented) {
  uint32_t n_expert = b->routed ? N_EXPERT : 1, n_used = b->routed ? N_USED : 1;
  struct oracle_weight gate, up, gate_bias, up_bias;
  oracle_weight_init(&gate, rng, 12, D_IN, D_OUT, n_expert);
  oracle_weight_init(&up, rng, 14, D_IN, D_OUT, n_expert);
  oracle_weight_init(&gate_bias, rng, 0, D_OUT, n_expert, 1);
  oracle_weight_init(&up_bias, rng, 0, D_OUT, n_expert, 1);
  float *x = oracle_floats(rng, b->n_row * D_IN);
  for (uint32_t i = 0; i < b->n_row * D_IN; i++) x[i] *= 0.1f; /* products within the clamps, mostly */
  struct kernel_case c;
  kernel_case_init(&c, gemm ? KERNEL_EXPERT_GATE_UP_GEMM : KERNEL_EXPERT_GATE_UP);
  SET_PARAMS(&c, {"FMT_GATE", 12}, {"FMT_UP", 14}, {"D_MODEL", D_IN}, {"D_FF", D_OUT}, {"N_EXPERT", n_expert},
             {"N_EXPERT_USED", n_used}, {"N_ROW", b->n_row}, {"MAX_ROW", MAX_ROW}, {"ROUTED", b->routed},
             {"ACTIVATION", activation}, {"BIAS", bias});
  if (gemm) kernel_case_param(&c, "TM", TM);
  batch_bind(&c, b, gemm);
  kernel_case_bind(&c, "xn", x, 0);
  kernel_case_bind(&c, "gate", gate.plane, gate.bytes);
  kernel_case_bind(&c, "up", up.plane, up.bytes);
  if (bias) kernel_case_bind(&c, "gate_bias", gate_bias.plane, gate_bias.bytes);
  if (bias) kernel_case_bind(&c, "up_bias", up_bias.plane, up_bias.bytes);
  float *h = kernel_case_bind(&c, "h", NULL, 0);
  run(&c, instrumented);
  size_t n = (size_t)b->n_pair * D_OUT;
  double *want = checked_calloc(n, sizeof *want), *wrong = checked_calloc(n, sizeof *wrong), v[D_IN];
  for (uint32_t p = 0; p < b->n_pair; p++) {
    for (uint32_t k = 0; k < D_IN; k++) v[k] = x[p / n_used * D_IN + k];
    for (uint32_t o = 0, e = b->ids[p]; o < D_OUT; o++) {
      double ba = bias ? gate_bias.value[e * D_OUT + o] : 0, bb = bias ? up_bias.value[e * D_OUT + o] : 0;
      double a = oracle_dot(&gate, e, o, v), u = oracle_dot(&up, e, o, v);
      want[p * D_OUT + o] = glu_of(activation, a + ba, u + bb);
      wrong[p * D_OUT + o] = glu_of((activation + 1) % 4, a + ba, u + bb);
    }
  }
  char what[96];
  snprintf(what, sizeof what, "%s, activation %d, bias %d, routed %d", gemm ? "gate_up_gemm" : "gate_up", activation,
           bias, b->routed);
  oracle_check(what, h, want, wrong, n);
  assert_true(isnan(h[n]));
  kernel_case_deinit(&c);
  oracle_weight_deinit(&gate), oracle_weight_deinit(&up);
  oracle_weight_deinit(&gate_bias), oracle_weight_deinit(&up_bias);
  free(want), free(wrong), free(x);
}

static void test_gate_up_kinds(void **state) {
  (void)state;
  struct oracle_rng rng = {24};
  struct batch few, many, dense;
  batch_init(&few, &rng, 2, true);
  batch_init(&many, &rng, 13, true);
  batch_init(&dense, &rng, 3, false);
  for (int activation = 0; activation < 4; activation++) {
    run_gate_up(&rng, &few, false, activation, activation % 2, false);
    run_gate_up(&rng, &many, true, activation, activation % 2, false);
  }
  run_gate_up(&rng, &few, false, IR_SILU, true, true);
  run_gate_up(&rng, &many, true, IR_SILU, true, true);
  run_gate_up(&rng, &dense, false, IR_GELU, true, false);
  run_gate_up(&rng, &dense, true, IR_GELU, true, false);
  batch_deinit(&few), batch_deinit(&many), batch_deinit(&dense);
}

/* What sums may begin with and end in. */
struct ending {
  bool bias, residual;
  int shared; /* kernels.def: SHARED */
  double scale;
};

/* want: the sum over a row's slots of y, [n_pair][n_out], as `ending` says; wrong: without what it begins with, or the
 * residual. */
static void ending_reference(const struct ending *k, const struct batch *b, uint32_t n_out, const double *y,
                             const float *weights, const float *shared, const float *gate, const float *x, double *want,
                             double *wrong) {
  for (uint32_t r = 0; r < b->live; r++)
    for (uint32_t o = 0; o < n_out; o++) {
      double begin = k->shared ? shared[r * n_out + o] * (k->shared == 2 ? sigmoid(gate[r]) : 1) : 0, sum = 0;
      for (uint32_t j = 0; j < N_USED; j++) sum += weights[r * N_USED + j] * y[(r * N_USED + j) * n_out + o];
      double rest = k->residual ? x[r * n_out + o] : 0;
      want[r * n_out + o] = k->scale * (begin + sum) + rest;
      wrong[r * n_out + o] = k->scale * (sum + 0.01) + rest;
    }
}

static void run_down(struct oracle_rng *rng, const struct batch *b, const struct ending *k, bool instrumented) {
  struct oracle_weight down, bias;
  oracle_weight_init(&down, rng, 14, D_IN, D_OUT, N_EXPERT);
  oracle_weight_init(&bias, rng, 0, D_OUT, N_EXPERT, 1);
  float *h = oracle_floats(rng, b->n_row * N_USED * D_IN), *weights = oracle_floats(rng, b->n_row * N_USED),
        *x = oracle_floats(rng, b->n_row * D_OUT), *shared = oracle_floats(rng, b->n_row * D_OUT),
        *gate = oracle_floats(rng, b->n_row);
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_EXPERT_DOWN);
  SET_PARAMS(&c, {"FMT", 14}, {"D_FF", D_IN}, {"D_MODEL", D_OUT}, {"N_EXPERT", N_EXPERT}, {"N_EXPERT_USED", N_USED},
             {"N_ROW", b->n_row}, {"MAX_ROW", MAX_ROW}, {"BIAS", k->bias}, {"SHARED", k->shared},
             {"RESIDUAL", k->residual}, {"SCALE", k->scale});
  batch_bind(&c, b, false);
  kernel_case_bind(&c, "h", h, 0);
  kernel_case_bind(&c, "down", down.plane, down.bytes);
  kernel_case_bind(&c, "weights", weights, 0);
  if (k->bias) kernel_case_bind(&c, "bias", bias.plane, bias.bytes);
  if (k->shared) kernel_case_bind(&c, "shared_row", shared, 0);
  if (k->shared == 2) kernel_case_bind(&c, "shared_gate", gate, 0);
  float *got = kernel_case_bind(&c, "x", k->residual ? x : NULL, 0);
  run(&c, instrumented);
  size_t n = (size_t)b->live * D_OUT;
  double *y = checked_calloc(b->n_pair * D_OUT, sizeof *y), v[D_IN];
  double *want = checked_calloc(n, sizeof *want), *wrong = checked_calloc(n, sizeof *wrong);
  for (uint32_t p = 0; p < b->n_pair; p++) {
    for (uint32_t i = 0; i < D_IN; i++) v[i] = h[p * D_IN + i];
    for (uint32_t o = 0, e = b->ids[p]; o < D_OUT; o++)
      y[p * D_OUT + o] = oracle_dot(&down, e, o, v) + (k->bias ? bias.value[e * D_OUT + o] : 0);
  }
  ending_reference(k, b, D_OUT, y, weights, shared, gate, x, want, wrong);
  char what[96];
  snprintf(what, sizeof what, "expert_down, bias %d, shared %d, residual %d", k->bias, k->shared, k->residual);
  oracle_check(what, got, want, wrong, n);
  kernel_case_deinit(&c);
  oracle_weight_deinit(&down), oracle_weight_deinit(&bias);
  free(h), free(weights), free(x), free(shared), free(gate), free(y), free(want), free(wrong);
}

static void run_combine(struct oracle_rng *rng, const struct batch *b, const struct ending *k, bool instrumented) {
  enum { D = 260 };
  float *y = oracle_floats(rng, b->n_row * N_USED * D), *weights = oracle_floats(rng, b->n_row * N_USED),
        *x = oracle_floats(rng, b->n_row * D), *shared = oracle_floats(rng, b->n_row * D),
        *gate = oracle_floats(rng, b->n_row);
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_COMBINE);
  SET_PARAMS(&c, {"D_MODEL", D}, {"N_EXPERT_USED", N_USED}, {"N_ROW", b->n_row}, {"MAX_ROW", MAX_ROW},
             {"SHARED", k->shared}, {"RESIDUAL", k->residual}, {"SCALE", k->scale});
  kernel_case_bind(&c, "y", y, 0);
  kernel_case_bind(&c, "weights", weights, 0);
  kernel_case_bind(&c, "step", b->step, b->step_bytes);
  if (k->shared) kernel_case_bind(&c, "shared_row", shared, 0);
  if (k->shared == 2) kernel_case_bind(&c, "shared_gate", gate, 0);
  float *got = kernel_case_bind(&c, "x", k->residual ? x : NULL, 0);
  run(&c, instrumented);
  size_t n = (size_t)b->live * D;
  double *wide = checked_calloc(b->n_pair * D, sizeof *wide);
  double *want = checked_calloc(n, sizeof *want), *wrong = checked_calloc(n, sizeof *wrong);
  for (uint32_t i = 0; i < b->n_pair * D; i++) wide[i] = y[i];
  ending_reference(k, b, D, wide, weights, shared, gate, x, want, wrong);
  oracle_check("combine", got, want, wrong, n);
  kernel_case_deinit(&c);
  free(y), free(weights), free(x), free(shared), free(gate), free(wide), free(want), free(wrong);
}

static void test_endings(void **state) {
  (void)state;
  static const struct ending endings[] = {{true, true, 0, 1},  {false, true, 1, 1},   {false, true, 2, 1},
                                          {true, false, 2, 1}, {true, true, 2, 0.22}, {0, false, 0, 1}};
  struct oracle_rng rng = {25};
  struct batch b;
  batch_init(&b, &rng, 3, true);
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    run_down(&rng, &b, &endings[i], i == 3);
    run_combine(&rng, &b, &endings[i], i == 3);
  }
  batch_deinit(&b);
}

static void test_down_gemm_bias(void **state) {
  (void)state;
  struct oracle_rng rng = {26};
  struct batch b;
  struct oracle_weight down, bias;
  batch_init(&b, &rng, 13, true);
  oracle_weight_init(&down, &rng, 12, D_IN, D_OUT, N_EXPERT);
  oracle_weight_init(&bias, &rng, 0, D_OUT, N_EXPERT, 1);
  float *h = oracle_floats(&rng, b.n_row * N_USED * D_IN);
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_EXPERT_DOWN_GEMM);
  SET_PARAMS(&c, {"FMT", 12}, {"D_FF", D_IN}, {"D_MODEL", D_OUT}, {"N_EXPERT", N_EXPERT}, {"N_EXPERT_USED", N_USED},
             {"N_ROW", b.n_row}, {"MAX_ROW", MAX_ROW}, {"TM", TM}, {"BIAS", 1});
  batch_bind(&c, &b, true);
  kernel_case_bind(&c, "h", h, 0);
  kernel_case_bind(&c, "down", down.plane, down.bytes);
  kernel_case_bind(&c, "bias", bias.plane, bias.bytes);
  float *y = kernel_case_bind(&c, "y", NULL, 0);
  kernel_case_run(&c);
  size_t n = (size_t)b.n_pair * D_OUT;
  double *want = checked_calloc(n, sizeof *want), *wrong = checked_calloc(n, sizeof *wrong), v[D_IN];
  for (uint32_t p = 0; p < b.n_pair; p++) {
    for (uint32_t i = 0; i < D_IN; i++) v[i] = h[p * D_IN + i];
    for (uint32_t o = 0, e = b.ids[p]; o < D_OUT; o++) {
      wrong[p * D_OUT + o] = oracle_dot(&down, e, o, v);
      want[p * D_OUT + o] = wrong[p * D_OUT + o] + bias.value[e * D_OUT + o];
    }
  }
  oracle_check("expert_down_gemm with bias", y, want, wrong, n);
  kernel_case_deinit(&c);
  batch_deinit(&b);
  oracle_weight_deinit(&down), oracle_weight_deinit(&bias);
  free(h), free(want), free(wrong);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_topk_kinds),    cmocka_unit_test(test_router_kinds), cmocka_unit_test(test_glu),
      cmocka_unit_test(test_gate_up_kinds), cmocka_unit_test(test_endings),      cmocka_unit_test(test_down_gemm_bias),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
