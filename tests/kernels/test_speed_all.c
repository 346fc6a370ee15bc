/* test_speed_all.c: what the kernels of the embedded model's shape cost on this device: generation, first use (a CPU
 * driver compiles then) and a run, for one token and for a window of 128 rows; the sums per token follow. Then gemv and
 * gemm in every weight format. Prints; a figure is no reason to fail. */
#include "kernel_case.h"
#include "kernel_oracle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define N_LAYER 4
#define D_MODEL 256
#define D_FF 256
#define N_EXPERT 16
#define N_USED 4
#define N_VOCAB 4096
#define PAGE_BYTES (4 * 2 * 2 * 64 * 64 * 2)
#define MAX_ROW 512
#define CONTEXT 128

struct cost {
  enum kernel_id kernel;
  const char *params; /* "NAME=value ..." beyond those that every kernel here has alike */
  double times;       /* dispatches a step */
};

static const struct cost token_costs[] = {
    {KERNEL_EMBED, "FMT=12 N_VOCAB=4096", 1},
    {KERNEL_GEMV, "FMT=12 N_IN=256 N_OUT=512 X_STRIDE=256 Y_STRIDE=512 NORM=1", N_LAYER},
    {KERNEL_GEMV, "FMT=12 N_IN=256 N_OUT=128 X_STRIDE=256 Y_STRIDE=128 NORM=1", 2 * N_LAYER},
    {KERNEL_ROPE_STORE,
     "N_HEAD=8 N_KV_HEAD=2 D_HEAD=64 D_HEAD_V=64 N_ROT=64 Q_STRIDE=512 K_STRIDE=128 V_STRIDE=128 QK_NORM=1", N_LAYER},
    {KERNEL_ATTENTION, "N_HEAD=8 N_KV_HEAD=2 D_HEAD=64 D_HEAD_V=64 Q_STRIDE=512 Y_STRIDE=512 N_SPLIT=4 SCALE=0.125",
     N_LAYER},
    {KERNEL_GEMV, "FMT=12 N_IN=512 N_OUT=256 X_STRIDE=512 Y_STRIDE=256 RESIDUAL=1", N_LAYER},
    {KERNEL_ROUTER, "FMT=0 N_EXPERT=16 N_EXPERT_USED=4", N_LAYER},
    {KERNEL_EXPERT_GATE_UP, "FMT_GATE=12 FMT_UP=12 D_FF=256 N_EXPERT=16 N_EXPERT_USED=4", N_LAYER},
    {KERNEL_EXPERT_DOWN, "FMT=12 D_FF=256 N_EXPERT=16 N_EXPERT_USED=4", N_LAYER},
    {KERNEL_GEMV, "FMT=14 N_IN=256 N_OUT=4096 X_STRIDE=256 Y_STRIDE=4096 NORM=1 ROWSEL=1", 1},
    {KERNEL_SAMPLE_SCAN, "N_VOCAB=4096 LOGIT_STRIDE=4096 N_SELECT=1", 1},
    {KERNEL_SAMPLE, "N_VOCAB=4096 LOGIT_STRIDE=4096 N_SELECT=1", 1},
};
static const struct cost window_costs[] = {
    {KERNEL_EMBED, "FMT=12 N_VOCAB=4096", 1},
    {KERNEL_NORM, "", 2 * N_LAYER},
    {KERNEL_GEMM, "FMT=12 N_IN=256 N_OUT=512 X_STRIDE=256 Y_STRIDE=512", N_LAYER},
    {KERNEL_GEMM, "FMT=12 N_IN=256 N_OUT=128 X_STRIDE=256 Y_STRIDE=128", 2 * N_LAYER},
    {KERNEL_ROPE_STORE,
     "N_HEAD=8 N_KV_HEAD=2 D_HEAD=64 D_HEAD_V=64 N_ROT=64 Q_STRIDE=512 K_STRIDE=128 V_STRIDE=128 QK_NORM=1", N_LAYER},
    {KERNEL_ATTENTION, "N_HEAD=8 N_KV_HEAD=2 D_HEAD=64 D_HEAD_V=64 Q_STRIDE=512 Y_STRIDE=512 N_SPLIT=1 SCALE=0.125",
     N_LAYER},
    {KERNEL_GEMM, "FMT=12 N_IN=512 N_OUT=256 X_STRIDE=512 Y_STRIDE=256 RESIDUAL=1", N_LAYER},
    {KERNEL_GEMM, "FMT=0 N_IN=256 N_OUT=16 X_STRIDE=256 Y_STRIDE=16", N_LAYER},
    {KERNEL_TOPK, "N_EXPERT=16 N_EXPERT_USED=4", N_LAYER},
    {KERNEL_EXPERT_SCHEDULE, "N_EXPERT=16 N_EXPERT_USED=4", N_LAYER},
    {KERNEL_EXPERT_GATE_UP_GEMM, "FMT_GATE=12 FMT_UP=12 D_FF=256 N_EXPERT=16 N_EXPERT_USED=4", N_LAYER},
    {KERNEL_EXPERT_DOWN_GEMM, "FMT=12 D_FF=256 N_EXPERT=16 N_EXPERT_USED=4", N_LAYER},
    {KERNEL_COMBINE, "N_EXPERT_USED=4", N_LAYER},
};

