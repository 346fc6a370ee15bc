#include "step.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint32_t step_float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float step_bits_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

enum moe_code step_writer_init(struct step_writer *w, const struct step_shape *shape, uint32_t *block,
                               struct moe_error *err) {
  *w = (struct step_writer){.shape = *shape, .block = block};
  if (shape->n_slot > IMG_MAX_RUN) /* each may have a run */
    return moe_fail(err, MOE_FAILED, "%u slots; allowed are 1 to %d", shape->n_slot, IMG_MAX_RUN);
  w->known = calloc(shape->n_slot, sizeof *w->known);
  if (!w->known) return moe_fail(err, MOE_FAILED, "out of memory");
  for (uint32_t i = 0; i < IMG_STEP_HEAD_WORDS; i++) block[i] = 0;
  block[IMG_STEP_PAGE_STRIDE] = shape->page_stride;
  block[IMG_STEP_N_STOP] = shape->n_stop;
  for (uint32_t i = 0; i < shape->n_stop; i++) block[IMG_STEP_STOP + i] = (uint32_t)shape->stop[i];
  block[IMG_STEP_N_SUPPRESS] = shape->n_suppress;
  for (uint32_t i = 0; i < shape->n_suppress; i++) block[IMG_STEP_SUPPRESS + i] = (uint32_t)shape->suppress[i];
  return MOE_OK;
}

void step_writer_deinit(struct step_writer *w) {
  free(w->known);
  w->known = NULL;
}

void step_forget(struct step_writer *w, uint32_t slot) {
  w->known[slot] = 0;
}

void step_begin(struct step_writer *w) {
  w->n_row = w->n_select = w->n_run = 0;
  w->slot = STEP_NO_SLOT;
}

/* Writes the record of the run that row `end` does not belong to. */
static void step_end_run(struct step_writer *w, uint32_t end) {
  if (w->slot == STEP_NO_SLOT) return;
  assert(w->n_run < IMG_MAX_RUN);
  uint32_t *run = w->block + img_step_run(w->shape.max_row) + (size_t)IMG_RUN_WORDS * w->n_run++;
  run[IMG_RUN_ROW] = w->run_row;
  run[IMG_RUN_COUNT] = end - w->run_row;
}

uint32_t step_add_row(struct step_writer *w, int32_t token, uint32_t pos, uint32_t slot) {
  uint32_t row = w->n_row++;
  w->block[img_step_row_token() + row] = (uint32_t)token;
  w->block[img_step_row_pos(w->shape.max_row) + row] = pos;
  w->block[img_step_row_slot(w->shape.max_row) + row] = slot;
  if (slot != w->slot) {
    step_end_run(w, row);
    w->slot = slot;
    w->run_row = row;
  }
  return row;
}

void step_add_select(struct step_writer *w, uint32_t row, uint32_t slot, uint32_t pos,
                     const struct sampling_params *sampling, uint32_t n_top, bool ignore_stop) {
  uint32_t *record = w->block + img_step_select(w->shape.max_row) + IMG_SELECT_WORDS * w->n_select++;
  record[IMG_SELECT_ROW] = row;
  record[IMG_SELECT_SLOT] = slot;
  record[IMG_SELECT_POS] = pos;
  record[IMG_SELECT_FLAGS] = ignore_stop ? IMG_SELECT_FLAG_IGNORE_STOP : 0;
  record[IMG_SELECT_SEED_LO] = (uint32_t)sampling->seed;
  record[IMG_SELECT_SEED_HI] = (uint32_t)(sampling->seed >> 32);
  /* A smaller one draws the best token too, and would overflow logit / temperature. */
  record[IMG_SELECT_TEMPERATURE] = step_float_bits(sampling->temperature < 1e-6F ? 0 : sampling->temperature);
  record[IMG_SELECT_TOP_K] = sampling->top_k;
  record[IMG_SELECT_TOP_P] = step_float_bits(sampling->top_p);
  record[IMG_SELECT_MIN_P] = step_float_bits(sampling->min_p);
  record[IMG_SELECT_N_TOP] = n_top;
}

void step_put_pages(struct step_writer *w, uint32_t slot, const uint32_t *pages, uint32_t n) {
  uint32_t *table = w->block + img_step_page_table(w->shape.max_row) + (size_t)slot * w->shape.page_stride;
  for (uint32_t i = w->known[slot]; i < n; i++) table[i] = pages[i];
  w->known[slot] = n;
}

void step_end(struct step_writer *w, uint32_t number) {
  step_end_run(w, w->n_row);
  w->block[IMG_STEP_N_ROW] = w->n_row;
  w->block[IMG_STEP_N_SELECT] = w->n_select;
  w->block[IMG_STEP_N_RUN] = w->n_run;
  w->block[IMG_STEP_NUMBER] = number;
}

uint32_t step_result_number(const uint32_t *result) {
  return result[IMG_RESULT_NUMBER];
}

void step_result_get(const uint32_t *result, uint32_t i, uint32_t n_top, struct step_sample *sample) {
  const uint32_t *record = result + IMG_RESULT_HEAD_WORDS + (size_t)IMG_RESULT_WORDS * i;
  sample->token = (int32_t)record[IMG_RESULT_TOKEN];
  sample->done = record[IMG_RESULT_DONE] != 0;
  sample->logprob = step_bits_float(record[IMG_RESULT_LOGPROB]);
  for (uint32_t k = 0; k < n_top; k++)
    sample->top[k] = (struct token_logprob){.token = (int32_t)record[IMG_RESULT_TOP_ID + k],
                                            .logprob = step_bits_float(record[IMG_RESULT_TOP_LOGPROB + k])};
}
