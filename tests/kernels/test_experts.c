/* test_experts.c: router, topk, the experts' kernels for few and for many rows, the schedule, combine, and gemm. */
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

/* test_khr.c runs the kernels for many rows of its tier by these tests. */
#ifndef MANY_ROWS
#define MANY_ROWS(NAME) KERNEL_##NAME
enum { TILE_MULTIPLE = 8 };
static void set_bar(uint32_t format, int factors) {
  (void)format, (void)factors;
}
#endif
static uint32_t tile_rows(uint32_t tm) {
  return (tm + TILE_MULTIPLE - 1) / TILE_MULTIPLE * TILE_MULTIPLE;
}

static void set_params(struct kernel_case *c, const struct shadergen_param *params, size_t n) {
  for (size_t i = 0; i < n; i++) kernel_case_param(c, params[i].name, params[i].value);
}
#define SET_PARAMS(C, ...)                                                                                             \
  do {                                                                                                                 \
    const struct shadergen_param params_[] = {__VA_ARGS__};                                                            \
    set_params(C, params_, sizeof params_ / sizeof *params_);                                                          \
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
static double silu(double x) {
  return x / (1 + exp(-x));
}

/* ---- router and topk ---- */

/* The n_used best of logits, most likely first, ties by lower id, and their weights. */
static void choose(const double *logit, uint32_t n_expert, uint32_t n_used, bool norm, double scale, uint32_t *ids,
                   double *weights) {
  bool *taken = calloc(n_expert, sizeof *taken);
  double top = -1e300, total = 0, chosen = 0;
  assert_non_null(taken);
  for (uint32_t e = 0; e < n_expert; e++) top = fmax(top, logit[e]);
  for (uint32_t e = 0; e < n_expert; e++) total += exp(logit[e] - top);
  for (uint32_t j = 0; j < n_used; j++) {
    uint32_t best = UINT32_MAX;
    for (uint32_t e = 0; e < n_expert; e++)
      if (!taken[e] && (best == UINT32_MAX || logit[e] > logit[best])) best = e;
    taken[best] = true;
    ids[j] = best;
    chosen += weights[j] = exp(logit[best] - top) / total;
  }
  for (uint32_t j = 0; j < n_used; j++) weights[j] *= norm ? scale / chosen : scale;
  free(taken);
}

static void run_router(struct oracle_rng *rng, uint32_t format, uint32_t d, uint32_t n_expert, uint32_t n_used,
                       uint32_t live, bool norm_w) {
  uint32_t rows = live + 1;
  uint64_t step_bytes;
  struct oracle_weight w;
  oracle_weight_init(&w, rng, format, d, n_expert, 1);
  float *x = oracle_floats(rng, rows * d), *norm = oracle_floats(rng, d);
  /* Smaller logits for many choices: else one weight dwarfs the others, and the bar is of their root mean square. */
  for (uint32_t k = 0; n_used > 16 && k < d; k++) norm[k] *= 0.1f;
  uint32_t *step = oracle_step(rng, MAX_ROW, live, 1, 1, NULL, NULL, &step_bytes);
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_ROUTER);
  SET_PARAMS(&c, {"FMT", format}, {"D_MODEL", d}, {"N_EXPERT", n_expert}, {"N_EXPERT_USED", n_used}, {"N_ROW", rows},
             {"MAX_ROW", MAX_ROW}, {"NORM_W", norm_w}, {"W_SCALE", 2.5});
  kernel_case_bind(&c, "x", x, 0);
  kernel_case_bind(&c, "norm", norm, 0);
  kernel_case_bind(&c, "weight", w.plane, w.bytes);
  kernel_case_bind(&c, "step", step, step_bytes);
  float *xn = kernel_case_bind(&c, "xn", NULL, 0), *weights = kernel_case_bind(&c, "weights", NULL, 0);
  uint32_t *ids = kernel_case_bind(&c, "ids", NULL, 0), *counter = kernel_case_bind(&c, "counter", NULL, 0);
  memset(counter, 0, rows * 4);
  kernel_case_run(&c);

  double *want = checked_malloc(live * d * sizeof *want), *logit = checked_malloc(n_expert * sizeof *logit);
  double *want_w = checked_malloc(live * n_used * sizeof *want_w);
  uint32_t *want_ids = checked_malloc(n_used * 4);
  for (uint32_t r = 0; r < live; r++) {
    double squares = 0;
    for (uint32_t k = 0; k < d; k++) squares += (double)x[r * d + k] * x[r * d + k];
    for (uint32_t k = 0; k < d; k++) want[r * d + k] = x[r * d + k] / sqrt(squares / d + (double)1e-6f) * norm[k];
    for (uint32_t e = 0; e < n_expert; e++) logit[e] = oracle_dot(&w, 0, e, want + r * d);
    choose(logit, n_expert, n_used, norm_w, 2.5, want_ids, want_w + r * n_used);
    assert_memory_equal(ids + r * n_used, want_ids, n_used * 4);
  }
  oracle_check("router xn", xn, want, NULL, live * d);
  oracle_check("router weights", weights, want_w, NULL, live * n_used);
  for (uint32_t i = 0; i < rows; i++) assert_int_equal(counter[i], 0);
  assert_int_equal(ids[live * n_used], VKH_POISON);
  kernel_case_deinit(&c);
  oracle_weight_deinit(&w);
  free(want), free(logit), free(want_w), free(want_ids), free(x), free(norm), free(step);
}

