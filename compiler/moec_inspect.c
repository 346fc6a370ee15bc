/* moec_inspect.c: the verb `moec inspect`. See moec_inspect.h.
 *
 * Owns: the report as a JSON value. Does not own: reading (src_gguf), kinds of files (gguf_kind), formats, families,
 * the text (moec_inspect_text.c). Invariants: strings from the file are made printable when they enter the report. */
#include "moec_inspect.h"

#include "emit.h"
#include "family.h"
#include "gguf_kind.h"
#include "gguf_text.h"
#include "keys.h"
#include "nextn.h"
#include "src_gguf.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { MAX_TEXT = 256, MAX_LISTED = 16 }; /* bytes of a string, elements of an array that the report shows */

/* What is known of one format in this file. */
struct tally {
  const struct format *format; /* NULL: number is unknown to the table */
  uint32_t number;
  uint64_t n_tensor, n_element, bytes;
  const struct gguf_tensor *first;
};

/* Counts beyond what JSON integers hold (only hostile files have them) are cut to the largest. */
static json_t *count_value(uint64_t count) {
  return json_integer(count > INT64_MAX ? INT64_MAX : (json_int_t)count);
}

static json_t *text_value(const char *data, size_t bytes) {
  char text[MAX_TEXT];
  return json_string(gguf_text_printable(text, sizeof text, data, bytes));
}

/* A string value by key, or null where the key is missing or no string. */
static json_t *string_or_null(const struct gguf *g, const char *key) {
  struct gguf_string s;
  return gguf_get_string(g, key, &s, NULL) == MOE_OK ? text_value(s.data, s.bytes) : json_null();
}

static json_t *array_value(const struct gguf_array *a) {
  json_t *list = json_array();
  struct gguf_string s;
  uint64_t cursor = 0;
  for (uint64_t i = 0; i < a->count && i < MAX_LISTED; i++) {
    json_t *element;
    if (a->type == GGUF_STRING)
      element = gguf_array_next(a, &cursor, &s) ? text_value(s.data, s.bytes) : json_null();
    else if (a->type == GGUF_F32 || a->type == GGUF_F64)
      element = json_real((double)gguf_array_f32(a, i));
    else if (a->type == GGUF_BOOL)
      element = json_boolean(a->data[i]);
    else
      element = json_integer((json_int_t)gguf_array_i64(a, i));
    json_array_append_new(list, element != NULL ? element : json_null()); /* json_real refuses NaN and infinity */
  }
  if (a->count > MAX_LISTED) json_array_append_new(list, json_sprintf("... %" PRIu64 " in all", a->count));
  return list;
}

/* The value of any key. */
static json_t *any_value(const struct gguf *g, const char *key, enum gguf_type type) {
  struct gguf_array a;
  int64_t i;
  uint64_t u;
  float f;
  bool b;
  json_t *value = NULL;
  if (type == GGUF_STRING) return string_or_null(g, key);
  if (type == GGUF_ARRAY && gguf_get_array(g, key, &a, NULL) == MOE_OK) return array_value(&a);
  if (type == GGUF_BOOL && gguf_get_bool(g, key, &b, NULL) == MOE_OK) return json_boolean(b);
  if (gguf_get_i64(g, key, &i, NULL) == MOE_OK) return json_integer((json_int_t)i);
  if (gguf_get_u64(g, key, &u, NULL) == MOE_OK) return json_sprintf("%" PRIu64, u);
  if (gguf_get_f32(g, key, &f, NULL) == MOE_OK) value = json_real((double)f);
  return value != NULL ? value : json_null();
}

/* All keys "ARCHITECTURE.*": what they are called differs from family to family, so none is named here. */
static json_t *hyperparameters(const struct gguf *g, const struct gguf_string *architecture) {
  json_t *object = json_object();
  for (uint64_t i = 0; i < gguf_n_key(g); i++) {
    enum gguf_type type;
    const char *key = gguf_key(g, i, &type);
    size_t n = architecture->bytes;
    if (n == 0 || strlen(key) <= n || memcmp(key, architecture->data, n) != 0 || key[n] != '.') continue;
    json_object_set_new(object, key + n + 1, any_value(g, key, type));
  }
  return object;
}

