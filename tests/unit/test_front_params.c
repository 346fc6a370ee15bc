/* test_front_params.c: what needs no server of the request's fields: seeds of 64 bits, signed or not. */
#include "front_params.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static bool parse(const char *body, struct front_params *params, struct front_error *error) {
  static const struct front_defaults defaults = {.temperature = 1, .top_p = 1};
  *error = (struct front_error){0};
  return front_params_parse(params, false, body, strlen(body), &defaults, 100, error);
}

static void test_seeds(void **state) {
  (void)state;
  static const struct {
    const char *text;
    uint64_t seed;
  } cases[] = {
      {"0", 0},
      {"9223372036854775807", INT64_MAX},
      {"9223372036854775808", 1ull << 63},
      {"18446744073709551614", UINT64_MAX - 1},
      {"18446744073709551615", UINT64_MAX - 1}, /* -1 would be random */
      {"-2", UINT64_MAX - 1},
      {"-9223372036854775808", 1ull << 63},
  };
  static const char *const bodies[][2] = {{"{\"seed\":", ",\"prompt\":\"a\"}"},
                                          {"{\"prompt\":\"a\", \"seed\" :\n ", "}"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (size_t k = 0; k < sizeof bodies / sizeof *bodies; k++) {
      struct front_params params;
      struct front_error error;
      char body[128];
      snprintf(body, sizeof body, "%s%s%s", bodies[k][0], cases[i].text, bodies[k][1]);
      if (!parse(body, &params, &error)) fail_msg("%s: %s", body, error.message);
      if (params.sampling.seed != cases[i].seed)
        fail_msg("%s gives %llu", body, (unsigned long long)params.sampling.seed);
      assert_string_equal(params.prompt, "a");
      front_params_deinit(&params);
    }
}

static void test_what_is_no_seed(void **state) {
  (void)state;
  static const char *const bodies[] = {
      "{\"prompt\":\"a\",\"seed\":18446744073709551616}",
      "{\"prompt\":\"a\",\"seed\":99999999999999999999999999}",
      "{\"prompt\":\"a\",\"seed\":-9223372036854775809}",
      "{\"prompt\":\"a\",\"max_tokens\":9223372036854775808}",
      "{\"prompt\":\"a\",\"seed\":9223372036854775808,\"max_tokens\":9223372036854775808}",
      "{\"prompt\":\"a\",\"seed\":18446744073709551615x}",
      "18446744073709551615",
      "[18446744073709551615",
      "{\"seed\":",
  };
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
    struct front_params params;
    struct front_error error;
    assert_false(parse(bodies[i], &params, &error));
    assert_int_equal(error.status, 400);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds), cmocka_unit_test(test_what_is_no_seed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
