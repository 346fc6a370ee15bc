#include "run_jobs.h"

#include "verbs.h"

#include <stdlib.h>
#include <string.h>

struct run_state {
  struct run_job *jobs;
  uint32_t n_left;
  run_token_fn *on_token;
  void *user;
  struct moe_error error; /* the first failure inside a callback */
};

/* Room for one more token of a job. */
static bool run_grow(struct run_job *job) {
  if (job->n_id < job->room) return true;
  uint32_t room = job->room ? 2 * job->room : 64;
  int32_t *ids = realloc(job->ids, room * sizeof *ids);
  if (ids) job->ids = ids;
  struct token_logprob *top = job->top;
  if (job->request.n_logprob) {
    top = realloc(job->top, (size_t)room * job->request.n_logprob * sizeof *top);
    if (top) job->top = top;
  }
  if (!ids || (job->request.n_logprob && !top)) return false;
  job->room = room;
  return true;
}

static void run_on_token(void *user, const struct token_event *event) {
  struct run_state *state = user;
  struct run_job *job = &state->jobs[event->id];
  if (!run_grow(job)) {
    moe_fail(&state->error, MOE_FAILED, "out of memory after %u tokens", job->n_id);
    return;
  }
  job->last_ms = verbs_now_ms();
  if (!job->n_id) job->first_ms = job->last_ms;
  if (event->n_top) memcpy(job->top + (size_t)job->n_id * event->n_top, event->top, event->n_top * sizeof *event->top);
  job->ids[job->n_id++] = event->token;
  if (state->on_token && !state->error.code) (void)state->on_token(state->user, job, event, &state->error);
}

static void run_on_finish(void *user, uint64_t id, enum finish_reason reason, const char *message) {
  struct run_state *state = user;
  struct run_job *job = &state->jobs[id];
  job->reason = reason;
  job->ended = true;
  state->n_left--;
  if (reason == FINISH_ERROR) moe_fail(&state->error, MOE_FAILED, "prompt %llu: %s", (unsigned long long)id, message);
}

enum moe_code run_jobs(struct scheduler *s, struct run_job *jobs, uint32_t n_job, run_token_fn *on_token,
                       run_step_fn *on_step, void *user, struct moe_error *err) {
  struct run_state state = {.jobs = jobs, .n_left = n_job, .on_token = on_token, .user = user};
  const struct scheduler_sink sink = {.user = &state, .on_token = run_on_token, .on_finish = run_on_finish};
  struct scheduler_limits limits;
  scheduler_get_limits(s, &limits);
  uint32_t n_submitted = 0;
  enum moe_code code = MOE_OK;
  while (!code && (state.n_left || !scheduler_idle(s))) {
    uint32_t n_live = n_submitted - (n_job - state.n_left);
    for (; n_submitted < n_job && n_live < limits.n_slot + limits.n_queue && !code; n_submitted++, n_live++) {
      struct run_job *job = &jobs[n_submitted];
      job->request.id = n_submitted;
      job->submit_ms = verbs_now_ms();
      code = scheduler_submit(s, &job->request, err);
    }
    if (!code) code = scheduler_step(s, &sink, err);
    if (!code && on_step) on_step(user, s);
    if (!code && state.error.code) code = moe_fail(err, state.error.code, "%s", state.error.message);
  }
  if (code)
    for (uint32_t i = 0; i < n_submitted; i++)
      if (!jobs[i].ended) scheduler_cancel(s, i, &sink);
  return code;
}

void run_job_deinit(struct run_job *job) {
  free(job->ids);
  free(job->top);
  job->ids = NULL;
  job->top = NULL;
}
