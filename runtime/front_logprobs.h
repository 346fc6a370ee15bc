/* front_logprobs.h: the log-probabilities of one answer's tokens, kept as JSON text.
 *
 * Owns: those that wait for their text to be given out, and behind that border those that are ready. Does not own: what
 * a token's value is (front_reply.h), the text (front_text.h).
 * Invariants: a token takes the bytes of its JSON and some 40 more; as JSON objects it would take some twenty times
 * that, and an answer may have as many tokens as the context. Thread rules: an object belongs to one thread. */
#ifndef RUNTIME_FRONT_LOGPROBS_H
#define RUNTIME_FRONT_LOGPROBS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { FRONT_LOGPROBS_COLUMN = 4 };

/* Values of JSON, each with a comma after it. */
struct front_column {
  char *text;
  size_t n, capacity;
};

/* Zero-initialize, and set chat. */
struct front_logprobs {
  bool chat; /* one column; else the four of the text API */
  struct front_column column[FRONT_LOGPROBS_COLUMN];
  struct front_logprobs_token {
    size_t start;                      /* where its text begins in the answer */
    size_t end[FRONT_LOGPROBS_COLUMN]; /* where its values end in the columns */
  } * token;
  size_t n_token, capacity, n_ready;
};

void front_logprobs_deinit(struct front_logprobs *l);

/* Appends a token: reply_token_logprobs' value (taken), whose text begins at byte `start` of the answer. False when
 * memory is out. */
bool front_logprobs_add(struct front_logprobs *l, json_t *token, size_t start);

/* The text before byte `end` is given out: its tokens are ready. all: every token is. */
void front_logprobs_advance(struct front_logprobs *l, size_t end, bool all);

/* The "logprobs" value of the tokens that are ready. malloc'd; NULL when memory is out. */
char *front_logprobs_text(const struct front_logprobs *l);

/* Forgets the tokens that are ready. */
void front_logprobs_drop(struct front_logprobs *l);

#endif
