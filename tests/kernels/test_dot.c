/* test_dot.c: the kernels of tier dot against their references: every format that has integer weights, odd shapes, and
 * rows whose bits do not depend on how many there are. Skipped (77) on devices without shaderIntegerDotProduct. */
#include "kernel_case.h"
#include "kernel_oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_ROW 16
#define MAX_PART 3

#define SET_PARAMS(C, ...)                                                                                             \
  do {                                                                                                                 \
    const struct shadergen_param params_[] = {__VA_ARGS__};                                                            \
    for (size_t i_ = 0; i_ < sizeof params_ / sizeof *params_; i_++)                                                   \
      kernel_case_param(C, params_[i_].name, params_[i_].value);                                                       \
  } while (0)

static void *checked_malloc(size_t bytes) {
  void *p = malloc(bytes ? bytes : 1);
  assert_non_null(p);
  return p;
}

static void run(struct kernel_case *c, bool instrumented) {
  if (instrumented)
    kernel_case_run(c);
  else
    kernel_case_run_plain(c);
}

/* v = n(x): x, normed when norm is not NULL. */
static void norm_reference(const float *x, const float *norm, uint32_t n, double *v) {
  double squares = 0;
  for (uint32_t k = 0; k < n; k++) squares += (double)x[k] * x[k];
  for (uint32_t k = 0; k < n; k++) v[k] = norm ? x[k] / sqrt(squares / n + (double)1e-6f) * norm[k] : (double)x[k];
}

/* ---- gemv_dot ---- */

struct shape {
  uint32_t n_in, n_out[MAX_PART], format[MAX_PART], n_row, live; /* n_out 0: no such matrix */
  bool norm, residual, rowsel;
  uint32_t bias; /* bits */
  double scale;  /* 0: 1 */
};

struct gemv {
  const struct shape *s;
  struct oracle_weight w[MAX_PART];
  float *x, *norm, *bias[MAX_PART], *y[MAX_PART];
  uint32_t x_row[8], x_rows, *step;
  uint64_t step_bytes;
};

static const char *const weight_names[] = {"weight", "weight_2", "weight_3"}, *const y_names[] = {"y", "y_2", "y_3"},
                         *const bias_names[] = {"bias", "bias_2", "bias_3"};

static void gemv_init(struct gemv *g, struct oracle_rng *rng, const struct shape *s) {
  *g = (struct gemv){.s = s, .x_rows = s->rowsel ? 11 : s->n_row};
  for (int i = 0; i < MAX_PART && s->n_out[i]; i++) {
    oracle_weight_init(&g->w[i], rng, s->format[i], s->n_in, s->n_out[i], 1);
    g->bias[i] = oracle_floats(rng, s->n_out[i]);
    g->y[i] = oracle_floats(rng, s->n_row * s->n_out[i]);
  }
  g->x = oracle_floats(rng, g->x_rows * s->n_in);
  g->norm = oracle_floats(rng, s->n_in);
  g->step = oracle_step(rng, MAX_ROW, s->rowsel ? g->x_rows : s->live, 1, 1, NULL, NULL, &g->step_bytes);
  g->step[IMG_STEP_N_SELECT] = s->live;
  for (uint32_t r = 0; r < s->live; r++) {
    g->x_row[r] = s->rowsel ? (7 * r + 3) % g->x_rows : r;
    g->step[img_step_select(MAX_ROW) + r * IMG_SELECT_WORDS + IMG_SELECT_ROW] = g->x_row[r];
  }
}

static void gemv_deinit(struct gemv *g) {
  for (int i = 0; i < MAX_PART && g->s->n_out[i]; i++) {
    oracle_weight_deinit(&g->w[i]);
    free(g->bias[i]), free(g->y[i]);
  }
  free(g->x), free(g->norm), free(g->step);
}

