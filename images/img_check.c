#include "img_check.h"

#include <string.h>

#include "img_enums.h"
#include "img_step.h"

typedef unsigned long long ull;

#define FAIL(...) return moe_fail(err, MOE_FAILED, __VA_ARGS__)
#define TRY(call)                                                                                                      \
  do {                                                                                                                 \
    enum moe_code code_ = (call);                                                                                      \
    if (code_ != MOE_OK) return code_;                                                                                 \
  } while (0)

/* An array of n elements of `size` bytes at `offset` of a section: inside it and 8-byte aligned. */
static enum moe_code check_array(const char *what, uint64_t offset, uint64_t n, uint64_t size, uint64_t bytes,
                                 struct moe_error *err) {
  uint64_t total;
  if (offset % 8) FAIL("%s: offset %llu is not a multiple of 8", what, (ull)offset);
  if (!moe_mul(n, size, &total) || !moe_inside(offset, total, bytes))
    FAIL("%s: %llu elements of %llu bytes at %llu leave the section of %llu bytes", what, (ull)n, (ull)size,
         (ull)offset, (ull)bytes);
  return MOE_OK;
}

/* The name block: inside the section and NUL-terminated, so that any offset below its length is a string. */
static enum moe_code check_names(const char *what, const uint8_t *section, uint64_t offset, uint64_t n, uint64_t bytes,
                                 struct moe_error *err) {
  if (!moe_inside(offset, n, bytes) || !n || section[offset + n - 1])
    FAIL("%s: names: %llu bytes at %llu leave the section of %llu bytes or lack the final NUL", what, (ull)n,
         (ull)offset, (ull)bytes);
  return MOE_OK;
}

static uint64_t known_features(void) {
  uint64_t bits = 0;
#define IMG_FEATURE(BIT, ENUM, NAME) bits |= 1ull << (BIT);
#include "img_features.def"
#undef IMG_FEATURE
  return bits;
}

static enum moe_code check_tuning(const struct img_module *m, uint32_t i, struct moe_error *err) {
  if (!m->n_tuning || m->n_tuning > IMG_MAX_TUNING)
    FAIL("MODULES: module[%u]: n_tuning %u, allowed 1 to %u", i, m->n_tuning, IMG_MAX_TUNING);
  for (uint32_t t = 0; t < m->n_tuning; t++) {
    const struct img_tuning *row = &m->tuning[t];
    if (!row->group_items || !row->spec[IMG_SPEC_WG] || row->spec[IMG_SPEC_WG] > 1024)
      FAIL("MODULES: module[%u].tuning[%u]: group_items %u, workgroup %u; allowed from 1, and 1 to 1024", i, t,
           row->group_items, row->spec[IMG_SPEC_WG]);
    if (t && row->min_subgroup <= m->tuning[t - 1].min_subgroup)
      FAIL("MODULES: module[%u].tuning[%u]: min_subgroup does not ascend", i, t);
  }
  return MOE_OK;
}

enum moe_code img_check_modules(const void *section, uint64_t bytes, struct img_modules_view *view,
                                struct moe_error *err) {
  const struct img_modules *head = section;
  if (!section || bytes < sizeof *head) FAIL("MODULES: %llu bytes, too short", (ull)bytes);
  TRY(check_array("MODULES: modules", head->module_offset, head->n_module, sizeof(struct img_module), bytes, err));
  TRY(check_names("MODULES", section, head->name_offset, head->name_bytes, bytes, err));
  *view = (struct img_modules_view){.section = section, .n_module = head->n_module};
  view->module = (const void *)(view->section + head->module_offset);
  view->name = (const char *)view->section + head->name_offset;
  for (uint32_t i = 0; i < view->n_module; i++) {
    const struct img_module *m = &view->module[i];
    if (m->name_offset >= head->name_bytes)
      FAIL("MODULES: module[%u].name_offset %u, names have %llu bytes", i, m->name_offset, (ull)head->name_bytes);
    if (!moe_inside(m->code_offset, m->code_zbytes, bytes))
      FAIL("MODULES: module[%u]: code [%llu, +%u) leaves the section of %llu bytes", i, (ull)m->code_offset,
           m->code_zbytes, (ull)bytes);
    if (!m->code_bytes || m->code_bytes % 4 || m->code_bytes > IMG_MAX_CODE_BYTES)
      FAIL("MODULES: module[%u].code_bytes %u, allowed multiples of 4 up to %u", i, m->code_bytes, IMG_MAX_CODE_BYTES);
    if (m->tier >= IMG_N_TIER) FAIL("MODULES: module[%u].tier %u, allowed below %u", i, m->tier, IMG_N_TIER);
    if (m->push_bytes % 4 || m->push_bytes > 256)
      FAIL("MODULES: module[%u].push_bytes %u, allowed multiples of 4 up to 256", i, m->push_bytes);
    if (m->features & ~known_features())
      FAIL("MODULES: module[%u]: needs device features (bits %llx) that this build does not know", i,
           (ull)(m->features & ~known_features()));
    TRY(check_tuning(m, i, err));
  }
  return MOE_OK;
}

