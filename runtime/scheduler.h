/* scheduler.h: the interface between whoever has requests and whoever runs them.
 *
 * Owns: what a request is, how its tokens come back, and the calls that move work forward. It is used by the engine
 * process (engine_process.c, for the server) and in-process by `moert run` and `moert bench`.
 * Does not own: text (requests and results are token ids), the network, the journal; how rows are packed into steps.
 * Invariants: every accepted request gets exactly one on_finish, after its last on_token; token k of a request has
 * absolute position n_prompt + k; what is sampled there depends on (tokens before it, sampling, seed, position) and on
 * nothing else, so a request submitted again with its emitted tokens appended to the prompt goes on as the first would
 * have (this is how a replaced engine resumes live requests).
 * Thread rules: one scheduler belongs to one thread; nothing here blocks on anything but the device. */
#ifndef RUNTIME_SCHEDULER_H
#define RUNTIME_SCHEDULER_H

#include "moe_error.h"

#include <stdbool.h>
#include <stdint.h>

enum { SCHEDULER_MAX_LOGPROB = 20 }; /* largest request.n_logprob */

/* How a token is drawn from the model's distribution. Order of the filters: top_k, top_p, min_p, then temperature (the
 * order llama-server documents); the random number is a hash of (seed, position). Every field is already in range:
 * temperature >= 0 (0: the most probable token, the rest is ignored), top_k (0: off), 0 <= top_p <= 1 (1: off),
 * 0 <= min_p <= 1 (0: off; keep tokens with p >= min_p * p_max). The best token always stays. */
struct sampling_params {
  float temperature;
  uint32_t top_k;
  float top_p;
  float min_p;
  uint64_t seed;
};

/* One sequence to continue. */
struct request {
  uint64_t id;           /* chosen by the caller, unique among its live requests; comes back in every event */
  const int32_t *prompt; /* n_prompt token ids; borrowed for the call, copied by scheduler_submit */
  uint32_t n_prompt;     /* 1 .. n_ctx - 1 */
  uint32_t n_predict;    /* most tokens to emit, the end token counted; at least 1; n_ctx bounds it too */
  struct sampling_params sampling;
  uint32_t n_logprob; /* 0: no log-probabilities; 1..SCHEDULER_MAX_LOGPROB: that many best ids with each token */
  bool ignore_eos;    /* end tokens do not end the request; they are emitted as any other, is_end false */
};

struct token_logprob {
  int32_t token;
  float logprob; /* natural log of the softmax of the model's logits, before temperature and filters */
};

/* One emitted token. Valid during the callback only. */
struct token_event {
  uint64_t id; /* request.id */
  int32_t token;
  bool is_end;    /* an end token of the model: its text is not part of the answer; on_finish(STOP) follows */
  float logprob;  /* of `token`, as in struct token_logprob; 0 when n_logprob was 0 */
  uint32_t n_top; /* request.n_logprob, or 0 */
  const struct token_logprob *top; /* n_top of them, best first */
};

enum finish_reason {
  FINISH_STOP = 0,      /* an end token was emitted */
  FINISH_LENGTH = 1,    /* n_predict tokens were emitted, or the context is full */
  FINISH_CANCELLED = 2, /* scheduler_cancel */
  FINISH_ERROR = 3,     /* this request failed and the scheduler goes on; `message` says why */
};

/* Where results go. Callbacks run inside scheduler_step and scheduler_cancel, on the caller's thread, and must not call
 * back into the scheduler. message: NULL unless reason is FINISH_ERROR; valid during the call. */
struct scheduler_sink {
  void *user;
  void (*on_token)(void *user, const struct token_event *event);
  void (*on_finish)(void *user, uint64_t id, enum finish_reason reason, const char *message);
};

/* What this scheduler can hold. Constant from engine_open on. */
struct scheduler_limits {
  uint32_t n_ctx;   /* positions of one sequence: n_prompt + emitted <= n_ctx */
  uint32_t n_slot;  /* sequences that advance at the same time */
  uint32_t n_queue; /* accepted requests that may wait for a slot */
  uint32_t n_vocab; /* token ids are 0 .. n_vocab - 1 */
};

/* Opaque; made by engine_open (engine.h). */
struct scheduler;

void scheduler_get_limits(const struct scheduler *s, struct scheduler_limits *limits);

/* Takes a request in. Copies what it needs.
 * Errors: MOE_USAGE for a request out of the limits above (names the field, found, allowed) or an id already live;
 * MOE_FAILED when n_slot + n_queue requests are live ("queue full"). A refused request gets no events. */
enum moe_code scheduler_submit(struct scheduler *s, const struct request *request, struct moe_error *err);

/* Ends a live request: on_finish(FINISH_CANCELLED) before this returns, and no event after it, whatever is in flight on
 * the device. Unknown ids are ignored (the request may have ended meanwhile). */
void scheduler_cancel(struct scheduler *s, uint64_t id, const struct scheduler_sink *sink);

/* Moves the work on by about one step (at most some 100 ms) and delivers what is finished. Returns at once when idle.
 * Errors: MOE_FAILED when the device is lost or broken: the scheduler is then of no more use but for engine_close, live
 * requests get no on_finish, and the owner replays them on a new engine. */
enum moe_code scheduler_step(struct scheduler *s, const struct scheduler_sink *sink, struct moe_error *err);

/* Whether scheduler_step has nothing to do until the next submit. */
bool scheduler_idle(const struct scheduler *s);

#endif
