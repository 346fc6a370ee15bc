#include "img_print.h"

#include <inttypes.h>

#include "img_enums.h"
#include "img_hash.h"

const char *img_tier_name(uint32_t tier) {
  static const char *const name[IMG_N_TIER] = {"base", "dot", "khr", "nv", "resident"};
  return tier < IMG_N_TIER ? name[tier] : "?";
}

const char *img_arena_name(uint32_t arena) {
  static const char *const name[IMG_N_ARENA] = {"WEIGHTS", "TABLES", "STATE", "ACT",
                                                "STEP",    "RESULT", "SLOT",  "RECURRENT"};
  return arena < IMG_N_ARENA ? name[arena] : "?";
}

const char *img_role_name(uint32_t role) {
  static const char *const name[] = {
#define IMG_ROLE(ENUM, NAME) NAME,
#include "img_roles.def"
#undef IMG_ROLE
  };
  return role < IMG_N_ROLE ? name[role] : "?";
}

const char *img_feature_name(uint32_t bit) {
  switch (bit) {
#define IMG_FEATURE(BIT, ENUM, NAME)                                                                                   \
  case BIT:                                                                                                            \
    return NAME;
#include "img_features.def"
#undef IMG_FEATURE
  }
  return NULL;
}

void img_print_summary(const struct img *img, const struct img_view *view, FILE *out) {
  char hex[2 * IMG_HASH_BYTES + 1];
  img_hash_hex(img->prefix.root, hex);
  fprintf(out, "image format %u.%u, %" PRIu64 " bytes, root %s\n", img->prefix.major, img->prefix.minor,
          img->file_bytes, hex);
  for (uint32_t i = 0; i < img->prefix.n_section; i++) {
    const struct img_section *s = &img->section[i];
    img_hash_hex(s->hash, hex);
    fprintf(out, "  %-12s %14" PRIu64 " bytes at %12" PRIu64 "  %.16s\n", img_section_name(s->kind), s->bytes,
            s->offset, hex);
  }
  const struct img_manifest *m = &view->manifest;
#define IMG_STRING(OBJECT, KEY, BYTES, WHAT) fprintf(out, "  %-24s %s\n", #OBJECT "." #KEY, m->OBJECT##_##KEY);
#define IMG_NUMBER(OBJECT, KEY, TYPE, MIN, MAX, WHAT)                                                                  \
  fprintf(out, "  %-24s %" PRIu64 "\n", #OBJECT "." #KEY, (uint64_t)m->OBJECT##_##KEY);
#include "img_manifest.def"
#undef IMG_STRING
#undef IMG_NUMBER
}

void img_print_modules(const struct img_modules_view *modules, FILE *out) {
  for (uint32_t i = 0; i < modules->n_module; i++) {
    const struct img_module *m = &modules->module[i];
    fprintf(out, "module %3u  %-8s %6u bytes (%u stored)  push %3u  %s ", i, img_tier_name(m->tier), m->code_bytes,
            m->code_zbytes, m->push_bytes, modules->name + m->name_offset);
    for (uint32_t t = 0; t < m->n_tuning; t++)
      fprintf(out, " [subgroup>=%u wg %u lanes %u extra %u items %u]", m->tuning[t].min_subgroup,
              m->tuning[t].spec[IMG_SPEC_WG], m->tuning[t].spec[IMG_SPEC_LANES], m->tuning[t].spec[IMG_SPEC_EXTRA],
              m->tuning[t].group_items);
    fputc('\n', out);
  }
}

static void print_word(const struct img_word *w, FILE *out) {
  switch (w->kind) {
  case IMG_WORD_IMM:
    fprintf(out, " %" PRIu64, w->value);
    break;
  case IMG_WORD_ADDRESS:
    fprintf(out, " %s+%" PRIu64, img_arena_name(w->arena), w->value);
    break;
  case IMG_WORD_LAYER_ADDRESS:
    fprintf(out, " %s+$%u+%" PRIu64, img_arena_name(w->arena), w->column, w->value);
    break;
  case IMG_WORD_TABLE:
    fprintf(out, " table:%" PRIu64, w->value);
    break;
  default:
    fprintf(out, " $%u", w->column);
    break;
  }
}

static void print_region(const struct img_region *r, FILE *out) {
  static const char *const access[] = {"", "r", "w", "rw"};
  fprintf(out, " %s:%s", access[r->access & 3], img_arena_name(r->arena));
  if (r->bytes == IMG_WHOLE_ARENA) return;
  fprintf(out, "[%" PRIu64, r->offset);
  if (r->column != IMG_NO_COLUMN) fprintf(out, "+$%u", r->column);
  fprintf(out, ",+%" PRIu64 "]", r->bytes);
}

static void print_insts(const struct img_view *v, uint32_t first, uint32_t n, FILE *out) {
  for (uint32_t at = first; at < first + n; at++) {
    const struct img_inst *i = &v->templates.inst[at];
    if (i->op == IMG_OP_BARRIER) fprintf(out, "  %4u barrier\n", at);
    if (i->op == IMG_OP_CALL)
      fprintf(out, "  %4u call body %u table %u rows %u..%u\n", at, i->body, i->table, i->first_row,
              i->first_row + i->count - 1);
    if (i->op != IMG_OP_DISPATCH) continue;
    fprintf(out, "  %4u %-16s %s  %u x %u x %u\n        push", at, img_role_name(i->role),
            v->modules.name + v->modules.module[i->module].name_offset, i->grid[0], i->grid[1], i->grid[2]);
    for (uint32_t w = 0; w < i->n_word; w++) print_word(&v->templates.word[i->first_word + w], out);
    fprintf(out, "\n        touches");
    for (uint32_t r = 0; r < i->n_region; r++) print_region(&v->templates.region[i->first_region + r], out);
    fputc('\n', out);
  }
}

static void print_cell(uint64_t cell, FILE *out) {
  if (cell >> IMG_CELL_SHIFT == IMG_CELL_IMM)
    fprintf(out, " %" PRIu64, (uint64_t)IMG_CELL_VALUE(cell));
  else
    fprintf(out, " %s+%" PRIu64, img_arena_name((uint32_t)(cell >> IMG_CELL_SHIFT)), (uint64_t)IMG_CELL_VALUE(cell));
}

/* The table of a dispatch that reads one in device memory. */
static void print_resident(const struct img_templates_view *t, const struct img_inst *inst, FILE *out) {
  uint32_t table = inst->op == IMG_OP_DISPATCH ? img_resident_table(t, inst) : UINT32_MAX;
  if (table == UINT32_MAX) return;
  fprintf(out, "resident table %u\n", table);
  for (uint32_t row = 0; row < t->table[table].n_row; row++) {
    fprintf(out, "  %4u", row);
    for (uint32_t column = 0; column < t->table[table].n_column; column++)
      print_cell(img_table_value(t, table, row, column), out);
    fputc('\n', out);
  }
}

void img_print_templates(const struct img_view *view, FILE *out) {
  const struct img_templates_view *t = &view->templates;
  for (uint32_t i = 0; i < t->n_template; i++) {
    fprintf(out, "template %s  tier %s, %u rows, %u selected\n", t->name + t->template[i].name_offset,
            img_tier_name(t->template[i].tier), t->template[i].n_row, t->template[i].n_select);
    print_insts(view, t->template[i].first_inst, t->template[i].n_inst, out);
    for (uint32_t k = 0; k < t->template[i].n_inst; k++)
      print_resident(t, &t->inst[t->template[i].first_inst + k], out);
  }
  for (uint32_t i = 0; i < t->n_body; i++) {
    fprintf(out, "body %u\n", i);
    print_insts(view, t->body[i].first_inst, t->body[i].n_inst, out);
  }
}

void img_print_planes(const struct img_planes_view *planes, FILE *out) {
  for (uint32_t i = 0; i < planes->n_plane; i++) {
    const struct img_plane *p = &planes->plane[i];
    fprintf(out, "plane %4u  %12" PRIu64 " +%-12" PRIu64 " type %2u  %" PRIu64 " x %" PRIu64 " x %" PRIu64 "  %s%s\n",
            i, p->offset, p->bytes, p->format, p->n_in, p->n_out, p->n_mat, planes->name + p->name_offset,
            i < planes->n_plane - planes->n_carried ? "" : " (carried)");
  }
}