static void test_router(void **state) {
  (void)state;
  struct oracle_rng rng = {1};
  run_router(&rng, 0, 256, 16, 4, 1, true);
  run_router(&rng, 0, 2048, 128, 8, 3, true);
  run_router(&rng, 1, 256, 33, 10, 2, false);
  run_router(&rng, 30, 512, 7, 1, 1, false);
  run_router(&rng, 8, 256, 5, 5, 1, true);
  run_router(&rng, 0, 256, 512, 64, 2, true); /* as many as there may be */
}

static void run_topk(struct oracle_rng *rng, uint32_t n_expert, uint32_t n_used) {
  enum { ROWS = 17 };
  uint64_t step_bytes;
  float *logits = oracle_floats(rng, ROWS * n_expert), *factor = oracle_floats(rng, n_expert);
  for (uint32_t e = 0; e < n_expert; e++) {
    logits[e] = 0.25f;                              /* all equal */
    logits[n_expert + e] = (float)(e % 3) * 4 - 60; /* ties, and large logits below zero */
    logits[2 * n_expert + e] *= 40;
  }
  uint32_t *step = oracle_step(rng, MAX_ROW, ROWS, 1, 1, NULL, NULL, &step_bytes);
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_TOPK);
  SET_PARAMS(&c, {"N_EXPERT", n_expert}, {"N_EXPERT_USED", n_used}, {"N_ROW", ROWS + 2}, {"MAX_ROW", MAX_ROW},
             {"EXPERT_SCALE", 1});
  kernel_case_bind(&c, "expert_scale", factor, 0);
  memcpy(kernel_case_bind(&c, "logits", NULL, 0), logits, ROWS * n_expert * 4);
  kernel_case_bind(&c, "step", step, step_bytes);
  float *weights = kernel_case_bind(&c, "weights", NULL, 0);
  uint32_t *ids = kernel_case_bind(&c, "ids", NULL, 0);
  kernel_case_run(&c);
  uint32_t *want_ids = checked_malloc(n_used * 4);
  double *logit = checked_malloc(n_expert * sizeof *logit), *want = checked_malloc(n_used * sizeof *want);
  for (uint32_t r = 0; r < ROWS; r++) {
    for (uint32_t e = 0; e < n_expert; e++) logit[e] = logits[r * n_expert + e];
    choose(logit, n_expert, n_used, true, 1, want_ids, want);
    assert_memory_equal(ids + r * n_used, want_ids, n_used * 4);
    for (uint32_t j = 0; j < n_used; j++)
      if (!(fabs(weights[r * n_used + j] - want[j] * factor[want_ids[j]]) < 2e-6))
        fail_msg("topk row %u weight %u: %g", r, j, weights[r * n_used + j]);
  }
  kernel_case_deinit(&c);
  free(logits), free(factor), free(step), free(want_ids), free(logit), free(want);
}

static void test_topk(void **state) {
  (void)state;
  struct oracle_rng rng = {2};
  run_topk(&rng, 60, 9);
  run_topk(&rng, 512, 64); /* as many as there may be */
  run_topk(&rng, 64, 64);
}

/* ---- experts, few rows ---- */

struct moe_shape {
  uint32_t format, format_up, n_in, n_out, n_expert, n_used, live;
};

/* Rows' experts: n_used different ones a row; skewed: low ids mostly. */
static uint32_t *random_ids(struct oracle_rng *rng, uint32_t n_row, uint32_t n_used, uint32_t n_expert, bool skewed) {
  uint32_t *ids = checked_malloc(n_row * n_used * 4);
  for (uint32_t r = 0; r < n_row; r++)
    for (uint32_t j = 0; j < n_used;) {
      uint32_t e = oracle_u32(rng) % n_expert, again = 0;
      if (skewed && oracle_u32(rng) % 4) e = e % (n_used + 1);
      for (uint32_t i = 0; i < j; i++) again |= ids[r * n_used + i] == e;
      if (!again) ids[r * n_used + j++] = e;
    }
  return ids;
}

