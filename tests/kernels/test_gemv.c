/* test_gemv.c: gemv, embed and norm against their references, every weight format. */
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

struct shape {
  uint32_t n_in, n_out, n_row, live;
  bool norm, bias, residual, rowsel;
  double scale; /* 0: 1 */
};

/* want[r][o] of the gemv; x_row: rows of x by output row. */
static void gemv_reference(const struct oracle_weight *w, const struct shape *s, const float *x, const uint32_t *x_row,
                           const float *norm, const float *bias, const float *y, double *want) {
  double *v = malloc(s->n_in * sizeof *v);
  assert_non_null(v);
  for (uint32_t r = 0; r < s->live; r++) {
    double squares = 0;
    for (uint32_t k = 0; k < s->n_in; k++) {
      v[k] = x[x_row[r] * s->n_in + k];
      squares += v[k] * v[k];
    }
    if (s->norm)
      for (uint32_t k = 0; k < s->n_in; k++) v[k] *= norm[k] / sqrt(squares / s->n_in + (double)1e-6f);
    for (uint32_t o = 0; o < s->n_out; o++)
      want[r * s->n_out + o] = (oracle_dot(w, 0, o, v) + (s->bias ? bias[o] : 0)) * (s->scale != 0 ? s->scale : 1) +
                               (s->residual ? y[r * s->n_out + o] : 0);
  }
  free(v);
}

static void run_shape(struct oracle_rng *rng, uint32_t format, const struct shape *s, bool instrumented) {
  uint32_t x_rows = s->rowsel ? 11 : s->n_row, x_row[8];
  uint64_t step_bytes;
  struct oracle_weight w;
  oracle_weight_init(&w, rng, format, s->n_in, s->n_out, 1);
  float *x = oracle_floats(rng, x_rows * s->n_in), *norm = oracle_floats(rng, s->n_in),
        *bias = oracle_floats(rng, s->n_out), *y = oracle_floats(rng, s->n_row * s->n_out);
  uint32_t *step = oracle_step(rng, MAX_ROW, s->rowsel ? x_rows : s->live, 1, 1, NULL, NULL, &step_bytes);
  step[IMG_STEP_N_SELECT] = s->live;
  for (uint32_t r = 0; r < s->live; r++) {
    x_row[r] = s->rowsel ? (7 * r + 3) % x_rows : r;
    step[img_step_select(MAX_ROW) + r * IMG_SELECT_WORDS + IMG_SELECT_ROW] = x_row[r];
  }
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_GEMV);
  kernel_case_param(&c, "FMT", format);
  kernel_case_param(&c, "N_IN", s->n_in);
  kernel_case_param(&c, "N_OUT", s->n_out);
  kernel_case_param(&c, "N_ROW", s->n_row);
  kernel_case_param(&c, "MAX_ROW", MAX_ROW);
  kernel_case_param(&c, "X_STRIDE", s->n_in);
  kernel_case_param(&c, "Y_STRIDE", s->n_out);
  kernel_case_param(&c, "X_ROWS", s->rowsel ? x_rows : 0);
  kernel_case_param(&c, "NORM", s->norm);
  kernel_case_param(&c, "BIAS", s->bias);
  kernel_case_param(&c, "RESIDUAL", s->residual);
  if (s->scale != 0) kernel_case_param(&c, "SCALE", s->scale);
  kernel_case_param(&c, "ROWSEL", s->rowsel);
  kernel_case_bind(&c, "weight", w.plane, w.bytes);
  kernel_case_bind(&c, "x", x, 0);
  if (s->norm) kernel_case_bind(&c, "norm", norm, 0);
  if (s->bias) kernel_case_bind(&c, "bias", bias, 0);
  float *got = kernel_case_bind(&c, "y", s->residual ? y : NULL, 0);
  kernel_case_bind(&c, "step", step, step_bytes);
  if (instrumented)
    kernel_case_run(&c);
  else
    kernel_case_run_plain(&c);

  size_t n = (size_t)s->live * s->n_out;
  double *want = malloc(n * sizeof *want), *wrong = malloc(n * sizeof *wrong);
  assert_true(want && wrong);
  gemv_reference(&w, s, x, x_row, norm, bias, y, want);
  for (uint32_t k = 0; k < s->n_in; k += s->n_in / 8) /* a weight may be 0, and a scale */
    x[x_row[s->live - 1] * s->n_in + k] += 0.25f;
  gemv_reference(&w, s, x, x_row, norm, bias, y, wrong);
  char what[128];
  snprintf(what, sizeof what, "gemv format %u, %u x %u, rows %u of %u", format, s->n_out, s->n_in, s->live, s->n_row);
  oracle_check(what, got, want, wrong, n);
  /* Rows that are not live stay as they were. */
  for (size_t i = n; i < (size_t)s->n_row * s->n_out; i++) {
    float was;
    memcpy(&was, &(uint32_t){VKH_POISON}, 4);
    assert_memory_equal(&got[i], s->residual ? &y[i] : &was, 4);
  }
  kernel_case_deinit(&c);
  oracle_weight_deinit(&w);
  free(want), free(wrong), free(x), free(norm), free(bias), free(y), free(step);
}

