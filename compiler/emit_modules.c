#include "emit_modules.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

/* Kernels whose parameter of this name only says how many rows there can be at most: code made for the most rows that
 * any template has serves all of them, and an image has one module instead of one a template. (Grids and regions come
 * from the dispatch's own parameters.) The others size arrays or tiles by it. */
static const struct {
  enum kernel_id kernel;
  const char *param, *where; /* where: a parameter that must not be 0; NULL: always */
} emit_row_bounds[] = {
    {KERNEL_EMBED, "N_ROW", NULL},
    {KERNEL_GEMM, "N_ROW", NULL},
    {KERNEL_GEMM, "X_ROWS", NULL},
    {KERNEL_GEMM_KHR, "N_ROW", NULL},
    {KERNEL_GEMM_KHR, "X_ROWS", NULL},
    {KERNEL_NORM, "N_ROW", NULL},
    {KERNEL_ROPE_STORE, "N_ROW", NULL},
    {KERNEL_CONCAT_STORE, "N_ROW", NULL},
    {KERNEL_ATTENTION, "N_ROW", NULL},
    {KERNEL_SOFTCAP, "N_ROW", NULL},
    {KERNEL_ROUTER, "N_ROW", NULL},
    {KERNEL_TOPK, "N_ROW", NULL},
    {KERNEL_EXPERT_GATE_UP, "N_ROW", NULL},
    {KERNEL_EXPERT_DOWN, "N_ROW", NULL},
    {KERNEL_COMBINE, "N_ROW", NULL},
    {KERNEL_GLU, "N_ROW", NULL},
    {KERNEL_SHORT_CONV, "N_ROW", NULL},
    {KERNEL_DELTA_RULE, "N_ROW", NULL},
    {KERNEL_GATED_NORM, "N_ROW", NULL},
    {KERNEL_EXPERT_GATE_UP_GEMM, "N_ROW", NULL},
    {KERNEL_EXPERT_DOWN_GEMM, "N_ROW", NULL},
    {KERNEL_EXPERT_GATE_UP_GEMM_KHR, "N_ROW", NULL},
    {KERNEL_EXPERT_DOWN_GEMM_KHR, "N_ROW", NULL},
    {KERNEL_EXPERT_GATE_UP_DOT, "N_ROW", "ROUTED"},
    {KERNEL_EXPERT_DOWN_DOT, "N_ROW", NULL},
};

static double emit_param(const struct shadergen_request *r, const char *name) {
  for (uint32_t i = 0; i < r->n_param; i++)
    if (!strcmp(r->param[i].name, name)) return r->param[i].value;
  return 0;
}

/* The request that is compiled for a dispatch. */
static struct shadergen_request emit_module_request(const struct plan *plan, const struct plan_op *op) {
  struct shadergen_request r = op->request;
  for (uint32_t i = 0; i < r.n_param; i++) {
    if ((r.kernel == KERNEL_SAMPLE_SCAN || r.kernel == KERNEL_SAMPLE) && !strcmp(r.param[i].name, "N_SELECT"))
      r.param[i].value = IMG_MAX_SELECT;
    if (r.kernel == KERNEL_ATTENTION && !strcmp(r.param[i].name, "N_SPLIT")) r.param[i].value = ATTENTION_MAX_SPLIT;
    for (size_t k = 0; k < sizeof emit_row_bounds / sizeof *emit_row_bounds; k++)
      if (emit_row_bounds[k].kernel == r.kernel && !strcmp(emit_row_bounds[k].param, r.param[i].name) &&
          (!emit_row_bounds[k].where || emit_param(&r, emit_row_bounds[k].where) != 0))
        r.param[i].value = plan->max_row;
  }
  return r;
}

/* A request, the first dispatch that made it, and what became of it. */
struct emit_module_job {
  const struct plan_op *op;
  enum img_tier tier; /* of the first template with it, the lowest: templates stand tier by tier */
  struct shadergen_request request;
  uint32_t module; /* index in the section, after duplicates are dropped */
  struct shadergen_module compiled;
  void *frame;
  size_t frame_bytes;
  struct moe_error err;
  enum moe_code code;
};

struct emit_module_jobs {
  struct emit_module_job *job;
  uint32_t n;
  int level;
};

/* One job per different request; of_op: by dispatch the job. */
static enum moe_code emit_collect(const struct plan *plan, struct emit_module_jobs *jobs, uint32_t *of_op,
                                  struct moe_error *err) {
  uint32_t at = 0, capacity = 0;
  for (uint32_t t = 0; t < plan->n_template; t++)
    for (uint32_t i = 0; i < plan->template[t].n_op; i++, at++) {
      const struct plan_op *op = &plan->template[t].op[i];
      const struct shadergen_request request = emit_module_request(plan, op);
      uint32_t k = 0;
      while (k < jobs->n && !shadergen_same_request(&jobs->job[k].request, &request)) k++;
      of_op[at] = k;
      if (k < jobs->n) continue;
      if (jobs->n == capacity) {
        capacity = capacity ? 2 * capacity : 64;
        struct emit_module_job *grown = realloc(jobs->job, capacity * sizeof *grown);
        if (!grown) return moe_fail(err, MOE_FAILED, "out of memory: %u modules", capacity);
        jobs->job = grown;
      }
      jobs->job[jobs->n] = (struct emit_module_job){.op = op, .tier = plan->template[t].tier, .request = request};
      jobs->n++;
    }
  return MOE_OK;
}