enum moe_code img_check_planes(const void *section, uint64_t bytes, uint64_t planes_bytes, struct img_planes_view *view,
                               struct moe_error *err) {
  const struct img_planes *head = section;
  if (!section || bytes < sizeof *head) FAIL("PLANE_INDEX: %llu bytes, too short", (ull)bytes);
  TRY(check_array("PLANE_INDEX: planes", head->plane_offset, head->n_plane, sizeof(struct img_plane), bytes, err));
  TRY(check_names("PLANE_INDEX", section, head->name_offset, head->name_bytes, bytes, err));
  if (head->n_carried > head->n_plane) FAIL("PLANE_INDEX: n_carried %u of %u planes", head->n_carried, head->n_plane);
  view->n_plane = head->n_plane;
  view->n_carried = head->n_carried;
  view->plane = (const void *)((const uint8_t *)section + head->plane_offset);
  view->name = (const char *)section + head->name_offset;
  uint64_t end = 0;
  for (uint32_t i = 0; i < view->n_plane; i++) {
    const struct img_plane *p = &view->plane[i];
    if (p->name_offset >= head->name_bytes)
      FAIL("PLANE_INDEX: plane[%u].name_offset %u, names have %llu bytes", i, p->name_offset, (ull)head->name_bytes);
    if (p->offset % IMG_PLANE_ALIGN || p->offset < end || !p->bytes || !moe_inside(p->offset, p->bytes, planes_bytes))
      FAIL("PLANE_INDEX: plane[%u] %s: [%llu, +%llu) is not aligned, out of order, or leaves PLANES of %llu bytes", i,
           view->name + p->name_offset, (ull)p->offset, (ull)p->bytes, (ull)planes_bytes);
    end = p->offset + p->bytes;
  }
  return MOE_OK;
}

/* ---- templates ---- */

struct checker {
  const struct img_modules_view *modules;
  const uint64_t *limits;
  const struct img_planes_view *planes; /* NULL: not known */
  struct img_templates_view *view;
  uint64_t name_bytes;
  uint64_t unrolled; /* instructions of all templates so far, calls unrolled */
  uint64_t tables;   /* as IMG_MAX_TABLE_WORK counts */
  uint32_t tier;     /* of the template at hand */
};

/* base + table value, bytes of room after it: inside the arena as far as its size is known. */
static enum moe_code check_extent(const struct checker *c, uint32_t inst, const char *what, uint32_t arena,
                                  uint64_t base, uint64_t value, uint64_t bytes, struct moe_error *err) {
  uint64_t offset, limit = c->limits[arena];
  if (!moe_add(base, value, &offset) || !moe_inside(offset, bytes, limit))
    FAIL("TEMPLATES: inst[%u]: %s [%llu, +%llu) leaves arena %u of %llu bytes", inst, what, (ull)(base + value),
         (ull)bytes, arena, (ull)limit);
  return MOE_OK;
}

/* The last plane that is loaded and begins at or before the offset; NULL: none. */
static const struct img_plane *check_plane(const struct img_planes_view *planes, uint64_t offset) {
  uint32_t low = 0, high = planes->n_plane - planes->n_carried;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (planes->plane[middle].offset <= offset)
      low = middle;
    else
      high = middle;
  }
  if (planes->n_plane == planes->n_carried || planes->plane[low].offset > offset) return NULL;
  return &planes->plane[low];
}

/* Whether [offset, +bytes) of WEIGHTS lies in one plane: a loader may put the next one into another buffer. */
static bool check_in_plane(const struct img_planes_view *planes, uint64_t offset, uint64_t bytes) {
  const struct img_plane *plane = check_plane(planes, offset);
  return plane && moe_inside(offset - plane->offset, bytes, plane->bytes);
}