/* h of the pair (row x, expert e). */
static void gate_up_reference(const struct oracle_weight *gate, const struct oracle_weight *up, uint32_t e,
                              const float *x, double *h) {
  double *v = checked_malloc(gate->n_in * sizeof *v);
  for (uint32_t k = 0; k < gate->n_in; k++) v[k] = x[k];
  for (uint32_t o = 0; o < gate->n_out; o++) h[o] = silu(oracle_dot(gate, e, o, v)) * oracle_dot(up, e, o, v);
  free(v);
}

static void run_gate_up(struct oracle_rng *rng, const struct moe_shape *s, bool routed, bool instrumented) {
  uint32_t rows = s->live + 1, n_pair = s->live * s->n_used;
  uint64_t step_bytes;
  struct oracle_weight gate, up;
  oracle_weight_init(&gate, rng, s->format, s->n_in, s->n_out, s->n_expert);
  oracle_weight_init(&up, rng, s->format_up, s->n_in, s->n_out, s->n_expert);
  float *x = oracle_floats(rng, rows * s->n_in);
  uint32_t *ids = random_ids(rng, rows, s->n_used, s->n_expert, false);
  uint32_t *step = oracle_step(rng, MAX_ROW, s->live, 1, 1, NULL, NULL, &step_bytes);
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_EXPERT_GATE_UP);
  SET_PARAMS(&c, {"FMT_GATE", s->format}, {"FMT_UP", s->format_up}, {"D_MODEL", s->n_in}, {"D_FF", s->n_out},
             {"N_EXPERT", s->n_expert}, {"N_EXPERT_USED", s->n_used}, {"N_ROW", rows}, {"MAX_ROW", MAX_ROW},
             {"ROUTED", routed});
  kernel_case_bind(&c, "xn", x, 0);
  kernel_case_bind(&c, "gate", gate.plane, gate.bytes);
  kernel_case_bind(&c, "up", up.plane, up.bytes);
  if (routed) kernel_case_bind(&c, "ids", ids, 0);
  kernel_case_bind(&c, "step", step, step_bytes);
  float *h = kernel_case_bind(&c, "h", NULL, 0);
  run(&c, instrumented);
  double *want = checked_malloc(n_pair * s->n_out * sizeof *want),
         *wrong = checked_malloc(n_pair * s->n_out * sizeof *wrong);
  for (uint32_t p = 0; p < n_pair; p++)
    gate_up_reference(&gate, &up, routed ? ids[p] : 0, x + p / s->n_used * s->n_in, want + p * s->n_out);
  for (uint32_t r = 0; r < s->live; r++)
    for (uint32_t k = 0; k < 8; k++) x[r * s->n_in + k] += 0.25f;
  for (uint32_t p = 0; p < n_pair; p++)
    gate_up_reference(&gate, &up, routed ? ids[p] : 0, x + p / s->n_used * s->n_in, wrong + p * s->n_out);
  char what[96];
  snprintf(what, sizeof what, "expert_gate_up formats %u %u, %u x %u", s->format, s->format_up, s->n_out, s->n_in);
  oracle_check(what, h, want, wrong, n_pair * s->n_out);
  assert_true(isnan(h[n_pair * s->n_out]));
  kernel_case_deinit(&c);
  oracle_weight_deinit(&gate), oracle_weight_deinit(&up);
  free(want), free(wrong), free(x), free(ids), free(step);
}

