/* test_latent.c: the kernels of latent attention and of gemma's stream: concat_store, a matrix a head in gemv and gemm,
 * norm with sum and gain, softcap; against references in double. */
#include "kernel_case.h"
#include "kernel_oracle.h"
#include "kv_page.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_ROW 16

static void set(struct kernel_case *c, const struct shadergen_param *params, size_t n) {
  for (size_t i = 0; i < n; i++) kernel_case_param(c, params[i].name, params[i].value);
}
#define SET(c, ...)                                                                                                    \
  set(c, (const struct shadergen_param[]){__VA_ARGS__},                                                                \
      sizeof((const struct shadergen_param[]){__VA_ARGS__}) / sizeof(struct shadergen_param))

/* ---- concat_store ---- */

struct joined {
  uint32_t n_head, n_kv_head, n_kb_head, d_a, d_b, d_value;
  bool neox, f32;
  double mul;
  bool q8;
};

/* a, then b rotated. */
static void join_reference(const struct joined *j, const float *a, const float *b, const double *inv_freq, uint32_t pos,
                           double *out) {
  for (uint32_t i = 0; i < j->d_a; i++) out[i] = a[i];
  for (uint32_t i = 0; i < j->d_b / 2; i++) {
    uint32_t first = j->neox ? i : 2 * i, second = j->neox ? i + j->d_b / 2 : 2 * i + 1;
    double c = j->mul * cos(pos * inv_freq[i]), s = j->mul * sin(pos * inv_freq[i]);
    out[j->d_a + first] = b[first] * c - b[second] * s;
    out[j->d_a + second] = b[first] * s + b[second] * c;
  }
}

static void run_joined(struct oracle_rng *rng, const struct joined *j) {
  enum { ROWS = 5, LIVE = 4, SLOTS = 2, STRIDE = 3 };
  static const uint32_t pos[LIVE] = {0, 63, 64, 130}, slot[LIVE] = {0, 1, 1, 0};
  const struct kv_page kv = {.kind = j->q8    ? KV_PAGE_Q8_0
                                     : j->f32 ? KV_PAGE_F32
                                              : KV_PAGE_F16,
                             .n_kv_head = j->n_kv_head,
                             .d_key = j->d_a + j->d_b,
                             .d_value = j->d_value};
  uint64_t step_bytes, page = 2 * kv_page_bytes(&kv), turns[64];
  uint32_t *step = oracle_step(rng, MAX_ROW, LIVE, SLOTS, STRIDE, pos, slot, &step_bytes), d = j->d_a + j->d_b;
  float *qa = oracle_floats(rng, ROWS * j->n_head * j->d_a), *qb = oracle_floats(rng, ROWS * j->n_head * j->d_b);
  float *ka = oracle_floats(rng, ROWS * j->n_kv_head * j->d_a), *kb = oracle_floats(rng, ROWS * j->n_kb_head * j->d_b);
  float *v = oracle_floats(rng, ROWS * j->n_kv_head * j->d_value + 1);
  double inv_freq[64], *want = malloc(LIVE * j->n_head * d * sizeof *want), key[1024], value[1024];
  assert_non_null(want);
  for (uint32_t i = 0; i < j->d_b / 2; i++) turns[i] = shadergen_rope_turns(inv_freq[i] = pow(1e4, -2.0 * i / j->d_b));
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_CONCAT_STORE);
  SET(&c, {"N_HEAD", j->n_head}, {"N_KV_HEAD", j->n_kv_head}, {"N_KB_HEAD", j->n_kb_head}, {"D_A", j->d_a},
      {"D_B", j->d_b}, {"D_HEAD_V", j->d_value}, {"N_ROW", ROWS}, {"MAX_ROW", MAX_ROW}, {"PAGE_BYTES", (double)page},
      {"KV", kv.kind}, {"NEOX", j->neox}, {"ROPE_MUL", j->mul});
  kernel_case_bind(&c, "qa", qa, 0), kernel_case_bind(&c, "qb", qb, 0);
  kernel_case_bind(&c, "ka", ka, 0), kernel_case_bind(&c, "kb", kb, 0);
  if (j->d_value) kernel_case_bind(&c, "v", v, 0);
  kernel_case_bind(&c, "rope", turns, 0);
  float *q = kernel_case_bind(&c, "q", NULL, 0);
  uint8_t *state = kernel_case_bind(&c, "state", NULL, (SLOTS * STRIDE + 1) * page);
  kernel_case_bind(&c, "step", step, step_bytes);
  kernel_case_run(&c);
  uint64_t written = 0, touched = 0;
  for (uint32_t r = 0; r < LIVE; r++) {
    const uint8_t *layer = state + page * step[img_step_page_table(MAX_ROW) + slot[r] * STRIDE + pos[r] / 64];
    for (uint32_t h = 0; h < j->n_head; h++)
      join_reference(j, qa + (r * j->n_head + h) * j->d_a, qb + (r * j->n_head + h) * j->d_b, inv_freq, pos[r],
                     want + (r * j->n_head + h) * d);
    for (uint32_t h = 0; h < j->n_kv_head; h++) {
      join_reference(j, ka + (r * j->n_kv_head + h) * j->d_a, kb + (r * j->n_kb_head + h % j->n_kb_head) * j->d_b,
                     inv_freq, pos[r], key);
      written += kv_page_check(&kv, "key", layer, 0, h, pos[r], key, d);
      for (uint32_t e = 0; e < j->d_value; e++) value[e] = v[(r * j->n_kv_head + h) * j->d_value + e];
      if (j->d_value) written += kv_page_check(&kv, "value", layer, 1, h, pos[r], value, j->d_value);
    }
  }
  oracle_check("concat_store q", q, want, NULL, LIVE * j->n_head * d);
  assert_true(isnan(q[LIVE * j->n_head * d]));
  for (uint64_t i = 0; i < (SLOTS * STRIDE + 1) * page / 4; i++) touched += ((uint32_t *)state)[i] != VKH_POISON;
  assert_int_equal(touched, written);
  kernel_case_deinit(&c);
  free(want), free(qa), free(qb), free(ka), free(kb), free(v), free(step);
}