/* Whether a plane that is loaded begins at `offset` of WEIGHTS. */
static bool check_is_plane(const struct img_planes_view *planes, uint64_t offset) {
  const struct img_plane *plane = check_plane(planes, offset);
  return plane && plane->offset == offset;
}

/* Whether `offset` of an arena is in one of a dispatch's regions (which were checked), or is what stands for a field
 * that the kernel does not use: the start of STEP. */
static bool is_declared(const struct img_templates_view *v, const struct img_inst *inst, uint32_t table, uint32_t row,
                        uint32_t arena, uint64_t offset) {
  if (arena == IMG_ARENA_STEP && !offset) return true;
  for (uint32_t i = inst->first_region; i < inst->first_region + inst->n_region; i++) {
    const struct img_region *r = &v->region[i];
    if (r->arena != arena) continue;
    uint64_t begin = r->offset + (r->column == IMG_NO_COLUMN ? 0 : img_table_value(v, table, row, r->column));
    if (r->bytes == IMG_WHOLE_ARENA || (offset >= begin && offset - begin < r->bytes)) return true;
  }
  return false;
}

/* Hazards are derived from regions alone: every address that a dispatch gets must be in one of its own. */
static enum moe_code check_declared(const struct checker *c, uint32_t at, uint32_t table, uint32_t row,
                                    struct moe_error *err) {
  const struct img_templates_view *v = c->view;
  const struct img_inst *inst = &v->inst[at];
  for (uint32_t i = inst->first_word; i < inst->first_word + inst->n_word; i++) {
    const struct img_word *w = &v->word[i];
    if (w->kind != IMG_WORD_ADDRESS && w->kind != IMG_WORD_LAYER_ADDRESS) continue;
    uint64_t offset = w->value + (w->kind == IMG_WORD_LAYER_ADDRESS ? img_table_value(v, table, row, w->column) : 0);
    if (!is_declared(v, inst, table, row, w->arena, offset))
      FAIL("TEMPLATES: inst[%u].word[%u]: address %llu of arena %u is in no region of the dispatch", at,
           i - inst->first_word, (ull)offset, w->arena);
  }
  return MOE_OK;
}

/* ---- resident tables ---- */

uint32_t img_resident_table(const struct img_templates_view *v, const struct img_inst *inst) {
  for (uint32_t i = inst->first_word; i < inst->first_word + inst->n_word; i++)
    if (v->word[i].kind == IMG_WORD_TABLE) return (uint32_t)v->word[i].value;
  return UINT32_MAX;
}

/* A cell is a number of 56 bits, or an address in a region of the dispatch: its hazards are those of its regions. STEP
 * and RESULT have two addresses, so a cell cannot have one of them. */
static enum moe_code check_cell(const struct checker *c, uint32_t at, uint32_t table, uint64_t cell, uint64_t value,
                                struct moe_error *err) {
  uint64_t arena = value >> IMG_CELL_SHIFT, offset = IMG_CELL_VALUE(value);
  if (arena == IMG_CELL_IMM) return MOE_OK;
  if (arena >= IMG_N_ARENA || arena == IMG_ARENA_STEP || arena == IMG_ARENA_RESULT)
    FAIL("TEMPLATES: table[%u]: cell %llu is of arena %llu; allowed in device memory: arenas 0 to %u but %u and %u, or "
         "%u for a number",
         table, (ull)cell, (ull)arena, IMG_N_ARENA - 1, IMG_ARENA_STEP, IMG_ARENA_RESULT, IMG_CELL_IMM);
  if (offset >= c->limits[arena])
    FAIL("TEMPLATES: table[%u]: cell %llu: offset %llu leaves arena %llu of %llu bytes", table, (ull)cell, (ull)offset,
         (ull)arena, (ull)c->limits[arena]);
  if (arena == IMG_ARENA_WEIGHTS && c->planes && !check_is_plane(c->planes, offset))
    FAIL("TEMPLATES: table[%u]: cell %llu: no plane begins at %llu of WEIGHTS", table, (ull)cell, (ull)offset);
  if (!is_declared(c->view, &c->view->inst[at], 0, 0, (uint32_t)arena, offset))
    FAIL("TEMPLATES: inst[%u]: table[%u]: cell %llu: address %llu of arena %llu is in no region of the dispatch", at,
         table, (ull)cell, (ull)offset, (ull)arena);
  return MOE_OK;
}

