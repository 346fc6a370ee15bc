#include "front_params.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum front_param_kind { PARAM_NUMBER, PARAM_INTEGER, PARAM_BOOLEAN };
enum front_param_api { API_CHAT = 1, API_TEXT = 2, API_BOTH = 3 };

typedef double front_type_NUMBER;
typedef int64_t front_type_INTEGER;
typedef bool front_type_BOOLEAN;

/* The fields of front_params.def as the client gave them; has_FIELD: it was there and not null. */
struct front_values {
#define PARAM(kind, api, name, field, min, max, fallback, meaning)                                                     \
  front_type_##kind field;                                                                                             \
  bool has_##field;
#define UNSUPPORTED(name, harmless, meaning)
#include "front_params.def"
#undef PARAM
#undef UNSUPPORTED
};

struct front_param_row {
  enum front_param_kind kind;
  enum front_param_api api;
  const char *name;
  size_t offset, has_offset;
  int64_t min, max;
  const char *fallback, *meaning;
};

static const struct front_param_row front_param_rows[] = {
#define PARAM(kind, api, name, field, min, max, fallback, meaning)                                                     \
  {PARAM_##kind,                                                                                                       \
   API_##api,                                                                                                          \
   name,                                                                                                               \
   offsetof(struct front_values, field),                                                                               \
   offsetof(struct front_values, has_##field),                                                                         \
   min,                                                                                                                \
   max,                                                                                                                \
   fallback,                                                                                                           \
   meaning},
#define UNSUPPORTED(name, harmless, meaning)
#include "front_params.def"
#undef PARAM
#undef UNSUPPORTED
};

struct front_unsupported_row {
  const char *name, *harmless, *meaning;
};

static const struct front_unsupported_row front_unsupported_rows[] = {
#define PARAM(kind, api, name, field, min, max, fallback, meaning)
#define UNSUPPORTED(name, harmless, meaning) {name, harmless, meaning},
#include "front_params.def"
#undef PARAM
#undef UNSUPPORTED
};

enum {
  N_PARAM = sizeof front_param_rows / sizeof *front_param_rows,
  N_UNSUPPORTED = sizeof front_unsupported_rows / sizeof *front_unsupported_rows,
  FOUND_BYTES = 72,
  MAX_STOP_BYTES = 1024,
};

/* How an error shows a value: its JSON, cut. */
static const char *front_found(const json_t *value, char *text) {
  char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
  snprintf(text, FOUND_BYTES, "%s", dump ? dump : "?");
  if (dump && strlen(dump) >= FOUND_BYTES) strcpy(text + FOUND_BYTES - 4, "...");
  free(dump);
  return text;
}

/* A field that is there and not null. */
static json_t *front_get(const json_t *body, const char *name) {
  json_t *value = json_object_get(body, name);
  return json_is_null(value) ? NULL : value;
}

static bool front_read_row(const struct front_param_row *row, const json_t *value, struct front_values *values,
                           struct front_error *error) {
  char found[FOUND_BYTES];
  void *field = (char *)values + row->offset;
  *(bool *)((char *)values + row->has_offset) = true;
  if (row->kind == PARAM_BOOLEAN) {
    if (!json_is_boolean(value))
      return front_fail(error, 400, NULL, row->name, "%s: found %s, allowed: true or false", row->name,
                        front_found(value, found));
    *(bool *)field = json_is_true(value);
    return true;
  }
  bool whole = json_is_integer(value) || (json_is_real(value) && json_real_value(value) >= -9007199254740991.0 &&
                                          json_real_value(value) <= 9007199254740991.0 &&
                                          json_real_value(value) == (double)(int64_t)json_real_value(value));
  double number = json_number_value(value);
  int64_t integer = json_is_integer(value) ? (int64_t)json_integer_value(value) : whole ? (int64_t)number : 0;
  bool within = row->kind == PARAM_INTEGER ? whole && integer >= row->min && integer <= row->max
                                           : number >= (double)row->min && number <= (double)row->max;
  if (!json_is_number(value) || !within)
    return front_fail(error, 400, NULL, row->name, "%s: found %s, allowed: %s from %" PRId64 " to %" PRId64, row->name,
                      front_found(value, found), row->kind == PARAM_INTEGER ? "a whole number" : "a number", row->min,
                      row->max);
  if (row->kind == PARAM_INTEGER)
    *(int64_t *)field = integer;
  else
    *(double *)field = number;
  return true;
}

static bool front_read_rows(const json_t *body, bool chat, struct front_values *values, struct front_error *error) {
  for (size_t i = 0; i < N_PARAM; i++) {
    const struct front_param_row *row = &front_param_rows[i];
    json_t *value = row->api & (chat ? API_CHAT : API_TEXT) ? front_get(body, row->name) : NULL;
    if (value && !front_read_row(row, value, values, error)) return false;
  }
  return true;
}

static bool front_equal(const json_t *a, const json_t *b) {
  if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
  return json_equal(a, b);
}

static bool front_reject_unsupported(const json_t *body, struct front_error *error) {
  for (size_t i = 0; i < N_UNSUPPORTED; i++) {
    const struct front_unsupported_row *row = &front_unsupported_rows[i];
    json_t *value = front_get(body, row->name);
    if (!value) continue;
    json_t *harmless = json_loads(row->harmless, 0, NULL), *one = NULL;
    size_t k = 0;
    bool accepted = false;
    json_array_foreach(harmless, k, one) accepted = accepted || front_equal(value, one);
    json_decref(harmless);
    char found[FOUND_BYTES];
    if (!accepted)
      return front_fail(error, 400, "unsupported_parameter", row->name,
                        "%s: found %s; %s: not supported by this server version, allowed: absent, null%s%.*s",
                        row->name, front_found(value, found), row->meaning,
                        strlen(row->harmless) > 2 ? " or one of " : "",
                        strlen(row->harmless) > 2 ? (int)strlen(row->harmless) : 0, row->harmless);
  }
  return true;
}

static bool front_add_stop(struct front_params *params, const json_t *value, struct front_error *error) {
  const char *text = json_string_value(value);
  char found[FOUND_BYTES];
  if (!text || json_string_length(value) > MAX_STOP_BYTES)
    return front_fail(error, 400, NULL, "stop", "stop: found %s, allowed: strings of at most %d bytes",
                      front_found(value, found), MAX_STOP_BYTES);
  if (!*text) return true; /* an empty stop string stops nothing */
  if (params->n_stop == FRONT_MAX_STOP)
    return front_fail(error, 400, NULL, "stop", "stop: found more than %d strings, allowed: at most %d", FRONT_MAX_STOP,
                      FRONT_MAX_STOP);
  char *copy = strdup(text);
  if (!copy) return front_fail(error, 500, NULL, "stop", "out of memory");
  params->stop[params->n_stop++] = copy;
  return true;
}

static bool front_read_stop(struct front_params *params, const json_t *body, struct front_error *error) {
  json_t *stop = front_get(body, "stop");
  if (!stop) return true;
  if (!json_is_array(stop)) return front_add_stop(params, stop, error);
  for (size_t i = 0; i < json_array_size(stop); i++)
    if (!front_add_stop(params, json_array_get(stop, i), error)) return false;
  return true;
}

static bool front_read_stream_options(struct front_params *params, const json_t *body, struct front_error *error) {
  json_t *options = front_get(body, "stream_options");
  char found[FOUND_BYTES];
  if (!options) return true;
  json_t *usage = front_get(options, "include_usage");
  if (!json_is_object(options) || (usage && !json_is_boolean(usage)))
    return front_fail(error, 400, NULL, "stream_options",
                      "stream_options: found %s, allowed: {\"include_usage\": true or false}",
                      front_found(options, found));
  params->include_usage = json_is_true(usage);
  return true;
}

/* A message's content as one string: itself, or its parts of type text joined by newlines. New reference. */
static json_t *front_content(json_t *content, size_t index, struct front_error *error) {
  char found[FOUND_BYTES], param[64];
  snprintf(param, sizeof param, "messages[%zu].content", index);
  if (!content || json_is_null(content)) return json_string("");
  if (json_is_string(content)) return json_incref(content);
  char *text = NULL;
  size_t length = 0, i = 0;
  json_t *part = NULL;
  FILE *out = json_is_array(content) ? open_memstream(&text, &length) : NULL;
  if (!out) {
    front_fail(error, 400, NULL, param, "%s: found %s, allowed: a string or an array of parts of type text", param,
               front_found(content, found));
    return NULL;
  }
  json_array_foreach(content, i, part) {
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *words = json_object_get(part, "text");
    if (!type || strcmp(type, "text") || !json_is_string(words)) {
      front_fail(
          error, 400, "unsupported_content", param,
          "%s[%zu]: found %s, allowed: {\"type\": \"text\", \"text\": ...}; other types are not supported by this "
          "server version",
          param, i, front_found(part, found));
      break;
    }
    if (i) fputc('\n', out);
    fwrite(json_string_value(words), 1, json_string_length(words), out);
  }
  fclose(out);
  json_t *joined = error->status ? NULL : json_stringn(text, length);
  free(text);
  return joined;
}

/* Copies one message with its content as a string. */
static bool front_read_message(json_t *messages, json_t *message, size_t index, struct front_error *error) {
  char found[FOUND_BYTES], param[64];
  snprintf(param, sizeof param, "messages[%zu]", index);
  if (!json_is_object(message))
    return front_fail(error, 400, NULL, param, "%s: found %s, allowed: an object with role and content", param,
                      front_found(message, found));
  const char *role = json_string_value(json_object_get(message, "role"));
  if (!role || !*role) {
    const json_t *value = json_object_get(message, "role");
    return front_fail(error, 400, NULL, param, "%s.role: found %s, allowed: a string such as system, user or assistant",
                      param, value ? front_found(value, found) : "nothing");
  }
  if (json_array_size(json_object_get(message, "tool_calls")))
    return front_fail(error, 400, "unsupported_parameter", param,
                      "%s.tool_calls: tools are not supported by this server version", param);
  json_t *given = json_object_get(message, "content");
  if (!given && strcmp(role, "assistant"))
    return front_fail(error, 400, NULL, param, "%s.content: found nothing, allowed: a string or an array of parts",
                      param);
  json_t *content = front_content(given, index, error);
  if (!content) return front_fail(error, 500, NULL, param, "out of memory");
  json_t *copy = json_copy(message);
  json_object_set_new(copy, "content", content);
  if (!strcmp(role, "developer")) json_object_set_new(copy, "role", json_string("system"));
  json_array_append_new(messages, copy);
  return true;
}

static bool front_read_chat(struct front_params *params, const json_t *body, struct front_error *error) {
  char found[FOUND_BYTES];
  json_t *messages = front_get(body, "messages"), *variables = front_get(body, "chat_template_kwargs");
  if (!json_is_array(messages) || !json_array_size(messages))
    return front_fail(error, 400, NULL, "messages", "messages: found %s, allowed: an array of at least one message",
                      messages ? front_found(messages, found) : "nothing");
  if (json_array_size(messages) > FRONT_MAX_MESSAGE)
    return front_fail(error, 400, NULL, "messages", "messages: found %zu messages, allowed: at most %d",
                      json_array_size(messages), FRONT_MAX_MESSAGE);
  if (variables && !json_is_object(variables))
    return front_fail(error, 400, NULL, "chat_template_kwargs", "chat_template_kwargs: found %s, allowed: an object",
                      front_found(variables, found));
  params->variables = json_incref(variables);
  params->messages = json_array();
  for (size_t i = 0; i < json_array_size(messages); i++)
    if (!front_read_message(params->messages, json_array_get(messages, i), i, error)) return false;
  return true;
}

static bool front_read_ids(struct front_params *params, const json_t *prompt, uint32_t n_vocab,
                           struct front_error *error) {
  char found[FOUND_BYTES];
  size_t n = json_array_size(prompt);
  params->ids = malloc(n * sizeof *params->ids);
  if (!params->ids) return front_fail(error, 500, NULL, "prompt", "out of memory");
  params->n_ids = n;
  for (size_t i = 0; i < n; i++) {
    const json_t *id = json_array_get(prompt, i);
    json_int_t value = json_integer_value(id);
    if (!json_is_integer(id) || value < 0 || value >= (json_int_t)n_vocab)
      return front_fail(error, 400, NULL, "prompt", "prompt[%zu]: found %s, allowed: a token id from 0 to %u", i,
                        front_found(id, found), n_vocab - 1);
    params->ids[i] = (int32_t)value;
  }
  return true;
}

static bool front_read_prompt(struct front_params *params, const json_t *body, uint32_t n_vocab,
                              struct front_error *error) {
  char found[FOUND_BYTES];
  const json_t *prompt = front_get(body, "prompt");
  if (json_is_array(prompt) && json_array_size(prompt) == 1 && !json_is_integer(json_array_get(prompt, 0)))
    prompt = json_array_get(prompt, 0); /* one prompt in a list of prompts */
  if (json_is_array(prompt) && json_array_size(prompt) > 1 && !json_is_integer(json_array_get(prompt, 0)))
    return front_fail(error, 400, "unsupported_parameter", "prompt",
                      "prompt: found a list of %zu prompts, allowed: one; send one request for each",
                      json_array_size(prompt));
  if (json_is_array(prompt) && json_array_size(prompt)) return front_read_ids(params, prompt, n_vocab, error);
  if (!json_is_string(prompt))
    return front_fail(error, 400, NULL, "prompt",
                      "prompt: found %s, allowed: a string, an array of token ids, or an array of one string",
                      prompt ? front_found(prompt, found) : "nothing");
  params->prompt_bytes = json_string_length(prompt);
  params->prompt = strdup(json_string_value(prompt));
  return params->prompt || front_fail(error, 500, NULL, "prompt", "out of memory");
}

/* From what the client said and the server's defaults to what the scheduler takes. */
static bool front_settle(struct front_params *params, const struct front_values *v,
                         const struct front_defaults *defaults, struct front_error *error) {
  struct sampling_params *s = &params->sampling;
  int64_t top_k = v->has_top_k ? v->top_k : defaults->top_k;
  s->temperature = (float)(v->has_temperature ? v->temperature : defaults->temperature);
  s->top_k = top_k > 0 ? (uint32_t)top_k : 0;
  s->top_p = (float)(v->has_top_p ? v->top_p : defaults->top_p);
  s->min_p = (float)(v->has_min_p ? v->min_p : defaults->min_p);
  s->seed = (uint64_t)v->seed;
  if ((!v->has_seed || v->seed == -1) && getrandom(&s->seed, sizeof s->seed, 0) != sizeof s->seed)
    return front_fail(error, 500, NULL, "seed", "the system gave no random seed");

  int64_t limit = defaults->n_predict ? defaults->n_predict : -1;
  const char *name = "max_tokens";
  if (v->has_max_completion_tokens) {
    limit = v->max_completion_tokens;
    name = "max_completion_tokens";
  } else if (v->has_max_tokens) {
    limit = v->max_tokens;
  } else if (v->has_n_predict) {
    limit = v->n_predict;
    name = "n_predict";
  }
  if (limit == 0)
    return front_fail(error, 400, NULL, name, "%s: found 0, allowed: at least 1, or -1 for no limit", name);
  params->n_predict = limit < 0 ? 0 : (uint32_t)limit;

  if (v->has_top_logprobs && v->top_logprobs > 0 && !v->logprobs)
    return front_fail(error, 400, NULL, "top_logprobs", "top_logprobs: found %d without logprobs; set logprobs to true",
                      (int)v->top_logprobs);
  params->logprobs = params->chat ? v->logprobs : v->has_text_logprobs;
  params->n_top = (uint32_t)(params->chat ? v->top_logprobs : v->text_logprobs);
  params->stream = v->stream;
  params->ignore_eos = v->ignore_eos;
  return true;
}

static bool front_read_body(struct front_params *params, const json_t *body, const struct front_defaults *defaults,
                            uint32_t n_vocab, struct front_error *error) {
  struct front_values values = {0};
  char found[FOUND_BYTES];
  json_t *model = front_get(body, "model");
  if (model && !json_is_string(model))
    return front_fail(error, 400, NULL, "model", "model: found %s, allowed: a string", front_found(model, found));
  return front_read_rows(body, params->chat, &values, error) && front_reject_unsupported(body, error) &&
         front_read_stop(params, body, error) && front_read_stream_options(params, body, error) &&
         (params->chat ? front_read_chat(params, body, error) : front_read_prompt(params, body, n_vocab, error)) &&
         front_settle(params, &values, defaults, error);
}

/* A seed from 2^63 to 2^64 - 1, which JSON integers here do not hold (jansson's are int64_t): its digits, from `digits`
 * on, are replaced by those of the same 64 bits as a negative number. -1 means random, so 2^64 - 1 becomes -2.
 * Returns the new body, which the caller frees; NULL when what jansson could not hold is no such seed. */
static char *front_signed_seed(const char *body, size_t bytes, size_t digits, size_t *new_bytes) {
  static const char key[] = "\"seed\"";
  size_t end = digits, before = digits;
  uint64_t seed = 0;
  for (; end < bytes && body[end] >= '0' && body[end] <= '9'; end++)
    if (__builtin_mul_overflow(seed, 10, &seed) || __builtin_add_overflow(seed, (uint64_t)(body[end] - '0'), &seed))
      return NULL;
  while (before > 0 && strchr(" \t\r\n:", body[before - 1])) before--;
  if (end == digits || before < sizeof key - 1 || memcmp(body + before - (sizeof key - 1), key, sizeof key - 1))
    return NULL;
  char *text = NULL;
  int64_t negative = seed == UINT64_MAX ? -2 : (int64_t)seed;
  int n = asprintf(&text, "%.*s%" PRId64 "%.*s", (int)digits, body, negative, (int)(bytes - end), body + end);
  *new_bytes = n < 0 ? 0 : (size_t)n;
  return n < 0 ? NULL : text;
}

/* The body as JSON; NULL and *where when it is none. */
static json_t *front_load(const char *body, size_t bytes, json_error_t *where) {
  json_t *root = json_loadb(body, bytes, 0, where);
  if (root || json_error_code(where) != json_error_numeric_overflow || memchr(body, 0, bytes)) return root;
  size_t digits = where->position > 0 && (size_t)where->position <= bytes ? (size_t)where->position : 0;
  while (digits > 0 && body[digits - 1] >= '0' && body[digits - 1] <= '9') digits--;
  size_t new_bytes = 0;
  char *text = front_signed_seed(body, bytes, digits, &new_bytes);
  if (text) root = json_loadb(text, new_bytes, 0, where);
  free(text);
  return root;
}

bool front_params_parse(struct front_params *params, bool chat, const char *body, size_t bytes,
                        const struct front_defaults *defaults, uint32_t n_vocab, struct front_error *error) {
  memset(params, 0, sizeof *params);
  params->chat = chat;
  json_error_t where;
  json_t *root = front_load(body, bytes, &where);
  if (!root) {
    return front_fail(error, 400, "invalid_json", NULL, "the request's body is not valid JSON: line %d, column %d: %s",
                      where.line, where.column, where.text);
  }
  if (!json_is_object(root)) front_fail(error, 400, NULL, NULL, "the request's body is not a JSON object");
  bool ok = !error->status && front_read_body(params, root, defaults, n_vocab, error);
  json_decref(root);
  if (!ok) front_params_deinit(params);
  return ok;
}

void front_params_deinit(struct front_params *params) {
  json_decref(params->messages);
  json_decref(params->variables);
  free(params->prompt);
  free(params->ids);
  for (size_t i = 0; i < params->n_stop; i++) free(params->stop[i]);
  memset(params, 0, sizeof *params);
}

void front_params_print_markdown(FILE *out) {
  static const char *const kinds[] = {"number", "whole number", "boolean"};
  static const char *const apis[] = {"", "chat", "completions", "both"};
  fputs("| field | endpoint | type | allowed | when absent | meaning |\n|---|---|---|---|---|---|\n", out);
  for (size_t i = 0; i < N_PARAM; i++) {
    const struct front_param_row *row = &front_param_rows[i];
    fprintf(out, "| `%s` | %s | %s | ", row->name, apis[row->api], kinds[row->kind]);
    if (row->kind == PARAM_BOOLEAN)
      fputs("true, false", out);
    else
      fprintf(out, "%" PRId64 " to %" PRId64, row->min, row->max);
    fprintf(out, " | %s | %s |\n", row->fallback, row->meaning);
  }
  fputs("\n| field | accepted (null too) | what is not supported |\n|---|---|---|\n", out);
  for (size_t i = 0; i < N_UNSUPPORTED; i++) {
    const struct front_unsupported_row *row = &front_unsupported_rows[i];
    fprintf(out, "| `%s` | `%s` | %s |\n", row->name, row->harmless, row->meaning);
  }
}
