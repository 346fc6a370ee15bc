#include "front_reply.h"

#include "utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A token's bytes as a JSON string: what is not UTF-8 by itself shows as U+FFFD. */
static json_t *reply_token_string(const char *bytes, size_t n) {
  char text[512];
  size_t length = 0;
  for (size_t at = 0; at < n && length + 4 < sizeof text;) {
    int k = utf8_next((const uint8_t *)bytes + at, n - at);
    size_t used = k > 0 ? (size_t)k : k < 0 ? (size_t)-k : n - at;
    if (k > 0)
      memcpy(text + length, bytes + at, used);
    else
      memcpy(text + length, "\xEF\xBF\xBD", 3);
    length += k > 0 ? used : 3;
    at += used;
  }
  return json_stringn(text, length);
}

/* JSON has no infinities; a token that the model excludes gets what OpenAI's API gives then. */
static double reply_logprob(float logprob) {
  return isfinite(logprob) && logprob > -9999.0F ? (double)logprob : -9999.0;
}

static json_t *reply_one(const struct front_model *model, int32_t token, float logprob) {
  size_t n = 0;
  const char *bytes = model->piece(model->user, token, false, &n);
  json_t *list = json_array();
  for (size_t i = 0; i < n && i < 512; i++) json_array_append_new(list, json_integer((unsigned char)bytes[i]));
  return json_pack("{s:o,s:f,s:o}", "token", reply_token_string(bytes, n), "logprob", reply_logprob(logprob), "bytes",
                   list);
}

json_t *reply_token_logprobs(const struct front_model *model, bool chat, const struct ipc_event *event, uint32_t n_top,
                             size_t offset) {
  if (n_top > event->n_top) n_top = event->n_top;
  if (chat) {
    json_t *one = reply_one(model, event->token, event->logprob), *top = json_array();
    for (uint32_t i = 0; i < n_top; i++)
      json_array_append_new(top, reply_one(model, event->top[i].token, event->top[i].logprob));
    json_object_set_new(one, "top_logprobs", top);
    return one;
  }
  size_t n = 0;
  const char *bytes = model->piece(model->user, event->token, false, &n);
  json_t *token = reply_token_string(bytes, n), *top = json_object();
  for (uint32_t i = 0; i < n_top; i++) {
    bytes = model->piece(model->user, event->top[i].token, false, &n);
    json_t *name = reply_token_string(bytes, n);
    /* Two tokens may look the same as text: the better one stays. */
    if (name && !json_object_get(top, json_string_value(name)))
      json_object_set_new(top, json_string_value(name), json_real(reply_logprob(event->top[i].logprob)));
    json_decref(name);
  }
  return json_pack("{s:o,s:f,s:o,s:I}", "tokens", token, "token_logprobs", reply_logprob(event->logprob),
                   "top_logprobs", top, "text_offset", (json_int_t)offset);
}

static json_t *reply_usage(const struct reply_usage *usage) {
  return json_pack("{s:I,s:I,s:I}", "prompt_tokens", (json_int_t)usage->n_prompt, "completion_tokens",
                   (json_int_t)usage->n_completion, "total_tokens",
                   (json_int_t)(usage->n_prompt + usage->n_completion));
}

/* As llama-server's clients know it. */
static json_t *reply_timings(const struct reply_usage *usage) {
  double seconds = usage->completion_ms / 1000;
  double rate = usage->n_completion > 1 && seconds > 0 ? (double)(usage->n_completion - 1) / seconds : 0;
  return json_pack("{s:I,s:f,s:I,s:f,s:f}", "prompt_n", (json_int_t)usage->n_prompt, "prompt_ms", usage->prompt_ms,
                   "predicted_n", (json_int_t)usage->n_completion, "predicted_ms", usage->completion_ms,
                   "predicted_per_second", rate);
}

static json_t *reply_object(const struct reply_head *head, const char *object, json_t *choices) {
  return json_pack("{s:s,s:s,s:I,s:s,s:s,s:o}", "id", head->id, "object", object, "created", (json_int_t)head->created,
                   "model", head->model, "system_fingerprint", "moert-" MOE_VERSION, "choices", choices);
}

/* A chunk of one choice. delta: chat's delta object (taken) or NULL; text: the text completion's (taken) or NULL. */
static json_t *reply_chunk(const struct reply_head *head, json_t *delta, json_t *text, const char *finish) {
  json_t *choice = json_pack("{s:i,s:n,s:s?}", "index", 0, "logprobs", "finish_reason", finish);
  if (delta) json_object_set_new(choice, "delta", delta);
  if (text) json_object_set_new(choice, "text", text);
  return reply_object(head, head->chat ? "chat.completion.chunk" : "text_completion", json_pack("[o]", choice));
}

json_t *reply_role_chunk(const struct reply_head *head) {
  return reply_chunk(head, json_pack("{s:s,s:s}", "role", "assistant", "content", ""), NULL, NULL);
}

json_t *reply_text_chunk(const struct reply_head *head, const char *text, size_t n) {
  json_t *words = json_stringn(text, n);
  if (head->chat) return reply_chunk(head, json_pack("{s:o}", "content", words), NULL, NULL);
  return reply_chunk(head, NULL, words, NULL);
}

json_t *reply_finish_chunk(const struct reply_head *head, const char *finish, const struct reply_usage *usage) {
  json_t *chunk =
      head->chat ? reply_chunk(head, json_object(), NULL, finish) : reply_chunk(head, NULL, json_string(""), finish);
  json_object_set_new(chunk, "timings", reply_timings(usage));
  return chunk;
}

json_t *reply_usage_chunk(const struct reply_head *head, const struct reply_usage *usage) {
  json_t *chunk = reply_object(head, head->chat ? "chat.completion.chunk" : "text_completion", json_array());
  json_object_set_new(chunk, "usage", reply_usage(usage));
  return chunk;
}

json_t *reply_whole(const struct reply_head *head, const char *text, size_t n, const char *finish,
                    const struct reply_usage *usage) {
  json_t *words = json_stringn(text, n);
  json_t *choice = json_pack("{s:i,s:n,s:s}", "index", 0, "logprobs", "finish_reason", finish);
  if (head->chat)
    json_object_set_new(choice, "message",
                        json_pack("{s:s,s:o,s:n}", "role", "assistant", "content", words, "refusal"));
  else
    json_object_set_new(choice, "text", words);
  json_t *whole = reply_object(head, head->chat ? "chat.completion" : "text_completion", json_pack("[o]", choice));
  json_object_set_new(whole, "usage", reply_usage(usage));
  json_object_set_new(whole, "timings", reply_timings(usage));
  return whole;
}

char *reply_dump(json_t *object, const char *before, const char *logprobs, const char *after, size_t *bytes) {
  static const char key[] = "\"logprobs\":", null[] = "null";
  char *dump = object ? json_dumps(object, REPLY_DUMP_FLAGS) : NULL, *text = NULL;
  json_decref(object);
  if (!dump) return NULL;
  /* Never inside a string of the object: there the quotes would have backslashes. */
  char *place = logprobs ? strstr(dump, key) : NULL;
  if (place) {
    place += strlen(key);
    if (asprintf(&text, "%s%.*s%s%s%s", before, (int)(place - dump), dump, logprobs, place + strlen(null), after) < 0)
      text = NULL;
  } else if (asprintf(&text, "%s%s%s", before, dump, after) < 0) {
    text = NULL;
  }
  free(dump);
  if (text) *bytes = strlen(text);
  return text;
}
