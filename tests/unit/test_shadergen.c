/* test_shadergen.c: requests, tables and modules of shadergen.h; no device. */
#include "formats.h"
#include "img_enums.h"
#include "shadergen.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* All of a kernel's parameters at their defaults; formats set to `format`. */
static struct shadergen_request defaults(enum kernel_id kernel, uint32_t format) {
  const struct kernel_info *info = kernel_get(kernel);
  struct shadergen_request r = {.kernel = kernel, .n_param = info->n_param};
  for (uint32_t i = 0; i < info->n_param; i++)
    r.param[i] = (struct shadergen_param){info->param[i].name,
                                          info->param[i].kind == KERNEL_PARAM_FORMAT ? format : info->param[i].value};
  return r;
}

static void check_module(const struct shadergen_request *r) {
  struct moe_error err = {0};
  struct shadergen_module m;
  const struct kernel_info *info = kernel_get(r->kernel);
  if (shadergen_compile(r, &m, &err)) fail_msg("%s", err.message);
  assert_int_equal(m.words[0], 0x07230203); /* SPIR-V's magic number */
  assert_int_equal(m.push_bytes, info->push_bytes + (r->instrument ? 8 : 0));
  assert_true(m.push_bytes <= 128); /* what every Vulkan device has */
  /* What every device has; and all that have matrices, or workgroups that all run at once. */
  assert_true(m.shared_bytes <= (m.features & (IMG_FEATURE_KHR_MATRIX | IMG_FEATURE_RESIDENT) ? 32768 : 16384));
  assert_true(m.n_tuning >= 1 && m.n_tuning <= IMG_MAX_TUNING);
  assert_int_equal(m.tuning[0].min_subgroup, 1);
  for (uint32_t i = 0; i < m.n_tuning; i++) {
    const struct img_tuning *t = &m.tuning[i];
    assert_true(t->group_items > 0 && t->spec[IMG_SPEC_WG] % t->spec[IMG_SPEC_LANES] == 0);
    assert_true(t->spec[IMG_SPEC_WG] >= 4 && t->spec[IMG_SPEC_WG] <= 1024);
    assert_true(i == 0 || t->min_subgroup > m.tuning[i - 1].min_subgroup);
    /* Full subgroups: the workgroup is a multiple of every subgroup size that the row serves, at least up to the next
     * row. The first one serves sizes below the second's, at most 8. */
    uint32_t second = m.n_tuning > 1 ? m.tuning[1].min_subgroup / 2 : 8;
    assert_true(t->spec[IMG_SPEC_WG] % (i > 0 ? t->min_subgroup : second < 8 ? second : 8) == 0);
    assert_true(i + 1 < m.n_tuning || t->spec[IMG_SPEC_WG] >= 64);
  }
  assert_memory_equal(m.name, info->name, strlen(info->name));
  shadergen_module_deinit(&m);
}

static void test_every_kernel(void **state) {
  (void)state;
  for (uint32_t k = 0; k < N_KERNEL; k++) {
    struct shadergen_request r = defaults((enum kernel_id)k, 12);
    check_module(&r);
    struct moe_error err = {0};
    uint32_t grid[3] = {0};
    uint64_t bytes;
    assert_int_equal(shadergen_grid(&r, grid, &err), MOE_OK);
    assert_true(grid[0] && grid[1] && grid[2]);
    for (uint32_t f = 0; f < kernel_get(r.kernel)->n_push; f++)
      assert_int_equal(shadergen_extent(&r, f, &bytes, &err), MOE_OK);
  }
}

/* The formats that moec compiles are those that have a decoder. */
static void test_formats(void **state) {
  (void)state;
  for (uint32_t i = 0; i < format_count(); i++) {
    const struct format *f = format_at(i);
    const char *name = shadergen_format_name(f->number);
    assert_int_equal(format_compiled(f), name != NULL);
    if (!name) continue;
    assert_string_equal(name, f->symbol);
    struct shadergen_request r = defaults(KERNEL_GEMV, f->number);
    check_module(&r);
  }
}

