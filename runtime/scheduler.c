#include "scheduler.h"

#include "pace.h"
#include "scheduler_make.h"
#include "states.h"

#include <stdlib.h>
#include <string.h>

#define NOBODY UINT32_MAX

enum { SCHEDULER_SHORT_PROMPT = 32 }; /* rows of a step for which no template is compiled ahead of its turn */

enum sequence_stage { STAGE_UNUSED, STAGE_QUEUED, STAGE_RUNNING };

/* One accepted request. n_fed and n_asked run ahead of what the device has finished; n_done and n_emitted follow it. */
struct sequence {
  enum sequence_stage stage;
  uint64_t id, ticket; /* ticket: order of arrival; also tells the record's successive owners apart */
  struct sampling_params sampling;
  int32_t *prompt; /* room for prompt_room ids, kept from one owner to the next */
  uint32_t prompt_room, n_prompt;
  uint32_t n_max; /* tokens to emit at most: n_predict, bounded by the context */
  uint32_t n_logprob, slot;
  bool ignore_eos;
  uint32_t n_fed;     /* positions in steps submitted */
  uint32_t n_asked;   /* samples in steps submitted */
  uint32_t n_done;    /* positions in steps finished */
  uint32_t n_emitted; /* tokens given to the sink */
};

/* A sequence's part in a step: what it will have when the step is done. */
struct part {
  uint32_t sequence, n_fed;
  uint64_t ticket;
};

/* A step on the device. parts of its selects come in the order of the result records. */
struct flight {
  uint32_t copy, number, n_select, n_part;
  uint32_t template, n_row; /* template: of device.templates */
  uint64_t submit_us;
  struct part select[IMG_MAX_SELECT];
  struct part *part; /* [n_slot] */
};

struct scheduler {
  struct scheduler_config config;
  struct step_device device;
  void *owner;
  struct states *states;
  struct step_writer writer[2];
  struct sequence *sequence; /* [n_slot + n_queue] */
  uint32_t n_sequence, n_live;
  uint32_t *owner_of; /* [n_slot] sequence, or NOBODY */
  struct flight flight[2];
  uint32_t n_flight, first_flight; /* in flight: first_flight, then the other one */
  uint32_t number;                 /* of the next step */
  uint32_t turn;                   /* slot whose decoding row goes first when not all fit */
  uint64_t next_ticket;
  struct pace pace;
  uint32_t max_row; /* templates of more rows are not used for the next step */
  uint64_t land_us; /* when the last step was found done */
};

/* ---- making and dropping ---- */

enum moe_code scheduler_create(const struct scheduler_config *config, const struct step_device *device, void *owner,
                               struct scheduler **out, struct moe_error *err) {
  *out = NULL;
  struct scheduler *s = calloc(1, sizeof *s);
  if (!s) return moe_fail(err, MOE_FAILED, "out of memory");
  s->config = *config;
  s->device = *device;
  s->owner = owner;
  uint32_t n_slot = config->limits.n_slot;
  s->n_sequence = n_slot + config->limits.n_queue;
  s->sequence = calloc(s->n_sequence, sizeof *s->sequence);
  s->owner_of = calloc(n_slot, sizeof *s->owner_of);
  bool memory = s->sequence && s->owner_of;
  for (int i = 0; i < 2; i++) memory = (s->flight[i].part = calloc(n_slot, sizeof(struct part))) && memory;
  enum moe_code code = memory ? MOE_OK : moe_fail(err, MOE_FAILED, "out of memory for %u requests", s->n_sequence);
  if (!code) code = states_create(n_slot, config->shape.page_stride, config->page_tok, config->n_page, &s->states, err);
  for (int i = 0; i < 2 && !code; i++) code = step_writer_init(&s->writer[i], &config->shape, device->block[i], err);
  bool any = config->patient || config->window;
  if (!code)
    code = pace_init(&s->pace, device->templates, device->n_template, any ? 0 : config->step_limit_ms * 1000ull, err);
  if (code) {
    scheduler_destroy(s);
    return code;
  }
  for (uint32_t i = 0; i < n_slot; i++) s->owner_of[i] = NOBODY;
  *out = s;
  return MOE_OK;
}

