/* front_params.h: what a client asks for, checked.
 *
 * Owns: reading the JSON of /v1/chat/completions and /v1/completions; every field's type, range and default
 * (front_params.def has those of one value). Does not own: rendering and tokenizing (front_api.c).
 * Invariants: a struct front_params that was filled is complete and in range; unknown fields are ignored, known ones
 * are checked; nothing a client sends is kept beyond the limits stated here. */
#ifndef RUNTIME_FRONT_PARAMS_H
#define RUNTIME_FRONT_PARAMS_H

#include "front_error.h"
#include "front_text.h"
#include "scheduler.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The server's own defaults (its command line). */
struct front_defaults {
  double temperature, top_p, min_p;
  int64_t top_k, n_predict; /* n_predict 0: until the context is full */
};

struct front_params {
  bool chat;         /* else a text completion */
  json_t *messages;  /* owned; chat: array of objects whose content is a string */
  json_t *variables; /* owned; chat: chat_template_kwargs, or NULL */
  char *prompt;      /* owned; text completion: the text, or NULL when ids were given */
  size_t prompt_bytes;
  int32_t *ids; /* owned; text completion: the prompt's ids, or NULL */
  size_t n_ids;
  struct sampling_params sampling; /* seed: already drawn when none was given */
  uint32_t n_predict;              /* 0: until the context is full */
  bool logprobs;
  uint32_t n_top;             /* how many alternatives to list with each token */
  char *stop[FRONT_MAX_STOP]; /* owned */
  size_t n_stop;
  bool stream, include_usage, ignore_eos;
};

/* Most messages of a conversation: each costs a template far more than its bytes. */
#define FRONT_MAX_MESSAGE 4096

/* Reads the body of a request. n_vocab bounds prompt ids. On failure *error is filled and params holds nothing.
 * On success the caller ends it with front_params_deinit. */
bool front_params_parse(struct front_params *params, bool chat, const char *body, size_t bytes,
                        const struct front_defaults *defaults, uint32_t n_vocab, struct front_error *error);
void front_params_deinit(struct front_params *params);

/* The tables of front_params.def as Markdown, for runtime/API.md. */
void front_params_print_markdown(FILE *out);

#endif
