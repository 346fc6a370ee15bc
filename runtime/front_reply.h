/* front_reply.h: the JSON of answers, in OpenAI's shapes.
 *
 * Owns: the objects of /v1/chat/completions and /v1/completions, whole and in chunks, and their log-probabilities. Does
 * not own: when they are sent (front_completion.c). Source: OpenAI's API reference, "Chat" and "Completions (legacy)".
 * Every function that returns an object returns a new reference, NULL only when memory is out. */
#ifndef RUNTIME_FRONT_REPLY_H
#define RUNTIME_FRONT_REPLY_H

#include "front_model.h"
#include "ipc.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What all objects of one answer have in common. */
struct reply_head {
  bool chat;
  char id[48];
  int64_t created; /* seconds since 1970 */
  const char *model;
};

struct reply_usage {
  uint64_t n_prompt, n_completion;
  double prompt_ms, completion_ms; /* until the first token, and from it to the last */
};

/* One token's log-probabilities in the form of the endpoint; offset: where its text begins in the answer. */
json_t *reply_token_logprobs(const struct front_model *model, bool chat, const struct ipc_event *event, uint32_t n_top,
                             size_t offset);

/* The first chunk of a chat stream, which names the role. */
json_t *reply_role_chunk(const struct reply_head *head);
/* A chunk with text (n bytes of UTF-8). */
json_t *reply_text_chunk(const struct reply_head *head, const char *text, size_t n);
/* The chunk that ends the choice: finish is "stop" or "length". */
json_t *reply_finish_chunk(const struct reply_head *head, const char *finish, const struct reply_usage *usage);
/* The chunk of stream_options.include_usage. */
json_t *reply_usage_chunk(const struct reply_head *head, const struct reply_usage *usage);

/* The whole answer. */
json_t *reply_whole(const struct reply_head *head, const char *text, size_t n, const char *finish,
                    const struct reply_usage *usage);

/* How answers are written. */
#define REPLY_DUMP_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(9))

/* Writes an object of these functions (taken; NULL gives NULL) between two texts. logprobs: the value of its choice's
 * "logprobs" as JSON text (front_logprobs.h), or NULL: null. malloc'd, *bytes of it; NULL when memory is out. */
char *reply_dump(json_t *object, const char *before, const char *logprobs, const char *after, size_t *bytes);

#endif