void scheduler_destroy(struct scheduler *s) {
  if (!s) return;
  for (; s->n_flight; s->n_flight--, s->first_flight ^= 1)
    s->device.wait(s->device.user, s->flight[s->first_flight].copy, NULL);
  for (int i = 0; i < 2; i++) {
    step_writer_deinit(&s->writer[i]);
    free(s->flight[i].part);
  }
  pace_deinit(&s->pace);
  states_destroy(s->states);
  for (uint32_t i = 0; s->sequence && i < s->n_sequence; i++) free(s->sequence[i].prompt);
  free(s->sequence);
  free(s->owner_of);
  free(s);
}

void *scheduler_owner(const struct scheduler *s) {
  return s->owner;
}
void scheduler_get_limits(const struct scheduler *s, struct scheduler_limits *limits) {
  *limits = s->config.limits;
}
bool scheduler_idle(const struct scheduler *s) {
  return !s->n_live && !s->n_flight;
}

void scheduler_free(const struct scheduler *s, uint32_t *n_page, uint32_t *n_slot) {
  *n_page = states_free_pages(s->states);
  *n_slot = states_free_slots(s->states);
}

static struct sequence *scheduler_find(const struct scheduler *s, uint64_t id) {
  for (uint32_t i = 0; i < s->n_sequence; i++)
    if (s->sequence[i].stage != STAGE_UNUSED && s->sequence[i].id == id) return &s->sequence[i];
  return NULL;
}

uint32_t scheduler_position(const struct scheduler *s, uint64_t id) {
  const struct sequence *q = scheduler_find(s, id);
  return q ? q->n_done : UINT32_MAX;
}

/* ---- requests coming and going ---- */

static enum moe_code scheduler_check(const struct scheduler *s, const struct request *r, struct moe_error *err) {
  const struct scheduler_limits *l = &s->config.limits;
  unsigned long long id = r->id;
  if (!r->n_prompt || r->n_prompt >= l->n_ctx)
    return moe_fail(err, MOE_USAGE, "request %llu: prompt of %u tokens; allowed 1 to %u (the context is %u)", id,
                    r->n_prompt, l->n_ctx - 1, l->n_ctx);
  if (!r->n_predict) return moe_fail(err, MOE_USAGE, "request %llu: n_predict 0; allowed from 1", id);
  if (r->n_logprob > SCHEDULER_MAX_LOGPROB)
    return moe_fail(err, MOE_USAGE, "request %llu: n_logprob %u; allowed 0 to %d", id, r->n_logprob,
                    SCHEDULER_MAX_LOGPROB);
  for (uint32_t i = 0; i < r->n_prompt; i++)
    if (r->prompt[i] < 0 || (uint32_t)r->prompt[i] >= l->n_vocab)
      return moe_fail(err, MOE_USAGE, "request %llu: prompt[%u] is token %d; allowed 0 to %u", id, i, r->prompt[i],
                      l->n_vocab - 1);
  if (scheduler_find(s, r->id)) return moe_fail(err, MOE_USAGE, "request %llu: this id is already live", id);
  return MOE_OK;
}

enum moe_code scheduler_submit(struct scheduler *s, const struct request *r, struct moe_error *err) {
  enum moe_code code = scheduler_check(s, r, err);
  if (code) return code;
  struct sequence *q = NULL;
  for (uint32_t i = 0; i < s->n_sequence && !q; i++)
    if (s->sequence[i].stage == STAGE_UNUSED) q = &s->sequence[i];
  if (!q)
    return moe_fail(err, MOE_FAILED, "queue full: %u requests run and %u wait; try again later",
                    s->config.limits.n_slot, s->config.limits.n_queue);
  if (q->prompt_room < r->n_prompt) {
    int32_t *room = realloc(q->prompt, r->n_prompt * sizeof *room);
    if (!room) return moe_fail(err, MOE_FAILED, "out of memory for a prompt of %u tokens", r->n_prompt);
    q->prompt = room;
    q->prompt_room = r->n_prompt;
  }
  memcpy(q->prompt, r->prompt, r->n_prompt * sizeof *q->prompt);
  uint32_t room = s->config.limits.n_ctx - r->n_prompt;
  *q = (struct sequence){.stage = STAGE_QUEUED,
                         .id = r->id,
                         .ticket = ++s->next_ticket,
                         .sampling = r->sampling,
                         .prompt = q->prompt,
                         .prompt_room = q->prompt_room,
                         .n_prompt = r->n_prompt,
                         .n_max = r->n_predict < room ? r->n_predict : room,
                         .n_logprob = r->n_logprob,
                         .slot = STATES_NO_SLOT,
                         .ignore_eos = r->ignore_eos};
  s->n_live++;
  return MOE_OK;
}

