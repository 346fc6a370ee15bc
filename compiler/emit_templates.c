#include "emit_templates.h"

#include "img_hazard.h"

#include <stdlib.h>
#include <string.h>

/* The arrays of the section while they grow. */
struct emit_lists {
  struct emit_bytes template, inst, body, word, region, table, value, name;
  /* The templates' tables in device memory, which stand behind those of bodies: words TABLE and first_value count from
   * the first of them until emit_residents. */
  struct emit_bytes resident, resident_value;
};

/* A layer body of the template at hand. */
struct emit_body {
  uint32_t index;                                                          /* in the section's bodies and tables */
  uint32_t first_inst, n_inst, first_word, n_word, first_region, n_region; /* in the section's arrays */
  uint32_t n_column, n_row;
  struct emit_bytes values; /* uint64_t, a row a layer */
};

struct emit_context {
  const struct plan *plan;
  const struct plan_template *template;
  const uint32_t *of_op; /* of this template's dispatches */
  uint32_t resident;     /* of lists->resident: this template's table */
  struct emit_lists *lists;
  struct emit_body *body; /* of this template */
  uint32_t n_body, body_capacity;
  struct moe_error *err;
};

/* Instructions being made: of a body, or of the top level. Indices of words and regions count from this run's start. */
struct emit_run {
  struct emit_bytes inst, word, region, value;
  bool in_body;
};

static uint32_t emit_count(const struct emit_bytes *b, size_t element) {
  return (uint32_t)(b->n / element);
}

static void emit_run_deinit(struct emit_run *run) {
  emit_bytes_deinit(&run->inst);
  emit_bytes_deinit(&run->word);
  emit_bytes_deinit(&run->region);
  emit_bytes_deinit(&run->value);
}

/* ---- One dispatch ---- */

static const enum img_arena emit_arena[] = {
    [PLAN_UNUSED] = IMG_ARENA_STEP,         [PLAN_PLANE] = IMG_ARENA_WEIGHTS, [PLAN_ACT] = IMG_ARENA_ACT,
    [PLAN_TABLE] = IMG_ARENA_TABLES,        [PLAN_STATE] = IMG_ARENA_STATE,   [PLAN_STEP] = IMG_ARENA_STEP,
    [PLAN_RECURRENT] = IMG_ARENA_RECURRENT, [PLAN_RESULT] = IMG_ARENA_RESULT, [PLAN_SLOT] = IMG_ARENA_SLOT};

static bool emit_is_address(enum plan_operand_kind kind) {
  return kind != PLAN_UNUSED && kind != PLAN_IMM;
}

/* Where an operand is in its arena. */
static uint64_t emit_offset(const struct plan *plan, const struct plan_operand *o) {
  if (o->kind == PLAN_PLANE) return plan->plane[o->index].offset;
  if (o->kind == PLAN_STATE) return plan->state_offset[o->index];
  if (o->kind == PLAN_RECURRENT) return plan->recurrent_offset[o->index];
  return o->offset;
}

/* The word of the template's table in device memory, and a region of every arena that its cells have addresses in. */
static enum moe_code emit_resident_field(const struct emit_context *c, struct emit_run *run) {
  const struct plan_resident *table = &c->template->resident;
  if (!table->cell || run->in_body)
    return moe_fail(c->err, MOE_FAILED, "a dispatch %s",
                    table->cell ? "of a layer reads the table in device memory"
                                : "reads a table that its template does not have");
  const struct img_word word = {.kind = IMG_WORD_TABLE, .value = c->resident};
  emit_bytes_append(&run->word, &word, sizeof word);
  bool in[IMG_N_ARENA] = {false};
  for (uint64_t i = 0; i < (uint64_t)table->n_row * table->n_column; i++)
    if (emit_is_address(table->cell[i].kind)) in[emit_arena[table->cell[i].kind]] = true;
  for (uint32_t arena = 0; arena < IMG_N_ARENA; arena++) {
    if (!in[arena]) continue;
    const struct img_region region = {.access = arena <= IMG_ARENA_TABLES ? IMG_ACCESS_READ
                                                                          : IMG_ACCESS_READ | IMG_ACCESS_WRITE,
                                      .arena = (uint8_t)arena,
                                      .column = IMG_NO_COLUMN,
                                      .bytes = arena == IMG_ARENA_RECURRENT ? c->plan->block_bytes : IMG_WHOLE_ARENA};
    emit_bytes_append(&run->region, &region, sizeof region);
  }
  return MOE_OK;
}