/* A table that a dispatch at the top level reads in device memory. */
static enum moe_code check_resident(struct checker *c, uint32_t at, struct moe_error *err) {
  const struct img_templates_view *v = c->view;
  uint32_t n = 0, table = img_resident_table(v, &v->inst[at]);
  if (table == UINT32_MAX) return MOE_OK;
  for (uint32_t i = v->inst[at].first_word; i < v->inst[at].first_word + v->inst[at].n_word; i++)
    n += v->word[i].kind == IMG_WORD_TABLE;
  if (n > 1) FAIL("TEMPLATES: inst[%u]: %u tables in device memory; allowed 1", at, n);
  uint64_t n_cell = (uint64_t)v->table[table].n_row * v->table[table].n_column;
  if (!n_cell) FAIL("TEMPLATES: inst[%u]: table[%u] in device memory has no cells", at, table);
  if (n_cell > IMG_MAX_TABLE_WORK || (c->tables += n_cell + v->n_inst) > IMG_MAX_TABLE_WORK)
    FAIL("TEMPLATES: inst[%u]: checking tables in device memory takes more than %u steps", at, IMG_MAX_TABLE_WORK);
  for (uint32_t i = 0; i < v->n_inst; i++)
    if (v->inst[i].op == IMG_OP_CALL && v->inst[i].table == table)
      FAIL("TEMPLATES: inst[%u]: table[%u] in device memory is also the table of inst[%u], a CALL", at, table, i);
  for (uint64_t i = 0; i < n_cell; i++)
    TRY(check_cell(c, at, table, i, v->value[v->table[table].first_value + i], err));
  return MOE_OK;
}

/* ---- dispatches ---- */

/* Words and regions of a dispatch, with the values of a table row (table == UINT32_MAX: at the top level, none). */
static enum moe_code check_operands(const struct checker *c, uint32_t at, uint32_t table, uint32_t row,
                                    struct moe_error *err) {
  const struct img_templates_view *v = c->view;
  const struct img_inst *inst = &v->inst[at];
  uint32_t n_column = table == UINT32_MAX ? 0 : v->table[table].n_column;
  uint32_t push = 0;
  for (uint32_t i = inst->first_word; i < inst->first_word + inst->n_word; i++) {
    const struct img_word *w = &v->word[i];
    bool layer = w->kind == IMG_WORD_LAYER_ADDRESS || w->kind == IMG_WORD_LAYER_IMM;
    bool resident = w->kind == IMG_WORD_TABLE;
    bool address = w->kind == IMG_WORD_ADDRESS || w->kind == IMG_WORD_LAYER_ADDRESS || resident;
    if (w->kind < IMG_WORD_IMM || w->kind > IMG_WORD_TABLE || w->arena >= IMG_N_ARENA ||
        (layer && w->column >= n_column))
      FAIL("TEMPLATES: inst[%u].word[%u]: kind %u, arena %u, column %u; the table has %u columns", at,
           i - inst->first_word, w->kind, w->arena, w->column, n_column);
    if (address && push % 8)
      FAIL("TEMPLATES: inst[%u].word[%u]: an address at push byte %u, not a multiple of 8", at, i - inst->first_word,
           push);
    if (resident && (table != UINT32_MAX || w->value >= v->n_table))
      FAIL("TEMPLATES: inst[%u].word[%u]: table %llu of %u in device memory%s", at, i - inst->first_word, (ull)w->value,
           v->n_table, table != UINT32_MAX ? "; allowed at the top level only" : "");
    if (address && !resident)
      TRY(check_extent(c, at, "address", w->arena, w->value, layer ? img_table_value(v, table, row, w->column) : 0, 0,
                       err));
    push += address ? 8 : 4;
  }
  if (push != c->modules->module[inst->module].push_bytes)
    FAIL("TEMPLATES: inst[%u]: %u push bytes, module[%u] takes %u", at, push, inst->module,
         c->modules->module[inst->module].push_bytes);
  bool is_resident = img_resident_table(v, inst) != UINT32_MAX;
  for (uint32_t i = inst->first_region; i < inst->first_region + inst->n_region; i++) {
    const struct img_region *r = &v->region[i];
    if (!r->access || r->access > 3 || r->arena >= IMG_N_ARENA || (r->column != IMG_NO_COLUMN && r->column >= n_column))
      FAIL("TEMPLATES: inst[%u].region[%u]: access %u, arena %u, column %u; the table has %u columns", at,
           i - inst->first_region, r->access, r->arena, r->column, n_column);
    if ((r->access & IMG_ACCESS_WRITE) && (r->arena <= IMG_ARENA_TABLES || r->arena == IMG_ARENA_STEP))
      FAIL("TEMPLATES: inst[%u].region[%u]: writes the read-only arena %u", at, i - inst->first_region, r->arena);
    if (r->arena == IMG_ARENA_RECURRENT && r->bytes == IMG_WHOLE_ARENA)
      FAIL("TEMPLATES: inst[%u].region[%u]: all of RECURRENT; allowed: bytes of a slot's block", at,
           i - inst->first_region);
    uint64_t cell = r->column == IMG_NO_COLUMN ? 0 : img_table_value(v, table, row, r->column);
    if (r->bytes != IMG_WHOLE_ARENA) TRY(check_extent(c, at, "region", r->arena, r->offset, cell, r->bytes, err));
    /* a table in device memory names planes one by one */
    bool planes = r->arena == IMG_ARENA_WEIGHTS && r->bytes == IMG_WHOLE_ARENA && is_resident;
    if (r->arena == IMG_ARENA_WEIGHTS && c->planes && !planes && !check_in_plane(c->planes, r->offset + cell, r->bytes))
      FAIL("TEMPLATES: inst[%u].region[%u]: [%llu, +%llu) of WEIGHTS does not lie in one plane", at,
           i - inst->first_region, (ull)(r->offset + cell), (ull)r->bytes);
  }
  return check_declared(c, at, table, row, err);
}