static json_t *tokenizer(const struct gguf *g) {
  struct gguf_array tokens = {0};
  json_t *object = json_object();
  json_object_set_new(object, "model", string_or_null(g, "tokenizer.ggml.model"));
  json_object_set_new(object, "pre", string_or_null(g, "tokenizer.ggml.pre"));
  if (gguf_get_array_of(g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, NULL) != MOE_OK) tokens.count = 0;
  json_object_set_new(object, "n_vocab", count_value(tokens.count));
  json_object_set_new(object, "chat_template", json_boolean(gguf_has(g, "tokenizer.chat_template")));
  return object;
}

/* ---- Formats ---- */

enum { MAX_TALLY = 64 }; /* the table's formats, and some unknown numbers; more unknown ones share the last */

static uint32_t tally_formats(const struct gguf *g, struct tally tally[MAX_TALLY]) {
  uint32_t n = 0;
  for (uint64_t i = 0; i < gguf_n_tensor(g); i++) {
    const struct gguf_tensor *t = gguf_tensor(g, i);
    uint32_t k = 0;
    while (k < n && tally[k].number != t->format_number) k++;
    if (k == MAX_TALLY) k--;
    if (k == n) tally[n++] = (struct tally){.format = t->format, .number = t->format_number, .first = t};
    tally[k].n_tensor++;
    tally[k].bytes += t->bytes;
    if (!moe_add(tally[k].n_element, t->n_element, &tally[k].n_element)) tally[k].n_element = UINT64_MAX;
  }
  return n;
}

static json_t *format_name(const struct format *f, uint32_t number) {
  return f != NULL ? json_string(f->name) : json_sprintf("unknown format %u", number);
}

static json_t *formats_report(const struct tally *tally, uint32_t n) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < n; i++) {
    const struct tally *t = &tally[i];
    json_t *row = json_object();
    json_object_set_new(row, "name", format_name(t->format, t->number));
    json_object_set_new(row, "number", json_integer(t->number));
    json_object_set_new(row, "compiled", json_boolean(format_compiled(t->format)));
    json_object_set_new(row, "n_tensor", count_value(t->n_tensor));
    json_object_set_new(row, "weights", count_value(t->n_element));
    json_object_set_new(row, "bytes", count_value(t->bytes));
    json_array_append_new(list, row);
  }
  return list;
}

static json_t *tensors_report(const struct gguf *g) {
  json_t *list = json_array();
  for (uint64_t i = 0; i < gguf_n_tensor(g); i++) {
    const struct gguf_tensor *t = gguf_tensor(g, i);
    json_t *row = json_object(), *shape = json_array();
    for (uint32_t d = 0; d < t->n_dim; d++) json_array_append_new(shape, count_value(t->dim[d]));
    json_object_set_new(row, "name", json_string(t->name));
    json_object_set_new(row, "format", format_name(t->format, t->format_number));
    json_object_set_new(row, "shape", shape);
    json_object_set_new(row, "bytes", count_value(t->bytes));
    json_object_set_new(row, "part", count_value(t->part + 1ull));
    json_object_set_new(row, "offset", count_value(t->offset));
    json_object_set_new(row, "compiled", json_boolean(format_compiled(t->format)));
    json_array_append_new(list, row);
  }
  return list;
}

/* The files, in order: one, or the parts of a split model. */
static json_t *parts_report(const struct gguf *g) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < gguf_n_part(g); i++) {
    json_t *row = json_object();
    uint64_t n_tensor = 0;
    for (uint64_t k = 0; k < gguf_n_tensor(g); k++) n_tensor += gguf_tensor(g, k)->part == i;
    json_object_set_new(row, "path", text_value(gguf_part_path(g, i), strlen(gguf_part_path(g, i))));
    json_object_set_new(row, "bytes", count_value(gguf_part_bytes(g, i)));
    json_object_set_new(row, "n_tensor", count_value(n_tensor));
    json_array_append_new(list, row);
  }
  return list;
}