/* One push field: its address word, and its region unless the kernel does not use it. */
static enum moe_code emit_field(const struct emit_context *c, const struct plan_op *op, uint32_t field,
                                struct emit_run *run) {
  const struct kernel_push_info *push = &kernel_get(op->request.kernel)->push[field];
  const struct plan_operand *o = &op->operand[field];
  if (o->kind == PLAN_RESIDENT_TABLE) return emit_resident_field(c, run);
  if (o->kind == PLAN_IMM)
    return moe_fail(c->err, MOE_FAILED, "kernel %s: field %s takes an address", kernel_get(op->request.kernel)->name,
                    push->name);
  enum img_arena arena = emit_arena[o->kind];
  bool layered = run->in_body && (o->kind == PLAN_PLANE || o->kind == PLAN_STATE || o->kind == PLAN_RECURRENT);
  uint64_t offset = emit_offset(c->plan, o), extent = 0;
  enum moe_code code = shadergen_extent(&op->request, field, &extent, c->err);
  if (code) return code;
  struct img_word word = {.kind = layered ? IMG_WORD_LAYER_ADDRESS : IMG_WORD_ADDRESS,
                          .arena = (uint8_t)arena,
                          .column = layered ? (uint16_t)emit_count(&run->value, sizeof offset) : 0,
                          .value = layered ? 0 : offset};
  struct img_region region = {.access = push->access,
                              .arena = (uint8_t)arena,
                              .column = layered && o->kind != PLAN_STATE ? word.column : IMG_NO_COLUMN,
                              .offset = word.value,
                              .bytes = extent};
  if (layered) emit_bytes_append(&run->value, &offset, sizeof offset);
  emit_bytes_append(&run->word, &word, sizeof word);
  if (o->kind == PLAN_UNUSED) return MOE_OK;
  if (o->kind == PLAN_PLANE) region.bytes = c->plan->plane[o->index].layout.bytes;
  if (o->kind == PLAN_RECURRENT) region.bytes = 4 * c->plan->graph->recurrent[o->index]; /* of every slot's block */
  if (o->kind == PLAN_STATE || o->kind == PLAN_STEP || o->kind == PLAN_SLOT) {           /* chosen at run time */
    region.offset = 0;
    region.bytes = IMG_WHOLE_ARENA;
  }
  if (region.bytes == 0)
    return moe_fail(c->err, MOE_FAILED, "kernel %s: field %s has no extent", kernel_get(op->request.kernel)->name,
                    push->name);
  emit_bytes_append(&run->region, &region, sizeof region);
  return MOE_OK;
}

static enum moe_code emit_dispatch(const struct emit_context *c, const struct plan_op *op, uint32_t module,
                                   struct emit_run *run) {
  struct img_inst inst = {.op = IMG_OP_DISPATCH,
                          .role = (uint16_t)op->role,
                          .module = module,
                          .first_word = emit_count(&run->word, sizeof(struct img_word)),
                          .first_region = emit_count(&run->region, sizeof(struct img_region))};
  enum moe_code code = shadergen_grid(&op->request, inst.grid, c->err);
  for (uint32_t i = 0; i < kernel_get(op->request.kernel)->n_push && !code; i++) code = emit_field(c, op, i, run);
  inst.n_word = emit_count(&run->word, sizeof(struct img_word)) - inst.first_word;
  inst.n_region = emit_count(&run->region, sizeof(struct img_region)) - inst.first_region;
  emit_bytes_append(&run->inst, &inst, sizeof inst);
  return code;
}

/* ---- Runs into the section's arrays ---- */

/* Appends a run; its instructions' indices become the section's. Returns the first instruction's index. */
static uint32_t emit_place(struct emit_lists *l, const struct emit_run *run) {
  uint32_t first = emit_count(&l->inst, sizeof(struct img_inst)), word = emit_count(&l->word, sizeof(struct img_word));
  uint32_t region = emit_count(&l->region, sizeof(struct img_region));
  for (uint32_t i = 0; i < emit_count(&run->inst, sizeof(struct img_inst)); i++) {
    struct img_inst inst;
    memcpy(&inst, run->inst.data + i * sizeof inst, sizeof inst);
    if (inst.op == IMG_OP_DISPATCH) {
      inst.first_word += word;
      inst.first_region += region;
    }
    emit_bytes_append(&l->inst, &inst, sizeof inst);
  }
  emit_bytes_append(&l->word, run->word.data, run->word.n);
  emit_bytes_append(&l->region, run->region.data, run->region.n);
  return first;
}

