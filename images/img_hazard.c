#include "img_hazard.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

/* These bound the work on hostile input; real templates stay a hundred times below. */
#define HAZARD_MAX_PENDING 2048      /* regions since the last barrier */
#define HAZARD_MAX_WORK (1ull << 30) /* comparisons of two regions, all templates */

struct access {
  uint64_t begin, end; /* end == UINT64_MAX: the whole arena */
  uint32_t inst;
  uint8_t arena, access;
};

struct walk {
  const struct img_templates_view *t;
  const struct img_modules_view *modules; /* NULL while deriving */
  uint8_t *before; /* deriving: per instruction, a barrier stands before it; NULL while checking */
  bool changed;
  uint32_t template, n_pending;
  uint64_t work; /* comparisons so far */
  struct access pending[HAZARD_MAX_PENDING];
};

static bool conflict(const struct access *a, const struct access *b) {
  return a->arena == b->arena && ((a->access | b->access) & IMG_ACCESS_WRITE) && a->begin < b->end && b->begin < a->end;
}

static enum moe_code report(const struct walk *w, const struct access *a, const struct access *b,
                            struct moe_error *err) {
  const struct img_templates_view *t = w->t;
#define MODULE_NAME(INST) (w->modules->name + w->modules->module[t->inst[INST].module].name_offset)
  return moe_fail(err, MOE_FAILED,
                  "TEMPLATES: %s: inst[%u] %s and inst[%u] %s touch arena %u at [%llu, %llu) and [%llu, %llu) with no "
                  "barrier between",
                  t->name + t->template[w->template].name_offset, a->inst, MODULE_NAME(a->inst), b->inst,
                  MODULE_NAME(b->inst), a->arena, (ull)a->begin, (ull)a->end, (ull)b->begin, (ull)b->end);
#undef MODULE_NAME
}

static struct access resolve(const struct walk *w, const struct img_region *r, uint32_t inst, uint32_t table,
                             uint32_t row) {
  struct access a = {.arena = r->arena, .access = r->access, .inst = inst, .end = UINT64_MAX};
  if (r->bytes == IMG_WHOLE_ARENA) return a;
  a.begin = r->offset + (r->column == IMG_NO_COLUMN ? 0 : img_table_value(w->t, table, row, r->column));
  a.end = a.begin + r->bytes;
  return a;
}

static enum moe_code visit_dispatch(struct walk *w, uint32_t at, uint32_t table, uint32_t row, struct moe_error *err) {
  const struct img_inst *inst = &w->t->inst[at];
  struct access mine[IMG_MAX_OPERAND];
  uint32_t n = 0;
  if (w->before && w->before[at]) w->n_pending = 0;
  for (uint32_t i = 0; i < inst->n_region; i++) {
    const struct img_region *r = &w->t->region[inst->first_region + i];
    if (r->arena != IMG_ARENA_WEIGHTS && r->arena != IMG_ARENA_TABLES) mine[n++] = resolve(w, r, at, table, row);
  }
  w->work += (uint64_t)w->n_pending * n;
  if (w->work > HAZARD_MAX_WORK)
    return moe_fail(err, MOE_FAILED, "TEMPLATES: %s: comparing its regions takes more than %llu steps",
                    w->t->name + w->t->template[w->template].name_offset, (ull)HAZARD_MAX_WORK);
  for (uint32_t p = 0; p < w->n_pending; p++)
    for (uint32_t i = 0; i < n; i++)
      if (conflict(&w->pending[p], &mine[i])) {
        if (!w->before) return report(w, &w->pending[p], &mine[i], err);
        w->before[at] = 1;
        w->changed = true;
        w->n_pending = 0;
      }
  if (w->n_pending + n > HAZARD_MAX_PENDING)
    return moe_fail(err, MOE_FAILED, "TEMPLATES: more than %u regions between two barriers", HAZARD_MAX_PENDING);
  memcpy(w->pending + w->n_pending, mine, n * sizeof *mine);
  w->n_pending += n;
  return MOE_OK;
}