/* Runs the kernel over the first n_row rows, n_live of them live. */
static void gemv_run(struct gemv *g, struct kernel_case *c, uint32_t n_row, uint32_t n_live, bool instrumented) {
  const struct shape *s = g->s;
  kernel_case_init(c, KERNEL_GEMV_DOT);
  SET_PARAMS(c, {"FMT", s->format[0]}, {"FMT_2", s->n_out[1] ? s->format[1] : s->format[0]},
             {"FMT_3", s->n_out[2] ? s->format[2] : s->format[0]}, {"N_IN", s->n_in}, {"N_OUT", s->n_out[0]},
             {"N_OUT_2", s->n_out[1]}, {"N_OUT_3", s->n_out[2]}, {"N_ROW", n_row}, {"MAX_ROW", MAX_ROW},
             {"X_STRIDE", s->n_in}, {"X_ROWS", s->rowsel ? g->x_rows : 0}, {"NORM", s->norm}, {"BIAS", s->bias},
             {"RESIDUAL", s->residual}, {"SCALE", s->scale != 0 ? s->scale : 1}, {"ROWSEL", s->rowsel});
  for (int i = 0; i < MAX_PART && s->n_out[i]; i++) {
    kernel_case_bind(c, weight_names[i], g->w[i].plane, g->w[i].bytes);
    if (s->bias >> i & 1) kernel_case_bind(c, bias_names[i], g->bias[i], 0);
    kernel_case_bind(c, y_names[i], s->residual ? g->y[i] : NULL, 0);
  }
  kernel_case_bind(c, "x", g->x, 0);
  if (s->norm) kernel_case_bind(c, "norm", g->norm, 0);
  g->step[s->rowsel ? IMG_STEP_N_SELECT : IMG_STEP_N_ROW] = n_live;
  kernel_case_bind(c, "step", g->step, g->step_bytes);
  run(c, instrumented);
}

static void gemv_reference(const struct gemv *g, int part, double *want) {
  const struct shape *s = g->s;
  double *v = checked_malloc(s->n_in * sizeof *v);
  for (uint32_t r = 0; r < s->live; r++) {
    norm_reference(g->x + g->x_row[r] * s->n_in, s->norm ? g->norm : NULL, s->n_in, v);
    for (uint32_t o = 0; o < s->n_out[part]; o++)
      want[r * s->n_out[part] + o] = (oracle_dot(&g->w[part], 0, o, v) + (s->bias >> part & 1 ? g->bias[part][o] : 0)) *
                                         (s->scale != 0 ? s->scale : 1) +
                                     (s->residual ? g->y[part][r * s->n_out[part] + o] : 0);
  }
  free(v);
}

static void run_shape(struct oracle_rng *rng, const struct shape *s, bool instrumented) {
  struct gemv g;
  struct kernel_case c;
  gemv_init(&g, rng, s);
  gemv_run(&g, &c, s->n_row, s->live, instrumented);
  for (int i = 0; i < MAX_PART && s->n_out[i]; i++) {
    size_t n = (size_t)s->live * s->n_out[i];
    double *want = checked_malloc(n * sizeof *want), *wrong = checked_malloc(n * sizeof *wrong);
    gemv_reference(&g, i, want);
    for (uint32_t k = 0; k < s->n_in; k += s->n_in / 8) g.x[g.x_row[s->live - 1] * s->n_in + k] += 0.25f;
    gemv_reference(&g, i, wrong);
    for (uint32_t k = 0; k < s->n_in; k += s->n_in / 8) g.x[g.x_row[s->live - 1] * s->n_in + k] -= 0.25f;
    char what[128];
    snprintf(what, sizeof what, "gemv_dot matrix %d, format %u, %u x %u, rows %u of %u", i, s->format[i], s->n_out[i],
             s->n_in, s->live, s->n_row);
    const float *got = kernel_case_data(&c, y_names[i]);
    oracle_check(what, got, want, wrong, n);
    for (size_t k = n; k < (size_t)s->n_row * s->n_out[i]; k++) { /* rows that are not live stay as they were */
      float was;
      memcpy(&was, &(uint32_t){VKH_POISON}, 4);
      assert_memory_equal(&got[k], s->residual ? &g.y[i][k] : &was, 4);
    }
    free(want), free(wrong);
  }
  kernel_case_deinit(&c);
  gemv_deinit(&g);
}

static void test_gemv_formats(void **state) {
  (void)state;
  struct oracle_rng rng = {1};
  for (size_t f = 0; f < oracle_n_format; f++) {
    uint32_t format = oracle_formats[f];
    if (!shadergen_has_dot(format)) continue;
    run_shape(&rng, &(struct shape){oracle_odd_length(format), {33}, {format}, 1, 1, .norm = true}, true);
  }
}

