/* test_recurrent.c: short_conv, delta_rule and gated_norm against references in double, over steps that follow one
 * another: several runs in a step, runs that go on, that begin at position 0 in mid-window, that cross the workgroups'
 * rows. The blocks begin as poison: what a fresh run reads of them shows. */
#include "kernel_case.h"
#include "kernel_oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_ROW = 512, SLOTS = 4, MAX_RUNS = 5, MAX_TAP = 8 };

struct run {
  uint32_t slot, pos, n;
};
/* Slot 1 begins at row 31, slot 2 begins anew at row 29 of the third step: both cross the conv's 32 rows. */
static const struct run steps[][MAX_RUNS] = {
    {{2, 0, 1}, {0, 0, 30}, {1, 0, 2}, {3, 0, 3}},
    {{0, 30, 1}, {1, 2, 1}, {2, 1, 1}, {3, 3, 1}},
    {{1, 3, 29}, {2, 0, 40}, {0, 31, 2}},
    {{2, 40, 1}, {0, 33, 60}},
    {{3, 4, 1}},
};
enum { N_STEP = sizeof steps / sizeof *steps };

/* A step block of these runs; *n_row its rows. */
static uint32_t *make_step(struct oracle_rng *rng, const struct run *runs, uint32_t *n_row, uint64_t *bytes) {
  uint32_t pos[MAX_ROW], slot[MAX_ROW];
  *n_row = 0;
  for (uint32_t i = 0; i < MAX_RUNS && runs[i].n; i++)
    for (uint32_t k = 0; k < runs[i].n; k++, ++*n_row) {
      pos[*n_row] = runs[i].pos + k;
      slot[*n_row] = runs[i].slot;
    }
  return oracle_step(rng, MAX_ROW, *n_row, SLOTS, 1, pos, slot, bytes);
}

static void *copy_of(const void *data, size_t bytes) {
  void *copy = malloc(bytes);
  assert_non_null(copy);
  memcpy(copy, data, bytes);
  return copy;
}

/* Blocks that no run of the step names, and what follows the kernel's part of a block, are as before. */
static void check_blocks(const uint8_t *before, const uint8_t *after, const struct run *runs, uint64_t block,
                         uint64_t part) {
  for (uint32_t s = 0; s < SLOTS; s++) {
    bool named = false;
    for (uint32_t i = 0; i < MAX_RUNS; i++) named |= runs[i].n && runs[i].slot == s;
    uint64_t from = s * block + (named ? part : 0);
    assert_memory_equal(before + from, after + from, (s + 1) * block - from);
  }
}

/* ---- short_conv ---- */

struct conv {
  uint32_t n_channel, n_tap;
  double past[SLOTS][MAX_TAP][64]; /* the last inputs, newest first */
};

static void conv_row(struct conv *c, uint32_t slot, const float *x, const float *weight, double *y) {
  for (uint32_t ch = 0; ch < c->n_channel; ch++) {
    double sum = 0;
    for (uint32_t j = c->n_tap - 1; j > 0; j--) c->past[slot][j][ch] = c->past[slot][j - 1][ch];
    c->past[slot][0][ch] = x[ch];
    for (uint32_t j = 0; j < c->n_tap; j++) sum += weight[ch * c->n_tap + j] * c->past[slot][c->n_tap - 1 - j][ch];
    y[ch] = sum / (1 + exp(-sum));
  }
}

static void conv_step(struct conv *c, const struct run *runs, const float *x, const float *weight, bool forget,
                      double *y) {
  uint32_t r = 0;
  for (uint32_t i = 0; i < MAX_RUNS && runs[i].n; i++) {
    if (runs[i].pos == 0 || forget) memset(c->past[runs[i].slot], 0, sizeof c->past[0]);
    for (uint32_t k = 0; k < runs[i].n; k++, r++)
      conv_row(c, runs[i].slot, x + r * c->n_channel, weight, y + r * c->n_channel);
  }
}

