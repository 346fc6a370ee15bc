#include "plan.h"

#include "codebooks.h"
#include "img_check.h"
#include "img_print.h"

#include <stdlib.h>
#include <string.h>

uint64_t plan_align(uint64_t bytes) {
  return (bytes + IMG_PLANE_ALIGN - 1) / IMG_PLANE_ALIGN * IMG_PLANE_ALIGN;
}

/* Rope tables: one 64-bit turn fraction a rotated pair. */
static enum moe_code plan_make_tables(struct plan *plan, struct moe_error *err) {
  const struct ir_graph *g = plan->graph;
  plan->rope_table = calloc(g->n_rope + 1, sizeof *plan->rope_table);
  if (!plan->rope_table) return moe_fail(err, MOE_FAILED, "out of memory: the plan's tables");
  for (uint32_t i = 0; i < g->n_rope; i++) {
    plan->rope_table[i] = plan->table_bytes;
    plan->table_bytes = plan_align(plan->table_bytes + g->rope[i].n_rot / 2 * sizeof(uint64_t));
  }
  if (plan->table_bytes == 0) plan->table_bytes = IMG_PLANE_ALIGN; /* an arena is never empty */
  plan->table = calloc(1, plan->table_bytes);
  if (!plan->table) return moe_fail(err, MOE_FAILED, "out of memory: the plan's tables");
  for (uint32_t i = 0; i < g->n_rope; i++)
    for (uint32_t j = 0; j < g->rope[i].n_rot / 2; j++) {
      uint64_t turns = shadergen_rope_turns(g->rope[i].inv_freq[j]);
      memcpy(plan->table + plan->rope_table[i] + j * sizeof turns, &turns, sizeof turns);
    }
  return MOE_OK;
}

static enum moe_code plan_place_recurrent(struct plan *plan, struct moe_error *err) {
  const struct ir_graph *g = plan->graph;
  plan->recurrent_offset = calloc(g->n_recurrent + 1, sizeof *plan->recurrent_offset);
  if (!plan->recurrent_offset) return moe_fail(err, MOE_FAILED, "out of memory: the plan's recurrent states");
  for (uint32_t i = 0; i < g->n_recurrent; i++) {
    plan->recurrent_offset[i] = plan->block_bytes;
    plan->block_bytes = plan_align(plan->block_bytes + 4 * g->recurrent[i]);
  }
  if (plan->block_bytes > INT32_MAX)
    return moe_fail(err, MOE_DECLINED, "a slot's recurrent states have %llu bytes; kernels address at most 2147483647",
                    (unsigned long long)plan->block_bytes);
  return MOE_OK;
}

enum plan_kv plan_kv_find(const char *name) {
  return !strcmp(name, "f32") ? PLAN_KV_F32 : !strcmp(name, "q8_0") ? PLAN_KV_Q8_0 : PLAN_KV_F16;
}

/* Bytes of a head's elements of a page's tokens. */
static uint64_t plan_head_bytes(enum plan_kv kv, uint64_t d) {
  static const uint64_t bits[] = {[PLAN_KV_F16] = 16, [PLAN_KV_F32] = 32, [PLAN_KV_Q8_0] = 8};
  return PLAN_PAGE_TOK * (d * bits[kv] / 8 + (kv == PLAN_KV_Q8_0 ? (d + 63) / 64 * 4 : 0));
}

enum moe_code plan_init(struct plan *plan, const struct ir_graph *graph, enum plan_kv kv, uint32_t max_row,
                        struct moe_error *err) {
  memset(plan, 0, sizeof *plan);
  plan->max_row = max_row;
  plan->graph = graph;
  plan->kv = kv;
  plan->state_offset = calloc(graph->n_state + 1, sizeof *plan->state_offset);
  if (!plan->state_offset) return moe_fail(err, MOE_FAILED, "out of memory: the plan's states");
  for (uint32_t i = 0; i < graph->n_state; i++) {
    const struct ir_state *s = &graph->state[i];
    plan->state_offset[i] = plan->page_bytes;
    if (kv == PLAN_KV_Q8_0 && (s->d_head % 32 || s->d_head_value % 32))
      return moe_fail(err, MOE_DECLINED,
                      "--kv q8_0: state %u has keys of %u and values of %u elements; blocks of 32 need multiples of 32",
                      i, s->d_head, s->d_head_value);
    plan->page_bytes += s->n_kv_head * (plan_head_bytes(kv, s->d_head) + plan_head_bytes(kv, s->d_head_value));
  }
  if (plan->page_bytes == 0)
    return moe_fail(err, MOE_DECLINED, "no layer attends: moec compiles models that have keys and values");
  if (plan->page_bytes > INT32_MAX)
    return moe_fail(err, MOE_DECLINED, "a state page of %d tokens has %llu bytes; kernels address at most 2147483647",
                    PLAN_PAGE_TOK, (unsigned long long)plan->page_bytes);
  enum moe_code code = plan_place_recurrent(plan, err);
  if (code) return code;
  uint64_t n_head = 0;
  for (int i = 0; i < graph->n_node; i++)
    if (graph->node[i].op == IR_ATTENTION && graph->node[i].a.n_head > n_head) n_head = graph->node[i].a.n_head;
  plan->router_counter = plan_align(4 * n_head * max_row);
  plan->counter_bytes = plan->router_counter + plan_align(4 * max_row);
  return plan_make_tables(plan, err);
}

