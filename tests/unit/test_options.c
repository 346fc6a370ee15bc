/* test_options.c: the table-driven command lines of options.h. */
#include "options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct serve_options {
#define OPTION OPTION_FIELD
#include "serve_options.def"
#undef OPTION
};
static const struct option_row rows[] = {
#define OPTION(...) OPTION_ROW(struct serve_options, __VA_ARGS__)
#include "serve_options.def"
#undef OPTION
};
static const struct option_table table = {.command = "moert",
                                          .summary = "serves an image",
                                          .positionals = "MODEL.img",
                                          .min_positional = 1,
                                          .max_positional = 1,
                                          .rows = rows,
                                          .n_row = sizeof rows / sizeof *rows};

static enum moe_code parse(char *const *argv, struct serve_options *options, struct option_result *result,
                           struct moe_error *err) {
  int argc = 0;
  while (argv[argc]) argc++;
  *err = (struct moe_error){0};
  return options_parse(&table, argc, argv, options, result, err);
}

static void test_defaults_and_spellings(void **state) {
  (void)state;
  struct serve_options o;
  struct option_result r;
  struct moe_error err;
  assert_int_equal(parse((char *[]){"m.img", NULL}, &o, &r, &err), MOE_OK);
  assert_string_equal(o.host, "127.0.0.1");
  assert_int_equal(o.port, 8080);
  assert_null(o.device);
  assert_true(o.temperature > 0.79 && o.temperature < 0.81);
  assert_int_equal(r.n_positional, 1);
  assert_string_equal(r.positional[0], "m.img");
  assert_int_equal(parse((char *[]){"--port", "0", "-c", "64", "--host=::1", "--", "-m.img", NULL}, &o, &r, &err), 0);
  assert_int_equal(o.port, 0);
  assert_int_equal(o.n_ctx, 64);
  assert_string_equal(o.host, "::1");
  assert_string_equal(r.positional[0], "-m.img");
  assert_int_equal(parse((char *[]){"--port", "bad", "--help", NULL}, &o, &r, &err), MOE_USAGE);
  assert_int_equal(parse((char *[]){"--help", NULL}, &o, &r, &err), MOE_OK);
  assert_true(r.help);
}

static void test_errors_say_what_is_wrong(void **state) {
  (void)state;
  static const struct {
    char *argv[5];
    const char *expected[3];
  } cases[] = {
      {{"m.img", "--prot", "1"}, {"--prot", "did you mean --port"}},
      {{"m.img", "--api"}, {"--api", "--api-key-file"}},
      {{"m.img", "--zzzzzz"}, {"unknown option --zzzzzz", "--help"}},
      {{"m.img", "--port"}, {"--port needs a value (PORT)"}},
      {{"m.img", "--host", "--port", "1"}, {"--host needs a value", "--port"}},
      {{"m.img", "--host", ""}, {"--host needs a value"}},
      {{"m.img", "--port", "65536"}, {"65536", "0 to 65535"}},
      {{"m.img", "--port", "99999999999999999999"}, {"out of range"}},
      {{"m.img", "--port", "12x"}, {"'12x' is not a whole number"}},
      {{"m.img", "--temp", "-1"}, {"-1", "0 to 100"}},
      {{"m.img", "--temp", "nan"}, {"not a number"}},
      {{"m.img", "--tier", "fast"}, {"'fast'", "base|dot|khr|nv|resident"}},
      {{"m.img", "--tier", "bas"}, {"'bas'"}},
      {{"m.img", "second"}, {"unexpected argument 'second'", "usage: moert MODEL.img"}},
      {{NULL}, {"missing argument", "MODEL.img"}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct serve_options o;
    struct option_result r;
    struct moe_error err;
    assert_int_equal(parse((char *const *)cases[i].argv, &o, &r, &err), MOE_USAGE);
    for (size_t k = 0; k < 3 && cases[i].expected[k]; k++)
      if (!strstr(err.message, cases[i].expected[k]))
        fail_msg("case %zu: '%s' lacks '%s'", i, err.message, cases[i].expected[k]);
  }
}

static void test_help_lists_every_row(void **state) {
  (void)state;
  char text[16384] = {0};
  FILE *out = fmemopen(text, sizeof text - 1, "w");
  options_print_help(&table, out);
  fclose(out);
  for (size_t i = 0; i < table.n_row; i++) assert_non_null(strstr(text, rows[i].name));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_defaults_and_spellings),
      cmocka_unit_test(test_errors_say_what_is_wrong),
      cmocka_unit_test(test_help_lists_every_row),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