static void run_conv(struct oracle_rng *rng, uint32_t n_channel, uint32_t n_tap) {
  struct conv *conv = calloc(1, sizeof *conv), *wrong_conv = calloc(1, sizeof *conv);
  assert_true(conv && wrong_conv && n_channel <= 64 && n_tap <= MAX_TAP);
  conv->n_channel = n_channel, conv->n_tap = n_tap;
  uint64_t part = 4ull * (n_tap - 1) * n_channel, block = part + 256, bytes;
  uint32_t stride = (n_tap * 4 + 15) / 16 * 4; /* floats of a plane's row */
  float *weight = oracle_floats(rng, n_channel * n_tap), *plane = calloc(n_channel * stride, 4);
  for (uint32_t ch = 0; ch < n_channel; ch++) memcpy(plane + ch * stride, weight + ch * n_tap, 4 * n_tap);
  uint8_t *blocks = NULL;
  for (uint32_t s = 0; s < N_STEP; s++) {
    uint32_t n_row, *step = make_step(rng, steps[s], &n_row, &bytes), n = n_row * n_channel;
    float *x = oracle_floats(rng, n + n_channel);
    struct kernel_case c;
    kernel_case_init(&c, KERNEL_SHORT_CONV);
    kernel_case_param(&c, "N_CHANNEL", n_channel);
    kernel_case_param(&c, "N_TAP", n_tap);
    kernel_case_param(&c, "N_ROW", n_row + 1);
    kernel_case_param(&c, "MAX_ROW", MAX_ROW);
    kernel_case_param(&c, "BLOCK_BYTES", (double)block);
    kernel_case_bind(&c, "x", x, 0);
    kernel_case_bind(&c, "weight", plane, 4ull * n_channel * stride);
    uint8_t *state = kernel_case_bind(&c, "state", blocks, SLOTS * block);
    float *y = kernel_case_bind(&c, "y", NULL, 0);
    kernel_case_bind(&c, "step", step, bytes);
    uint8_t *before = copy_of(state, SLOTS * block);
    kernel_case_run(&c);
    double *want = malloc(n * sizeof *want), *wrong = malloc(n * sizeof *wrong);
    memcpy(wrong_conv, conv, sizeof *conv);
    conv_step(wrong_conv, steps[s], x, weight, true, wrong);
    conv_step(conv, steps[s], x, weight, false, want);
    char what[64];
    snprintf(what, sizeof what, "short_conv %u channels, %u taps, step %u", n_channel, n_tap, s);
    oracle_check(what, y, want, s ? wrong : NULL, n);
    assert_true(isnan(y[n]));
    check_blocks(before, state, steps[s], block, part);
    free(blocks);
    blocks = copy_of(state, SLOTS * block);
    kernel_case_deinit(&c);
    free(before), free(want), free(wrong), free(x), free(step);
  }
  free(blocks), free(weight), free(plane), free(conv), free(wrong_conv);
}

static void test_short_conv(void **state) {
  (void)state;
  struct oracle_rng rng = {11};
  run_conv(&rng, 20, 4);
  run_conv(&rng, 64, 4);
  run_conv(&rng, 2, 2);
  run_conv(&rng, 34, 7);
}

/* ---- delta_rule ---- */

struct delta {
  uint32_t n_head, n_key_head, d;
  bool tiled;
};
struct delta_input {
  float *q, *k, *v, *alpha, *beta, *a, *dt;
};