static bool emit_equal(const struct emit_bytes *list, uint32_t first, uint32_t n, size_t element,
                       const struct emit_bytes *run) {
  return run->n == n * element && (n == 0 || !memcmp(list->data + first * element, run->data, run->n));
}

/* Whether a body has the run's instructions: compared after moving the run's indices to where the body's are. */
static bool emit_is_body(const struct emit_lists *l, const struct emit_body *b, const struct emit_run *run) {
  if (!emit_equal(&l->word, b->first_word, b->n_word, sizeof(struct img_word), &run->word)) return false;
  if (!emit_equal(&l->region, b->first_region, b->n_region, sizeof(struct img_region), &run->region)) return false;
  if (emit_count(&run->inst, sizeof(struct img_inst)) != b->n_inst) return false;
  for (uint32_t i = 0; i < b->n_inst; i++) {
    struct img_inst mine, theirs;
    memcpy(&mine, run->inst.data + i * sizeof mine, sizeof mine);
    memcpy(&theirs, l->inst.data + (b->first_inst + i) * sizeof theirs, sizeof theirs);
    mine.first_word += b->first_word;
    mine.first_region += b->first_region;
    if (memcmp(&mine, &theirs, sizeof mine)) return false;
  }
  return true;
}

static enum moe_code emit_new_body(struct emit_context *c, const struct emit_run *run, struct emit_body **body) {
  if (c->n_body == c->body_capacity) {
    uint32_t capacity = c->body_capacity ? 2 * c->body_capacity : 16;
    struct emit_body *grown = realloc(c->body, capacity * sizeof *grown);
    if (!grown) return moe_fail(c->err, MOE_FAILED, "out of memory: %u layer bodies", capacity);
    c->body = grown;
    c->body_capacity = capacity;
  }
  struct emit_lists *l = c->lists;
  struct emit_body *b = *body = &c->body[c->n_body++];
  *b = (struct emit_body){.index = emit_count(&l->body, sizeof(struct img_body)),
                          .first_word = emit_count(&l->word, sizeof(struct img_word)),
                          .n_word = emit_count(&run->word, sizeof(struct img_word)),
                          .first_region = emit_count(&l->region, sizeof(struct img_region)),
                          .n_region = emit_count(&run->region, sizeof(struct img_region)),
                          .n_inst = emit_count(&run->inst, sizeof(struct img_inst)),
                          .n_column = emit_count(&run->value, sizeof(uint64_t))};
  b->first_inst = emit_place(l, run);
  const struct img_body stored = {b->first_inst, b->n_inst};
  emit_bytes_append(&l->body, &stored, sizeof stored);
  return MOE_OK;
}

/* Adds a layer: its body's next table row, and a call, or one more row of the call before. */
static enum moe_code emit_layer(struct emit_context *c, const struct emit_run *layer, struct emit_run *top) {
  struct emit_body *body = NULL;
  for (uint32_t i = 0; i < c->n_body && !body; i++)
    if (emit_is_body(c->lists, &c->body[i], layer)) body = &c->body[i];
  enum moe_code code = body ? MOE_OK : emit_new_body(c, layer, &body);
  if (code) return code;
  emit_bytes_append(&body->values, layer->value.data, layer->value.n);
  uint32_t row = body->n_row++;
  uint64_t n = top->inst.n / sizeof(struct img_inst);
  struct img_inst *last = n ? (struct img_inst *)(void *)top->inst.data + n - 1 : NULL;
  if (last && last->op == IMG_OP_CALL && last->body == body->index) {
    last->count++;
    return MOE_OK;
  }
  const struct img_inst call = {
      .op = IMG_OP_CALL, .body = body->index, .table = body->index, .first_row = row, .count = 1};
  emit_bytes_append(&top->inst, &call, sizeof call);
  return MOE_OK;
}

/* ---- Templates ---- */

