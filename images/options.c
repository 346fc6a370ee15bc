#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Edit distance of two short words, at most `limit` + 1; names longer than the row buffer count as far apart. */
static int options_distance(const char *a, const char *b, int limit) {
  enum { MAX = 40 };
  size_t n = strlen(a), m = strlen(b);
  if (n >= MAX || m >= MAX) return limit + 1;
  int row[MAX];
  for (size_t j = 0; j <= m; j++) row[j] = (int)j;
  for (size_t i = 1; i <= n; i++) {
    int diagonal = row[0];
    row[0] = (int)i;
    for (size_t j = 1; j <= m; j++) {
      int replace = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      int insert = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
      row[j] = replace < insert ? replace : insert;
    }
  }
  return row[m] > limit ? limit + 1 : row[m];
}

static const struct option_row *options_find(const struct option_table *table, const char *name, size_t length) {
  for (size_t i = 0; i < table->n_row; i++) {
    const struct option_row *row = &table->rows[i];
    if (strlen(row->name) == length && !memcmp(row->name, name, length)) return row;
    if (row->alias && strlen(row->alias) == length && !memcmp(row->alias, name, length)) return row;
  }
  return NULL;
}

static enum moe_code options_unknown(const struct option_table *table, const char *name, size_t length,
                                     struct moe_error *err) {
  char found[64];
  snprintf(found, sizeof found, "%.*s", (int)(length < 60 ? length : 60), name);
  const char *best = NULL;
  int best_distance = 4;
  for (size_t i = 0; i < table->n_row; i++) {
    const char *candidate = table->rows[i].name;
    bool extends = length > 3 && !strncmp(candidate, found, strlen(found)); /* an abbreviation of it */
    int distance = extends ? 1 : options_distance(found, candidate, 3);
    if (distance < best_distance && (extends || distance * 2 < (int)strlen(candidate))) {
      best = candidate;
      best_distance = distance;
    }
  }
  if (best)
    return moe_fail(err, MOE_USAGE, "unknown option %s; did you mean %s? (%s --help lists all)", found, best,
                    table->command);
  return moe_fail(err, MOE_USAGE, "unknown option %s (%s --help lists all)", found, table->command);
}

/* Whether `word` is one of the words of "a|b|c". */
static bool options_among(const char *choices, const char *word) {
  size_t length = strlen(word);
  for (const char *at = choices; *at;) {
    size_t n = strcspn(at, "|");
    if (n == length && !memcmp(at, word, n)) return true;
    at += n + (at[n] == '|');
  }
  return false;
}

static enum moe_code options_out_of_range(const struct option_row *row, const char *value, struct moe_error *err) {
  return moe_fail(err, MOE_USAGE, "%s %s is out of range; allowed: %.15g to %.15g", row->name, value, row->min,
                  row->max);
}

/* Stores one value text into the row's field. */
static enum moe_code options_store(const struct option_row *row, const char *value, void *target,
                                   struct moe_error *err) {
  void *field = (char *)target + row->offset;
  char *end = NULL;
  errno = 0;
  switch (row->kind) {
  case OPTION_FLAG:
    *(bool *)field = true;
    return MOE_OK;
  case OPTION_STRING:
    if (!*value) return moe_fail(err, MOE_USAGE, "%s needs a value (%s), found ''", row->name, row->arg);
    *(const char **)field = value;
    return MOE_OK;
  case OPTION_CHOICE:
    if (!options_among(row->arg, value))
      return moe_fail(err, MOE_USAGE, "%s '%s' is unknown; allowed: %s", row->name, value, row->arg);
    *(const char **)field = value;
    return MOE_OK;
  case OPTION_INT: {
    long long number = strtoll(value, &end, 10);
    if (end == value || *end) return moe_fail(err, MOE_USAGE, "%s '%s' is not a whole number", row->name, value);
    if (errno == ERANGE || (double)number < row->min || (double)number > row->max)
      return options_out_of_range(row, value, err);
    *(int64_t *)field = number;
    return MOE_OK;
  }
  case OPTION_FLOAT: {
    double number = strtod(value, &end);
    if (end == value || *end || isnan(number))
      return moe_fail(err, MOE_USAGE, "%s '%s' is not a number", row->name, value);
    if (number < row->min || number > row->max) return options_out_of_range(row, value, err);
    *(double *)field = number;
    return MOE_OK;
  }
  }
  return moe_fail(err, MOE_USAGE, "%s: broken option table", row->name);
}

static enum moe_code options_set_defaults(const struct option_table *table, void *target, struct moe_error *err) {
  for (size_t i = 0; i < table->n_row; i++) {
    const struct option_row *row = &table->rows[i];
    void *field = (char *)target + row->offset;
    if (row->kind == OPTION_FLAG)
      *(bool *)field = false;
    else if (row->default_text) {
      enum moe_code code = options_store(row, row->default_text, target, err);
      if (code) return code;
    } else if (row->kind == OPTION_INT)
      *(int64_t *)field = 0;
    else if (row->kind == OPTION_FLOAT)
      *(double *)field = 0;
    else
      *(const char **)field = NULL;
  }
  return MOE_OK;
}