static void test_gemv_formats(void **state) {
  (void)state;
  struct oracle_rng rng = {1};
  for (size_t f = 0; f < oracle_n_format; f++) {
    run_shape(&rng, oracle_formats[f], &(struct shape){oracle_odd_length(oracle_formats[f]), 33, 1, 1, .norm = true},
              true);
    run_shape(&rng, oracle_formats[f], &(struct shape){512, 3, 2, 2, .residual = true}, false);
  }
}

static void test_gemv_shapes(void **state) {
  (void)state;
  static const struct shape shapes[] = {
      {256, 1, 1, 1, 0, 0, 0, 0, 0},  {1792, 31, 1, 1, 1, 1, 1, 0, 0},   {256, 32, 8, 8, 1, 0, 0, 0, 0},
      {768, 65, 4, 3, 0, 1, 0, 0, 0}, {512, 64, 8, 5, 1, 0, 0, 1, 0},    {256, 129, 3, 1, 0, 0, 1, 0, 0},
      {2048, 7, 2, 2, 1, 0, 0, 0, 0}, {256, 33, 1, 1, 1, 1, 1, 0, 0.22}, {512, 65, 3, 2, 0, 1, 0, 1, 1.0 / 6},
  };
  struct oracle_rng rng = {2};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) run_shape(&rng, i & 1 ? 14 : 12, &shapes[i], true);
}

#ifdef TEST_ALL_SHAPES
/* Every format at every shape. */
static void test_gemv_all(void **state) {
  (void)state;
  static const uint32_t n_out[] = {1, 3, 31, 33, 127}, n_row[] = {1, 2, 7};
  struct oracle_rng rng = {7};
  for (size_t f = 0; f < oracle_n_format; f++) {
    bool odd = oracle_fits(oracle_formats[f], 1408) && oracle_fits(oracle_formats[f], 2880);
    const uint32_t n_in[] = {256, odd ? 1408 : 768, odd ? 2880 : 2048};
    for (uint32_t i = 0; i < 3 * 5 * 3; i++) {
      /* A single value, small by chance, is no measure of its error. */
      uint32_t least = n_row[i / 15] == 1 ? 2 : 1, outs = n_out[i / 3 % 5] < least ? least : n_out[i / 3 % 5];
      run_shape(&rng, oracle_formats[f],
                &(struct shape){n_in[i % 3], outs, n_row[i / 15], n_row[i / 15], .norm = i & 1, .bias = i & 2,
                                .residual = i & 4, .rowsel = i & 8},
                false);
    }
  }
}
#endif