static enum moe_code visit(struct walk *w, uint32_t first, uint32_t n, uint32_t table, uint32_t row,
                           struct moe_error *err) {
  for (uint32_t at = first; at < first + n; at++) {
    const struct img_inst *inst = &w->t->inst[at];
    enum moe_code code = MOE_OK;
    if (inst->op == IMG_OP_BARRIER) w->n_pending = 0;
    if (inst->op == IMG_OP_DISPATCH) code = visit_dispatch(w, at, table, row, err);
    if (inst->op == IMG_OP_CALL)
      for (uint32_t r = inst->first_row; code == MOE_OK && r < inst->first_row + inst->count; r++)
        code = visit(w, w->t->body[inst->body].first_inst, w->t->body[inst->body].n_inst, inst->table, r, err);
    if (code != MOE_OK) return code;
  }
  return MOE_OK;
}

static enum moe_code visit_all(struct walk *w, struct moe_error *err) {
  w->work = 0;
  for (w->template = 0; w->template <w->t->n_template; w->template ++) {
    const struct img_template *t = &w->t->template[w->template];
    w->n_pending = 0;
    enum moe_code code = visit(w, t->first_inst, t->n_inst, 0, 0, err);
    if (code != MOE_OK) return code;
  }
  return MOE_OK;
}

enum moe_code img_hazard_check(const struct img_templates_view *templates, const struct img_modules_view *modules,
                               struct moe_error *err) {
  struct walk *w = calloc(1, sizeof *w);
  if (!w) return moe_fail(err, MOE_FAILED, "out of memory");
  w->t = templates;
  w->modules = modules;
  enum moe_code code = visit_all(w, err);
  free(w);
  return code;
}

/* moved[i]: where instruction i stands after insertion; a range that starts at i starts at its barrier. */
static void insert(const struct img_templates_view *t, const uint8_t *before, uint32_t *start,
                   struct img_hazard_result *r) {
  for (uint32_t i = 0; i < t->n_inst; i++) {
    start[i] = r->n_inst;
    if (before[i]) r->inst[r->n_inst++] = (struct img_inst){.op = IMG_OP_BARRIER};
    r->inst[r->n_inst++] = t->inst[i];
  }
  start[t->n_inst] = r->n_inst;
  for (uint32_t i = 0; i < t->n_body; i++) {
    uint32_t first = t->body[i].first_inst, end = first + t->body[i].n_inst;
    r->body[i] = (struct img_body){start[first], start[end] - start[first]};
  }
  for (uint32_t i = 0; i < t->n_template; i++) {
    uint32_t first = t->template[i].first_inst, end = first + t->template[i].n_inst;
    r->template[i] = t->template[i];
    r->template[i].first_inst = start[first];
    r->template[i].n_inst = start[end] - start[first];
  }
}

enum moe_code img_hazard_derive(const struct img_templates_view *t, struct img_hazard_result *result,
                                struct moe_error *err) {
  struct walk *w = calloc(1, sizeof *w);
  uint8_t *before = calloc(t->n_inst + 1, 1);
  uint32_t *start = calloc(t->n_inst + 1, sizeof *start);
  *result = (struct img_hazard_result){
      .inst = calloc(2 * (size_t)t->n_inst + 1, sizeof *result->inst),
      .body = calloc(t->n_body + 1, sizeof *result->body),
      .template = calloc(t->n_template + 1, sizeof *result->template),
  };
  enum moe_code code = MOE_OK;
  if (!w || !before || !start || !result->inst || !result->body || !result->template)
    code = moe_fail(err, MOE_FAILED, "out of memory for %u instructions", t->n_inst);
  else {
    w->t = t;
    w->before = before;
    do { /* a barrier added for a later call can only remove conflicts seen earlier, so this ends after at most n_inst
            rounds */
      w->changed = false;
      code = visit_all(w, err);
    } while (code == MOE_OK && w->changed);
    if (code == MOE_OK) insert(t, before, start, result);
  }
  if (code != MOE_OK) img_hazard_deinit(result);
  free(start);
  free(before);
  free(w);
  return code;
}

void img_hazard_deinit(struct img_hazard_result *result) {
  free(result->inst);
  free(result->body);
  free(result->template);
  *result = (struct img_hazard_result){0};
}