/* ---- Whether it compiles ---- */

/* The formats that moec does not compile, each with the first tensor that has it and how many do. */
static void format_reasons(const struct tally *tally, uint32_t n, json_t *list) {
  for (uint32_t i = 0; i < n; i++) {
    struct moe_error err = {0};
    if (format_require(tally[i].number, tally[i].first->name, &err) == MOE_OK) continue;
    json_array_append_new(list,
                          json_sprintf("%s (%" PRIu64 " tensors have that format)", err.message, tally[i].n_tensor));
  }
}

/* Why not, one string each, the first reason first; empty when it does. */
static json_t *reasons(const struct gguf *g, const struct gguf_string *architecture, const struct tally *tally,
                       uint32_t n) {
  json_t *list = json_array();
  char name[MAX_TEXT], families[640];
  struct moe_error err = {0};
  gguf_text_printable(name, sizeof name, architecture->data, architecture->bytes);
  if (gguf_kind_require(g, &err) != MOE_OK) {
    json_array_append_new(list, text_value(err.message, strlen(err.message)));
    return list;
  }
  if (architecture->bytes == 0)
    json_array_append_new(list, json_string("the key general.architecture is missing, or no string"));
  else if (!family_served(name))
    json_array_append_new(list, json_sprintf("general.architecture: '%s' is not served; moec compiles %s", name,
                                             family_list(families, sizeof families)));
  format_reasons(tally, n, list);
  /* What only building the model finds: shapes, hyperparameters, the tokenizer. */
  if (json_array_size(list) == 0 && emit_model_check(g, &err) != MOE_OK)
    json_array_append_new(list, text_value(err.message, strlen(err.message)));
  return list;
}

/* Weights that take part in computing a token: of the experts, only the chosen ones. */
static uint64_t active_weights(const struct gguf *g, const struct gguf_string *architecture) {
  char key[128];
  uint32_t n_expert = 0, n_used = 0;
  uint64_t weights = 0;
  if (architecture->bytes <= 64) {
    snprintf(key, sizeof key, "%.*s.expert_count", (int)architecture->bytes, architecture->data);
    if (gguf_get_u32(g, key, &n_expert, NULL) != MOE_OK) n_expert = 0;
    snprintf(key, sizeof key, "%.*s.expert_used_count", (int)architecture->bytes, architecture->data);
    if (gguf_get_u32(g, key, &n_used, NULL) != MOE_OK || n_used > n_expert) n_used = n_expert;
  }
  for (uint64_t i = 0; i < gguf_n_tensor(g); i++) {
    const struct gguf_tensor *t = gguf_tensor(g, i);
    bool chosen = n_expert != 0 && strstr(t->name, "_exps.") != NULL && t->n_element % n_expert == 0;
    if (!moe_add(weights, chosen ? t->n_element / n_expert * n_used : t->n_element, &weights)) return UINT64_MAX;
  }
  return weights;
}

/* Hyperparameters that moec does not know, and ignores. */
static json_t *unknown_keys(const struct gguf *g) {
  json_t *list = json_array();
  for (uint64_t i = 0; i < gguf_n_key(g); i++) {
    const char *key = keys_unknown(g, i);
    if (key != NULL) json_array_append_new(list, text_value(key, strlen(key)));
  }
  return list;
}