/* What does not depend on a table row. */
static enum moe_code check_inst(const struct checker *c, uint32_t at, bool in_body, struct moe_error *err) {
  const struct img_templates_view *v = c->view;
  const struct img_inst *inst = &v->inst[at];
  switch (inst->op) {
  case IMG_OP_BARRIER:
    return MOE_OK;
  case IMG_OP_DISPATCH:
    if (inst->module >= c->modules->n_module)
      FAIL("TEMPLATES: inst[%u].module %u, there are %u", at, inst->module, c->modules->n_module);
    if (c->modules->module[inst->module].tier > c->tier)
      FAIL("TEMPLATES: inst[%u].module %u is of tier %u, its template of tier %u", at, inst->module,
           c->modules->module[inst->module].tier, c->tier);
    if (!moe_inside(inst->first_word, inst->n_word, v->n_word) ||
        !moe_inside(inst->first_region, inst->n_region, v->n_region))
      FAIL("TEMPLATES: inst[%u]: words [%u, +%u) of %u or regions [%u, +%u) of %u", at, inst->first_word, inst->n_word,
           v->n_word, inst->first_region, inst->n_region, v->n_region);
    if (inst->n_word > IMG_MAX_OPERAND || inst->n_region > IMG_MAX_OPERAND)
      FAIL("TEMPLATES: inst[%u]: %u words, %u regions; allowed %u", at, inst->n_word, inst->n_region, IMG_MAX_OPERAND);
    if (!inst->grid[0] || !inst->grid[1] || !inst->grid[2] || inst->grid[1] > 65535 || inst->grid[2] > 65535)
      FAIL("TEMPLATES: inst[%u].grid %u x %u x %u: allowed from 1, y and z to 65535", at, inst->grid[0], inst->grid[1],
           inst->grid[2]);
    if ((c->modules->module[inst->module].features & IMG_FEATURE_RESIDENT) &&
        (inst->grid[1] != 1 || inst->grid[2] != 1))
      FAIL("TEMPLATES: inst[%u].grid y %u, z %u: allowed 1, where the device says how many workgroups there are", at,
           inst->grid[1], inst->grid[2]);
    return MOE_OK;
  case IMG_OP_CALL:
    if (in_body) FAIL("TEMPLATES: inst[%u]: a CALL inside a body", at);
    if (inst->body >= v->n_body || inst->table >= v->n_table || !inst->count ||
        !moe_inside(inst->first_row, inst->count, v->table[inst->table].n_row))
      FAIL("TEMPLATES: inst[%u]: CALL body %u of %u, table %u of %u, rows [%u, +%u)", at, inst->body, v->n_body,
           inst->table, v->n_table, inst->first_row, inst->count);
    return MOE_OK;
  default:
    FAIL("TEMPLATES: inst[%u].op %u is not known", at, inst->op);
  }
}

