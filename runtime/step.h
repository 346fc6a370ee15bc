/* step.h: writing step blocks, reading result blocks, and the device that runs them.
 *
 * Owns: the words of both blocks from the host's side (img_step.h has the layout), struct step_device. Does not own:
 * what goes into a step (scheduler.c), command buffers (vk_replay.h).
 * Invariants: a step block is written only, front to back (it may lie in write-combined memory); a slot's page table in
 * it grows by what is new since this block last saw it. Nothing is allocated after step_writer_init.
 * Thread rules: one thread. */
#ifndef RUNTIME_STEP_H
#define RUNTIME_STEP_H

#include "img_step.h"
#include "moe_error.h"
#include "scheduler.h"

/* A template as the scheduler sees it. */
struct step_template {
  uint32_t index; /* in the image */
  uint32_t n_row, n_select;
};

/* What runs steps: the engine's GPU, or a script in a test. Copies 0 and 1 take turns; submits run in order. */
struct step_device {
  void *user;
  /* Whether a submit of template `index` would start at once (its pipelines are made). */
  bool (*ready)(void *user, uint32_t index);
  /* Asks for template `index` to be made ready in the background, before others. */
  void (*hurry)(void *user, uint32_t index);
  /* Starts template `index` (struct step_template.index) over step block `copy`. */
  enum moe_code (*submit)(void *user, uint32_t index, uint32_t copy, struct moe_error *err);
  /* Waits until the last submit of `copy` is done and its result block can be read. */
  enum moe_code (*wait)(void *user, uint32_t copy, struct moe_error *err);
  uint64_t (*clock)(void *user);         /* microseconds that only grow */
  uint32_t *block[2];                    /* step blocks */
  const uint32_t *result[2];             /* result blocks */
  const struct step_template *templates; /* ascending by n_row, then n_select; n_template >= 1 */
  uint32_t n_template;
};

/* No row yet. */
#define STEP_NO_SLOT UINT32_MAX

/* Sizes that the blocks' layout depends on, and the stop and suppressed ids. */
struct step_shape {
  uint32_t max_row, n_slot, page_stride, n_stop, n_suppress;
  int32_t stop[IMG_MAX_STOP], suppress[IMG_MAX_SUPPRESS];
};

/* Writes one of the two step blocks. */
struct step_writer {
  struct step_shape shape;
  uint32_t *block;
  uint32_t *known; /* [n_slot] pages of each slot's table that the block holds */
  uint32_t n_row, n_select, n_run;
  uint32_t slot, run_row; /* of the last row, and the first row of its run */
};

/* Writes what never changes (stride, stop ids, suppressed ids). block: borrowed. Errors: MOE_FAILED (memory, over
 * IMG_MAX_RUN slots). */
enum moe_code step_writer_init(struct step_writer *writer, const struct step_shape *shape, uint32_t *block,
                               struct moe_error *err);
void step_writer_deinit(struct step_writer *writer);

/* Forgets what the block knows of a slot's pages: the slot has a new owner. */
void step_forget(struct step_writer *writer, uint32_t slot);

/* Starts a step without rows. */
void step_begin(struct step_writer *writer);
/* Adds a row: the token (or IMG_TOKEN_FROM_SLOT) at a position of a slot; returns its index. A slot's rows are added
 * one after the other, at consecutive ascending positions (FORMAT.md, Runs): it goes on with the last run or begins
 * one. */
uint32_t step_add_row(struct step_writer *writer, int32_t token, uint32_t pos, uint32_t slot);
/* Asks for a sample after row `row`: `pos` is the sampled token's position. n_top <= IMG_MAX_TOP. */
void step_add_select(struct step_writer *writer, uint32_t row, uint32_t slot, uint32_t pos,
                     const struct sampling_params *sampling, uint32_t n_top, bool ignore_stop);
/* Brings a slot's page table in the block up to its n pages. */
void step_put_pages(struct step_writer *writer, uint32_t slot, const uint32_t *pages, uint32_t n);
/* Ends the step: the counts and its number. */
void step_end(struct step_writer *writer, uint32_t number);

/* One record of a result block. */
struct step_sample {
  int32_t token; /* -1: the slot was done, nothing was sampled */
  bool done;
  float logprob;
  struct token_logprob top[IMG_MAX_TOP]; /* n_top of the select */
};
/* The number of the step that a result block belongs to; its record i, with n_top best ids. */
uint32_t step_result_number(const uint32_t *result);
void step_result_get(const uint32_t *result, uint32_t i, uint32_t n_top, struct step_sample *sample);

#endif
