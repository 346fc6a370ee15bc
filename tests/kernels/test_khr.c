/* test_khr.c: the kernels of tier khr: those for many rows by the tests of test_experts.c, and what f16 could get
 * wrong: rows with values far outside of its range. Skipped on a device without matrices (./build.sh test --matrix runs
 * it on a CPU). */
#define MANY_ROWS(NAME) KERNEL_##NAME##_KHR
#define OTHER_MAIN
enum { TILE_MULTIPLE = 16 };
static void set_bar(unsigned format, int factors);
#include "test_experts.c"

/* factors: how many products are multiplied to a result, whose largest values are then further above their root mean
 * square. F32 weights are two f16 each; but lavapipe rounds products of f16 to f16 (seen: Mesa 26.1, weights and
 * activations that f16 has exactly). */
static void set_bar(uint32_t format, int factors) {
  oracle_bar = factors * factors * (format == 0 && kernel_case_device()->subgroup > 8 ? ORACLE_BAR : ORACLE_BAR_F16);
}

/* y of ROWS rows of x through gemm_khr, in tiles of 16 rows. */
enum { RANGE_ROWS = 20, RANGE_OUT = 40 };
static void range_gemm(const struct oracle_weight *w, uint32_t format, const float *x, float *y, bool instrumented) {
  struct oracle_rng rng = {31};
  uint64_t step_bytes;
  uint32_t *step = oracle_step(&rng, MAX_ROW, RANGE_ROWS, 1, 1, NULL, NULL, &step_bytes);
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_GEMM_KHR);
  SET_PARAMS(&c, {"FMT", format}, {"N_IN", w->n_in}, {"N_OUT", RANGE_OUT}, {"N_ROW", RANGE_ROWS}, {"MAX_ROW", MAX_ROW},
             {"X_STRIDE", w->n_in}, {"Y_STRIDE", RANGE_OUT}, {"TM", 16});
  kernel_case_bind(&c, "weight", w->plane, w->bytes);
  kernel_case_bind(&c, "x", x, 0);
  kernel_case_bind(&c, "step", step, step_bytes);
  const float *got = kernel_case_bind(&c, "y", NULL, 0);
  run(&c, instrumented);
  memcpy(y, got, RANGE_ROWS * RANGE_OUT * sizeof *y);
  kernel_case_deinit(&c);
  free(step);
}

/* Rows far beyond f16's range, far below it, and of zeros are as exact as others; and those others have the same bits
 * beside them as without. */
static void run_range(struct oracle_rng *rng, uint32_t format) {
  static const float factor[RANGE_ROWS] = {1, 3e6f, 1e-6f, 0, 1, 1e-20f, 1e30f, 1, 65505, 1,
                                           1, 1,    1,     1, 1, 1,      1,     1, 1e9f,  1};
  const uint32_t n_in = oracle_odd_length(format);
  struct oracle_weight w;
  oracle_weight_init(&w, rng, format, n_in, RANGE_OUT, 1);
  float *x = oracle_floats(rng, RANGE_ROWS * n_in), plain[RANGE_ROWS * RANGE_OUT], y[RANGE_ROWS * RANGE_OUT];
  double *v = checked_malloc(n_in * sizeof *v), want[RANGE_OUT], wrong[RANGE_OUT];
  range_gemm(&w, format, x, plain, false);
  for (uint32_t i = 0; i < RANGE_ROWS * n_in; i++) x[i] *= factor[i / n_in];
  range_gemm(&w, format, x, y, true);
  for (uint32_t r = 0; r < RANGE_ROWS; r++) {
    char what[64];
    snprintf(what, sizeof what, "gemm_khr format %u, a row times %g", format, (double)factor[r]);
    for (uint32_t k = 0; k < n_in; k++) v[k] = x[r * n_in + k];
    for (uint32_t o = 0; o < RANGE_OUT; o++) want[o] = oracle_dot(&w, 0, o, v);
    for (uint32_t k = 0; k < n_in; k += 16) v[k] += (double)(0.25f * factor[r]);
    for (uint32_t o = 0; o < RANGE_OUT; o++) wrong[o] = oracle_dot(&w, 0, o, v);
    set_bar(format, 1);
    oracle_check(what, y + r * RANGE_OUT, want, factor[r] != 0 ? wrong : NULL, RANGE_OUT);
    if (factor[r] == 1) assert_memory_equal(y + r * RANGE_OUT, plain + r * RANGE_OUT, RANGE_OUT * sizeof *y);
  }
  oracle_weight_deinit(&w);
  free(x), free(v);
}

static void test_range(void **state) {
  (void)state;
  struct oracle_rng rng = {32};
  run_range(&rng, 12);
  run_range(&rng, 1);
  run_range(&rng, 0);
}

/* Tiles of 64 rows, as windows have them. */
static void test_large_tiles(void **state) {
  (void)state;
  struct oracle_rng rng = {33};
  run_gemm(&rng, 12, 512, 130, 100, 97, 64, 3, true);
  run_gemm(&rng, 14, 768, 40, 64, 50, 64, 4 | 8, false);
  struct window t = {.shape = {12, 14, 256, 70, 4, 2, 90}, .n_row = 91, .tm = 64};
  window_init(&t, &rng, true);
  run_gate_up_gemm(&rng, &t, true, true);
  run_down_gemm(&rng, &t, true);
  window_deinit(&t);
}

/* From here on kernels of lower tiers, which templates of this one use too. */
static void test_own_bar(void **state) {
  (void)state;
  oracle_bar = ORACLE_BAR;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_range),     cmocka_unit_test(test_large_tiles), cmocka_unit_test(test_gemm),
      cmocka_unit_test(test_many_rows), cmocka_unit_test(test_own_bar),     cmocka_unit_test(test_schedule),
      cmocka_unit_test(test_combine),   cmocka_unit_test(test_router),      cmocka_unit_test(test_topk),
      cmocka_unit_test(test_few_rows),
  };
  if (!kernel_case_device()->matrix) {
    puts("skipped: the device has no VK_KHR_cooperative_matrix");
    return 77;
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
