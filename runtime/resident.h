/* resident.h: tables of the templates that kernels read in device memory (IMG_WORD_TABLE).
 *
 * Owns: which tables those are, where each lies in the one buffer of all, what its cells become. Does not own: the
 * buffer (arenas.h), addresses of arenas (the resolver). Invariants: only templates that are taken count; a table lies
 * there once, at a multiple of IMG_PLANE_ALIGN. What was checked by img_check_templates is followed without checks. */
#ifndef RUNTIME_RESIDENT_H
#define RUNTIME_RESIDENT_H

#include "img_check.h"
#include "step.h"
#include "vk_replay.h"

#define RESIDENT_NOWHERE UINT64_MAX

struct resident {
  uint64_t *offset; /* [n_table] in the buffer, RESIDENT_NOWHERE: not in device memory */
  uint32_t n_table;
  uint64_t bytes; /* of the buffer; 0: there is no such table */
};

/* Places the tables of `taken` templates. resident: release with resident_deinit, also after an error. Errors:
 * MOE_FAILED (memory). */
enum moe_code resident_place(const struct img_templates_view *templates, const struct step_template *taken,
                             uint32_t n_taken, struct resident *resident, struct moe_error *err);
void resident_deinit(struct resident *resident);

/* Writes the buffer's contents to out, resident->bytes bytes: numbers as they are, addresses as the resolver gives them
 * for copy 0 (a cell is of no arena that has two copies). */
void resident_fill(const struct resident *resident, const struct img_templates_view *templates, vk_resolve_fn *resolve,
                   void *user, uint8_t *out);

#endif
