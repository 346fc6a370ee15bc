/* pace.h: how many rows a step may have so that it does not keep the device for too long.
 *
 * Owns: the measured time of the last step of each template, and the rule that follows. A device is the desktop's as
 * well, and its driver takes what runs too long for a hang. Does not own: the clock, packing (scheduler.c).
 * The rule: templates of up to IMG_MAX_SELECT rows, which decoding needs, and the smallest one are always allowed. A
 * larger one is when its last step kept the limit, or when a smaller one's did with the time grown in proportion to the
 * rows (more rows never take more than that), or, not yet measured, when the next smaller one took at most half the
 * limit (the first: at once). A template that broke the limit is tried again after PACE_RETRY steps by the last of
 * these: what was slow may have been a deep context, or a device that others used.
 * Invariants: allowed rows only depend on what was recorded; without a limit all are allowed. Thread rules: one
 * thread. */
#ifndef RUNTIME_PACE_H
#define RUNTIME_PACE_H

#include "moe_error.h"
#include "step.h"

enum { PACE_RETRY = 256 };

struct pace {
  const struct step_template *templates; /* borrowed; ascending by n_row */
  uint32_t n_template;
  uint64_t limit_us; /* 0: none */
  struct pace_sample {
    uint64_t us;
    uint32_t n_row, number; /* n_row 0: not measured */
  } * sample;               /* [n_template] */
};

/* Starts without measurements. Errors: MOE_FAILED (memory). pace_deinit is fine after an error. */
enum moe_code pace_init(struct pace *pace, const struct step_template *templates, uint32_t n_template,
                        uint64_t limit_us, struct moe_error *err);
void pace_deinit(struct pace *pace);

/* Records that step `number`, of n_row rows, through templates[template], kept the device for us microseconds. */
void pace_record(struct pace *pace, uint32_t template, uint32_t n_row, uint64_t us, uint32_t number);

/* The most rows that a template of step `number` may have. */
uint32_t pace_max_row(const struct pace *pace, uint32_t number);

#endif