static void run_down(struct oracle_rng *rng, const struct moe_shape *s, bool routed, double scale, bool instrumented) {
  uint32_t rows = s->live + 1;
  uint64_t step_bytes;
  struct oracle_weight down;
  oracle_weight_init(&down, rng, s->format, s->n_in, s->n_out, s->n_expert);
  float *h = oracle_floats(rng, rows * s->n_used * s->n_in), *weights = oracle_floats(rng, rows * s->n_used),
        *x = oracle_floats(rng, rows * s->n_out);
  uint32_t *ids = random_ids(rng, rows, s->n_used, s->n_expert, false);
  uint32_t *step = oracle_step(rng, MAX_ROW, s->live, 1, 1, NULL, NULL, &step_bytes);
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_EXPERT_DOWN);
  SET_PARAMS(&c, {"FMT", s->format}, {"D_FF", s->n_in}, {"D_MODEL", s->n_out}, {"N_EXPERT", s->n_expert},
             {"N_EXPERT_USED", s->n_used}, {"N_ROW", rows}, {"MAX_ROW", MAX_ROW}, {"ROUTED", routed}, {"SCALE", scale});
  kernel_case_bind(&c, "h", h, 0);
  kernel_case_bind(&c, "down", down.plane, down.bytes);
  if (routed) kernel_case_bind(&c, "ids", ids, 0);
  if (routed) kernel_case_bind(&c, "weights", weights, 0);
  kernel_case_bind(&c, "step", step, step_bytes);
  float *y = kernel_case_bind(&c, "x", x, 0);
  run(&c, instrumented);
  size_t n = (size_t)s->live * s->n_out;
  double *want = checked_malloc(n * sizeof *want), *wrong = checked_malloc(n * sizeof *wrong);
  double *v = checked_malloc(s->n_in * sizeof *v);
  for (uint32_t i = 0; i < n; i++) want[i] = x[i];
  for (uint32_t p = 0; p < s->live * s->n_used; p++) {
    for (uint32_t k = 0; k < s->n_in; k++) v[k] = h[p * s->n_in + k];
    for (uint32_t o = 0; o < s->n_out; o++)
      want[p / s->n_used * s->n_out + o] +=
          scale * (routed ? weights[p] : 1) * oracle_dot(&down, routed ? ids[p] : 0, o, v);
  }
  for (uint32_t i = 0; i < n; i++) wrong[i] = want[i] - x[i];
  char what[96];
  snprintf(what, sizeof what, "expert_down format %u, %u x %u", s->format, s->n_out, s->n_in);
  oracle_check(what, y, want, wrong, n);
  assert_memory_equal(y + n, x + n, s->n_out * 4);
  kernel_case_deinit(&c);
  oracle_weight_deinit(&down);
  free(want), free(wrong), free(v), free(h), free(weights), free(x), free(ids), free(step);
}

static void test_few_rows(void **state) {
  (void)state;
  struct oracle_rng rng = {3};
  for (size_t f = 0; f < oracle_n_format; f++) {
    struct moe_shape s = {oracle_formats[f], oracle_formats[f], oracle_odd_length(oracle_formats[f]), 33, 5, 2, 2};
    run_gate_up(&rng, &s, true, false);
    run_down(&rng, &s, true, 1, false);
  }
  run_gate_up(&rng, &(struct moe_shape){12, 12, 512, 31, 7, 4, 1}, true, true);
  run_gate_up(&rng, &(struct moe_shape){12, 14, 256, 33, 3, 1, 1}, true, true);
  run_gate_up(&rng, &(struct moe_shape){39, 12, 256, 33, 3, 2, 1}, true, true);
  run_gate_up(&rng, &(struct moe_shape){8, 8, 768, 65, 1, 1, 1}, false, true);
  run_gate_up(&rng, &(struct moe_shape){6, 39, 1408, 5, 4, 2, 1}, true, false);
  run_down(&rng, &(struct moe_shape){39, 0, 2880, 5, 3, 2, 1}, true, 1, false);
  run_down(&rng, &(struct moe_shape){14, 0, 768, 32, 6, 4, 1}, true, 0.22, true);
  run_down(&rng, &(struct moe_shape){13, 0, 512, 63, 1, 1, 3}, false, 1.5, true);
}

/* ---- experts, many rows ---- */

/* The schedule's reference; returns the number of tiles. */
static uint32_t schedule_reference(const uint32_t *ids, uint32_t n_pair, uint32_t n_expert, uint32_t tm,
                                   uint32_t *tiles, uint32_t *pairs) {
  uint32_t n_tile = 0, at = 0;
  for (uint32_t e = 0; e < n_expert; e++) {
    uint32_t first = at;
    for (uint32_t p = 0; p < n_pair; p++)
      if (ids[p] == e) pairs[at++] = p;
    for (uint32_t i = first; i < at; i += tm, n_tile++) {
      tiles[4 * n_tile] = e;
      tiles[4 * n_tile + 1] = i;
      tiles[4 * n_tile + 2] = at - i < tm ? at - i : tm;
      tiles[4 * n_tile + 3] = 0;
    }
  }
  return n_tile;
}