/* No live row: nothing is written. */
static void test_gemv_empty(void **state) {
  (void)state;
  struct oracle_rng rng = {3};
  uint64_t step_bytes;
  uint32_t *step = oracle_step(&rng, MAX_ROW, 0, 1, 1, NULL, NULL, &step_bytes);
  struct oracle_weight w;
  oracle_weight_init(&w, &rng, 12, 256, 16, 1);
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_GEMV);
  static const struct shadergen_param params[] = {{"FMT", 12},     {"N_IN", 256},        {"N_OUT", 16},
                                                  {"N_ROW", 2},    {"MAX_ROW", MAX_ROW}, {"X_STRIDE", 256},
                                                  {"Y_STRIDE", 16}};
  for (size_t i = 0; i < sizeof params / sizeof *params; i++) kernel_case_param(&c, params[i].name, params[i].value);
  kernel_case_bind(&c, "weight", w.plane, w.bytes);
  kernel_case_bind(&c, "step", step, step_bytes);
  uint32_t *y = kernel_case_bind(&c, "y", NULL, 0);
  kernel_case_run(&c);
  for (int i = 0; i < 32; i++) assert_int_equal(y[i], VKH_POISON);
  kernel_case_deinit(&c);
  oracle_weight_deinit(&w);
  free(step);
}

/* An extent that is too small is noticed, for every kind of field. */
static void test_instrument_notices(void **state) {
  (void)state;
  struct oracle_rng rng = {4};
  uint64_t step_bytes;
  uint32_t *step = oracle_step(&rng, MAX_ROW, 1, 1, 1, NULL, NULL, &step_bytes);
  struct oracle_weight w;
  oracle_weight_init(&w, &rng, 12, 256, 16, 1);
  float *x = oracle_floats(&rng, 256);
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_GEMV);
  static const struct shadergen_param params[] = {{"FMT", 12},     {"N_IN", 256},        {"N_OUT", 16},
                                                  {"N_ROW", 1},    {"MAX_ROW", MAX_ROW}, {"X_STRIDE", 256},
                                                  {"Y_STRIDE", 16}};
  for (size_t i = 0; i < sizeof params / sizeof *params; i++) kernel_case_param(&c, params[i].name, params[i].value);
  kernel_case_bind(&c, "weight", w.plane, w.bytes);
  kernel_case_bind(&c, "step", step, step_bytes);
  kernel_case_bind(&c, "x", x, 0);
  assert_int_equal(kernel_case_violations(&c, "x", 1024), 0);
  assert_true(kernel_case_violations(&c, "x", 1020) > 0);
  assert_true(kernel_case_violations(&c, "y", 60) > 0);
  assert_true(kernel_case_violations(&c, "weight", 128) > 0);
  assert_true(kernel_case_violations(&c, "step", 0) > 0);
  kernel_case_deinit(&c);
  oracle_weight_deinit(&w);
  free(step), free(x);
}

static void run_embed(struct oracle_rng *rng, uint32_t format) {
  enum { VOCAB = 37, ROWS = 5, LIVE = 4 };
  const uint32_t D = oracle_odd_length(format);
  struct oracle_weight w;
  uint64_t step_bytes;
  oracle_weight_init(&w, rng, format, D, VOCAB, 1);
  uint32_t slots[LIVE] = {1, 0, 2, 1};
  uint32_t *step = oracle_step(rng, MAX_ROW, LIVE, 3, 1, NULL, slots, &step_bytes);
  uint32_t token[LIVE] = {36, 0, 17, 5}, slot[3 * IMG_SLOT_WORDS] = {0};
  slot[2 * IMG_SLOT_WORDS + IMG_SLOT_TOKEN] = 17;
  for (int r = 0; r < LIVE; r++) step[img_step_row_token() + r] = r == 2 ? (uint32_t)IMG_TOKEN_FROM_SLOT : token[r];
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_EMBED);
  const struct shadergen_param params[] = {{"FMT", format}, {"D_MODEL", D},       {"N_VOCAB", VOCAB},
                                           {"N_ROW", ROWS}, {"MAX_ROW", MAX_ROW}, {"SCALE", 0.5}};
  for (size_t i = 0; i < sizeof params / sizeof *params; i++) kernel_case_param(&c, params[i].name, params[i].value);
  kernel_case_bind(&c, "weight", w.plane, w.bytes);
  kernel_case_bind(&c, "step", step, step_bytes);
  kernel_case_bind(&c, "slot", slot, sizeof slot);
  float *x = kernel_case_bind(&c, "x", NULL, 0);
  kernel_case_run(&c);
  for (uint32_t r = 0; r < LIVE; r++)
    for (uint32_t k = 0; k < D; k++) {
      float want = 0.5f * w.value[token[r] * D + k];
      if (fabsf(x[r * D + k] - want) > 1e-6f) fail_msg("embed format %u: row %u element %u", format, r, k);
    }
  assert_true(isnan(x[LIVE * D]));
  kernel_case_deinit(&c);
  oracle_weight_deinit(&w);
  free(step);
}

