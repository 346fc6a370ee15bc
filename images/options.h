/* options.h: command lines from tables, for moec and moert alike.
 *
 * Owns: parsing argv by a table of options, its errors, its help text and its Markdown. Does not own: which options a
 * verb has (serve_options.def and the like) or what they mean.
 * Invariants: parsing allocates nothing: strings in the target point into argv or into the table. Every value is in its
 * row's range when options_parse succeeds. Thread rules: none, no state.
 *
 * A verb writes one .def file of rows
 *
 *   OPTION(kind, field, name, alias, arg, default, min, max, help)
 *
 *   kind     FLAG (bool), STRING (const char *), CHOICE (const char *, one of the words in arg), INT (int64_t), FLOAT
 *            (double)
 *   field    the member of the target struct, an identifier
 *   name     "--port"; alias: a second spelling ("-p") or NULL
 *   arg      what the help calls the value ("PORT"; for CHOICE the allowed words, "md|json"); NULL for FLAG
 *   default  as a string, as the user would type it; NULL: NULL, 0 or false
 *   min, max inclusive range of INT and FLOAT; 0, 0 for the others
 *   help     one line
 *
 * and includes it twice:
 *
 *   struct serve_options {
 *   #define OPTION OPTION_FIELD
 *   #include "serve_options.def"
 *   #undef OPTION
 *   };
 *   static const struct option_row rows[] = {
 *   #define OPTION(...) OPTION_ROW(struct serve_options, __VA_ARGS__)
 *   #include "serve_options.def"
 *   #undef OPTION
 *   };
 */
#ifndef IMAGES_OPTIONS_H
#define IMAGES_OPTIONS_H

#include "moe_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum option_kind { OPTION_FLAG, OPTION_STRING, OPTION_CHOICE, OPTION_INT, OPTION_FLOAT };

typedef bool option_type_FLAG;
typedef const char *option_type_STRING;
typedef const char *option_type_CHOICE;
typedef int64_t option_type_INT;
typedef double option_type_FLOAT;

struct option_row {
  enum option_kind kind;
  size_t offset; /* of the field in the target struct */
  const char *name, *alias, *arg, *default_text;
  double min, max;
  const char *help;
};

/* A row of a .def file as a struct member, and as an element of an option_row array. */
#define OPTION_FIELD(kind, field, name, alias, arg, default_text, min, max, help) option_type_##kind field;
#define OPTION_ROW(type, kind, field, name, alias, arg, default_text, min, max, help)                                  \
  {OPTION_##kind, offsetof(type, field), name, alias, arg, default_text, min, max, help},

enum { OPTIONS_MAX_POSITIONAL = 4 };

/* One verb's command line. */
struct option_table {
  const char *command;                /* "moert run" */
  const char *summary;                /* one line: what the verb does */
  const char *positionals;            /* as the usage line shows them: "MODEL.img [PROMPT]" */
  int min_positional, max_positional; /* max <= OPTIONS_MAX_POSITIONAL */
  const struct option_row *rows;
  size_t n_row;
};

struct option_result {
  const char *positional[OPTIONS_MAX_POSITIONAL]; /* point into argv; NULL beyond n_positional */
  int n_positional;
  bool help; /* --help or -h was there: nothing else was checked, print the help and exit 0 */
};

/* Sets every field of target to its row's default, then applies argv[0..argc) (without program name and verb).
 * Takes "--name value", "--name=value", aliases, "--" before positionals that begin with a dash, and --help or -h.
 * Errors: MOE_USAGE: unknown option (with the nearest known one), missing or unwanted value, not a number, out of range
 * (found, allowed), too few or too many positionals. Messages do not begin with the command: the programs print their
 * name. */
enum moe_code options_parse(const struct option_table *table, int argc, char *const *argv, void *target,
                            struct option_result *result, struct moe_error *err);

/* The same for a whole command line: --help prints the help to standard output; with result->help the caller is done.
 */
enum moe_code options_command(const struct option_table *table, int argc, char *const *argv, void *target,
                              struct option_result *result, struct moe_error *err);

/* Prints usage, summary and one line an option with default and range. */
void options_print_help(const struct option_table *table, FILE *out);

/* Prints the rows as a Markdown table (the documents hold the same text; a test compares). */
void options_print_markdown(const struct option_table *table, FILE *out);

#endif
