/* profile_measure.c: runs a step again and again and times it (profile.h). */
#include "engine_parts.h"
#include "img_print.h"
#include "profile.h"
#include "scheduler_make.h"
#include "states.h"
#include "verbs.h"
#include "vk_memory.h"

#include <stdlib.h>
#include <string.h>

enum {
  PROFILE_WARM = 2,       /* runs of every form that do not count, at least, */
  PROFILE_WARM_MS = 300,  /* and for at least so long: clocks rise under load */
  PROFILE_CEILING = 9,    /* readings, and copies, that count */
  PROFILE_READ = 1 << 30, /* bytes of one: more than any cache holds */
  PROFILE_CPU_READ = 256 << 20,
  PROFILE_N_SAMPLE = 5,
};

struct profile_run {
  struct engine *engine;
  struct states *states;
  struct step_writer writer;
  struct profile_step step;
  uint32_t slot[IMG_MAX_SELECT]; /* [step.n_sequence] */
  uint32_t number;               /* of the next step */
  uint64_t random;
  uint32_t template;
  struct vk_profile *profile;
  struct profile_dispatch *dispatch; /* [n_dispatch] */
  double *ns;                        /* [n_dispatch] of the last run of EACH */
  double *sample[PROFILE_N_SAMPLE];  /* [repeat] whole, host, each, empty, each of an empty step, in us */
  double *role_us[2];                /* [IMG_N_ROLE + 1][repeat] of the step, and of one without rows */
};

/* ---- steps ---- */

/* The smallest of the tier's templates for so many rows and selects, as the scheduler chooses; NULL: none. */
static const struct step_template *profile_fitting(const struct load *load, uint32_t n_row, uint32_t n_select) {
  for (uint32_t i = 0; i < load->n_template; i++)
    if (load->templates[i].n_row >= n_row && load->templates[i].n_select >= n_select) return &load->templates[i];
  return NULL;
}

/* Adds positions [from, from + n) of a slot to the step, with random tokens. Returns the last one's row. */
static uint32_t profile_add_rows(struct profile_run *r, uint32_t slot, uint32_t from, uint32_t n) {
  uint32_t n_page, row = 0;
  states_reach(r->states, slot, from + n);
  const uint32_t *pages = states_pages(r->states, slot, &n_page);
  step_put_pages(&r->writer, slot, pages, n_page);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t token = (uint32_t)(verbs_random(&r->random) % r->engine->load.view.manifest.model_n_vocab);
    row = step_add_row(&r->writer, (int32_t)token, from + i, slot);
  }
  return row;
}

static enum moe_code profile_end_step(struct profile_run *r, struct moe_error *err) {
  step_end(&r->writer, r->number++);
  return vk_buffer_flush(r->engine->arenas.buffer[IMG_ARENA_STEP][0], err);
}

/* The step that is measured, or one without rows. */
static enum moe_code profile_write_step(struct profile_run *r, bool empty, struct moe_error *err) {
  static const struct sampling_params greedy = {.top_p = 1};
  uint32_t n = r->step.n_row / r->step.n_sequence;
  step_begin(&r->writer);
  for (uint32_t i = 0; i < r->step.n_sequence && !empty; i++) {
    uint32_t row = profile_add_rows(r, r->slot[i], r->step.depth, n);
    step_add_select(&r->writer, row, r->slot[i], r->step.depth + n, &greedy, 0, true);
  }
  return profile_end_step(r, err);
}

/* Brings every sequence to its depth, in the largest windows. */
static enum moe_code profile_fill(struct profile_run *r, struct moe_error *err) {
  const struct load *load = &r->engine->load;
  uint32_t largest = load->templates[load->n_template - 1].n_row, total = r->step.n_sequence * r->step.depth;
  enum moe_code code = MOE_OK;
  for (uint32_t i = 0; i < r->step.n_sequence && !code; i++)
    for (uint32_t at = 0; at < r->step.depth && !code; at += largest) {
      uint32_t n = r->step.depth - at < largest ? r->step.depth - at : largest;
      verbs_progress_count("positions", i * r->step.depth + at, total);
      step_begin(&r->writer);
      profile_add_rows(r, r->slot[i], at, n);
      code = profile_end_step(r, err);
      if (!code) code = vk_replay_submit(r->engine->replay, profile_fitting(load, n, 0)->index, 0, err);
      if (!code) code = vk_replay_wait(r->engine->replay, 0, err);
    }
  if (!code && total) verbs_progress_count("positions", total, total);
  return code;
}

/* ---- measuring ---- */