static void run_schedule(const uint32_t *ids, uint32_t live, uint32_t n_row, uint32_t n_used, uint32_t n_expert,
                         uint32_t tm) {
  struct oracle_rng rng = {4};
  uint64_t step_bytes;
  uint32_t n_tile = EXPERT_N_TILE(n_row, n_used, n_expert, tm), n_pair = live * n_used;
  uint32_t *step = oracle_step(&rng, MAX_ROW, live, 1, 1, NULL, NULL, &step_bytes);
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_EXPERT_SCHEDULE);
  SET_PARAMS(&c, {"N_EXPERT", n_expert}, {"N_EXPERT_USED", n_used}, {"N_ROW", n_row}, {"MAX_ROW", MAX_ROW}, {"TM", tm});
  memcpy(kernel_case_bind(&c, "ids", NULL, 0), ids, n_pair * 4);
  kernel_case_bind(&c, "step", step, step_bytes);
  uint32_t *tiles = kernel_case_bind(&c, "tiles", NULL, 0), *pairs = kernel_case_bind(&c, "pairs", NULL, 0);
  kernel_case_run(&c);
  uint32_t *want_tiles = calloc(4 * n_tile, 4), *want_pairs = checked_malloc(n_pair * 4);
  assert_non_null(want_tiles);
  assert_true(schedule_reference(ids, n_pair, n_expert, tm, want_tiles, want_pairs) <= n_tile);
  assert_memory_equal(tiles, want_tiles, 16 * n_tile);
  assert_memory_equal(pairs, want_pairs, 4 * n_pair);
  if (n_pair < n_row * n_used) assert_int_equal(pairs[n_pair], VKH_POISON);
  kernel_case_deinit(&c);
  free(want_tiles), free(want_pairs), free(step);
}

static void test_schedule(void **state) {
  (void)state;
  struct oracle_rng rng = {5};
  static const uint32_t cases[][5] = {/* live, n_row, n_used, n_expert, tm */
                                      {1, 1, 4, 16, 8},     {2, 2, 4, 16, 32},     {33, 64, 4, 16, 32},
                                      {64, 64, 8, 128, 32}, {17, 64, 2, 60, 8},    {0, 8, 2, 4, 8},
                                      {100, 128, 1, 3, 16}, {65, 128, 64, 512, 32}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int skewed = 0; skewed < 2; skewed++) {
      const uint32_t *k = cases[i];
      uint32_t *ids = random_ids(&rng, k[0], k[2], k[3], skewed);
      run_schedule(ids, k[0], k[1], k[2], k[3], k[4]);
      free(ids);
    }
  /* As large as windows get: 512 rows of 8 among 128. */
  struct oracle_rng large = {9};
  uint32_t *ids = random_ids(&large, 511, 8, 128, true);
  run_schedule(ids, 511, 512, 8, 128, 32);
  free(ids);
  uint32_t one[65]; /* one expert has all rows */
  for (int i = 0; i < 65; i++) one[i] = 5;
  run_schedule(one, 65, 65, 1, 9, 32);
}

struct window {
  struct moe_shape shape;
  uint32_t n_row, tm;
  uint32_t *ids, *tiles, *pairs, n_tile; /* n_tile: records, sentinels included */
};

static void window_init(struct window *w, struct oracle_rng *rng, bool skewed) {
  const struct moe_shape *s = &w->shape;
  w->tm = tile_rows(w->tm);
  w->ids = random_ids(rng, s->live, s->n_used, s->n_expert, skewed);
  w->n_tile = EXPERT_N_TILE(w->n_row, s->n_used, s->n_expert, w->tm);
  w->tiles = calloc(4 * w->n_tile, 4);
  w->pairs = calloc(w->n_row * s->n_used, 4);
  assert_true(w->tiles && w->pairs);
  schedule_reference(w->ids, s->live * s->n_used, s->n_expert, w->tm, w->tiles, w->pairs);
}
static void window_deinit(struct window *w) {
  free(w->ids), free(w->tiles), free(w->pairs);
}

