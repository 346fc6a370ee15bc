/* The rule that keeps steps short, as a pure function of what steps took. */
#include "pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { TOKEN_1, TOKEN_64, WINDOW_128, WINDOW_512, WINDOW_2048, N_TEMPLATE };
static const struct step_template templates[N_TEMPLATE] = {{.n_row = 1, .n_select = 1},
                                                           {.n_row = 64, .n_select = 64},
                                                           {.n_row = 128, .n_select = 64},
                                                           {.n_row = 512, .n_select = 64},
                                                           {.n_row = 2048, .n_select = 64}};

static struct pace make(uint64_t limit_ms) {
  struct pace p;
  assert_int_equal(pace_init(&p, templates, N_TEMPLATE, limit_ms * 1000, NULL), MOE_OK);
  return p;
}

static void test_no_limit(void **state) {
  (void)state;
  struct pace p = make(0);
  pace_record(&p, WINDOW_2048, 2048, 3600 * 1000000ull, 0);
  assert_true(pace_max_row(&p, 1) >= 2048);
  pace_deinit(&p);
}

static void test_growth(void **state) {
  (void)state;
  struct pace p = make(100);
  assert_int_equal(pace_max_row(&p, 0), 128); /* the smallest window first */
  pace_record(&p, WINDOW_128, 128, 49000, 0);
  assert_int_equal(pace_max_row(&p, 1), 512); /* at most half the limit: the next one is tried */
  pace_record(&p, WINDOW_512, 512, 90000, 1);
  assert_int_equal(pace_max_row(&p, 2), 512); /* it is right, and the last one is not tried */
  pace_record(&p, WINDOW_512, 512, 24000, 2);
  assert_int_equal(pace_max_row(&p, 3), 2048); /* in proportion 96 ms */
  pace_deinit(&p);
  p = make(100);
  pace_record(&p, TOKEN_64, 64, 12000, 0);
  assert_int_equal(pace_max_row(&p, 1), 512); /* 24 ms and 96 ms in proportion, 384 for the last */
  pace_deinit(&p);
}

static void test_too_long(void **state) {
  (void)state;
  struct pace p = make(100);
  pace_record(&p, TOKEN_64, 64, 80000, 0);
  pace_record(&p, WINDOW_128, 128, 60000, 1);
  assert_int_equal(pace_max_row(&p, 2), 128); /* more than half */
  pace_record(&p, WINDOW_128, 128, 130000, 2);
  assert_int_equal(pace_max_row(&p, 3), 64); /* a window that is too long is not used */
  pace_record(&p, TOKEN_64, 64, 300000, 3);
  assert_int_equal(pace_max_row(&p, 4), 64); /* decoding's templates are, whatever they take */
  assert_int_equal(pace_max_row(&p, 2 + PACE_RETRY - 1), 64);
  assert_int_equal(pace_max_row(&p, 2 + PACE_RETRY), 128); /* but some time later again */
  pace_record(&p, TOKEN_64, 64, 40000, 5);
  assert_int_equal(pace_max_row(&p, 6), 128); /* or as soon as a smaller one shows that it would keep the limit */
  pace_deinit(&p);
}

static void test_back_to_the_smaller_one(void **state) {
  (void)state;
  struct pace p = make(100);
  pace_record(&p, WINDOW_128, 128, 40000, 0);
  pace_record(&p, WINDOW_512, 512, 120000, 1);
  for (uint32_t number = 2; number < 1 + PACE_RETRY; number++) assert_int_equal(pace_max_row(&p, number), 128);
  assert_int_equal(pace_max_row(&p, 1 + PACE_RETRY), 512);
  pace_record(&p, WINDOW_512, 200, 90000, 300); /* a short one counts as what it took */
  assert_int_equal(pace_max_row(&p, 301), 512);
  pace_deinit(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_no_limit),
      cmocka_unit_test(test_growth),
      cmocka_unit_test(test_too_long),
      cmocka_unit_test(test_back_to_the_smaller_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
