/* test_moec_options.c: compiler/README.md holds the option tables that the program has. */
#include "emit.h"
#include "moec_inspect.h"
#include "moec_oracle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct option_row compile_rows[] = {
#define OPTION(...) OPTION_ROW(struct emit_options, __VA_ARGS__)
#include "moec_compile_options.def"
#undef OPTION
};
static const struct option_row inspect_rows[] = {
#define OPTION(...) OPTION_ROW(struct inspect_options, __VA_ARGS__)
#include "moec_inspect_options.def"
#undef OPTION
};
static const struct option_row oracle_rows[] = {
#define OPTION(...) OPTION_ROW(struct oracle_options, __VA_ARGS__)
#include "moec_oracle_options.def"
#undef OPTION
};

static char *read_readme(void) {
  char path[4096];
  snprintf(path, sizeof path, "%s/../compiler/README.md", getenv("TESTS_DIR"));
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  char *text = calloc(1, 1 << 20);
  assert_non_null(text);
  assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
  fclose(f);
  return text;
}

static void check_table(const struct option_row *rows, size_t n, const char *heading) {
  const struct option_table table = {.command = "moec", .rows = rows, .n_row = n};
  char *wanted = NULL, *readme = read_readme();
  size_t bytes = 0;
  FILE *out = open_memstream(&wanted, &bytes);
  assert_non_null(out);
  fprintf(out, "%s\n\n", heading);
  options_print_markdown(&table, out);
  fclose(out);
  if (!strstr(readme, wanted)) fail_msg("compiler/README.md lacks this table:\n%s", wanted);
  free(wanted);
  free(readme);
}

static void test_readme_has_the_tables(void **state) {
  (void)state;
  check_table(compile_rows, sizeof compile_rows / sizeof *compile_rows,
              "Options of compiling (`moec_compile_options.def`):");
  check_table(inspect_rows, sizeof inspect_rows / sizeof *inspect_rows,
              "Options of `moec inspect` (`moec_inspect_options.def`):");
  check_table(oracle_rows, sizeof oracle_rows / sizeof *oracle_rows,
              "Options of `moec oracle` (`moec_oracle_options.def`):");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_readme_has_the_tables)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