static void run_gate_up_gemm(struct oracle_rng *rng, struct window *t, bool routed, bool instrumented) {
  const struct moe_shape *s = &t->shape;
  uint32_t n_pair = s->live * s->n_used;
  uint64_t step_bytes;
  struct oracle_weight gate, up;
  oracle_weight_init(&gate, rng, s->format, s->n_in, s->n_out, s->n_expert);
  oracle_weight_init(&up, rng, s->format_up, s->n_in, s->n_out, s->n_expert);
  float *x = oracle_floats(rng, t->n_row * s->n_in);
  uint32_t *step = oracle_step(rng, MAX_ROW, s->live, 1, 1, NULL, NULL, &step_bytes);
  struct kernel_case c;
  kernel_case_init(&c, MANY_ROWS(EXPERT_GATE_UP_GEMM));
  SET_PARAMS(&c, {"FMT_GATE", s->format}, {"FMT_UP", s->format_up}, {"D_MODEL", s->n_in}, {"D_FF", s->n_out},
             {"N_EXPERT", s->n_expert}, {"N_EXPERT_USED", s->n_used}, {"N_ROW", t->n_row}, {"MAX_ROW", MAX_ROW},
             {"ROUTED", routed}, {"TM", t->tm});
  kernel_case_bind(&c, "xn", x, 0);
  kernel_case_bind(&c, "gate", gate.plane, gate.bytes);
  kernel_case_bind(&c, "up", up.plane, up.bytes);
  if (routed) kernel_case_bind(&c, "tiles", t->tiles, 0);
  if (routed) kernel_case_bind(&c, "pairs", t->pairs, 0);
  kernel_case_bind(&c, "step", step, step_bytes);
  float *h = kernel_case_bind(&c, "h", NULL, 0);
  run(&c, instrumented);
  double *want = checked_malloc(n_pair * s->n_out * sizeof *want),
         *wrong = checked_malloc(n_pair * s->n_out * sizeof *wrong);
  for (uint32_t p = 0; p < n_pair; p++)
    gate_up_reference(&gate, &up, routed ? t->ids[p] : 0, x + p / s->n_used * s->n_in, want + p * s->n_out);
  for (uint32_t r = 0; r < s->live; r++)
    for (uint32_t k = 0; k < 8; k++) x[r * s->n_in + k] += 0.25f;
  for (uint32_t p = 0; p < n_pair; p++)
    gate_up_reference(&gate, &up, routed ? t->ids[p] : 0, x + p / s->n_used * s->n_in, wrong + p * s->n_out);
  char what[96];
  snprintf(what, sizeof what, "expert_gate_up_gemm formats %u %u, %u x %u, %u rows", s->format, s->format_up, s->n_out,
           s->n_in, s->live);
  set_bar(s->format && s->format_up ? s->format : 0, 2);
  oracle_check(what, h, want, wrong, n_pair * s->n_out);
  if (s->live < t->n_row) assert_true(isnan(h[n_pair * s->n_out]));
  kernel_case_deinit(&c);
  oracle_weight_deinit(&gate), oracle_weight_deinit(&up);
  free(want), free(wrong), free(x), free(step);
}

static void run_down_gemm(struct oracle_rng *rng, struct window *t, bool instrumented) {
  const struct moe_shape *s = &t->shape;
  uint32_t n_pair = s->live * s->n_used;
  uint64_t step_bytes;
  struct oracle_weight down;
  oracle_weight_init(&down, rng, s->format, s->n_in, s->n_out, s->n_expert);
  float *h = oracle_floats(rng, t->n_row * s->n_used * s->n_in);
  uint32_t *step = oracle_step(rng, MAX_ROW, s->live, 1, 1, NULL, NULL, &step_bytes);
  struct kernel_case c;
  kernel_case_init(&c, MANY_ROWS(EXPERT_DOWN_GEMM));
  SET_PARAMS(&c, {"FMT", s->format}, {"D_FF", s->n_in}, {"D_MODEL", s->n_out}, {"N_EXPERT", s->n_expert},
             {"N_EXPERT_USED", s->n_used}, {"N_ROW", t->n_row}, {"MAX_ROW", MAX_ROW}, {"TM", t->tm});
  kernel_case_bind(&c, "h", h, 0);
  kernel_case_bind(&c, "down", down.plane, down.bytes);
  kernel_case_bind(&c, "tiles", t->tiles, 0);
  kernel_case_bind(&c, "pairs", t->pairs, 0);
  kernel_case_bind(&c, "step", step, step_bytes);
  float *y = kernel_case_bind(&c, "y", NULL, 0);
  run(&c, instrumented);
  size_t n = (size_t)n_pair * s->n_out;
  double *want = checked_malloc(n * sizeof *want), *wrong = checked_malloc(n * sizeof *wrong);
  double *v = checked_malloc(s->n_in * sizeof *v);
  for (uint32_t p = 0; p < n_pair; p++) {
    for (uint32_t k = 0; k < s->n_in; k++) v[k] = h[p * s->n_in + k];
    for (uint32_t o = 0; o < s->n_out; o++) {
      want[p * s->n_out + o] = oracle_dot(&down, t->ids[p], o, v);
      wrong[p * s->n_out + o] = p ? want[p * s->n_out + o] : oracle_dot(&down, (t->ids[p] + 1) % s->n_expert, o, v);
    }
  }
  char what[96];
  snprintf(what, sizeof what, "expert_down_gemm format %u, %u x %u, %u rows", s->format, s->n_out, s->n_in, s->live);
  set_bar(s->format, 1);
  oracle_check(what, y, want, wrong, n);
  if (s->live < t->n_row) assert_true(isnan(y[n]));
  kernel_case_deinit(&c);
  oracle_weight_deinit(&down);
  free(want), free(wrong), free(v), free(h), free(step);
}