static void test_gemv_shapes(void **state) {
  (void)state;
  static const struct shape shapes[] = {
      {256, {2}, {12}, 1, 1, .bias = 0},
      {1792, {31}, {14}, 1, 1, .norm = true, .residual = true, .bias = 1},
      {256, {32}, {12}, 8, 8, .norm = true},
      {768, {65}, {14}, 4, 3, .bias = 1},
      {512, {64}, {12}, 8, 5, .norm = true, .rowsel = true},
      {2912, {7}, {2}, 2, 2, .norm = true},
      {256, {33}, {8}, 1, 1, .norm = true, .residual = true, .bias = 1, .scale = 0.22},
      {512, {65}, {39}, 3, 2, .rowsel = true, .bias = 1, .scale = 1.0 / 6},
      /* Longer than what is staged at once. */
      {9 * 1024, {5}, {12}, 1, 1, .norm = true},
      {2 * 1024, {9}, {14}, 8, 6, .norm = true, .residual = true},
      /* Several matrices: formats alike, one other, all different. */
      {512, {130, 33, 17}, {12, 12, 12}, 1, 1, .norm = true},
      {512, {65, 33, 34}, {12, 12, 14}, 2, 1, .norm = true, .bias = 7},
      {256, {7, 66, 35}, {14, 12, 14}, 5, 5, .bias = 2},
      {256, {40, 7, 3}, {12, 14, 8}, 1, 1, .norm = true},
      {256, {19, 45}, {13, 16}, 4, 4, .norm = true},
      {256, {19, 45, 2}, {16, 13, 13}, 1, 1, .bias = 0},
  };
  struct oracle_rng rng = {2};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) run_shape(&rng, &shapes[i], true);
}

/* No live row, and rows of x that a stale record names far outside: nothing is written, nothing read outside. */
static void test_gemv_empty(void **state) {
  (void)state;
  struct oracle_rng rng = {3};
  for (int rowsel = 0; rowsel < 2; rowsel++) {
    const struct shape s = {256, {16}, {12}, 2, 2, .norm = true, .rowsel = rowsel};
    struct gemv g;
    struct kernel_case c;
    gemv_init(&g, &rng, &s);
    g.step[img_step_select(MAX_ROW) + IMG_SELECT_ROW] = UINT32_MAX;
    gemv_run(&g, &c, 2, 0, true);
    const uint32_t *y = kernel_case_data(&c, "y");
    for (int i = 0; i < 32; i++) assert_int_equal(y[i], VKH_POISON);
    kernel_case_deinit(&c);
    gemv_deinit(&g);
  }
}

/* A row's bits are the same whether it is alone or among eight. */
static void test_gemv_rows_alone(void **state) {
  (void)state;
  static const struct shape shapes[] = {{512, {37, 11}, {12, 14}, 8, 8, .norm = true, .bias = 3},
                                        {2 * 1024, {13}, {14}, 8, 8, .norm = true, .residual = true}};
  struct oracle_rng rng = {4};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const struct shape *s = &shapes[i];
    struct gemv g;
    gemv_init(&g, &rng, s);
    float *alone[MAX_PART] = {NULL};
    static const uint32_t rows[] = {1, 2, 3, 5, 8};
    for (size_t at = 0, last = 0; at < sizeof rows / sizeof *rows; last = rows[at++]) {
      uint32_t n = rows[at];
      struct kernel_case c;
      gemv_run(&g, &c, n, n, false);
      for (int k = 0; k < MAX_PART && s->n_out[k]; k++) {
        const float *y = kernel_case_data(&c, y_names[k]);
        if (!alone[k]) alone[k] = checked_malloc(8 * s->n_out[k] * sizeof(float));
        if (memcmp(y, alone[k], last * s->n_out[k] * sizeof(float)))
          fail_msg("matrix %d: rows differ between %zu and %u", k, last, n);
        memcpy(alone[k], y, n * s->n_out[k] * sizeof(float));
      }
      kernel_case_deinit(&c);
    }
    for (int k = 0; k < MAX_PART; k++) free(alone[k]);
    gemv_deinit(&g);
  }
}

/* An extent that is too small is noticed. */
static void test_instrument_notices(void **state) {
  (void)state;
  struct oracle_rng rng = {5};
  const struct shape s = {256, {16, 16}, {12, 14}, 1, 1, .norm = true};
  struct gemv g;
  struct kernel_case c;
  gemv_init(&g, &rng, &s);
  gemv_run(&g, &c, 1, 1, false);
  assert_int_equal(kernel_case_violations(&c, "x", 1024), 0);
  assert_true(kernel_case_violations(&c, "x", 1020) > 0);
  assert_true(kernel_case_violations(&c, "norm", 1020) > 0);
  assert_true(kernel_case_violations(&c, "y_2", 60) > 0);
  assert_true(kernel_case_violations(&c, "weight", 128) > 0);
  assert_true(kernel_case_violations(&c, "weight_2", 128) > 0);
  kernel_case_deinit(&c);
  gemv_deinit(&g);
}