static void test_concat_store(void **state) {
  (void)state;
  struct oracle_rng rng = {1};
  run_joined(&rng, &(struct joined){4, 1, 1, 64, 32, 0, false, false, .mul = 1}); /* absorbed */
  run_joined(&rng, &(struct joined){2, 1, 1, 512, 64, 0, false, true, .mul = 1.25});
  run_joined(
      &rng, &(struct joined){3, 3, 1, 32, 32, 48, false, true, .mul = 1}); /* multiplied out, one rotated key for all */
  run_joined(&rng, &(struct joined){4, 2, 2, 36, 28, 64, true, false, .mul = 0.5});
  run_joined(&rng, &(struct joined){4, 1, 1, 64, 32, 0, false, false, .mul = 1, .q8 = true});
  run_joined(&rng, &(struct joined){4, 2, 2, 36, 28, 96, true, false, .mul = 0.5, .q8 = true});
}

/* ---- A matrix a head ---- */

static void run_heads(struct oracle_rng *rng, enum kernel_id kernel, uint32_t format, uint32_t n_in, uint32_t n_out,
                      uint32_t n_row, uint32_t live) {
  enum { MATS = 3 };
  uint64_t step_bytes;
  struct oracle_weight w;
  oracle_weight_init(&w, rng, format, n_in, n_out, MATS);
  float *x = oracle_floats(rng, n_row * MATS * n_in);
  uint32_t *step = oracle_step(rng, MAX_ROW, live, 1, 1, NULL, NULL, &step_bytes);
  size_t n = (size_t)live * MATS * n_out;
  double *want = malloc(n * sizeof *want), *wrong = malloc(n * sizeof *wrong), *v = malloc(n_in * sizeof *v);
  assert_true(want && wrong && v);
  struct kernel_case c;
  kernel_case_init(&c, kernel);
  SET(&c, {"FMT", format}, {"N_IN", n_in}, {"N_OUT", n_out}, {"N_MAT", MATS}, {"N_ROW", n_row}, {"MAX_ROW", MAX_ROW},
      {"X_STRIDE", MATS * n_in}, {"Y_STRIDE", MATS * n_out});
  kernel_case_bind(&c, "weight", w.plane, w.bytes);
  kernel_case_bind(&c, "x", x, 0);
  float *y = kernel_case_bind(&c, "y", NULL, 0);
  kernel_case_bind(&c, "step", step, step_bytes);
  kernel_case_run(&c);
  for (uint32_t r = 0; r < live; r++)
    for (uint32_t m = 0; m < MATS; m++)
      for (uint32_t o = 0; o < n_out; o++) {
        for (uint32_t k = 0; k < n_in; k++) v[k] = x[(r * MATS + m) * n_in + k];
        want[(r * MATS + m) * n_out + o] = oracle_dot(&w, m, o, v);
        wrong[(r * MATS + m) * n_out + o] = oracle_dot(&w, (m + 1) % MATS, o, v);
      }
  oracle_check(kernel == KERNEL_GEMV ? "gemv a head" : "gemm a head", y, want, wrong, n);
  if (live < n_row) assert_true(isnan(y[n]));
  kernel_case_deinit(&c);
  oracle_weight_deinit(&w);
  free(want), free(wrong), free(v), free(x), free(step);
}