static enum moe_code check_call(struct checker *c, const struct img_inst *call, struct moe_error *err) {
  const struct img_body *body = &c->view->body[call->body];
  c->unrolled += (uint64_t)(body->n_inst ? body->n_inst : 1) * call->count; /* a call of nothing takes time as well */
  if (c->unrolled > IMG_MAX_UNROLLED) FAIL("TEMPLATES: more than %u instructions after unrolling", IMG_MAX_UNROLLED);
  for (uint32_t i = body->first_inst; i < body->first_inst + body->n_inst; i++) {
    TRY(check_inst(c, i, true, err));
    if (c->view->inst[i].op != IMG_OP_DISPATCH) continue;
    for (uint32_t row = call->first_row; row < call->first_row + call->count; row++)
      TRY(check_operands(c, i, call->table, row, err));
  }
  return MOE_OK;
}

static enum moe_code check_template(struct checker *c, uint32_t i, struct moe_error *err) {
  const struct img_template *t = &c->view->template[i];
  if (t->name_offset >= c->name_bytes || t->tier >= IMG_N_TIER ||
      (t->kind != IMG_TEMPLATE_TOKEN && t->kind != IMG_TEMPLATE_WINDOW) || !t->n_row || !t->n_select ||
      t->n_select > IMG_MAX_SELECT)
    FAIL("TEMPLATES: template[%u]: name %u, kind %u, tier %u, n_row %u, n_select %u", i, t->name_offset, t->kind,
         t->tier, t->n_row, t->n_select);
  for (uint32_t k = 0; k < i; k++) {
    const struct img_template *other = &c->view->template[k];
    if (other->kind == t->kind && other->n_row == t->n_row && other->tier == t->tier)
      FAIL("TEMPLATES: template[%u]: kind %u, n_row %u, tier %u as template[%u]; a tier has at most one of a kind and "
           "rows",
           i, t->kind, t->n_row, t->tier, k);
  }
  c->tier = t->tier;
  if (!moe_inside(t->first_inst, t->n_inst, c->view->n_inst))
    FAIL("TEMPLATES: template[%u]: instructions [%u, +%u) of %u", i, t->first_inst, t->n_inst, c->view->n_inst);
  c->unrolled += t->n_inst;
  if (c->unrolled > IMG_MAX_UNROLLED) FAIL("TEMPLATES: more than %u instructions after unrolling", IMG_MAX_UNROLLED);
  for (uint32_t at = t->first_inst; at < t->first_inst + t->n_inst; at++) {
    TRY(check_inst(c, at, false, err));
    if (c->view->inst[at].op == IMG_OP_DISPATCH) {
      TRY(check_operands(c, at, UINT32_MAX, 0, err));
      TRY(check_resident(c, at, err));
    }
    if (c->view->inst[at].op == IMG_OP_CALL) TRY(check_call(c, &c->view->inst[at], err));
  }
  return MOE_OK;
}

/* Every size has a template that all devices can run: without it a loader had nothing to fall back on. */
static enum moe_code check_base(const struct img_templates_view *v, struct moe_error *err) {
  for (uint32_t i = 0; i < v->n_template; i++) {
    const struct img_template *t = &v->template[i];
    bool found = false;
    for (uint32_t k = 0; k < v->n_template && !found; k++)
      found =
          v->template[k].kind == t->kind && v->template[k].n_row == t->n_row && v->template[k].tier == IMG_TIER_BASE;
    if (!found)
      FAIL("TEMPLATES: template[%u]: kind %u, n_row %u has no template of tier %u", i, t->kind, t->n_row,
           IMG_TIER_BASE);
  }
  return MOE_OK;
}