/* ---- experts ---- */

struct moe_shape {
  uint32_t format, n_in, n_out, n_expert, n_used, n_row, live;
  bool dense, norm, bias;
  uint32_t shared; /* of down */
  double scale;    /* of down; 0: 1 */
  bool residual;   /* of down */
};

static double silu(double x) {
  return x / (1 + exp(-x));
}

static uint32_t *random_ids(struct oracle_rng *rng, const struct moe_shape *s) {
  uint32_t *ids = checked_malloc(s->n_row * s->n_used * 4);
  for (uint32_t r = 0; r < s->n_row; r++)
    for (uint32_t j = 0; j < s->n_used;) {
      uint32_t e = oracle_u32(rng) % s->n_expert, again = 0;
      for (uint32_t i = 0; i < j; i++) again |= ids[r * s->n_used + i] == e;
      if (!again) ids[r * s->n_used + j++] = e;
    }
  return ids;
}

/* Bytes from expert to expert of a bias plane. */
static uint32_t bias_row(const struct moe_shape *s) {
  return (4 * s->n_out + 15) / 16 * 4;
}

struct gate_up {
  struct oracle_weight gate, up;
  float *x, *norm, *gate_bias, *up_bias;
  uint32_t *ids;
};

static void gate_up_reference(const struct moe_shape *s, const struct gate_up *g, double *h) {
  double *v = checked_malloc(s->n_in * sizeof *v);
  for (uint32_t p = 0; p < s->live * s->n_used; p++) {
    uint32_t e = s->dense ? 0 : g->ids[p];
    norm_reference(g->x + p / s->n_used * s->n_in, s->norm ? g->norm : NULL, s->n_in, v);
    for (uint32_t o = 0; o < s->n_out; o++) {
      size_t b = e * bias_row(s) + o;
      h[p * s->n_out + o] = silu(oracle_dot(&g->gate, e, o, v) + (s->bias ? g->gate_bias[b] : 0)) *
                            (oracle_dot(&g->up, e, o, v) + (s->bias ? g->up_bias[b] : 0));
    }
  }
  free(v);
}

static void run_gate_up(struct oracle_rng *rng, const struct moe_shape *s, bool instrumented) {
  struct gate_up g;
  uint64_t step_bytes;
  size_t n_bias = s->n_expert * bias_row(s), n = (size_t)s->live * s->n_used * s->n_out;
  oracle_weight_init(&g.gate, rng, s->format, s->n_in, s->n_out, s->n_expert);
  oracle_weight_init(&g.up, rng, s->format, s->n_in, s->n_out, s->n_expert);
  g.x = oracle_floats(rng, s->n_row * s->n_in), g.norm = oracle_floats(rng, s->n_in);
  g.gate_bias = oracle_floats(rng, n_bias), g.up_bias = oracle_floats(rng, n_bias);
  g.ids = random_ids(rng, s);
  uint32_t *step = oracle_step(rng, MAX_ROW, s->live, 1, 1, NULL, NULL, &step_bytes);
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_EXPERT_GATE_UP_DOT);
  SET_PARAMS(&c, {"FMT", s->format}, {"D_MODEL", s->n_in}, {"D_FF", s->n_out}, {"N_EXPERT", s->n_expert},
             {"N_EXPERT_USED", s->n_used}, {"N_ROW", s->n_row}, {"MAX_ROW", MAX_ROW}, {"ROUTED", !s->dense},
             {"BIAS", s->bias}, {"NORM", s->norm});
  kernel_case_bind(&c, "xn", g.x, 0);
  if (s->norm) kernel_case_bind(&c, "norm", g.norm, 0);
  kernel_case_bind(&c, "gate", g.gate.plane, g.gate.bytes);
  kernel_case_bind(&c, "up", g.up.plane, g.up.bytes);
  if (!s->dense) kernel_case_bind(&c, "ids", g.ids, 0);
  if (s->bias) kernel_case_bind(&c, "gate_bias", g.gate_bias, 4 * n_bias);
  if (s->bias) kernel_case_bind(&c, "up_bias", g.up_bias, 4 * n_bias);
  kernel_case_bind(&c, "step", step, step_bytes);
  float *h = kernel_case_bind(&c, "h", NULL, 0);
  run(&c, instrumented);
  double *want = checked_malloc(n * sizeof *want), *wrong = checked_malloc(n * sizeof *wrong);
  gate_up_reference(s, &g, want);
  for (uint32_t r = 0; r < s->live; r++)
    for (uint32_t k = 0; k < s->n_in; k += s->n_in / 8) g.x[r * s->n_in + k] += 0.25f;
  gate_up_reference(s, &g, wrong);
  char what[96];
  snprintf(what, sizeof what, "expert_gate_up_dot format %u, %u x %u", s->format, s->n_out, s->n_in);
  oracle_check(what, h, want, wrong, n);
  if (s->live < s->n_row) assert_true(isnan(h[n]));
  kernel_case_deinit(&c);
  oracle_weight_deinit(&g.gate), oracle_weight_deinit(&g.up);
  free(want), free(wrong), free(g.x), free(g.norm), free(g.gate_bias), free(g.up_bias), free(g.ids), free(step);
}

