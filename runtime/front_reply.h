/* front_reply.h: the JSON of answers, in OpenAI's shapes.
 *
 * Owns: the objects of /v1/chat/completions and /v1/completions, whole and in chunks, and their log-probabilities. Does
 * not own: when they are sent (front_completion.c). Source: OpenAI's API reference, "Chat" and "Completions (legacy)".
 * Every function returns a new reference, NULL only when memory is out. */
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
/* A "logprobs" value from an array of those (borrowed). */
json_t *reply_logprobs(bool chat, const json_t *tokens);

/* The first chunk of a chat stream, which names the role. */
json_t *reply_role_chunk(const struct reply_head *head);
/* A chunk with text (n bytes of UTF-8); logprobs is borrowed and may be NULL. */
json_t *reply_text_chunk(const struct reply_head *head, const char *text, size_t n, const json_t *logprobs);
/* The chunk that ends the choice: finish is "stop" or "length". */
json_t *reply_finish_chunk(const struct reply_head *head, const char *finish, const struct reply_usage *usage);
/* The chunk of stream_options.include_usage. */
json_t *reply_usage_chunk(const struct reply_head *head, const struct reply_usage *usage);

/* The whole answer. */
json_t *reply_whole(const struct reply_head *head, const char *text, size_t n, const json_t *logprobs,
                    const char *finish, const struct reply_usage *usage);

#endif
