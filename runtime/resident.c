#include "resident.h"

#include <stdlib.h>
#include <string.h>

/* The cells of a table that was checked: at most IMG_MAX_TABLE_WORK. */
static uint64_t resident_cells(const struct img_table *table) {
  return (uint64_t)table->n_row * table->n_column;
}

static void resident_add(struct resident *r, const struct img_templates_view *t, uint32_t table) {
  if (table == UINT32_MAX || r->offset[table] != RESIDENT_NOWHERE) return;
  uint64_t bytes = resident_cells(&t->table[table]) * sizeof(uint64_t);
  r->offset[table] = r->bytes;
  r->bytes += (bytes + IMG_PLANE_ALIGN - 1) / IMG_PLANE_ALIGN * IMG_PLANE_ALIGN;
}

enum moe_code resident_place(const struct img_templates_view *t, const struct step_template *taken, uint32_t n_taken,
                             struct resident *r, struct moe_error *err) {
  *r = (struct resident){.n_table = t->n_table};
  r->offset = malloc(((size_t)t->n_table + 1) * sizeof *r->offset);
  if (!r->offset) return moe_fail(err, MOE_FAILED, "out of memory for %u tables", t->n_table);
  for (uint32_t i = 0; i < t->n_table; i++) r->offset[i] = RESIDENT_NOWHERE;
  for (uint32_t i = 0; i < n_taken; i++) {
    const struct img_template *template = &t->template[taken[i].index];
    for (uint32_t at = template->first_inst; at < template->first_inst + template->n_inst; at++)
      if (t->inst[at].op == IMG_OP_DISPATCH) resident_add(r, t, img_resident_table(t, &t->inst[at]));
  }
  return MOE_OK;
}

void resident_deinit(struct resident *r) {
  free(r->offset);
  *r = (struct resident){0};
}

void resident_fill(const struct resident *r, const struct img_templates_view *t, vk_resolve_fn *resolve, void *user,
                   uint8_t *out) {
  memset(out, 0, r->bytes);
  for (uint32_t i = 0; i < r->n_table; i++) {
    if (r->offset[i] == RESIDENT_NOWHERE) continue;
    for (uint64_t k = 0; k < resident_cells(&t->table[i]); k++) {
      uint64_t cell = t->value[t->table[i].first_value + k], arena = cell >> IMG_CELL_SHIFT;
      uint64_t value = IMG_CELL_VALUE(cell);
      if (arena != IMG_CELL_IMM) value = resolve(user, 0, (uint32_t)arena, value);
      memcpy(out + r->offset[i] + k * sizeof value, &value, sizeof value);
    }
  }
}