static double unit_scale(const float *x, uint32_t n) {
  double sum = 0;
  for (uint32_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
  return 1 / sqrt(sum + (double)1e-6f);
}

/* One head of one row; S is [key][value]. */
static void delta_head(const struct delta *p, const struct delta_input *in, uint32_t r, uint32_t h, double *S,
                       double *y) {
  uint32_t d = p->d, key = p->tiled ? h % p->n_key_head : h / (p->n_head / p->n_key_head);
  const float *q = in->q + (r * p->n_key_head + key) * d, *k = in->k + (r * p->n_key_head + key) * d;
  const float *v = in->v + (r * p->n_head + h) * d;
  double ks = unit_scale(k, d), qs = unit_scale(q, d) / sqrt(d);
  double decay = exp(in->a[h] * log1p(exp((double)in->alpha[r * p->n_head + h] + in->dt[h])));
  double beta = 1 / (1 + exp(-(double)in->beta[r * p->n_head + h]));
  for (uint32_t i = 0; i < d * d; i++) S[i] *= decay;
  for (uint32_t j = 0; j < d; j++) {
    double sum = 0, out = 0;
    for (uint32_t i = 0; i < d; i++) sum += S[i * d + j] * k[i] * ks;
    for (uint32_t i = 0; i < d; i++) {
      S[i * d + j] += k[i] * ks * (v[j] - sum) * beta;
      out += S[i * d + j] * q[i] * qs;
    }
    y[j] = out;
  }
}

static void delta_step(const struct delta *p, const struct delta_input *in, const struct run *runs, bool forget,
                       double *S, double *y) {
  uint32_t r = 0, d = p->d;
  for (uint32_t i = 0; i < MAX_RUNS && runs[i].n; i++) {
    double *mine = S + (uint64_t)runs[i].slot * p->n_head * d * d;
    if (runs[i].pos == 0 || forget) memset(mine, 0, (uint64_t)p->n_head * d * d * sizeof *mine);
    for (uint32_t k = 0; k < runs[i].n; k++, r++)
      for (uint32_t h = 0; h < p->n_head; h++)
        delta_head(p, in, r, h, mine + (uint64_t)h * d * d, y + (r * p->n_head + h) * d);
  }
}

static void delta_inputs(struct oracle_rng *rng, const struct delta *p, uint32_t rows, struct delta_input *in) {
  in->q = oracle_floats(rng, rows * p->n_key_head * p->d);
  in->k = oracle_floats(rng, rows * p->n_key_head * p->d);
  in->v = oracle_floats(rng, rows * p->n_head * p->d);
  in->alpha = oracle_floats(rng, rows * p->n_head);
  in->beta = oracle_floats(rng, rows * p->n_head);
}

static void delta_step_check(struct oracle_rng *rng, const struct delta *p, struct delta_input *in, uint32_t s,
                             const struct run *runs, bool instrumented, uint8_t **blocks, double *S) {
  uint32_t n_row, *step;
  uint64_t bytes, words = (uint64_t)p->n_head * p->d * p->d, part = 4 * words, block = part + 512;
  step = make_step(rng, runs, &n_row, &bytes);
  uint32_t n = n_row * p->n_head * p->d;
  bool spare = n_row < MAX_ROW; /* a row behind the step's */
  delta_inputs(rng, p, n_row + spare, in);
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_DELTA_RULE);
  kernel_case_param(&c, "N_HEAD", p->n_head);
  kernel_case_param(&c, "N_KEY_HEAD", p->n_key_head);
  kernel_case_param(&c, "D_HEAD", p->d);
  kernel_case_param(&c, "N_ROW", n_row + spare);
  kernel_case_param(&c, "MAX_ROW", MAX_ROW);
  kernel_case_param(&c, "BLOCK_BYTES", (double)block);
  kernel_case_param(&c, "TILED", p->tiled);
  kernel_case_bind(&c, "q", in->q, 0);
  kernel_case_bind(&c, "k", in->k, 0);
  kernel_case_bind(&c, "v", in->v, 0);
  kernel_case_bind(&c, "alpha", in->alpha, 0);
  kernel_case_bind(&c, "beta", in->beta, 0);
  kernel_case_bind(&c, "a", in->a, 0);
  kernel_case_bind(&c, "dt", in->dt, 0);
  uint8_t *state = kernel_case_bind(&c, "state", *blocks, SLOTS * block);
  float *y = kernel_case_bind(&c, "y", NULL, 0);
  kernel_case_bind(&c, "step", step, bytes);
  uint8_t *before = copy_of(state, SLOTS * block);
  if (instrumented)
    kernel_case_run(&c);
  else
    kernel_case_run_plain(&c);
  double *want = malloc(n * sizeof *want), *wrong = malloc(n * sizeof *wrong);
  double *wrong_S = copy_of(S, SLOTS * words * sizeof *S);
  delta_step(p, in, runs, true, wrong_S, wrong);
  delta_step(p, in, runs, false, S, want);
  char what[96];
  snprintf(what, sizeof what, "delta_rule %u/%u heads of %u, step %u", p->n_head, p->n_key_head, p->d, s);
  oracle_check(what, y, want, s ? wrong : NULL, n);
  if (spare) assert_true(isnan(y[n]));
  check_blocks(before, state, runs, block, part);
  free(*blocks);
  *blocks = copy_of(state, SLOTS * block);
  kernel_case_deinit(&c);
  free(before), free(want), free(wrong), free(wrong_S), free(step);
  free(in->q), free(in->k), free(in->v), free(in->alpha), free(in->beta);
}