static void test_embed(void **state) {
  (void)state;
  struct oracle_rng rng = {5};
  for (size_t f = 0; f < oracle_n_format; f++) run_embed(&rng, oracle_formats[f]);
}

static void run_norm(struct oracle_rng *rng, uint32_t d, uint32_t n_row, uint32_t live, bool rowsel) {
  uint64_t step_bytes;
  uint32_t x_rows = rowsel ? 9 : n_row;
  float *x = oracle_floats(rng, x_rows * d), *weight = oracle_floats(rng, d);
  uint32_t *step = oracle_step(rng, MAX_ROW, rowsel ? x_rows : live, 1, 1, NULL, NULL, &step_bytes);
  step[IMG_STEP_N_SELECT] = live;
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_NORM);
  const struct shadergen_param params[] = {{"D_MODEL", d}, {"N_ROW", n_row},   {"MAX_ROW", MAX_ROW},
                                           {"EPS", 1e-5},  {"ROWSEL", rowsel}, {"X_ROWS", x_rows}};
  for (size_t i = 0; i < sizeof params / sizeof *params; i++) kernel_case_param(&c, params[i].name, params[i].value);
  double *want = malloc(live * d * sizeof *want);
  assert_non_null(want);
  for (uint32_t r = 0; r < live; r++) {
    uint32_t from = rowsel ? (4 * r + 1) % x_rows : r;
    step[img_step_select(MAX_ROW) + r * IMG_SELECT_WORDS + IMG_SELECT_ROW] = from;
    double squares = 0;
    for (uint32_t k = 0; k < d; k++) squares += (double)x[from * d + k] * x[from * d + k];
    for (uint32_t k = 0; k < d; k++) want[r * d + k] = x[from * d + k] / sqrt(squares / d + (double)1e-5f) * weight[k];
  }
  kernel_case_bind(&c, "x", x, 0);
  kernel_case_bind(&c, "weight", weight, 0);
  kernel_case_bind(&c, "step", step, step_bytes);
  float *y = kernel_case_bind(&c, "y", NULL, 0);
  kernel_case_run(&c);
  oracle_check("norm", y, want, NULL, live * d);
  for (uint32_t k = 0; k < d; k++) want[k] *= 1.0001;
  assert_true(oracle_error(y, want, live * d) > ORACLE_BAR);
  if (live < n_row) assert_true(isnan(y[live * d]));
  kernel_case_deinit(&c);
  free(want), free(x), free(weight), free(step);
}

static void test_norm(void **state) {
  (void)state;
  struct oracle_rng rng = {6};
  run_norm(&rng, 256, 1, 1, false);
  run_norm(&rng, 2048, 3, 2, false);
  run_norm(&rng, 544, 5, 4, true);
}

int main(void) {
  const struct CMUnitTest tests[] = {
#ifdef TEST_ALL_SHAPES
      cmocka_unit_test(test_gemv_all),
#endif
      cmocka_unit_test(test_gemv_formats),       cmocka_unit_test(test_gemv_shapes), cmocka_unit_test(test_gemv_empty),
      cmocka_unit_test(test_instrument_notices), cmocka_unit_test(test_embed),       cmocka_unit_test(test_norm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
