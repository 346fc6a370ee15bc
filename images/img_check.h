/* img_check.h: bounds-checks an image's structures and gives typed views of them.
 *
 * Owns: every check that does not need a device or a hash: after img_check nothing reached through a view leaves its
 * section, and no address word, region or cell of a resident table leaves its arena as far as the arena's size is
 * known from the image (WEIGHTS, TABLES, ACT, RESULT). Does not own: hazards (img_hazard), SPIR-V validity (moec
 * validates what it writes; an image is trusted like a program). Invariants: views borrow from the image. Nothing
 * allocates. Untrusted input never crashes or loops without bound. */
#ifndef IMAGES_IMG_CHECK_H
#define IMAGES_IMG_CHECK_H

#include "img_manifest.h"
#include "img_reader.h"

#define IMG_MAX_UNROLLED (1u << 20) /* instructions of all templates, calls unrolled */
#define IMG_MAX_OPERAND 32          /* words, and regions, of one dispatch */
#define IMG_MAX_TABLE_WORK                                                                                             \
  (1u << 24) /* over all dispatches with a resident table: its cells, and the instructions that could call it */
#define IMG_MAX_CODE_BYTES (4u << 20)

struct img_modules_view {
  const uint8_t *section;
  const struct img_module *module;
  const char *name; /* text at module[i].name_offset */
  uint32_t n_module;
};

struct img_templates_view {
  const struct img_template *template;
  const struct img_inst *inst;
  const struct img_body *body;
  const struct img_word *word;
  const struct img_region *region;
  const struct img_table *table;
  const uint64_t *value;
  const char *name;
  uint32_t n_template, n_inst, n_body, n_word, n_region, n_table;
  uint64_t n_value;
};

struct img_planes_view {
  const struct img_plane *plane;
  const char *name;
  uint32_t n_plane, n_carried; /* the last n_carried are not loaded */
};

struct img_view {
  struct img_manifest manifest;
  struct img_modules_view modules;
  struct img_templates_view templates;
  struct img_planes_view planes;
  uint64_t planes_bytes; /* of WEIGHTS: without the carried planes */
  uint64_t tables_bytes;
};

/* Checks MANIFEST, MODULES, TEMPLATES, PLANE_INDEX, PLANES, TABLES of an opened image and fills view. Errors:
 * MOE_FAILED with the section, index, field, found and allowed. */
enum moe_code img_check(const struct img *img, struct img_view *view, struct moe_error *err);

/* The same for single sections; `limits` gives arena sizes by enum img_arena, UINT64_MAX where unknown; planes: where
 * WEIGHTS may be cut, NULL where unknown. */
enum moe_code img_check_modules(const void *section, uint64_t bytes, struct img_modules_view *view,
                                struct moe_error *err);
enum moe_code img_check_planes(const void *section, uint64_t bytes, uint64_t planes_bytes, struct img_planes_view *view,
                               struct moe_error *err);
enum moe_code img_check_templates(const void *section, uint64_t bytes, const struct img_modules_view *modules,
                                  const uint64_t limits[IMG_N_ARENA], const struct img_planes_view *planes,
                                  struct img_templates_view *view, struct moe_error *err);

/* The table that a dispatch reads in device memory (its IMG_WORD_TABLE, of which img_check allows one); UINT32_MAX:
 * none. */
uint32_t img_resident_table(const struct img_templates_view *templates, const struct img_inst *inst);

/* The value of a word or region column for a table row; 0 for no table. */
static inline uint64_t img_table_value(const struct img_templates_view *t, uint32_t table, uint32_t row,
                                       uint32_t column) {
  return t->value[t->table[table].first_value + (uint64_t)row * t->table[table].n_column + column];
}

#endif