/* This template's table in device memory. */
static void emit_resident(struct emit_context *c) {
  const struct plan_resident *r = &c->template->resident;
  if (!r->cell) return;
  struct emit_lists *l = c->lists;
  c->resident = emit_count(&l->resident, sizeof(struct img_table));
  const struct img_table table = {r->n_row, r->n_column, l->resident_value.n / sizeof(uint64_t)};
  emit_bytes_append(&l->resident, &table, sizeof table);
  for (uint64_t i = 0; i < (uint64_t)r->n_row * r->n_column; i++) {
    const struct plan_operand *o = &r->cell[i];
    uint64_t tag = emit_is_address(o->kind) ? emit_arena[o->kind] : IMG_CELL_IMM;
    uint64_t cell = tag << IMG_CELL_SHIFT | (o->kind == PLAN_UNUSED ? 0 : emit_offset(c->plan, o));
    emit_bytes_append(&l->resident_value, &cell, sizeof cell);
  }
}

/* Moves the tables in device memory behind those of bodies. */
static void emit_residents(struct emit_lists *l) {
  uint32_t n_table = emit_count(&l->table, sizeof(struct img_table));
  uint64_t n_value = l->value.n / sizeof(uint64_t);
  for (uint32_t i = 0; i < emit_count(&l->word, sizeof(struct img_word)); i++) {
    struct img_word *word = (struct img_word *)(void *)l->word.data + i;
    if (word->kind == IMG_WORD_TABLE) word->value += n_table;
  }
  for (uint32_t i = 0; i < emit_count(&l->resident, sizeof(struct img_table)); i++) {
    struct img_table table;
    memcpy(&table, l->resident.data + i * sizeof table, sizeof table);
    table.first_value += n_value;
    emit_bytes_append(&l->table, &table, sizeof table);
  }
  emit_bytes_append(&l->value, l->resident_value.data, l->resident_value.n);
}

/* The tables of this template's bodies: table i belongs to body i. */
static void emit_tables(struct emit_context *c) {
  struct emit_lists *l = c->lists;
  for (uint32_t i = 0; i < c->n_body; i++) {
    struct emit_body *b = &c->body[i];
    const struct img_table table = {b->n_row, b->n_column, l->value.n / sizeof(uint64_t)};
    emit_bytes_append(&l->value, b->values.data, b->values.n);
    emit_bytes_append(&l->table, &table, sizeof table);
    l->value.failed |= b->values.failed;
    emit_bytes_deinit(&b->values);
  }
  free(c->body);
}

static enum moe_code emit_template(struct emit_context *c, const struct plan_template *t) {
  struct emit_run top = {.in_body = false};
  enum moe_code code = MOE_OK;
  emit_resident(c);
  for (uint32_t i = 0; i < t->n_op && !code;) {
    if (t->op[i].layer == IR_NO_LAYER) {
      code = emit_dispatch(c, &t->op[i], c->of_op[i], &top);
      i++;
      continue;
    }
    struct emit_run layer = {.in_body = true};
    for (int at = t->op[i].layer; i < t->n_op && t->op[i].layer == at && !code; i++)
      code = emit_dispatch(c, &t->op[i], c->of_op[i], &layer);
    if (!code) code = emit_layer(c, &layer, &top);
    top.inst.failed |= layer.inst.failed || layer.word.failed || layer.region.failed || layer.value.failed;
    emit_run_deinit(&layer);
  }
  char name[32];
  snprintf(name, sizeof name, "%s(%u)", t->kind == IMG_TEMPLATE_TOKEN ? "token" : "window", t->n_row);
  struct img_template record = {.name_offset = (uint32_t)emit_bytes_text(&c->lists->name, name),
                                .kind = t->kind,
                                .tier = t->tier,
                                .n_row = t->n_row,
                                .n_select = t->n_select,
                                .n_inst = emit_count(&top.inst, sizeof(struct img_inst))};
  if (!code) record.first_inst = emit_place(c->lists, &top);
  emit_bytes_append(&c->lists->template, &record, sizeof record);
  c->lists->inst.failed |= top.inst.failed || top.word.failed || top.region.failed;
  emit_run_deinit(&top);
  emit_tables(c);
  return code;
}

/* ---- The section ---- */

static uint64_t emit_array(struct emit_bytes *section, const void *data, uint64_t bytes) {
  emit_bytes_align(section, 8);
  return emit_bytes_append(section, data, bytes);
}