static void plan_template_deinit(struct plan_template *t) {
  free(t->op);
  free(t->resident.cell);
}

void plan_deinit(struct plan *plan) {
  for (uint32_t i = 0; i < plan->n_template; i++) plan_template_deinit(&plan->template[i]);
  free(plan->plane);
  free(plan->table);
  free(plan->rope_table);
  free(plan->state_offset);
  free(plan->recurrent_offset);
  memset(plan, 0, sizeof *plan);
}

enum moe_code plan_add_plane(struct plan *plan, const struct gguf_tensor *tensor, bool vector,
                             struct plan_operand *operand, struct moe_error *err) {
  bool widened = vector && tensor->format_number != FORMAT_F32;
  for (uint32_t i = 0; i < plan->n_plane; i++)
    if (plan->plane[i].tensor == tensor && plan->plane[i].widened == widened) {
      *operand = (struct plan_operand){.kind = PLAN_PLANE, .index = i};
      return MOE_OK;
    }
  if (plan->n_plane == plan->plane_capacity) {
    uint32_t capacity = plan->plane_capacity ? 2 * plan->plane_capacity : 256;
    struct plan_plane *grown = realloc(plan->plane, capacity * sizeof *grown);
    if (!grown) return moe_fail(err, MOE_FAILED, "out of memory: %u planes", capacity);
    plan->plane = grown;
    plan->plane_capacity = capacity;
  }
  struct plan_plane *p = &plan->plane[plan->n_plane];
  *p = (struct plan_plane){.tensor = tensor, .widened = widened, .offset = plan->planes_bytes};
  const struct format *format = widened ? format_find(FORMAT_F32) : tensor->format;
  enum moe_code code = pack_layout(format, tensor->dim[0], tensor->dim[1], tensor->dim[2], &p->layout, err);
  uint64_t end = 0;
  if (!code && !moe_add(p->offset, p->layout.bytes, &end))
    code = moe_fail(err, MOE_FAILED, "%s: the planes' sizes exceed 64 bits", tensor->name);
  if (code) return code;
  plan->planes_bytes = plan_align(end);
  *operand = (struct plan_operand){.kind = PLAN_PLANE, .index = plan->n_plane++};
  return MOE_OK;
}

enum moe_code plan_add_codebooks(struct plan *plan, struct plan_operand *operand, struct moe_error *err) {
  if (plan->codebooks == 0) { /* TABLES is never empty: what is appended is not at 0 */
    uint64_t bytes = plan->table_bytes + plan_align(sizeof codebooks);
    uint8_t *grown = realloc(plan->table, bytes);
    if (!grown) return moe_fail(err, MOE_FAILED, "out of memory: the plan's tables");
    memset(grown + plan->table_bytes, 0, bytes - plan->table_bytes);
    memcpy(grown + plan->table_bytes, &codebooks, sizeof codebooks);
    plan->table = grown;
    plan->codebooks = plan->table_bytes;
    plan->table_bytes = bytes;
  }
  *operand = (struct plan_operand){.kind = PLAN_TABLE, .offset = plan->codebooks};
  return MOE_OK;
}

enum moe_code plan_add_carried(struct plan *plan, struct moe_error *err) {
  uint32_t before = plan->n_plane;
  struct plan_operand operand;
  enum moe_code code = MOE_OK;
  for (uint32_t i = 0; i < plan->graph->n_carried && !code; i++) {
    const struct gguf_tensor *t = plan->graph->carried[i];
    code = plan_add_plane(plan, t, t->n_dim == 1, &operand, err);
  }
  plan->n_carried = plan->n_plane - before;
  return code;
}

enum moe_code plan_add_op(struct plan_template *t, const struct plan_op *op, struct moe_error *err) {
  if (t->n_op == t->capacity) {
    uint32_t capacity = t->capacity ? 2 * t->capacity : 256;
    struct plan_op *grown = realloc(t->op, capacity * sizeof *grown);
    if (!grown) return moe_fail(err, MOE_FAILED, "out of memory: %u dispatches", capacity);
    t->op = grown;
    t->capacity = capacity;
  }
  t->op[t->n_op++] = *op;
  return MOE_OK;
}

/* What a cell may be: what has one address, or a number. */
static bool plan_is_cell(const struct plan_operand *o) {
  if (o->kind == PLAN_IMM) return o->offset < 1ull << IMG_CELL_SHIFT;
  return o->kind != PLAN_STEP && o->kind != PLAN_RESULT && o->kind != PLAN_RESIDENT_TABLE;
}