/* Frees a record, its slot and its pages; results still in flight find another ticket and are dropped. */
static void scheduler_release(struct scheduler *s, struct sequence *q) {
  if (q->stage == STAGE_RUNNING) {
    s->owner_of[q->slot] = NOBODY;
    states_give(s->states, q->slot);
  }
  q->stage = STAGE_UNUSED;
  s->n_live--;
}

static void scheduler_finish(struct scheduler *s, struct sequence *q, enum finish_reason reason, const char *message,
                             const struct scheduler_sink *sink) {
  uint64_t id = q->id;
  scheduler_release(s, q);
  sink->on_finish(sink->user, id, reason, message);
}

void scheduler_cancel(struct scheduler *s, uint64_t id, const struct scheduler_sink *sink) {
  struct sequence *q = scheduler_find(s, id);
  if (q) scheduler_finish(s, q, FINISH_CANCELLED, NULL, sink);
}

/* The oldest record of a stage with a ticket above `after`; NULL: none. */
static struct sequence *scheduler_oldest(const struct scheduler *s, enum sequence_stage stage, uint64_t after) {
  struct sequence *oldest = NULL;
  for (uint32_t i = 0; i < s->n_sequence; i++) {
    struct sequence *q = &s->sequence[i];
    if (q->stage == stage && q->ticket > after && (!oldest || q->ticket < oldest->ticket)) oldest = q;
  }
  return oldest;
}

/* Gives free slots to those who wait, in order of arrival. */
static void scheduler_admit(struct scheduler *s) {
  struct sequence *q;
  while (states_free_slots(s->states) && (q = scheduler_oldest(s, STAGE_QUEUED, 0))) {
    q->slot = states_take(s->states);
    q->stage = STAGE_RUNNING;
    s->owner_of[q->slot] = (uint32_t)(q - s->sequence);
    for (int i = 0; i < 2; i++) step_forget(&s->writer[i], q->slot);
  }
}

/* ---- packing a step ---- */

/* A step in the making: how much of each sequence goes into it. Nothing is changed until scheduler_fill. */
struct draft {
  const struct step_template *only;           /* the template it must fit; NULL: any */
  uint32_t n_row, n_select, n_part, n_decode; /* n_decode: parts that are decoding rows */
  struct {
    struct sequence *sequence;
    uint32_t n_row;
    bool select;
  } part[IMG_MAX_SELECT];
};

/* The most rows of a template that takes n_select samples; 0: none does. */
static uint32_t scheduler_room(const struct scheduler *s, const struct draft *d, uint32_t n_select) {
  uint32_t room = 0;
  for (uint32_t i = 0; i < s->device.n_template; i++) {
    const struct step_template *t = &s->device.templates[i];
    if ((!d->only || d->only == t) && t->n_row <= s->max_row && t->n_select >= n_select && t->n_row > room)
      room = t->n_row;
  }
  return room;
}

static bool scheduler_draft(const struct scheduler *s, struct draft *d, struct sequence *q, uint32_t n_row,
                            bool select) {
  if (d->n_part == IMG_MAX_SELECT || d->n_row + n_row > scheduler_room(s, d, d->n_select + select)) return false;
  d->part[d->n_part].sequence = q;
  d->part[d->n_part].n_row = n_row;
  d->part[d->n_part++].select = select;
  d->n_row += n_row;
  d->n_select += select;
  return true;
}

/* A row for everyone who decodes and whose next token is still wanted. */
static void scheduler_draft_decode(struct scheduler *s, struct draft *d) {
  uint32_t n_slot = s->config.limits.n_slot, first = s->turn;
  for (uint32_t i = 0; i < n_slot; i++) {
    uint32_t slot = (first + i) % n_slot;
    struct sequence *q = s->owner_of[slot] == NOBODY ? NULL : &s->sequence[s->owner_of[slot]];
    if (!q || q->n_fed < q->n_prompt || q->n_asked >= q->n_max) continue;
    if (scheduler_draft(s, d, q, 1, true)) {
      d->n_decode++;
      continue;
    }
    s->turn = slot; /* goes first next time */
    return;
  }
}