struct down {
  struct oracle_weight down;
  float *h, *weights, *x, *bias, *shared_row, *shared_gate;
  uint32_t *ids;
};

static void down_reference(const struct moe_shape *s, const struct down *g, double *want) {
  double *v = checked_malloc(s->n_in * sizeof *v);
  for (uint32_t i = 0; i < s->live * s->n_out; i++) {
    double gate = s->shared == 2 ? 1 / (1 + exp(-(double)g->shared_gate[i / s->n_out])) : 1;
    want[i] = s->shared ? gate * g->shared_row[i] : 0;
  }
  for (uint32_t p = 0; p < s->live * s->n_used; p++) {
    uint32_t e = s->dense ? 0 : g->ids[p];
    for (uint32_t k = 0; k < s->n_in; k++) v[k] = g->h[p * s->n_in + k];
    for (uint32_t o = 0; o < s->n_out; o++)
      want[p / s->n_used * s->n_out + o] +=
          (s->dense ? 1 : g->weights[p]) *
          (oracle_dot(&g->down, e, o, v) + (s->bias ? g->bias[e * bias_row(s) + o] : 0));
  }
  for (uint32_t i = 0; i < s->live * s->n_out; i++)
    want[i] = (s->scale != 0 ? s->scale : 1) * want[i] + (s->residual ? g->x[i] : 0);
  free(v);
}

static void run_down(struct oracle_rng *rng, const struct moe_shape *s, bool instrumented) {
  struct down g;
  uint64_t step_bytes;
  size_t n_bias = s->n_expert * bias_row(s), n = (size_t)s->live * s->n_out;
  oracle_weight_init(&g.down, rng, s->format, s->n_in, s->n_out, s->n_expert);
  g.h = oracle_floats(rng, s->n_row * s->n_used * s->n_in), g.weights = oracle_floats(rng, s->n_row * s->n_used);
  g.x = oracle_floats(rng, s->n_row * s->n_out), g.bias = oracle_floats(rng, n_bias);
  g.shared_row = oracle_floats(rng, s->n_row * s->n_out), g.shared_gate = oracle_floats(rng, s->n_row);
  g.ids = random_ids(rng, s);
  uint32_t *step = oracle_step(rng, MAX_ROW, s->live, 1, 1, NULL, NULL, &step_bytes);
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_EXPERT_DOWN_DOT);
  SET_PARAMS(&c, {"FMT", s->format}, {"D_FF", s->n_in}, {"D_MODEL", s->n_out}, {"N_EXPERT", s->n_expert},
             {"N_EXPERT_USED", s->n_used}, {"N_ROW", s->n_row}, {"MAX_ROW", MAX_ROW}, {"ROUTED", !s->dense},
             {"BIAS", s->bias}, {"SHARED", s->shared}, {"RESIDUAL", s->residual},
             {"SCALE", s->scale != 0 ? s->scale : 1});
  kernel_case_bind(&c, "h", g.h, 0);
  kernel_case_bind(&c, "down", g.down.plane, g.down.bytes);
  if (!s->dense) kernel_case_bind(&c, "ids", g.ids, 0);
  if (!s->dense) kernel_case_bind(&c, "weights", g.weights, 0);
  if (s->bias) kernel_case_bind(&c, "bias", g.bias, 4 * n_bias);
  if (s->shared) kernel_case_bind(&c, "shared_row", g.shared_row, 0);
  if (s->shared == 2) kernel_case_bind(&c, "shared_gate", g.shared_gate, 0);
  kernel_case_bind(&c, "step", step, step_bytes);
  float *y = kernel_case_bind(&c, "x", s->residual ? g.x : NULL, 0);
  run(&c, instrumented);
  double *want = checked_malloc(n * sizeof *want), *wrong = checked_malloc(n * sizeof *wrong);
  down_reference(s, &g, want);
  for (uint32_t k = 0; k < s->n_in; k += s->n_in / 8) g.h[(s->live * s->n_used - 1) * s->n_in + k] += 0.25f;
  down_reference(s, &g, wrong);
  char what[96];
  snprintf(what, sizeof what, "expert_down_dot format %u, %u x %u", s->format, s->n_out, s->n_in);
  oracle_check(what, y, want, wrong, n);
  for (size_t i = n; i < (size_t)s->n_row * s->n_out; i++) {
    if (s->residual) assert_memory_equal(y + i, g.x + i, 4);
    if (!s->residual) assert_true(isnan(y[i]));
  }
  kernel_case_deinit(&c);
  oracle_weight_deinit(&g.down);
  free(want), free(wrong), free(g.h), free(g.weights), free(g.x), free(g.bias), free(g.shared_row), free(g.shared_gate),
      free(g.ids), free(step);
}