static void test_instrumented(void **state) {
  (void)state;
  struct shadergen_request r = defaults(KERNEL_COMBINE, 12);
  r.instrument = true;
  check_module(&r);
  assert_int_equal(sizeof(struct shadergen_extents), 32 + 16 * KERNEL_MAX_PUSH);
}

static void *compile_hash(void *out) {
  struct shadergen_request r = defaults(KERNEL_ROUTER, 0);
  struct shadergen_module m;
  if (shadergen_compile(&r, &m, NULL)) return NULL;
  memcpy(out, m.hash, sizeof m.hash);
  shadergen_module_deinit(&m);
  return out;
}

static void test_same_on_all_threads(void **state) {
  (void)state;
  enum { N = 6 };
  pthread_t threads[N];
  uint8_t hash[N][IMG_HASH_BYTES], other[IMG_HASH_BYTES];
  for (int i = 0; i < N; i++) assert_int_equal(pthread_create(&threads[i], NULL, compile_hash, hash[i]), 0);
  for (int i = 0; i < N; i++) {
    void *result;
    pthread_join(threads[i], &result);
    assert_non_null(result);
    assert_memory_equal(hash[i], hash[0], IMG_HASH_BYTES);
  }
  struct shadergen_request r = defaults(KERNEL_ROUTER, 1);
  struct shadergen_module m;
  struct moe_error err = {0};
  assert_int_equal(shadergen_compile(&r, &m, &err), MOE_OK);
  memcpy(other, m.hash, sizeof other);
  shadergen_module_deinit(&m);
  assert_memory_not_equal(other, hash[0], IMG_HASH_BYTES);
}

static void expect(const struct shadergen_request *r, enum moe_code code, const char *message) {
  struct moe_error err = {0};
  struct shadergen_module m;
  assert_int_equal(shadergen_compile(r, &m, &err), code);
  if (!strstr(err.message, message)) fail_msg("'%s' is not in '%s'", message, err.message);
}

static void test_bad_requests(void **state) {
  (void)state;
  struct shadergen_request r = defaults(KERNEL_GEMV, 12);
  r.kernel = N_KERNEL;
  expect(&r, MOE_USAGE, "no kernel has number");
  r = defaults(KERNEL_GEMV, 12);
  r.param[2].name = "N_OUTT";
  expect(&r, MOE_USAGE, "kernel gemv has no parameter N_OUTT");
  r = defaults(KERNEL_GEMV, 12);
  r.param[2] = r.param[1];
  expect(&r, MOE_USAGE, "N_IN is given twice");
  r = defaults(KERNEL_GEMV, 12);
  r.n_param = 1;
  expect(&r, MOE_USAGE, "parameter N_IN (columns) is missing");
  r = defaults(KERNEL_GEMV, 12);
  r.param[1].value = 256.5;
  expect(&r, MOE_USAGE, "N_IN is 256.5");
  r = defaults(KERNEL_GEMV, 41);
  expect(&r, MOE_DECLINED, "no decoder for format number 41");
  r = defaults(KERNEL_NORM, 0);
  r.param[kernel_param_index(kernel_get(KERNEL_NORM), "EPS")].value = NAN;
  expect(&r, MOE_USAGE, "EPS is not a finite binary32");
  struct moe_error err = {0};
  uint64_t bytes;
  r = defaults(KERNEL_NORM, 0);
  assert_int_equal(shadergen_extent(&r, kernel_get(KERNEL_NORM)->n_push, &bytes, &err), MOE_USAGE);
}

static void test_rope_turns(void **state) {
  (void)state;
  assert_true(shadergen_rope_turns(0) == 0);
  uint64_t quarter = shadergen_rope_turns(1.57079632679489661923);
  assert_true(quarter > (1ull << 62) - 4096 && quarter < (1ull << 62) + 4096);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_kernel), cmocka_unit_test(test_formats),
      cmocka_unit_test(test_instrumented), cmocka_unit_test(test_same_on_all_threads),
      cmocka_unit_test(test_bad_requests), cmocka_unit_test(test_rope_turns),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
