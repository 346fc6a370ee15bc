/* moec_inspect_text.c: the report of `moec inspect` as text. See moec_inspect.h.
 *
 * Owns: the layout. Does not own: what is reported (moec_inspect.c). Invariants: everything printed is in the JSON. */
#include "moec_inspect.h"

#include <string.h>

/* "10.0 M" of a count, with base 1000. */
static const char *scaled(char text[32], int64_t count) {
  static const char *const unit[] = {"", " K", " M", " G", " T", " P", " E"};
  double value = (double)count;
  size_t i = 0;
  for (; value >= 999.5 && i + 1 < sizeof unit / sizeof unit[0]; i++) value /= 1000;
  snprintf(text, 32, i == 0 ? "%.0f%s" : "%.1f%s", value, unit[i]);
  return text;
}

static int64_t integer_at(const json_t *object, const char *key) {
  return json_integer_value(json_object_get(object, key));
}

/* A string value, or "-" where there is none. */
static const char *string_at(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text != NULL ? text : "-";
}

/* One value on one line: strings as they are, all else as JSON. */
static void print_value(const json_t *value, FILE *out) {
  if (json_is_string(value))
    fputs(json_string_value(value), out);
  else
    json_dumpf(value, out, JSON_ENCODE_ANY | JSON_REAL_PRECISION(7) | JSON_COMPACT);
}

/* The files of a split model, one a line. */
static void print_parts(const json_t *parts, FILE *out) {
  char bytes[32];
  json_t *value;
  size_t i;
  if (json_array_size(parts) < 2) return;
  fprintf(out, "parts            %zu parts\n", json_array_size(parts));
  json_array_foreach(parts, i, value)
      fprintf(out, "  %s  %sB, %d tensors\n", string_at(value, "path"), scaled(bytes, integer_at(value, "bytes")),
              (int)integer_at(value, "n_tensor"));
}

static void print_file(const json_t *object, FILE *out) {
  char a[32];
  fprintf(out, "%s\n", string_at(object, "path"));
  fprintf(out, "it is            %s\n", string_at(object, "is"));
  fprintf(out, "architecture     %s\n", string_at(object, "architecture"));
  fprintf(out, "name             %s\n", string_at(object, "name"));
  fprintf(out, "file             GGUF v%d, %sB, %d tensors\n", (int)integer_at(object, "gguf_version"),
          scaled(a, integer_at(object, "file_bytes")), (int)integer_at(object, "n_tensor"));
  print_parts(json_object_get(object, "parts"), out);
}

static void print_model(const json_t *object, FILE *out) {
  char a[32], b[32];
  const json_t *tokens = json_object_get(object, "tokenizer");
  int64_t weights = integer_at(object, "weights"), active = integer_at(object, "weights_a_token");
  json_t *value;
  const char *key;
  fprintf(out, "weights          %s", scaled(a, weights));
  if (active != weights) fprintf(out, ", %s of them for a token", scaled(b, active));
  fprintf(out, "\ncontext          ");
  print_value(json_object_get(object, "n_ctx"), out);
  fputc('\n', out);
  value = json_object_get(object, "nextn");
  if (!json_is_null(value))
    fprintf(out, "NextN blocks     %d whole, carried in the image; %d in parts, left out; %d absent\n",
            (int)integer_at(value, "carried"), (int)integer_at(value, "left_out"), (int)integer_at(value, "absent"));
  fprintf(out, "tokenizer        %s, pre %s, %d tokens, %s chat template\n", string_at(tokens, "model"),
          string_at(tokens, "pre"), (int)integer_at(tokens, "n_vocab"),
          json_is_true(json_object_get(tokens, "chat_template")) ? "a" : "no");
  fprintf(out, "hyperparameters\n");
  json_object_foreach(json_object_get(object, "hyperparameters"), key, value) {
    fprintf(out, "  %-38s ", key);
    print_value(value, out);
    fputc('\n', out);
  }
  value = json_object_get(object, "unknown_keys");
  if (json_array_size(value) == 0) return;
  fprintf(out, "unknown keys     ");
  print_value(value, out);
  fprintf(out, ", ignored\n");
}

static void print_formats(const json_t *formats, FILE *out) {
  char a[32], b[32];
  json_t *value;
  size_t i;
  fprintf(out, "formats\n");
  json_array_foreach(formats, i, value) {
    double bytes = (double)integer_at(value, "bytes"), weights = (double)integer_at(value, "weights");
    fprintf(out, "  %-10s %6d tensors %9s weights %9sB %6.2f bits a weight%s\n", string_at(value, "name"),
            (int)integer_at(value, "n_tensor"), scaled(a, integer_at(value, "weights")),
            scaled(b, integer_at(value, "bytes")), weights > 0 ? 8 * bytes / weights : 0.0,
            json_is_true(json_object_get(value, "compiled")) ? "" : "  (not compiled)");
  }
}

static void print_tensors(const json_t *tensors, FILE *out) {
  json_t *value;
  size_t i;
  if (tensors != NULL) fprintf(out, "tensors\n");
  json_array_foreach(tensors, i, value) {
    fprintf(out, "  %-40s %-8s ", string_at(value, "name"), string_at(value, "format"));
    print_value(json_object_get(value, "shape"), out);
    fputc('\n', out);
  }
}

void inspect_print(const json_t *object, FILE *out) {
  json_t *value;
  size_t i;
  print_file(object, out);
  print_model(object, out);
  print_formats(json_object_get(object, "formats"), out);
  print_tensors(json_object_get(object, "tensors"), out);
  fprintf(out, "compiles         %s\n", json_is_true(json_object_get(object, "compiles")) ? "yes" : "no");
  json_array_foreach(json_object_get(object, "reasons"), i, value) fprintf(out, "  %s\n", json_string_value(value));
}
