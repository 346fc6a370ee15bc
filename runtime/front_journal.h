/* front_journal.h: the live requests, with all that a new engine needs to go on with them.
 *
 * Owns: each live request's tokens (prompt and emitted), parameters, and its place in the order of arrival. Does not
 * own: clients (callbacks), the engine (front_engine.c decides what is sent when).
 * Invariants: an entry's tokens are exactly what its client's answer is made of; replaying them as a prompt continues
 * the answer, since sampling is keyed by (seed, position). Thread rules: the front's one thread. */
#ifndef RUNTIME_FRONT_JOURNAL_H
#define RUNTIME_FRONT_JOURNAL_H

#include "ipc.h"
#include "scheduler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a client of the journal is told. Neither may free the entry; after on_finish the entry is gone. */
struct journal_sink {
  void *user;
  void (*on_token)(void *user, const struct ipc_event *event);
  void (*on_finish)(void *user, enum finish_reason reason, const char *message);
};

/* Engines in a row that one request may see die without a token of it: the last of them it gets nearly to itself
 * (journal_is_guarded), so that what ends is what kills. */
enum { JOURNAL_MAX_LOST = 3 };

enum journal_state {
  JOURNAL_WAITING,   /* not at the engine (or not at this one) */
  JOURNAL_SENT,      /* the engine has it */
  JOURNAL_CANCELLED, /* no client any more; the engine must still be told */
};

struct journal_entry {
  struct journal_entry *next, *previous; /* in order of arrival */
  uint64_t id;
  enum journal_state state;
  int32_t *token; /* owned: n_prompt of the prompt, then the emitted ones */
  uint32_t n_prompt, n_token, capacity;
  uint32_t n_predict; /* in all, as first asked for */
  struct sampling_params sampling;
  uint32_t n_logprob;
  bool ignore_eos, ended; /* ended: the last token was an end token */
  bool progressed;        /* the present engine emitted a token of it */
  uint32_t n_lost;        /* engines in a row that were lost without one */
  struct journal_sink sink;
};

struct journal {
  struct journal_entry *first, *last;
  uint64_t last_id;
  size_t n_entry; /* without cancelled ones */
};

/* Takes a request in, WAITING. request->id is ignored; the prompt is copied. NULL when memory is out. */
struct journal_entry *journal_add(struct journal *j, const struct request *request, const struct journal_sink *sink);
/* Frees an entry. */
void journal_remove(struct journal *j, struct journal_entry *entry);
/* The client of an entry is gone: no callback any more. Frees an entry that is WAITING; one that is SENT becomes
 * CANCELLED, and goes with journal_remove when the engine was told, or with journal_requeue. */
void journal_cancel(struct journal *j, struct journal_entry *entry);
/* The entry of an id; NULL when it is no longer live. */
struct journal_entry *journal_find(struct journal *j, uint64_t id);
/* The oldest entry in a state, or NULL. */
struct journal_entry *journal_first(struct journal *j, enum journal_state state);

/* Records an emitted token. False when memory is out (the entry cannot be replayed then, and must fail). */
bool journal_emit(struct journal_entry *entry, int32_t token, bool is_end);

/* After an engine was lost: every entry is WAITING again, cancelled ones are freed, and the counts of losses go on. */
void journal_requeue(struct journal *j);

/* Whether no further request may go to the engine for now. A request that may see no other engine die is a suspect;
 * while there is one, at most one request at a time is at the engine without having got a token from it: if the engine
 * dies again, that one is to blame, and no innocent one has its last loss counted with it. */
bool journal_is_guarded(const struct journal *j);

/* Whether an entry needs no engine any more although its finish was lost with one: fills *reason. */
bool journal_is_complete(const struct journal_entry *entry, uint32_t n_ctx, enum finish_reason *reason);

#endif