/* Handles argv[*at], an option; moves *at past its value. */
static enum moe_code options_take(const struct option_table *table, int argc, char *const *argv, int *at, void *target,
                                  struct moe_error *err) {
  const char *word = argv[*at];
  size_t length = strncmp(word, "--", 2) ? strlen(word) : strcspn(word, "=");
  const struct option_row *row = options_find(table, word, length);
  if (!row) return options_unknown(table, word, length, err);
  bool attached = word[length] == '=';
  if (row->kind == OPTION_FLAG) {
    if (attached) return moe_fail(err, MOE_USAGE, "%s takes no value", row->name);
    return options_store(row, "", target, err);
  }
  if (attached) return options_store(row, word + length + 1, target, err);
  if (*at + 1 >= argc) return moe_fail(err, MOE_USAGE, "%s needs a value (%s)", row->name, row->arg);
  const char *value = argv[*at + 1];
  if (options_find(table, value, strcspn(value, "=")))
    return moe_fail(err, MOE_USAGE, "%s needs a value (%s), found the option %s", row->name, row->arg, value);
  ++*at;
  return options_store(row, value, target, err);
}

enum moe_code options_parse(const struct option_table *table, int argc, char *const *argv, void *target,
                            struct option_result *result, struct moe_error *err) {
  memset(result, 0, sizeof *result);
  enum moe_code code = options_set_defaults(table, target, err);
  if (code) return code;
  bool only_positionals = false;
  for (int i = 0; i < argc; i++) {
    const char *word = argv[i];
    if (!only_positionals && !strcmp(word, "--")) {
      only_positionals = true;
    } else if (!only_positionals && (!strcmp(word, "--help") || !strcmp(word, "-h"))) {
      result->help = true;
      return MOE_OK;
    } else if (!only_positionals && word[0] == '-' && word[1]) {
      if ((code = options_take(table, argc, argv, &i, target, err))) return code;
    } else if (result->n_positional >= table->max_positional) {
      return moe_fail(err, MOE_USAGE, "unexpected argument '%s'; usage: %s %s", word, table->command,
                      table->positionals);
    } else {
      result->positional[result->n_positional++] = word;
    }
  }
  if (result->n_positional < table->min_positional)
    return moe_fail(err, MOE_USAGE, "missing argument; usage: %s %s (--help lists the options)", table->command,
                    table->positionals);
  return MOE_OK;
}

enum moe_code options_command(const struct option_table *table, int argc, char *const *argv, void *target,
                              struct option_result *result, struct moe_error *err) {
  enum moe_code code = options_parse(table, argc, argv, target, result, err);
  if (!code && result->help) options_print_help(table, stdout);
  return code;
}

/* "--port P, -p P" of one row. */
static void options_spelling(const struct option_row *row, char *text, size_t size) {
  const char *space = row->arg ? " " : "", *arg = row->arg ? row->arg : "";
  if (row->alias)
    snprintf(text, size, "%s, %s%s%s", row->alias, row->name, space, arg);
  else
    snprintf(text, size, "%s%s%s", row->name, space, arg);
}

void options_print_help(const struct option_table *table, FILE *out) {
  fprintf(out, "usage: %s %s [options]\n%s\n\n", table->command, table->positionals, table->summary);
  for (size_t i = 0; i < table->n_row; i++) {
    const struct option_row *row = &table->rows[i];
    char spelling[128];
    options_spelling(row, spelling, sizeof spelling);
    fprintf(out, "  %-24s %s", spelling, row->help);
    if (row->default_text) fprintf(out, " (default %s)", row->default_text);
    fputc('\n', out);
  }
  fprintf(out, "  %-24s %s\n", "-h, --help", "print this");
}

void options_print_markdown(const struct option_table *table, FILE *out) {
  fputs("| option | default | allowed | meaning |\n|---|---|---|---|\n", out);
  for (size_t i = 0; i < table->n_row; i++) {
    const struct option_row *row = &table->rows[i];
    char spelling[128];
    options_spelling(row, spelling, sizeof spelling);
    for (char *bar = spelling; (bar = strchr(bar, '|')); bar++) *bar = '/'; /* a bar would end the cell */
    fprintf(out, "| `%s` | %s | ", spelling, row->default_text ? row->default_text : "");
    if (row->kind == OPTION_INT || row->kind == OPTION_FLOAT) fprintf(out, "%.15g to %.15g", row->min, row->max);
    fprintf(out, " | %s |\n", row->help);
  }
}
