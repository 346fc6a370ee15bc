/* front_engine.h: the supervisor of the engine process, and the way to it.
 *
 * Owns: the engine's process, its socket and ring, when it is started again, and the journal of live requests. Does not
 * own: the meaning of tokens. A lost device, a crashed driver, a killed engine are one thing here: the process ended;
 * what it had emitted is taken from the ring, a new one is started, and every live request goes to it again with its
 * emitted tokens as part of its prompt.
 * Invariants: at most one engine process lives at a time (the next one is started after the last one was reaped, when
 * its memory is free); never blocks. Thread rules: the front's one thread, inside its event loop. */
#ifndef RUNTIME_FRONT_ENGINE_H
#define RUNTIME_FRONT_ENGINE_H

#include "front_journal.h"
#include "moe_error.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

struct front_engine;

enum front_engine_state {
  FRONT_ENGINE_LOADING,    /* the first engine has not been ready yet */
  FRONT_ENGINE_READY,      /* serves */
  FRONT_ENGINE_RESTARTING, /* was lost; the next one starts; requests wait */
  FRONT_ENGINE_FAILED,     /* gave up: requests are refused; tried again from time to time */
  FRONT_ENGINE_STOPPED,    /* after front_engine_stop: the process is gone */
};

struct front_engine_status {
  enum front_engine_state state;
  const char *phase; /* while loading: of engine_progress_fn */
  uint64_t done, total;
  const char *reason;             /* why the last engine ended, or "" */
  struct scheduler_limits limits; /* of the last engine that was ready; all 0 before the first */
  const char *device, *tier;
  uint32_t n_restart; /* engines that were started after the first */
  size_t n_live;      /* requests in the journal */
};

struct front_engine_options {
  const char *image_path;
  const char *device, *tier, *cache_dir; /* NULL: not given */
  uint32_t n_ctx, n_slot;
  uint32_t timeout; /* seconds without a sign of life, while it loads or has requests, after which it is replaced; 0:
                       never */
};

/* What the owner is told. All are called from the event loop. */
struct front_engine_sink {
  void *user;
  void (*on_progress)(void *user, const char *phase, uint64_t done, uint64_t total); /* of loading */
  void (*on_ready)(void *user); /* an engine became ready, the first or a new one */
  /* The first engine declined, failed, or was lost again and again: nothing was ever served. */
  void (*on_first_failure)(void *user, enum moe_code code, const char *message);
  void (*on_stopped)(void *user);
};

/* Starts the first engine. The options' strings must outlive the object. */
enum moe_code front_engine_create(struct event_base *base, const struct front_engine_options *options,
                                  const struct front_engine_sink *sink, struct front_engine **out,
                                  struct moe_error *err);
void front_engine_destroy(struct front_engine *e); /* kills a process that still lives; no callbacks */

void front_engine_get_status(const struct front_engine *e, struct front_engine_status *status);

/* Takes a request (request->id is ignored) and returns its journal entry, borrowed until on_finish or cancel; NULL when
 * memory is out. No callback comes before this returns. */
struct journal_entry *front_engine_submit(struct front_engine *e, const struct request *request,
                                          const struct journal_sink *sink);
/* Ends a request without further callbacks. */
void front_engine_cancel(struct front_engine *e, struct journal_entry *entry);

/* Asks the engine to end; on_stopped follows, after at most two seconds. */
void front_engine_stop(struct front_engine *e);

#endif