static void test_many_rows(void **state) {
  (void)state;
  struct oracle_rng rng = {6};
  for (size_t f = 0; f < oracle_n_format; f++) {
    uint32_t format = oracle_formats[f];
    struct window t = {.shape = {format, format, oracle_odd_length(format), 9, 5, 2, 7}, .n_row = 8, .tm = 8};
    window_init(&t, &rng, false);
    run_gate_up_gemm(&rng, &t, true, false);
    run_down_gemm(&rng, &t, false);
    window_deinit(&t);
  }
  static const struct window more[] = {
      {.shape = {12, 12, 256, 65, 16, 4, 17}, .n_row = 32, .tm = 32},
      {.shape = {12, 14, 512, 7, 6, 2, 33}, .n_row = 33, .tm = 16},
      {.shape = {6, 39, 1408, 3, 6, 2, 5}, .n_row = 6, .tm = 8},
      {.shape = {8, 8, 256, 64, 3, 1, 64}, .n_row = 64, .tm = 32},
      {.shape = {14, 14, 256, 3, 128, 8, 2}, .n_row = 2, .tm = 8},
  };
  for (size_t i = 0; i < sizeof more / sizeof *more; i++)
    for (int skewed = 0; skewed < 2; skewed++) {
      struct window t = more[i];
      window_init(&t, &rng, skewed);
      run_gate_up_gemm(&rng, &t, true, skewed);
      run_down_gemm(&rng, &t, skewed);
      window_deinit(&t);
    }
  struct window dense = {.shape = {12, 12, 256, 33, 1, 1, 31}, .n_row = 33, .tm = 16};
  window_init(&dense, &rng, false);
  run_gate_up_gemm(&rng, &dense, false, true);
  window_deinit(&dense);
}

static void run_combine(double scale) {
  enum { D = 260, USED = 5, ROWS = 9, LIVE = 7 };
  struct oracle_rng rng = {7};
  uint64_t step_bytes;
  float *y = oracle_floats(&rng, ROWS * USED * D), *weights = oracle_floats(&rng, ROWS * USED),
        *x = oracle_floats(&rng, ROWS * D);
  uint32_t *step = oracle_step(&rng, MAX_ROW, LIVE, 1, 1, NULL, NULL, &step_bytes);
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_COMBINE);
  SET_PARAMS(&c, {"D_MODEL", D}, {"N_EXPERT_USED", USED}, {"N_ROW", ROWS}, {"MAX_ROW", MAX_ROW}, {"SCALE", scale});
  kernel_case_bind(&c, "y", y, 0);
  kernel_case_bind(&c, "weights", weights, 0);
  kernel_case_bind(&c, "step", step, step_bytes);
  float *got = kernel_case_bind(&c, "x", x, 0);
  kernel_case_run(&c);
  double *want = checked_malloc(LIVE * D * sizeof *want);
  for (int i = 0; i < LIVE * D; i++) {
    want[i] = x[i];
    for (int j = 0; j < USED; j++) want[i] += scale * weights[i / D * USED + j] * y[(i / D * USED + j) * D + i % D];
  }
  oracle_check("combine", got, want, NULL, LIVE * D);
  assert_memory_equal(got + LIVE * D, x + LIVE * D, (ROWS - LIVE) * D * 4);
  kernel_case_deinit(&c);
  free(y), free(weights), free(x), free(step), free(want);
}

static void test_combine(void **state) {
  (void)state;
  run_combine(1);
  run_combine(0.22);
}

/* ---- gemm ---- */

