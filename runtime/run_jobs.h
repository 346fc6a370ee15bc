/* run_jobs.h: runs a list of requests on a scheduler in this process and keeps what they answered.
 *
 * Owns: ids, log-probabilities and times of each job. Does not own: the scheduler, prompts, text.
 * Thread rules: the scheduler's. */
#ifndef RUNTIME_RUN_JOBS_H
#define RUNTIME_RUN_JOBS_H

#include "scheduler.h"

struct run_job {
  struct request request; /* id is overwritten by the job's index */
  /* results; ids and top are owned: run_job_deinit */
  int32_t *ids;              /* [n_id], the token that ended the text included */
  struct token_logprob *top; /* [n_id][request.n_logprob] */
  uint32_t n_id, room;
  enum finish_reason reason;
  bool ended;                          /* on_finish came */
  double submit_ms, first_ms, last_ms; /* verbs_now_ms when submitted, at the first and at the last token */
};

/* Told of every token as it comes; may be NULL. Must not call the scheduler. An error ends run_jobs with it. */
typedef enum moe_code run_token_fn(void *user, struct run_job *job, const struct token_event *event,
                                   struct moe_error *err);
/* Told after every scheduler step; may be NULL. */
typedef void run_step_fn(void *user, struct scheduler *s);

/* Submits all jobs at once (in order, as far as slots and queue hold them) and steps until all have ended.
 * Errors: MOE_USAGE for a request out of the limits (none is then left running), MOE_FAILED (device lost, a request
 * that failed, memory), on_token's. */
enum moe_code run_jobs(struct scheduler *s, struct run_job *jobs, uint32_t n_job, run_token_fn *on_token,
                       run_step_fn *on_step, void *user, struct moe_error *err);
void run_job_deinit(struct run_job *job);

#endif