/* Prompt rows, the oldest prompt first, up to the window. */
static void scheduler_draft_prompts(const struct scheduler *s, struct draft *d) {
  uint32_t left = s->config.window ? s->config.window : UINT32_MAX;
  struct sequence *q = NULL;
  uint64_t after = 0;
  while (left && (q = scheduler_oldest(s, STAGE_RUNNING, after))) {
    after = q->ticket;
    if (q->n_fed >= q->n_prompt) continue;
    uint32_t rest = q->n_prompt - q->n_fed, room = scheduler_room(s, d, d->n_select + 1);
    room = room > d->n_row ? room - d->n_row : 0;
    uint32_t n = rest < left ? rest : left;
    if (n > room) n = room;
    if (!n || !scheduler_draft(s, d, q, n, n == rest)) return;
    left -= n;
  }
}

/* Writes a draft into a step block and moves the sequences on. A sequence has at most one part (it decodes or has
 * prompt rows left), so that each slot's rows are one run of consecutive positions, as recurrent states need them. */
static void scheduler_fill(struct scheduler *s, const struct draft *d, struct step_writer *w, struct flight *f) {
  step_begin(w);
  f->n_select = f->n_part = 0;
  for (uint32_t i = 0; i < d->n_part; i++) {
    struct sequence *q = d->part[i].sequence;
    states_reach(s->states, q->slot, q->n_fed + d->part[i].n_row);
    uint32_t n_page, row = 0;
    const uint32_t *pages = states_pages(s->states, q->slot, &n_page);
    step_put_pages(w, q->slot, pages, n_page);
    for (uint32_t k = 0; k < d->part[i].n_row; k++, q->n_fed++)
      row = step_add_row(w, q->n_fed < q->n_prompt ? q->prompt[q->n_fed] : IMG_TOKEN_FROM_SLOT, q->n_fed, q->slot);
    struct part part = {.sequence = (uint32_t)(q - s->sequence), .n_fed = q->n_fed, .ticket = q->ticket};
    f->part[f->n_part++] = part;
    if (!d->part[i].select) continue;
    step_add_select(w, row, q->slot, q->n_fed, &q->sampling, q->n_logprob, q->ignore_eos);
    f->select[f->n_select++] = part;
    q->n_asked++;
  }
  f->number = s->number++;
  step_end(w, f->number);
}

/* Packs the next step for one template, or for any. Decoding rows go first; but when one template must do, and may hold
 * nothing else, every other step belongs to the prompts. */
static void scheduler_pack(struct scheduler *s, struct draft *d, const struct step_template *only) {
  *d = (struct draft){.only = only};
  if (only && s->number % 2) scheduler_draft_prompts(s, d);
  scheduler_draft_decode(s, d);
  if (!only || s->number % 2 == 0) scheduler_draft_prompts(s, d);
}

/* The smallest template for a draft, among all or among those that are ready; NULL: none. */
static const struct step_template *scheduler_fitting(const struct scheduler *s, const struct draft *d, bool ready) {
  const struct step_template *t = s->device.templates, *end = t + s->device.n_template;
  for (; t < end && t->n_row <= s->max_row; t++)
    if (t->n_row >= d->n_row && t->n_select >= d->n_select && (!ready || s->device.ready(s->device.user, t->index)))
      return t;
  return NULL;
}

/* The template for a draft whose best one is still being compiled: a larger one that is ready, else the largest that is
 * ready, for which the draft is packed anew. With none: NULL while a step is in flight (its results must not wait),
 * else the smallest one, which is compiled soonest. */
static const struct step_template *scheduler_substitute(struct scheduler *s, struct draft *d,
                                                        const struct step_template *best) {
  /* a short prompt alone is through before its template is compiled */
  if (d->n_decode || d->n_row > SCHEDULER_SHORT_PROMPT) s->device.hurry(s->device.user, best->index);
  const struct step_template *t = scheduler_fitting(s, d, true);
  if (t) return t;
  for (uint32_t i = 0; i < s->device.n_template && s->device.templates[i].n_row <= s->max_row; i++)
    if (s->device.ready(s->device.user, s->device.templates[i].index)) t = &s->device.templates[i];
  if (!t && s->n_flight) return NULL;
  if (!t) t = &s->device.templates[0];
  scheduler_pack(s, d, t);
  return d->n_part ? t : NULL;
}

