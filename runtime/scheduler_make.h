/* scheduler_make.h: putting a scheduler together, for engine.c and for tests with a scripted device.
 *
 * Owns: the numbers a scheduler is made from. Does not own: what it does (scheduler.h), where its device comes from.
 * Thread rules: as scheduler.h. */
#ifndef RUNTIME_SCHEDULER_MAKE_H
#define RUNTIME_SCHEDULER_MAKE_H

#include "scheduler.h"
#include "step.h"

struct scheduler_config {
  struct scheduler_limits limits;
  struct step_shape shape; /* shape.n_slot == limits.n_slot */
  uint32_t page_tok, n_page;
  uint32_t window;        /* most prompt rows of a step; 0: as many as the largest template takes */
  uint32_t step_limit_ms; /* prompt rows are taken in so few that no step is measured longer (pace.h); 0: no limit. Not
                             applied with a window or patience: who measures says what to measure */
  bool patient;           /* waits for the template that fits best; else goes on with one whose pipelines are made */
};

/* device: copied; what it points to is borrowed. owner: comes back from scheduler_owner, destroyed by nobody here.
 * Errors: MOE_FAILED (memory). */
enum moe_code scheduler_create(const struct scheduler_config *config, const struct step_device *device, void *owner,
                               struct scheduler **out, struct moe_error *err);
/* Waits for steps in flight, drops live requests without events. NULL is fine. */
void scheduler_destroy(struct scheduler *s);
void *scheduler_owner(const struct scheduler *s);

/* Positions of a live request whose steps are done (its first token comes with n_prompt); UINT32_MAX: not live. */
uint32_t scheduler_position(const struct scheduler *s, uint64_t id);

/* For accounting in tests: free pages and slots when nothing is live must be all there are. */
void scheduler_free(const struct scheduler *s, uint32_t *n_page, uint32_t *n_slot);

#endif
