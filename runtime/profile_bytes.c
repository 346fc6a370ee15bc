/* profile_bytes.c: what the dispatches of a template read (profile.h says by which rules). Pure: no device. */
#include "profile.h"

#include <stdlib.h>

struct profile_counter {
  const struct img_view *view;
  const struct img_template *template;
  struct profile_step step;
  struct profile_dispatch *out;
  uint32_t n;
  uint64_t *layer; /* [n_layer] offsets of layers in a state page, ascending */
  uint32_t n_layer;
};

#define PROFILE_NO_OFFSET UINT64_MAX

/* The offset in a page that a dispatch's address in STATE names, or PROFILE_NO_OFFSET. */
static uint64_t profile_state_offset(const struct img_templates_view *t, const struct img_inst *inst, uint32_t table,
                                     uint32_t row) {
  for (uint32_t i = 0; i < inst->n_word; i++) {
    const struct img_word *word = &t->word[inst->first_word + i];
    bool layered = word->kind == IMG_WORD_LAYER_ADDRESS;
    if ((!layered && word->kind != IMG_WORD_ADDRESS) || word->arena != IMG_ARENA_STATE) continue;
    return word->value + (layered ? img_table_value(t, table, row, word->column) : 0);
  }
  return PROFILE_NO_OFFSET;
}

static void profile_add_layer(struct profile_counter *c, uint64_t offset) {
  if (offset == PROFILE_NO_OFFSET) return;
  if (c->layer) c->layer[c->n_layer] = offset;
  c->n_layer++;
}

/* Calls visit for every address of an arena in the table that a dispatch reads in device memory. */
static void profile_cells(const struct img_templates_view *t, const struct img_inst *inst, enum img_arena arena,
                          void (*visit)(void *user, uint64_t offset), void *user) {
  uint32_t table = img_resident_table(t, inst);
  uint64_t n = table == UINT32_MAX ? 0 : (uint64_t)t->table[table].n_row * t->table[table].n_column;
  for (uint64_t i = 0; i < n; i++) {
    uint64_t cell = t->value[t->table[table].first_value + i];
    if (cell >> IMG_CELL_SHIFT == (uint64_t)arena) visit(user, IMG_CELL_VALUE(cell));
  }
}

static void profile_find_cell(void *user, uint64_t offset) {
  profile_add_layer(user, offset);
}

static void profile_find_layer(void *user, const struct img_inst *inst, uint32_t table, uint32_t row) {
  struct profile_counter *c = user;
  if (inst->op != IMG_OP_DISPATCH) return;
  profile_add_layer(c, profile_state_offset(&c->view->templates, inst, table, row));
  profile_cells(&c->view->templates, inst, IMG_ARENA_STATE, profile_find_cell, c);
}

static int profile_compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

/* Bytes of a token in the layer that begins at `offset` of a page. */
static uint64_t profile_layer_bytes(const struct profile_counter *c, uint64_t offset) {
  uint64_t end = c->view->manifest.state_page_bytes;
  for (uint32_t i = c->n_layer; i-- > 0 && c->layer[i] > offset;) end = c->layer[i];
  return end > offset ? (end - offset) / c->view->manifest.state_page_tok : 0;
}

static const struct img_plane *profile_plane(const struct img_planes_view *planes, uint64_t offset) {
  uint32_t low = 0, high = planes->n_plane; /* the last plane that begins at or before the offset */
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (planes->plane[middle].offset <= offset)
      low = middle;
    else
      high = middle;
  }
  return planes->n_plane ? &planes->plane[low] : NULL;
}

/* bytes * part / whole, part at most whole. */
static uint64_t profile_share(uint64_t bytes, uint64_t part, uint64_t whole) {
  if (!whole || part >= whole) return bytes;
  return (uint64_t)((double)bytes * (double)part / (double)whole);
}

static uint64_t profile_weights(const struct profile_counter *c, uint32_t role, uint64_t offset, uint64_t bytes) {
  const struct img_plane *plane = profile_plane(&c->view->planes, offset);
  const struct img_manifest *m = &c->view->manifest;
  if (!plane) return bytes;
  if (role == IMG_ROLE_EMBED) return profile_share(bytes, c->step.n_row, plane->n_out);
  if (role != IMG_ROLE_GATE_UP && role != IMG_ROLE_DOWN) return bytes;
  uint64_t touched = (uint64_t)c->step.n_row * m->model_n_expert_used;
  if (plane->n_mat > 1) return profile_share(bytes, touched, plane->n_mat);
  bool bias = plane->format == 0 && m->model_n_expert > 1 && plane->n_out == m->model_n_expert;
  return bias ? profile_share(bytes, touched, plane->n_out) : bytes;
}

/* Activations are declared for all rows that the template takes; the head's and the sampler's for all selects. */
static uint64_t profile_act(const struct profile_counter *c, uint32_t role, uint64_t bytes) {
  bool selects = role == IMG_ROLE_HEAD || role == IMG_ROLE_SAMPLE;
  return selects ? profile_share(bytes, c->step.n_sequence, c->template->n_select)
                 : profile_share(bytes, c->step.n_row, c->template->n_row);
}