static void test_matrix_a_head(void **state) {
  (void)state;
  struct oracle_rng rng = {2};
  run_heads(&rng, KERNEL_GEMV, 8, 96, 33, 3, 2);
  run_heads(&rng, KERNEL_GEMV, 1, 128, 64, 1, 1);
  run_heads(&rng, KERNEL_GEMM, 8, 96, 33, 13, 11);
  run_heads(&rng, KERNEL_GEMM, 12, 256, 20, 9, 9);
}

/* ---- norm with sum and gain, softcap ---- */

static void test_norm_sum(void **state) {
  (void)state;
  enum { D = 160, ROWS = 4, LIVE = 3 };
  struct oracle_rng rng = {3};
  uint64_t step_bytes;
  uint32_t *step = oracle_step(&rng, MAX_ROW, LIVE, 1, 1, NULL, NULL, &step_bytes);
  float *x = oracle_floats(&rng, ROWS * D), *weight = oracle_floats(&rng, D), *sum = oracle_floats(&rng, ROWS * D);
  const float gain = 0.375f;
  for (int kind = 0; kind < 3; kind++) {
    double want[LIVE * D], wrong[LIVE * D];
    struct kernel_case c;
    kernel_case_init(&c, KERNEL_NORM);
    SET(&c, {"D_MODEL", D}, {"N_ROW", ROWS}, {"MAX_ROW", MAX_ROW}, {"EPS", 1e-5}, {"SCALE", kind ? 1 : 0.25},
        {"RESIDUAL", kind > 0}, {"GAIN", kind > 1});
    kernel_case_bind(&c, "x", x, 0);
    kernel_case_bind(&c, "weight", weight, 0);
    if (kind > 1) kernel_case_bind(&c, "gain", &gain, 4);
    float *y = kernel_case_bind(&c, "y", sum, 0);
    kernel_case_bind(&c, "step", step, step_bytes);
    kernel_case_run(&c);
    for (uint32_t r = 0; r < LIVE; r++) {
      double squares = 0;
      for (uint32_t k = 0; k < D; k++) squares += (double)x[r * D + k] * x[r * D + k];
      for (uint32_t k = 0; k < D; k++) {
        double v = x[r * D + k] / sqrt(squares / D + (double)1e-5f) * weight[k];
        if (kind == 0) v *= 0.25;
        if (kind > 0) v += sum[r * D + k];
        want[r * D + k] = kind > 1 ? v * gain : v;
        wrong[r * D + k] = v * 1.0001;
      }
    }
    oracle_check("norm with sum and gain", y, want, wrong, LIVE * D);
    assert_memory_equal(y + LIVE * D, sum + LIVE * D, (ROWS - LIVE) * D * 4);
    kernel_case_deinit(&c);
  }
  free(x), free(weight), free(sum), free(step);
}

static void test_softcap(void **state) {
  (void)state;
  enum { WIDTH = 301, ROWS = 3, LIVE = 2 };
  struct oracle_rng rng = {4};
  uint64_t step_bytes;
  uint32_t *step = oracle_step(&rng, MAX_ROW, 9, 1, 1, NULL, NULL, &step_bytes);
  step[IMG_STEP_N_SELECT] = LIVE;
  float *x = oracle_floats(&rng, ROWS * WIDTH);
  double want[LIVE * WIDTH], wrong[LIVE * WIDTH];
  for (uint32_t i = 0; i < ROWS * WIDTH; i++) x[i] *= i % 3 == 0 ? 0.01f : i % 3 == 1 ? 20 : 4000;
  for (uint32_t i = 0; i < LIVE * WIDTH; i++) want[i] = 30 * tanh((double)x[i] / 30), wrong[i] = 1.0001 * want[i];
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_SOFTCAP);
  SET(&c, {"WIDTH", WIDTH}, {"N_ROW", ROWS}, {"MAX_ROW", MAX_ROW}, {"SOFTCAP", 30});
  float *y = kernel_case_bind(&c, "x", x, 0);
  kernel_case_bind(&c, "step", step, step_bytes);
  kernel_case_run(&c);
  oracle_check("softcap", y, want, wrong, LIVE * WIDTH);
  assert_memory_equal(y + LIVE * WIDTH, x + LIVE * WIDTH, WIDTH * 4);
  kernel_case_deinit(&c);
  free(x), free(step);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_concat_store),
      cmocka_unit_test(test_matrix_a_head),
      cmocka_unit_test(test_norm_sum),
      cmocka_unit_test(test_softcap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