/* Submits one more step when there is one. *submitted: whether. */
static enum moe_code scheduler_launch(struct scheduler *s, bool *submitted, struct moe_error *err) {
  *submitted = false;
  scheduler_admit(s);
  struct draft d;
  uint32_t turn = s->turn;
  s->max_row = pace_max_row(&s->pace, s->number);
  scheduler_pack(s, &d, NULL);
  if (!d.n_part) return MOE_OK;
  const struct step_template *t = scheduler_fitting(s, &d, false);
  if (!s->device.ready(s->device.user, t->index)) {
    s->turn = turn;
    if (!s->config.patient)
      t = scheduler_substitute(s, &d, t);
    else if (s->n_flight)
      t = NULL;
    if (!t) return MOE_OK;
  }
  uint32_t copy = s->n_flight ? s->first_flight ^ 1 : s->first_flight;
  struct flight *f = &s->flight[copy];
  f->copy = copy;
  f->template = (uint32_t)(t - s->device.templates);
  f->n_row = d.n_row;
  scheduler_fill(s, &d, &s->writer[copy], f);
  enum moe_code code = s->device.submit(s->device.user, t->index, copy, err);
  if (code) return code;
  f->submit_us = s->device.clock(s->device.user);
  s->n_flight++;
  *submitted = true;
  return MOE_OK;
}

/* ---- results ---- */

/* The sequence a part was for, or NULL when it ended meanwhile (its record may have a new owner). */
static struct sequence *scheduler_of(const struct scheduler *s, const struct part *part) {
  struct sequence *q = &s->sequence[part->sequence];
  return q->stage == STAGE_RUNNING && q->ticket == part->ticket ? q : NULL;
}

static void scheduler_emit(struct scheduler *s, struct sequence *q, const struct step_sample *sample,
                           const struct scheduler_sink *sink) {
  if (sample->token < 0 || (uint32_t)sample->token >= s->config.limits.n_vocab) {
    scheduler_finish(s, q, FINISH_ERROR, "the device sampled a token that the model does not have", sink);
    return;
  }
  q->n_emitted++;
  bool end = sample->done && !q->ignore_eos;
  const struct token_event event = {.id = q->id,
                                    .token = sample->token,
                                    .is_end = end,
                                    .logprob = q->n_logprob ? sample->logprob : 0,
                                    .n_top = q->n_logprob,
                                    .top = sample->top};
  sink->on_token(sink->user, &event);
  if (end)
    scheduler_finish(s, q, FINISH_STOP, NULL, sink);
  else if (q->n_emitted >= q->n_max)
    scheduler_finish(s, q, FINISH_LENGTH, NULL, sink);
}

/* Waits for the oldest step and delivers it. */
static enum moe_code scheduler_land(struct scheduler *s, const struct scheduler_sink *sink, struct moe_error *err) {
  struct flight *f = &s->flight[s->first_flight];
  enum moe_code code = s->device.wait(s->device.user, f->copy, err);
  if (code) return code;
  s->n_flight--;
  s->first_flight ^= 1;
  uint64_t begin_us = f->submit_us > s->land_us ? f->submit_us : s->land_us;
  s->land_us = s->device.clock(s->device.user);
  pace_record(&s->pace, f->template, f->n_row, s->land_us - begin_us, f->number);
  const uint32_t *result = s->device.result[f->copy];
  if (f->n_select && step_result_number(result) != f->number)
    return moe_fail(err, MOE_FAILED, "the device answered step %u with the results of step %u", f->number,
                    step_result_number(result));
  for (uint32_t i = 0; i < f->n_part; i++) {
    struct sequence *q = scheduler_of(s, &f->part[i]);
    if (q) q->n_done = f->part[i].n_fed;
  }
  for (uint32_t i = 0; i < f->n_select; i++) {
    struct sequence *q = scheduler_of(s, &f->select[i]);
    if (!q) continue;
    struct step_sample sample;
    step_result_get(result, i, q->n_logprob, &sample);
    scheduler_emit(s, q, &sample, sink);
  }
  return MOE_OK;
}

enum moe_code scheduler_step(struct scheduler *s, const struct scheduler_sink *sink, struct moe_error *err) {
  bool submitted = true;
  while (s->n_flight < 2 && submitted) {
    enum moe_code code = scheduler_launch(s, &submitted, err);
    if (code) return code;
  }
  return s->n_flight ? scheduler_land(s, sink, err) : MOE_OK;
}