/* With MOE_TEST_CPU_TIME set: the processor time of all threads, which other programs on a busy machine do not disturb.
 */
static double now(void) {
  struct timespec t;
  clock_gettime(getenv("MOE_TEST_CPU_TIME") ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void set_params(struct kernel_case *c, const char *params, uint32_t n_row) {
  char text[256], *save, *word;
  snprintf(text, sizeof text, "%s", params);
  for (word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
    char *value = strchr(word, '=');
    *value++ = 0;
    int index = kernel_param_index(c->info, word);
    assert_true(index >= 0);
    kernel_case_param(c, c->info->param[index].name, strtod(value, NULL));
  }
  const struct shadergen_param common[] = {
      {"D_MODEL", D_MODEL}, {"N_ROW", n_row}, {"MAX_ROW", MAX_ROW}, {"PAGE_BYTES", PAGE_BYTES}};
  for (size_t i = 0; i < sizeof common / sizeof *common; i++)
    if (kernel_param_index(c->info, common[i].name) >= 0) kernel_case_param(c, common[i].name, common[i].value);
}

/* n_row rows at the end of one sequence of CONTEXT positions, one select record. */
static void fill_step(uint32_t *step, uint32_t n_row) {
  step[IMG_STEP_N_ROW] = n_row;
  step[IMG_STEP_N_SELECT] = 1;
  step[IMG_STEP_PAGE_STRIDE] = 64;
  step[IMG_STEP_N_RUN] = 1;
  step[img_step_run(MAX_ROW) + IMG_RUN_COUNT] = n_row;
  for (uint32_t r = 0; r < n_row; r++) step[img_step_row_pos(MAX_ROW) + r] = CONTEXT - n_row + r;
  for (uint32_t i = 0; i < 64; i++) step[img_step_page_table(MAX_ROW) + i] = i;
}

/* Zeros everywhere but in what steers: the step block, experts, tiles. */
static void bind_all(struct kernel_case *c, uint32_t n_row) {
  for (uint32_t i = 0; i < c->info->n_push; i++) {
    const char *name = c->info->push[i].name;
    struct moe_error err = {0};
    uint64_t bytes = 0;
    assert_int_equal(shadergen_extent(&c->request, i, &bytes, &err), 0);
    if (!bytes) bytes = !strcmp(name, "step") ? img_step_bytes(MAX_ROW, 1, 64) : 16u << 20;
    uint32_t *data = kernel_case_bind(c, name, NULL, bytes);
    memset(data, 0, bytes);
    if (!strcmp(name, "step")) fill_step(data, n_row);
    for (uint32_t p = 0; !strcmp(name, "ids") && p < n_row * N_USED; p++) data[p] = (p * 5) % N_EXPERT;
    for (uint32_t p = 0; !strcmp(name, "pairs") && p < n_row * N_USED; p++) data[p] = p;
    uint32_t each = n_row * N_USED / N_EXPERT;
    for (uint32_t t = 0; !strcmp(name, "tiles") && t < N_EXPERT; t++)
      for (uint32_t k = 0; k < 4; k++) data[4 * t + k] = (uint32_t[]){t, t * each, each, 0}[k];
  }
}

static double measure(const struct cost *cost, uint32_t n_row, double *first_use) {
  struct kernel_case c;
  struct moe_error err = {0};
  struct shadergen_module module;
  kernel_case_init(&c, cost->kernel);
  set_params(&c, cost->params, n_row);
  bind_all(&c, n_row);
  double start = now();
  if (shadergen_compile(&c.request, &module, &err)) fail_msg("%s", err.message);
  double generated = now() - start;
  uint64_t push[KERNEL_MAX_PUSH];
  for (uint32_t i = 0; i < c.info->n_push; i++) push[i] = c.buffer[i].address;
  struct vkh_kernel kernel;
  struct vkh_dispatch dispatch = {.kernel = &kernel, .push = push};
  assert_int_equal(shadergen_grid(&c.request, dispatch.grid, &err), 0);
  start = now();
  vkh_kernel_init(c.device, &module, &kernel);
  double created = now() - start;
  vkh_run(c.device, &dispatch, 1, 1);
  *first_use = now() - start;
  vkh_run(c.device, &dispatch, 1, 20);
  double best = 1e9;
  for (int i = 0; i < 5; i++) {
    start = now();
    vkh_run(c.device, &dispatch, 1, 20);
    double t = (now() - start) / 20;
    if (t < best) best = t;
  }
  fprintf(stderr, "%8.1f ms %8.1f ms %8.1f ms %10.1f us x %2.0f %7u bytes  %s\n", 1e3 * generated, 1e3 * created,
          1e3 * *first_use, 1e6 * best, cost->times, module.bytes, module.name);
  vkh_kernel_deinit(c.device, &kernel);
  shadergen_module_deinit(&module);
  kernel_case_deinit(&c);
  return best * cost->times;
}

static void measure_all(const char *what, const struct cost *costs, size_t n, uint32_t n_row) {
  double total = 0, first_use = 0, one;
  fprintf(stderr, "%s\n   generated     created   first use        a run\n", what);
  const char *only = getenv("MOE_TEST_ONLY"); /* one kernel's name */
  for (size_t i = 0; i < n; i++) {
    if (only && strcmp(only, kernel_get(costs[i].kernel)->name)) continue;
    total += measure(&costs[i], n_row, &one);
    first_use += one;
  }
  fprintf(stderr, "%s: %.2f ms, %.0f rows/s; first uses %.0f ms\n", what, 1e3 * total, n_row / total, 1e3 * first_use);
}

static void test_token(void **state) {
  (void)state;
  measure_all("token(1)", token_costs, sizeof token_costs / sizeof *token_costs, 1);
}
static void test_window(void **state) {
  (void)state;
  measure_all("window(128)", window_costs, sizeof window_costs / sizeof *window_costs, 128);
}

/* Gated DeltaNet layers: of a small hybrid (3 layers), and of one with 32 heads of 128 (30 layers). */
static void test_recurrent(void **state) {
  (void)state;
#define BLOCK " BLOCK_BYTES=2195456"
  static const struct cost costs[][4] = {{{KERNEL_SHORT_CONV, "N_CHANNEL=128 N_TAP=4" BLOCK, 6},
                                          {KERNEL_SHORT_CONV, "N_CHANNEL=256 N_TAP=4" BLOCK, 3},
                                          {KERNEL_DELTA_RULE, "N_HEAD=4 N_KEY_HEAD=2 D_HEAD=64" BLOCK, 3},
                                          {KERNEL_GATED_NORM, "WIDTH=256 GROUP=64", 3}},
                                         {{KERNEL_SHORT_CONV, "N_CHANNEL=2048 N_TAP=4" BLOCK, 60},
                                          {KERNEL_SHORT_CONV, "N_CHANNEL=4096 N_TAP=4" BLOCK, 30},
                                          {KERNEL_DELTA_RULE, "N_HEAD=32 N_KEY_HEAD=16 D_HEAD=128" BLOCK, 30},
                                          {KERNEL_GATED_NORM, "WIDTH=4096 GROUP=128", 30}}};
  for (int large = 0; large < 2; large++) {
    measure_all(large ? "32 heads of 128, token(1)" : "4 heads of 64, token(1)", costs[large], 4, 1);
    measure_all(large ? "32 heads of 128, window(128)" : "4 heads of 64, window(128)", costs[large], 4, 128);
  }
}

/* One matrix in every format: for one row, and for 128. */
static void test_every_format(void **state) {
  (void)state;
  for (size_t i = 0; i < 2 * oracle_n_format; i++) {
    char params[96];
    bool many = i >= oracle_n_format;
    snprintf(params, sizeof params, "FMT=%u N_IN=1024 N_OUT=512 X_STRIDE=1024 Y_STRIDE=512",
             oracle_formats[i % oracle_n_format]);
    measure_all(many ? "gemm(128)" : "gemv(1)", &(struct cost){many ? KERNEL_GEMM : KERNEL_GEMV, params, 1}, 1,
                many ? 128 : 1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_token), cmocka_unit_test(test_window),
                                     cmocka_unit_test(test_recurrent), cmocka_unit_test(test_every_format)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