static void run_delta(struct oracle_rng *rng, const struct delta *p, const struct run runs[][MAX_RUNS], uint32_t n_step,
                      bool instrumented) {
  struct delta_input in = {.a = oracle_floats(rng, p->n_head), .dt = oracle_floats(rng, p->n_head)};
  for (uint32_t h = 0; h < p->n_head; h++) in.a[h] = -0.2f - 0.2f * fabsf(in.a[h]); /* forgets over some ten rows */
  double *S = calloc(SLOTS * (size_t)p->n_head * p->d * p->d, sizeof *S);
  uint8_t *blocks = NULL;
  for (uint32_t s = 0; s < n_step; s++) delta_step_check(rng, p, &in, s, runs[s], instrumented, &blocks, S);
  free(S), free(blocks), free(in.a), free(in.dt);
}

static void test_delta_rule(void **state) {
  (void)state;
  struct oracle_rng rng = {12};
  static const struct delta shapes[] = {
      {4, 2, 64, true}, {4, 2, 64, false}, {3, 1, 32, false}, {2, 2, 128, true}, {1, 1, 256, false}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) run_delta(&rng, &shapes[i], steps, N_STEP, i != 4);
}

/* As many rows in one run as a window has: below what drivers for CPUs give up at. */
static void test_delta_rule_long(void **state) {
  (void)state;
  struct oracle_rng rng = {13};
  static const struct run runs[][MAX_RUNS] = {{{1, 0, 512}}, {{1, 512, 512}}};
  static const struct delta shapes[] = {{1, 1, 64, false}, {1, 1, 128, false}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) run_delta(&rng, &shapes[i], runs, 2, false);
}

/* ---- gated_norm ---- */

static void run_gated_norm(struct oracle_rng *rng, uint32_t width, uint32_t group, uint32_t n_row) {
  uint64_t bytes;
  uint32_t *step = oracle_step(rng, MAX_ROW, n_row, 1, 1, NULL, NULL, &bytes), n = n_row * width;
  float *x = oracle_floats(rng, n + width), *gate = oracle_floats(rng, n + width), *weight = oracle_floats(rng, group);
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_GATED_NORM);
  kernel_case_param(&c, "WIDTH", width);
  kernel_case_param(&c, "GROUP", group);
  kernel_case_param(&c, "N_ROW", n_row + 1);
  kernel_case_param(&c, "MAX_ROW", MAX_ROW);
  kernel_case_bind(&c, "x", x, 0);
  kernel_case_bind(&c, "gate", gate, 0);
  kernel_case_bind(&c, "weight", weight, 0);
  float *y = kernel_case_bind(&c, "y", NULL, 0);
  kernel_case_bind(&c, "step", step, bytes);
  kernel_case_run(&c);
  double *want = malloc(n * sizeof *want), *wrong = malloc(n * sizeof *wrong);
  for (uint32_t g = 0; g < n; g += group) {
    double squares = 0;
    for (uint32_t i = 0; i < group; i++) squares += (double)x[g + i] * x[g + i];
    for (uint32_t i = 0; i < group; i++) {
      double z = gate[g + i], norm = x[g + i] / sqrt(squares / group + (double)1e-6f) * weight[i];
      want[g + i] = z / (1 + exp(-z)) * norm;
      wrong[g + i] = norm / (1 + exp(-z));
    }
  }
  oracle_check("gated_norm", y, want, wrong, n);
  assert_true(isnan(y[n]));
  kernel_case_deinit(&c);
  free(want), free(wrong), free(x), free(gate), free(weight), free(step);
}

static void test_gated_norm(void **state) {
  (void)state;
  struct oracle_rng rng = {14};
  run_gated_norm(&rng, 256, 64, 3);
  run_gated_norm(&rng, 60, 20, 5);
  run_gated_norm(&rng, 384, 128, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_short_conv),
      cmocka_unit_test(test_delta_rule),
      cmocka_unit_test(test_delta_rule_long),
      cmocka_unit_test(test_gated_norm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