enum moe_code img_check_templates(const void *section, uint64_t bytes, const struct img_modules_view *modules,
                                  const uint64_t limits[IMG_N_ARENA], const struct img_planes_view *planes,
                                  struct img_templates_view *view, struct moe_error *err) {
  const struct img_templates *h = section;
  const uint8_t *base = section;
  if (!section || bytes < sizeof *h) FAIL("TEMPLATES: %llu bytes, too short", (ull)bytes);
#define ARRAY(FIELD, N)                                                                                                \
  TRY(check_array("TEMPLATES: " #FIELD, h->FIELD##_offset, h->N, sizeof *view->FIELD, bytes, err));                    \
  view->FIELD = (const void *)(base + h->FIELD##_offset);                                                              \
  view->N = h->N;
  ARRAY(template, n_template)
  ARRAY(inst, n_inst)
  ARRAY(body, n_body)
  ARRAY(word, n_word)
  ARRAY(region, n_region)
  ARRAY(table, n_table)
  ARRAY(value, n_value)
#undef ARRAY
  TRY(check_names("TEMPLATES", section, h->name_offset, h->name_bytes, bytes, err));
  view->name = (const char *)base + h->name_offset;
  for (uint32_t i = 0; i < view->n_body; i++)
    if (!moe_inside(view->body[i].first_inst, view->body[i].n_inst, view->n_inst))
      FAIL("TEMPLATES: body[%u]: instructions [%u, +%u) of %u", i, view->body[i].first_inst, view->body[i].n_inst,
           view->n_inst);
  for (uint32_t i = 0; i < view->n_table; i++) {
    const struct img_table *t = &view->table[i];
    if (!moe_inside(t->first_value, (uint64_t)t->n_row * t->n_column, view->n_value))
      FAIL("TEMPLATES: table[%u]: %u x %u values at %llu of %llu", i, t->n_row, t->n_column, (ull)t->first_value,
           (ull)view->n_value);
  }
  struct checker c = {
      .modules = modules, .limits = limits, .planes = planes, .view = view, .name_bytes = h->name_bytes};
  if (view->n_template > IMG_MAX_TEMPLATE)
    FAIL("TEMPLATES: %u templates, allowed %u", view->n_template, IMG_MAX_TEMPLATE);
  for (uint32_t i = 0; i < view->n_template; i++) TRY(check_template(&c, i, err));
  return check_base(view, err);
}

static enum moe_code check_fit(const struct img_view *v, struct moe_error *err) {
  for (uint32_t i = 0; i < v->templates.n_template; i++)
    if (v->templates.template[i].n_row > v->manifest.memory_max_row)
      FAIL("TEMPLATES: template[%u].n_row %u, the manifest's max_row is %u", i, v->templates.template[i].n_row,
           v->manifest.memory_max_row);
  return MOE_OK;
}

enum moe_code img_check(const struct img *img, struct img_view *view, struct moe_error *err) {
  uint64_t bytes;
  memset(view, 0, sizeof *view);
  const void *section = img_section_data(img, IMG_SECTION_MANIFEST, &bytes);
  TRY(img_manifest_parse(section, bytes, &view->manifest, err));
  img_section_data(img, IMG_SECTION_PLANES, &view->planes_bytes);
  img_section_data(img, IMG_SECTION_TABLES, &view->tables_bytes);
  section = img_section_data(img, IMG_SECTION_MODULES, &bytes);
  TRY(img_check_modules(section, bytes, &view->modules, err));
  section = img_section_data(img, IMG_SECTION_PLANE_INDEX, &bytes);
  TRY(img_check_planes(section, bytes, view->planes_bytes, &view->planes, err));
  if (view->planes.n_carried)
    view->planes_bytes = view->planes.plane[view->planes.n_plane - view->planes.n_carried].offset;
  uint64_t limits[IMG_N_ARENA] = {
      [IMG_ARENA_WEIGHTS] = view->planes_bytes,
      [IMG_ARENA_TABLES] = view->tables_bytes,
      [IMG_ARENA_STATE] = UINT64_MAX,
      [IMG_ARENA_ACT] = view->manifest.memory_act_bytes,
      [IMG_ARENA_STEP] = UINT64_MAX,
      [IMG_ARENA_RESULT] = img_result_bytes(),
      [IMG_ARENA_SLOT] = UINT64_MAX,
      [IMG_ARENA_RECURRENT] = view->manifest.state_block_bytes,
  };
  section = img_section_data(img, IMG_SECTION_TEMPLATES, &bytes);
  TRY(img_check_templates(section, bytes, &view->modules, limits, &view->planes, &view->templates, err));
  return check_fit(view, err);
}