static void run_gemm(struct oracle_rng *rng, uint32_t format, uint32_t n_in, uint32_t n_out, uint32_t n_row,
                     uint32_t live, uint32_t tm, uint32_t flags, bool instrumented) {
  bool bias = flags & 1, residual = flags & 2, rowsel = flags & 4;
  double scale = flags & 8 ? 0.375 : 1;
  uint32_t x_rows = rowsel ? 70 : n_row, x_stride = n_in + 32, y_stride = n_out + 3;
  uint64_t step_bytes;
  struct oracle_weight w;
  oracle_weight_init(&w, rng, format, n_in, n_out, 1);
  float *x = oracle_floats(rng, x_rows * x_stride), *b = oracle_floats(rng, n_out),
        *y = oracle_floats(rng, n_row * y_stride);
  uint32_t *step = oracle_step(rng, MAX_ROW, rowsel ? x_rows : live, 1, 1, NULL, NULL, &step_bytes);
  step[IMG_STEP_N_SELECT] = live;
  for (uint32_t i = 0; rowsel && i < live; i++)
    step[img_step_select(MAX_ROW) + i * IMG_SELECT_WORDS + IMG_SELECT_ROW] = (13 * i + 5) % x_rows;
  struct kernel_case c;
  kernel_case_init(&c, MANY_ROWS(GEMM));
  SET_PARAMS(&c, {"FMT", format}, {"N_IN", n_in}, {"N_OUT", n_out}, {"N_ROW", n_row}, {"MAX_ROW", MAX_ROW},
             {"X_STRIDE", x_stride}, {"Y_STRIDE", y_stride}, {"X_ROWS", x_rows}, {"TM", tile_rows(tm)}, {"BIAS", bias},
             {"RESIDUAL", residual}, {"SCALE", scale}, {"ROWSEL", rowsel});
  kernel_case_bind(&c, "weight", w.plane, w.bytes);
  kernel_case_bind(&c, "x", x, 0);
  if (bias) kernel_case_bind(&c, "bias", b, 0);
  kernel_case_bind(&c, "step", step, step_bytes);
  float *got = kernel_case_bind(&c, "y", y, 0);
  run(&c, instrumented);

  size_t n = (size_t)live * n_out;
  double *v = checked_malloc(n_in * sizeof *v), *want = checked_malloc(n * sizeof *want);
  double *wrong = checked_malloc(n * sizeof *wrong);
  float *rows = checked_malloc(n * sizeof *rows);
  for (uint32_t r = 0; r < live; r++) {
    const float *from = x + (rowsel ? (13 * r + 5) % x_rows : r) * x_stride;
    for (uint32_t k = 0; k < n_in; k++) v[k] = from[k];
    for (uint32_t o = 0; o < n_out; o++) {
      size_t at = (size_t)r * n_out + o;
      rows[at] = got[r * y_stride + o];
      want[at] = scale * (oracle_dot(&w, 0, o, v) + (bias ? b[o] : 0)) + (residual ? y[r * y_stride + o] : 0);
      wrong[at] = want[at];
      for (uint32_t k = 0; k < 8; k++)
        wrong[at] += scale * 0.25 * w.value[o * n_in + n_in / 4 + k]; /* a weight may be 0 */
    }
    assert_memory_equal(got + r * y_stride + n_out, y + r * y_stride + n_out, 12);
  }
  char what[96];
  snprintf(what, sizeof what, "gemm format %u, %u x %u, rows %u of %u", format, n_out, n_in, live, n_row);
  set_bar(format, 1);
  if (n) oracle_check(what, rows, want, wrong, n);
  assert_memory_equal(got + live * y_stride, y + live * y_stride, (n_row - live) * y_stride * 4);
  kernel_case_deinit(&c);
  oracle_weight_deinit(&w);
  free(v), free(want), free(wrong), free(rows), free(x), free(b), free(y), free(step);
}

static void test_gemm(void **state) {
  (void)state;
  struct oracle_rng rng = {8};
  for (size_t f = 0; f < oracle_n_format; f++)
    run_gemm(&rng, oracle_formats[f], oracle_odd_length(oracle_formats[f]), 33, 16, 15, 8, 0, f == 5);
  run_gemm(&rng, 12, 512, 1, 17, 17, 32, 1, true);
  run_gemm(&rng, 12, 256, 65, 33, 33, 32, 2, false);
  run_gemm(&rng, 14, 768, 127, 64, 31, 32, 3 | 8, true);
  run_gemm(&rng, 8, 256, 129, 64, 64, 16, 4 | 8, true);
  run_gemm(&rng, 0, 320, 16, 3, 1, 8, 0, true);
  run_gemm(&rng, 12, 256, 8, 64, 0, 32, 2, false);
}

#ifndef OTHER_MAIN
#ifdef TEST_ALL_SHAPES /* test_experts_all.c */
static void test_window_all(void **state), test_mixed_all(void **state), test_odd_rows_all(void **state);
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
#ifdef TEST_ALL_SHAPES
      cmocka_unit_test(test_window_all), cmocka_unit_test(test_mixed_all), cmocka_unit_test(test_odd_rows_all),
#endif
      cmocka_unit_test(test_router),     cmocka_unit_test(test_topk),      cmocka_unit_test(test_few_rows),
      cmocka_unit_test(test_schedule),   cmocka_unit_test(test_many_rows), cmocka_unit_test(test_combine),
      cmocka_unit_test(test_gemm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