/* Runs every dispatch alone and sums by role, in microseconds; returns the sum of all in *each. */
static enum moe_code profile_each(struct profile_run *r, uint32_t n_dispatch, double role[IMG_N_ROLE + 1], double *each,
                                  struct moe_error *err) {
  enum moe_code code = vk_profile_run(r->profile, VK_PROFILE_EACH, r->ns, err);
  *each = 0;
  for (uint32_t k = 0; k < n_dispatch && !code; k++) {
    *each += r->ns[k] / 1e3;
    role[r->dispatch[k].role] += r->ns[k] / 1e3;
  }
  return code;
}

/* Runs every form once, over the step and over one without rows; i: which repetition, UINT32_MAX: none. */
static enum moe_code profile_once(struct profile_run *r, struct profile *out, uint32_t i, struct moe_error *err) {
  double whole, empty, each, empty_each, role[2][IMG_N_ROLE + 1] = {{0}};
  enum moe_code code = profile_write_step(r, false, err);
  double start_ms = verbs_now_ms();
  if (!code) code = vk_profile_run(r->profile, VK_PROFILE_WHOLE, &whole, err);
  double host_us = (verbs_now_ms() - start_ms) * 1e3;
  if (!code) code = profile_each(r, out->n_dispatch, role[0], &each, err);
  if (!code) code = profile_write_step(r, true, err);
  if (!code) code = vk_profile_run(r->profile, VK_PROFILE_WHOLE, &empty, err);
  if (!code) code = profile_each(r, out->n_dispatch, role[1], &empty_each, err);
  if (!code) code = engine_check_lost(r->engine, 0, err); /* nothing clears the word in between */
  if (code || i == UINT32_MAX) return code;
  const double us[PROFILE_N_SAMPLE] = {whole / 1e3, host_us, each, empty / 1e3, empty_each};
  for (int k = 0; k < PROFILE_N_SAMPLE; k++) r->sample[k][i] = us[k];
  for (uint32_t k = 0; k <= IMG_N_ROLE; k++)
    for (int n = 0; n < 2; n++) r->role_us[n][(size_t)k * out->repeat + i] = role[n][k];
  return MOE_OK;
}

/* The roles of the template in order of first use, with what they read. */
static void profile_list_roles(struct profile_run *r, struct profile *out) {
  for (uint32_t i = 0; i < out->n_dispatch; i++) {
    struct profile_dispatch *d = &r->dispatch[i];
    if (d->role > IMG_N_ROLE) d->role = IMG_N_ROLE;
    uint32_t k = 0;
    while (k < out->n_role && out->role[k].role != d->role) k++;
    if (k == out->n_role) out->role[out->n_role++].role = d->role;
    struct profile_bytes *each[2] = {&out->role[k].bytes, &out->bytes};
    for (int n = 0; n < 2; n++) {
      each[n]->weights += d->bytes.weights;
      each[n]->state += d->bytes.state;
      each[n]->other += d->bytes.other;
    }
    out->role[k].n_dispatch++;
  }
}

static void profile_count_barriers(void *user, const struct img_inst *inst, uint32_t table, uint32_t row) {
  (void)table, (void)row;
  if (inst->op == IMG_OP_BARRIER) ++*(uint32_t *)user;
}

static enum moe_code profile_repeat(struct profile_run *r, struct profile *out, struct moe_error *err) {
  enum moe_code code = MOE_OK;
  double start_ms = verbs_now_ms();
  for (int i = 0; (i < PROFILE_WARM || verbs_now_ms() - start_ms < PROFILE_WARM_MS) && !code; i++)
    code = profile_once(r, out, UINT32_MAX, err);
  for (uint32_t i = 0; i < out->repeat && !code; i++) {
    verbs_progress_count("repetition", i, out->repeat);
    code = profile_once(r, out, i, err);
  }
  if (code) return code;
  verbs_progress_count("repetition", out->repeat, out->repeat);
  struct spread *to[PROFILE_N_SAMPLE] = {&out->whole_us, &out->host_us, &out->each_us, &out->empty_us,
                                         &out->empty_each_us};
  for (int k = 0; k < PROFILE_N_SAMPLE; k++) *to[k] = spread_of(r->sample[k], out->repeat);
  for (uint32_t k = 0; k < out->n_role; k++) {
    size_t at = (size_t)out->role[k].role * out->repeat;
    out->role[k].us = spread_of(r->role_us[0] + at, out->repeat);
    out->role[k].empty_us = spread_of(r->role_us[1] + at, out->repeat);
  }
  return MOE_OK;
}

/* ---- the whole ---- */