/* What differs by format is in glsl/fmt_*.glsl, and test_gemv_formats has them all. */
static void test_experts_formats(void **state) {
  (void)state;
  struct oracle_rng rng = {6};
  static const uint32_t formats[] = {2, 8, 13, 14, 18, 39};
  for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
    uint32_t format = formats[f];
    run_gate_up(&rng, &(struct moe_shape){format, oracle_odd_length(format), 33, 5, 2, 2, 2, .bias = false}, false);
    run_down(&rng, &(struct moe_shape){format, oracle_odd_length(format), 33, 5, 2, 2, 2, .bias = false}, false);
  }
}

static void test_gate_up_shapes(void **state) {
  (void)state;
  static const struct moe_shape shapes[] = {
      {12, 512, 31, 7, 4, 1, 1, .bias = false},
      {14, 768, 33, 3, 3, 3, 2, .bias = true},
      {8, 96, 65, 1, 1, 5, 4, .dense = true, .norm = true},
      {39, 2880, 5, 4, 2, 1, 1, .bias = true},
      {12, 9 * 1024, 6, 1, 1, 1, 1, .dense = true, .norm = true},
      {12, 1024, 40, 1, 1, 8, 7, .dense = true, .norm = true, .bias = true},
  };
  struct oracle_rng rng = {7};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) run_gate_up(&rng, &shapes[i], true);
}

static void test_down_shapes(void **state) {
  (void)state;
  static const struct moe_shape shapes[] = {
      {39, 2880, 5, 3, 2, 1, 1, .residual = true, .bias = true},
      {14, 768, 32, 6, 4, 2, 2, .residual = true, .scale = 0.22},
      {13, 512, 63, 1, 1, 4, 3, .dense = true, .scale = 1.5},
      {12, 768, 17, 20, 8, 8, 7, .residual = true, .shared = 1},
      {2, 96, 33, 4, 3, 2, 1, .shared = 2, .bias = true, .scale = 2},
      {12, 2560, 9, 12, 10, 1, 1, .residual = true}, /* longer than what is staged at once */
  };
  struct oracle_rng rng = {8};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) run_down(&rng, &shapes[i], true);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gemv_formats),       cmocka_unit_test(test_gemv_shapes),
      cmocka_unit_test(test_gemv_empty),         cmocka_unit_test(test_gemv_rows_alone),
      cmocka_unit_test(test_instrument_notices), cmocka_unit_test(test_experts_formats),
      cmocka_unit_test(test_gate_up_shapes),     cmocka_unit_test(test_down_shapes),
  };
  oracle_bar = ORACLE_BAR_DOT;
  struct vkh_device device;
  struct moe_error err = {0};
  bool opened = !vkh_open(&device, &err), skip = opened && !device.dot_product;
  if (opened) vkh_close(&device);
  if (!skip) return cmocka_run_group_tests(tests, NULL, NULL);
  fprintf(stderr, "skipped: the device lacks shaderIntegerDotProduct\n");
  return 77;
}
