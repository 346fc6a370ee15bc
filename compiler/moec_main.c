/* moec_main.c: the program moec: verbs and their command lines.
 *
 * Owns: main, the exit code, where an error is printed. Does not own: what a verb does (emit.h, moec_inspect.h,
 * moec_oracle.h), option tables (*_options.def). Invariants: an error is one line on standard error and the exit code
 * is its moe_code; results go to standard output. */
#include "emit.h"
#include "family.h"
#include "moec_inspect.h"
#include "moec_oracle.h"
#include "options.h"

#include <string.h>

static const struct option_row moec_compile_rows[] = {
#define OPTION(...) OPTION_ROW(struct emit_options, __VA_ARGS__)
#include "moec_compile_options.def"
#undef OPTION
};
static const struct option_row moec_inspect_rows[] = {
#define OPTION(...) OPTION_ROW(struct inspect_options, __VA_ARGS__)
#include "moec_inspect_options.def"
#undef OPTION
};
static const struct option_row moec_oracle_rows[] = {
#define OPTION(...) OPTION_ROW(struct oracle_options, __VA_ARGS__)
#include "moec_oracle_options.def"
#undef OPTION
};

#define MOEC_TABLE(command, summary, rows)                                                                             \
  { command, summary, "MODEL.gguf", 1, 1, rows, sizeof rows / sizeof *rows }
static const struct option_table moec_compile_table =
    MOEC_TABLE("moec", "compiles a model file to an image that moert serves", moec_compile_rows);
static const struct option_table moec_inspect_table =
    MOEC_TABLE("moec inspect", "says what is in a model file and whether it can be compiled", moec_inspect_rows);
static const struct option_table moec_oracle_table = MOEC_TABLE(
    "moec oracle", "runs a model in double precision on the CPU: greedy tokens to compare with", moec_oracle_rows);

/* Each verb: parses argv by its table, then runs. *path: NULL when only the help was printed. */
static enum moe_code moec_parse(const struct option_table *table, int argc, char **argv, void *options,
                                const char **path, struct moe_error *err) {
  struct option_result result;
  enum moe_code code = options_command(table, argc, argv, options, &result, err);
  *path = code || result.help ? NULL : result.positional[0];
  return code;
}

static enum moe_code moec_verb_inspect(int argc, char **argv, struct moe_error *err) {
  struct inspect_options options;
  const char *path;
  enum moe_code code = moec_parse(&moec_inspect_table, argc, argv, &options, &path, err);
  return code || !path ? code : inspect_run(path, &options, stdout, err);
}

static enum moe_code moec_verb_oracle(int argc, char **argv, struct moe_error *err) {
  struct oracle_options options;
  const char *path;
  enum moe_code code = moec_parse(&moec_oracle_table, argc, argv, &options, &path, err);
  return code || !path ? code : moec_oracle(path, &options, stdout, err);
}

static enum moe_code moec_verb_compile(int argc, char **argv, struct moe_error *err) {
  struct emit_options options;
  const char *path;
  enum moe_code code = moec_parse(&moec_compile_table, argc, argv, &options, &path, err);
  return code || !path ? code : emit_image(path, &options, err);
}

static void moec_help(void) {
  char list[640];
  options_print_help(&moec_compile_table, stdout);
  printf(
      "\nother verbs (each with --help):\n"
      "  moec inspect MODEL.gguf  %s\n  moec oracle MODEL.gguf   %s\n  moec --version\n"
      "families: %s\nexit codes: 0 done, 1 failed, 2 wrong command line, 3 declined: moec cannot compile this model\n",
      moec_inspect_table.summary, moec_oracle_table.summary, family_list(list, sizeof list));
}

int main(int argc, char **argv) {
  struct moe_error err = {0};
  enum moe_code code;
  if (argc == 2 && !strcmp(argv[1], "--version")) {
    puts("moec " MOE_VERSION);
    return MOE_OK;
  }
  if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
    moec_help();
    return MOE_OK;
  }
  if (argc >= 2 && !strcmp(argv[1], "inspect"))
    code = moec_verb_inspect(argc - 2, argv + 2, &err);
  else if (argc >= 2 && !strcmp(argv[1], "oracle"))
    code = moec_verb_oracle(argc - 2, argv + 2, &err);
  else
    code = moec_verb_compile(argc - 1, argv + 1, &err);
  if (!code && (fflush(stdout) || ferror(stdout))) code = moe_fail(&err, MOE_FAILED, "standard output: not written");
  if (code) fprintf(stderr, "moec: %s\n", err.message[0] ? err.message : "failed without a message");
  return code;
}