static uint64_t profile_state(const struct profile_counter *c, const struct img_inst *inst, uint32_t table,
                              uint32_t row, uint8_t access) {
  uint64_t offset = profile_state_offset(&c->view->templates, inst, table, row);
  if (offset == PROFILE_NO_OFFSET) return 0;
  uint64_t seen = c->step.depth + c->step.n_row / c->step.n_sequence;
  uint64_t tokens = access & IMG_ACCESS_WRITE ? c->step.n_row : seen * c->step.n_sequence;
  return tokens * profile_layer_bytes(c, offset);
}

/* The bytes of a region as the arena holds them; 0: not known from the image. */
static uint64_t profile_extent(const struct img_view *view, const struct img_region *r) {
  if (r->bytes != IMG_WHOLE_ARENA) return r->bytes;
  return r->arena == IMG_ARENA_WEIGHTS  ? view->planes_bytes
         : r->arena == IMG_ARENA_TABLES ? view->tables_bytes
         : r->arena == IMG_ARENA_ACT    ? view->manifest.memory_act_bytes
                                        : 0;
}

/* Of a dispatch with a table in device memory: a plane that it names, and a layer's states. */
static void profile_count_plane(void *user, uint64_t offset) {
  struct profile_counter *c = user;
  const struct img_plane *plane = profile_plane(&c->view->planes, offset);
  if (!plane) return;
  uint64_t touched = (uint64_t)c->step.n_row * c->view->manifest.model_n_expert_used;
  c->out[c->n - 1].bytes.weights +=
      plane->n_mat > 1 ? profile_share(plane->bytes, touched, plane->n_mat) : plane->bytes;
}

static void profile_count_layer(void *user, uint64_t offset) {
  struct profile_counter *c = user;
  uint64_t seen = c->step.depth + c->step.n_row / c->step.n_sequence;
  c->out[c->n - 1].bytes.state += seen * c->step.n_sequence * profile_layer_bytes(c, offset);
}

static void profile_count(void *user, const struct img_inst *inst, uint32_t table, uint32_t row) {
  struct profile_counter *c = user;
  const struct img_templates_view *t = &c->view->templates;
  if (inst->op != IMG_OP_DISPATCH) return;
  struct profile_dispatch *d = &c->out[c->n++];
  *d = (struct profile_dispatch){.role = inst->role};
  profile_cells(t, inst, IMG_ARENA_WEIGHTS, profile_count_plane, c);
  profile_cells(t, inst, IMG_ARENA_STATE, profile_count_layer, c);
  bool resident = img_resident_table(t, inst) != UINT32_MAX;
  for (uint32_t i = 0; i < inst->n_region; i++) {
    const struct img_region *r = &t->region[inst->first_region + i];
    if (resident && (r->bytes == IMG_WHOLE_ARENA || r->arena == IMG_ARENA_ACT)) continue;
    if (r->arena == IMG_ARENA_STATE) d->bytes.state += profile_state(c, inst, table, row, r->access);
    if (!(r->access & IMG_ACCESS_READ)) continue;
    uint64_t bytes = profile_extent(c->view, r);
    uint64_t offset = r->offset + (r->column == IMG_NO_COLUMN ? 0 : img_table_value(t, table, row, r->column));
    if (r->arena == IMG_ARENA_WEIGHTS)
      d->bytes.weights += r->bytes == IMG_WHOLE_ARENA ? bytes : profile_weights(c, inst->role, offset, bytes);
    if (r->arena == IMG_ARENA_RECURRENT) d->bytes.state += bytes * c->step.n_sequence;
    bool scratch = inst->role == IMG_ROLE_ATTENTION && (r->access & IMG_ACCESS_WRITE);
    if (r->arena == IMG_ARENA_ACT && !scratch) d->bytes.other += profile_act(c, inst->role, bytes);
    if (r->arena == IMG_ARENA_TABLES) d->bytes.other += bytes;
  }
}

enum moe_code profile_count_bytes(const struct img_view *view, uint32_t index, const struct profile_step *step,
                                  struct profile_dispatch *out, struct moe_error *err) {
  struct profile_counter c = {.view = view, .template = &view->templates.template[index], .step = *step, .out = out};
  struct vk_walk walk = {.templates = &view->templates, .visit = profile_find_layer, .user = &c};
  vk_walk_template(&walk, index);
  c.layer = calloc((size_t)c.n_layer + 1, sizeof *c.layer);
  if (!c.layer) return moe_fail(err, MOE_FAILED, "out of memory for %u state offsets", c.n_layer);
  c.n_layer = 0;
  vk_walk_template(&walk, index);
  qsort(c.layer, c.n_layer, sizeof *c.layer, profile_compare);
  walk.visit = profile_count;
  vk_walk_template(&walk, index);
  free(c.layer);
  return MOE_OK;
}

uint64_t profile_sum(const struct profile_bytes *b) {
  return b->weights + b->state + b->other;
}