static enum moe_code profile_shape(struct profile_run *r, const struct profile_options *o, struct profile *out,
                                   struct moe_error *err) {
  const struct load *load = &r->engine->load;
  uint32_t n_row = o->batch ? o->batch : o->window, n_sequence = o->batch ? o->batch : 1;
  r->step = out->step = (struct profile_step){.n_row = n_row, .n_sequence = n_sequence, .depth = o->depth};
  const struct step_template *t = profile_fitting(load, n_row, n_sequence);
  if (!t)
    return moe_fail(err, MOE_USAGE, "%s %u: the image's largest step takes %u rows", o->batch ? "-b" : "-p", n_row,
                    load->templates[load->n_template - 1].n_row);
  if (n_sequence > load->plan.n_slot)
    return moe_fail(err, MOE_USAGE, "-b %u: --slots %u is less", n_sequence, load->plan.n_slot);
  if (o->depth + n_row / n_sequence >= load->plan.n_ctx)
    return moe_fail(err, MOE_USAGE, "-d %u: the context is %u, and the step takes %u positions more", o->depth,
                    load->plan.n_ctx, n_row / n_sequence);
  r->template = t->index;
  return MOE_OK;
}

static enum moe_code profile_prepare(struct profile_run *r, struct profile *out, struct moe_error *err) {
  const struct engine *e = r->engine;
  const struct memory_plan *plan = &e->load.plan;
  enum moe_code code = states_create(plan->n_slot, plan->page_stride, e->load.view.manifest.state_page_tok,
                                     plan->n_page, &r->states, err);
  if (!code)
    code = step_writer_init(&r->writer, &e->load.shape, vk_buffer_map(e->arenas.buffer[IMG_ARENA_STEP][0]), err);
  for (uint32_t i = 0; i < r->step.n_sequence && !code; i++) r->slot[i] = states_take(r->states);
  if (!code) code = vk_profile_create(e->replay, r->template, &r->profile, err);
  if (code) return code;
  out->n_dispatch = vk_profile_n_dispatch(r->profile);
  r->dispatch = calloc((size_t)out->n_dispatch + 1, sizeof *r->dispatch);
  r->ns = calloc((size_t)out->n_dispatch + 1, sizeof *r->ns);
  bool memory = r->dispatch && r->ns;
  for (int k = 0; k < 2; k++)
    memory = (r->role_us[k] = calloc((size_t)(IMG_N_ROLE + 1) * out->repeat, sizeof(double))) && memory;
  for (int k = 0; k < PROFILE_N_SAMPLE; k++) memory = (r->sample[k] = calloc(out->repeat, sizeof(double))) && memory;
  if (!memory) return moe_fail(err, MOE_FAILED, "out of memory for %u dispatches", out->n_dispatch);
  const struct vk_walk walk = {
      .templates = &e->load.view.templates, .visit = profile_count_barriers, .user = &out->n_barrier};
  vk_walk_template(&walk, r->template);
  code = profile_count_bytes(&e->load.view, r->template, &r->step, r->dispatch, err);
  if (!code) profile_list_roles(r, out);
  return code;
}

static void profile_run_deinit(struct profile_run *r) {
  vk_profile_destroy(r->profile);
  states_destroy(r->states);
  step_writer_deinit(&r->writer);
  free(r->dispatch);
  free(r->ns);
  for (int k = 0; k < 2; k++) free(r->role_us[k]);
  for (int k = 0; k < PROFILE_N_SAMPLE; k++) free(r->sample[k]);
}

enum moe_code profile_measure(struct scheduler *engine, const struct profile_options *o, struct profile *out,
                              struct moe_error *err) {
  struct profile_run r = {.engine = scheduler_owner(engine)};
  const struct load *load = &r.engine->load;
  const struct img_manifest *m = &load->view.manifest;
  struct engine_description description;
  engine_describe(engine, &description);
  *out = (struct profile){
      .repeat = o->repeat, .model = m->model_name, .quantization = m->model_quantization, .n_layer = m->model_n_layer};
  snprintf(out->device, sizeof out->device, "%s", description.device);
  enum moe_code code = profile_shape(&r, o, out, err);
  if (!code) code = profile_prepare(&r, out, err);
  if (!code) {
    const struct img_templates_view *t = &load->view.templates;
    out->template = t->name + t->template[r.template].name_offset;
    out->tier = img_tier_name(t->template[r.template].tier);
    uint64_t most = load->gpu->type == VK_GPU_CPU ? PROFILE_CPU_READ : PROFILE_READ;
    code = vk_ceiling_measure(r.engine->device, most, PROFILE_CEILING, &out->ceiling, err);
  }
  if (!code) code = profile_fill(&r, err);
  if (!code) code = profile_repeat(&r, out, err);
  profile_run_deinit(&r);
  return code;
}