enum moe_code plan_add_resident(struct plan_template *t, uint32_t n_row, uint32_t n_column,
                                const struct plan_operand *cells, struct plan_operand *operand, struct moe_error *err) {
  uint64_t n = (uint64_t)n_row * n_column;
  if (t->resident.cell) return moe_fail(err, MOE_FAILED, "a template's second table in device memory; allowed: one");
  if (n == 0 || n > IMG_MAX_TABLE_WORK / 2)
    return moe_fail(err, MOE_FAILED, "a table of %u x %u cells in device memory; allowed: 1 to %u cells", n_row,
                    n_column, IMG_MAX_TABLE_WORK / 2);
  for (uint64_t i = 0; i < n; i++)
    if (!plan_is_cell(&cells[i]))
      return moe_fail(err, MOE_FAILED,
                      "a table in device memory: row %u, column %u is of kind %d, offset %llu; allowed: what has one "
                      "address, or a number below 2^%d",
                      (uint32_t)(i / n_column), (uint32_t)(i % n_column), (int)cells[i].kind,
                      (unsigned long long)cells[i].offset, IMG_CELL_SHIFT);
  t->resident.cell = malloc(n * sizeof *cells);
  if (!t->resident.cell) return moe_fail(err, MOE_FAILED, "out of memory: a table of %u x %u cells", n_row, n_column);
  memcpy(t->resident.cell, cells, n * sizeof *cells);
  t->resident.n_row = n_row;
  t->resident.n_column = n_column;
  *operand = (struct plan_operand){.kind = PLAN_RESIDENT_TABLE};
  return MOE_OK;
}

static bool plan_same_operand(const struct plan_operand *a, const struct plan_operand *b) {
  return a->kind == b->kind && a->index == b->index && a->offset == b->offset;
}

static bool plan_same_op(const struct plan_op *a, const struct plan_op *b) {
  if (a->role != b->role || a->layer != b->layer || !shadergen_same_request(&a->request, &b->request)) return false;
  for (uint32_t i = 0; i < kernel_get(a->request.kernel)->n_push; i++)
    if (!plan_same_operand(&a->operand[i], &b->operand[i])) return false;
  return true;
}

static bool plan_same_resident(const struct plan_resident *a, const struct plan_resident *b) {
  if (a->n_row != b->n_row || a->n_column != b->n_column) return false;
  for (uint64_t i = 0; i < (uint64_t)a->n_row * a->n_column; i++)
    if (!plan_same_operand(&a->cell[i], &b->cell[i])) return false;
  return true;
}

static bool plan_same_template(const struct plan_template *a, const struct plan_template *b) {
  if (a->n_select != b->n_select || a->n_op != b->n_op || !plan_same_resident(&a->resident, &b->resident)) return false;
  for (uint32_t i = 0; i < a->n_op; i++)
    if (!plan_same_op(&a->op[i], &b->op[i])) return false;
  return true;
}

void plan_drop_equal(struct plan *plan) {
  struct plan_template *last = &plan->template[plan->n_template - 1];
  const struct plan_template *below = NULL;
  for (const struct plan_template *t = plan->template; t < last; t++)
    if (t->kind == last->kind && t->n_row == last->n_row && t->tier < last->tier && (!below || t->tier > below->tier))
      below = t;
  if (!below || !plan_same_template(below, last)) return;
  plan_template_deinit(last);
  plan->n_template--;
}

uint64_t plan_act_bytes(const struct plan *plan) {
  uint64_t bytes = IMG_PLANE_ALIGN;
  for (uint32_t i = 0; i < plan->n_template; i++)
    if (plan->template[i].act_bytes > bytes) bytes = plan->template[i].act_bytes;
  return bytes;
}

static void plan_print_op(const struct plan *plan, const struct plan_op *op, FILE *out) {
  const struct kernel_info *info = kernel_get(op->request.kernel);
  fprintf(out, "  layer %d %s", op->layer, info->name);
  for (uint32_t i = 0; i < op->request.n_param; i++)
    fprintf(out, " %s=%g", op->request.param[i].name, op->request.param[i].value);
  for (uint32_t i = 0; i < info->n_push; i++) {
    const struct plan_operand *o = &op->operand[i];
    if (o->kind == PLAN_PLANE) fprintf(out, " %s:%s", info->push[i].name, plan->plane[o->index].tensor->name);
    if (o->kind == PLAN_ACT) fprintf(out, " %s:act+%llu", info->push[i].name, (unsigned long long)o->offset);
  }
  fputc('\n', out);
}

void plan_print(const struct plan *plan, FILE *out) {
  for (uint32_t i = 0; i < plan->n_template; i++) {
    const struct plan_template *t = &plan->template[i];
    fprintf(out, "%s(%u), tier %s: %u dispatches, %llu bytes of ACT\n",
            t->kind == IMG_TEMPLATE_TOKEN ? "token" : "window", t->n_row, img_tier_name(t->tier), t->n_op,
            (unsigned long long)t->act_bytes);
    if (t->resident.cell) fprintf(out, "  table of %u x %u cells\n", t->resident.n_row, t->resident.n_column);
    for (uint32_t k = 0; k < t->n_op; k++) plan_print_op(plan, &t->op[k], out);
  }
}