/* h: the instructions with barriers, or NULL: as the lists have them. */
static void emit_section(struct emit_bytes *section, const struct emit_lists *l, const struct img_hazard_result *h) {
  struct img_templates head = {.n_template = emit_count(&l->template, sizeof(struct img_template)),
                               .n_inst = h ? h->n_inst : emit_count(&l->inst, sizeof(struct img_inst)),
                               .n_body = emit_count(&l->body, sizeof(struct img_body)),
                               .n_word = emit_count(&l->word, sizeof(struct img_word)),
                               .n_region = emit_count(&l->region, sizeof(struct img_region)),
                               .n_table = emit_count(&l->table, sizeof(struct img_table)),
                               .n_value = l->value.n / sizeof(uint64_t),
                               .name_bytes = l->name.n};
  emit_bytes_append(section, &head, sizeof head);
  head.template_offset = emit_array(section, h ? (const void *)h->template : l->template.data, l->template.n);
  head.inst_offset =
      emit_array(section, h ? (const void *)h->inst : l->inst.data, head.n_inst * sizeof(struct img_inst));
  head.body_offset = emit_array(section, h ? (const void *)h->body : l->body.data, l->body.n);
  head.word_offset = emit_array(section, l->word.data, l->word.n);
  head.region_offset = emit_array(section, l->region.data, l->region.n);
  head.table_offset = emit_array(section, l->table.data, l->table.n);
  head.value_offset = emit_array(section, l->value.data, l->value.n);
  head.name_offset = emit_array(section, l->name.data, l->name.n);
  if (!section->failed) memcpy(section->data, &head, sizeof head);
}

/* Checks what stands in the section as a loader would. */
static enum moe_code emit_check(const struct emit_bytes *section, const struct plan *plan,
                                const struct emit_modules *modules, struct img_modules_view *m,
                                struct img_templates_view *t, struct moe_error *err) {
  const uint64_t limits[IMG_N_ARENA] = {[IMG_ARENA_WEIGHTS] = plan->planes_bytes,
                                        [IMG_ARENA_TABLES] = plan->table_bytes,
                                        [IMG_ARENA_STATE] = UINT64_MAX,
                                        [IMG_ARENA_ACT] = plan_act_bytes(plan),
                                        [IMG_ARENA_STEP] = UINT64_MAX,
                                        [IMG_ARENA_RESULT] = img_result_bytes(),
                                        [IMG_ARENA_SLOT] = UINT64_MAX,
                                        [IMG_ARENA_RECURRENT] = plan->block_bytes};
  enum moe_code code = emit_bytes_check(section, "the section TEMPLATES", err);
  if (!code) code = img_check_modules(modules->section.data, modules->section.n, m, err);
  if (!code) code = img_check_templates(section->data, section->n, m, limits, NULL, t, err);
  return code;
}

/* Derives the barriers over the section without them, then writes it anew. */
static enum moe_code emit_finish(struct emit_bytes *section, const struct emit_lists *l, const struct plan *plan,
                                 const struct emit_modules *modules, struct moe_error *err) {
  struct emit_bytes bare = {0};
  struct img_modules_view m;
  struct img_templates_view t;
  struct img_hazard_result hazard = {0};
  emit_section(&bare, l, NULL);
  enum moe_code code = emit_check(&bare, plan, modules, &m, &t, err);
  if (!code) code = img_hazard_derive(&t, &hazard, err);
  if (!code) {
    emit_section(section, l, &hazard);
    code = emit_check(section, plan, modules, &m, &t, err);
    img_hazard_deinit(&hazard);
  }
  if (!code) code = img_hazard_check(&t, &m, err);
  emit_bytes_deinit(&bare);
  return code;
}

enum moe_code emit_templates(struct emit_bytes *section, const struct plan *plan, const struct emit_modules *modules,
                             struct moe_error *err) {
  struct emit_lists l = {0};
  enum moe_code code = MOE_OK;
  const uint32_t *of_op = modules->of_op;
  for (uint32_t i = 0; i < plan->n_template && !code; i++) {
    struct emit_context c = {.plan = plan, .template = &plan->template[i], .of_op = of_op, .lists = &l, .err = err};
    code = emit_template(&c, &plan->template[i]);
    of_op += plan->template[i].n_op;
  }
  struct emit_bytes *const lists[] = {&l.template, &l.inst,  &l.body, &l.word,     &l.region,
                                      &l.table,    &l.value, &l.name, &l.resident, &l.resident_value};
  if (!code) emit_residents(&l);
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
    if (!code) code = emit_bytes_check(lists[i], "the section TEMPLATES", err);
  if (!code) code = emit_finish(section, &l, plan, modules, err);
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) emit_bytes_deinit(lists[i]);
  return code;
}