static void emit_compile_item(void *context, uint64_t item, unsigned thread) {
  (void)thread;
  const struct emit_module_jobs *jobs = context;
  struct emit_module_job *job = &jobs->job[item];
  job->code = shadergen_compile(&job->request, &job->compiled, &job->err);
  if (job->code) return;
  size_t bound = ZSTD_compressBound(job->compiled.bytes);
  job->frame = malloc(bound);
  job->frame_bytes =
      job->frame ? ZSTD_compress(job->frame, bound, job->compiled.words, job->compiled.bytes, jobs->level) : 0;
  if (!job->frame || ZSTD_isError(job->frame_bytes))
    job->code = moe_fail(&job->err, MOE_FAILED, "%s: compression failed", job->compiled.name);
}

/* Equal modules get one index, by first use. */
static uint32_t emit_number(struct emit_module_jobs *jobs) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < jobs->n; i++) {
    uint32_t k = 0;
    while (k < i && memcmp(jobs->job[k].compiled.hash, jobs->job[i].compiled.hash, IMG_HASH_BYTES)) k++;
    jobs->job[i].module = k < i ? jobs->job[k].module : n++;
  }
  return n;
}

static uint32_t emit_larger(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

static void emit_note_needs(struct emit_modules *m, const struct shadergen_module *s) {
  m->max_push_bytes = emit_larger(m->max_push_bytes, s->push_bytes);
  m->max_shared_bytes = emit_larger(m->max_shared_bytes, s->shared_bytes);
  for (uint32_t i = 0; i < s->n_tuning; i++)
    m->max_workgroup = emit_larger(m->max_workgroup, s->tuning[i].spec[IMG_SPEC_WG]);
}

/* Header, table, names, frames. */
static void emit_write_modules(struct emit_modules *m, const struct emit_module_jobs *jobs) {
  struct emit_bytes names = {0}, frames = {0}, table = {0};
  uint64_t table_bytes = m->n_module * sizeof(struct img_module);
  struct img_modules head = {.n_module = m->n_module, .module_offset = sizeof head};
  head.name_offset = head.module_offset + table_bytes;
  uint32_t next = 0;
  for (uint32_t i = 0; i < jobs->n; i++) {
    const struct emit_module_job *job = &jobs->job[i];
    if (job->module != next) continue; /* a duplicate */
    next++;
    const struct shadergen_module *s = &job->compiled;
    struct img_module module = {.code_offset = emit_bytes_append(&frames, job->frame, job->frame_bytes),
                                .code_zbytes = (uint32_t)job->frame_bytes,
                                .code_bytes = s->bytes,
                                .name_offset = (uint32_t)emit_bytes_text(&names, s->name),
                                .tier = job->tier,
                                .push_bytes = s->push_bytes,
                                .n_tuning = s->n_tuning,
                                .features = s->features,
                                .shared_bytes = s->shared_bytes};
    memcpy(module.tuning, s->tuning, sizeof module.tuning);
    emit_bytes_append(&table, &module, sizeof module);
    if (job->tier == jobs->job->tier) emit_note_needs(m, s);
  }
  head.name_bytes = names.n;
  uint64_t code_at = (head.name_offset + names.n + 7) / 8 * 8;
  for (uint32_t i = 0; i < m->n_module && !table.failed; i++)
    ((struct img_module *)(void *)table.data)[i].code_offset += code_at;
  emit_bytes_append(&m->section, &head, sizeof head);
  emit_bytes_append(&m->section, table.data, table.n);
  emit_bytes_append(&m->section, names.data, names.n);
  emit_bytes_align(&m->section, 8);
  emit_bytes_append(&m->section, frames.data, frames.n);
  m->section.failed |= names.failed || frames.failed || table.failed;
  emit_bytes_deinit(&names);
  emit_bytes_deinit(&frames);
  emit_bytes_deinit(&table);
}

static enum moe_code emit_first_error(const struct emit_module_jobs *jobs, struct moe_error *err) {
  for (uint32_t i = 0; i < jobs->n; i++) {
    const struct emit_module_job *job = &jobs->job[i];
    if (!job->code) continue;
    enum moe_code code = job->code == MOE_USAGE ? MOE_DECLINED : job->code;
    return moe_fail(err, code, "layer %d, kernel %s: %s", job->op->layer, kernel_get(job->op->request.kernel)->name,
                    job->err.message);
  }
  return MOE_OK;
}

enum moe_code emit_modules_make(struct emit_modules *m, const struct plan *plan, int level, struct parallel *pool,
                                struct moe_error *err) {
  memset(m, 0, sizeof *m);
  struct emit_module_jobs jobs = {.level = level};
  uint32_t n_op = 0;
  for (uint32_t t = 0; t < plan->n_template; t++) n_op += plan->template[t].n_op;
  m->of_op = calloc(n_op + 1, sizeof *m->of_op);
  enum moe_code code = m->of_op ? emit_collect(plan, &jobs, m->of_op, err)
                                : moe_fail(err, MOE_FAILED, "out of memory: modules of %u dispatches", n_op);
  if (!code) {
    parallel_for(pool, jobs.n, emit_compile_item, &jobs);
    code = emit_first_error(&jobs, err);
  }
  if (!code) {
    m->n_module = emit_number(&jobs);
    for (uint32_t i = 0; i < n_op; i++) m->of_op[i] = jobs.job[m->of_op[i]].module;
    emit_write_modules(m, &jobs);
    code = emit_bytes_check(&m->section, "the section MODULES", err);
  }
  for (uint32_t i = 0; i < jobs.n; i++) {
    if (jobs.job[i].compiled.words) shadergen_module_deinit(&jobs.job[i].compiled);
    free(jobs.job[i].frame);
  }
  free(jobs.job);
  return code;
}

void emit_modules_deinit(struct emit_modules *m) {
  emit_bytes_deinit(&m->section);
  free(m->of_op);
  memset(m, 0, sizeof *m);
}