/* The NextN blocks behind the trunk; null where the file says nothing of such. */
static json_t *nextn_report(const struct gguf *g, const json_t *hparams) {
  const json_t *n_layer = json_object_get(hparams, "block_count"),
               *n_block = json_object_get(hparams, "nextn_predict_layers");
  json_int_t n = json_integer_value(n_block), all = json_integer_value(n_layer);
  struct nextn found;
  if (n <= 0 || n > NEXTN_MAX || n >= all || all > UINT32_MAX) return json_null();
  nextn_find(g, (uint32_t)all, (uint32_t)n, &found);
  json_t *object = json_object();
  json_object_set_new(object, "carried", json_integer(found.n_whole));
  json_object_set_new(object, "left_out", json_integer(found.n_partial));
  json_object_set_new(object, "absent", json_integer(found.n_block - found.n_whole - found.n_partial));
  return object;
}

/* What the file is and how large. */
static void file_report(const struct gguf *g, json_t *object) {
  struct gguf_kind kind;
  gguf_kind_find(g, &kind);
  json_object_set_new(object, "path", text_value(gguf_path(g), strlen(gguf_path(g))));
  json_object_set_new(object, "is", json_string(kind.what));
  json_object_set_new(object, "gguf_version", json_integer(gguf_version(g)));
  json_object_set_new(object, "file_bytes", count_value(gguf_file_bytes(g)));
  json_object_set_new(object, "parts", parts_report(g));
}

static void model_report(const struct gguf *g, const struct gguf_string *architecture, const struct tally *tally,
                         uint32_t n, json_t *object) {
  uint64_t weights = 0;
  for (uint32_t i = 0; i < n; i++)
    if (!moe_add(weights, tally[i].n_element, &weights)) weights = UINT64_MAX;
  json_t *hparams = hyperparameters(g, architecture), *n_ctx = json_object_get(hparams, "context_length");
  json_object_set_new(object, "architecture", string_or_null(g, "general.architecture"));
  json_object_set_new(object, "name", string_or_null(g, "general.name"));
  json_object_set_new(object, "weights", count_value(weights));
  json_object_set_new(object, "weights_a_token", count_value(active_weights(g, architecture)));
  json_object_set_new(object, "n_ctx", json_is_integer(n_ctx) ? json_incref(n_ctx) : json_null());
  json_object_set_new(object, "n_tensor", count_value(gguf_n_tensor(g)));
  json_object_set_new(object, "hyperparameters", hparams);
  json_object_set_new(object, "unknown_keys", unknown_keys(g));
  json_object_set_new(object, "nextn", nextn_report(g, hparams));
  json_object_set_new(object, "tokenizer", tokenizer(g));
  json_object_set_new(object, "formats", formats_report(tally, n));
}

static json_t *report(const struct gguf *g, bool with_tensors) {
  struct tally tally[MAX_TALLY];
  struct gguf_string architecture;
  uint32_t n = tally_formats(g, tally);
  if (gguf_get_string(g, "general.architecture", &architecture, NULL) != MOE_OK)
    architecture = (struct gguf_string){"", 0};
  json_t *why_not = reasons(g, &architecture, tally, n), *object = json_object();
  file_report(g, object);
  model_report(g, &architecture, tally, n, object);
  json_object_set_new(object, "compiles", json_boolean(json_array_size(why_not) == 0));
  json_object_set_new(object, "reasons", why_not);
  if (with_tensors) json_object_set_new(object, "tensors", tensors_report(g));
  return object;
}

enum moe_code inspect_run(const char *path, const struct inspect_options *options, FILE *out, struct moe_error *err) {
  struct gguf *g;
  enum moe_code code = gguf_open(path, &g, err);
  if (code != MOE_OK) return code;
  json_t *object = report(g, options->json || options->tensors);
  gguf_close(g);
  if (object == NULL) return moe_fail(err, MOE_FAILED, "out of memory to inspect %.300s", path);
  errno = 0;
  if (options->json) {
    json_dumpf(object, out, JSON_INDENT(2) | JSON_REAL_PRECISION(7));
    fputc('\n', out);
  } else {
    inspect_print(object, out);
  }
  json_decref(object);
  if (fflush(out) != 0 || ferror(out))
    return moe_fail(err, MOE_FAILED, "cannot write the report: %s", errno != 0 ? strerror(errno) : "output error");
  return MOE_OK;
}
