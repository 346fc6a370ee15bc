/* img_hazard.h: barriers from declared regions: derived by moec, derived again by the loader.
 *
 * Owns: the rule. Does not own: whether the declared regions are true (the instrumented kernels assert that).
 * Rule: two dispatches conflict when regions of theirs overlap in an arena and at least one writes; between two
 * conflicting dispatches of a template, in execution order with calls unrolled, there must be a barrier. WEIGHTS and
 * TABLES are read only and never conflict. The start of a template counts as a barrier (the runtime puts one there).
 * One dispatch never conflicts with itself: what its workgroups exchange is its own business. */
#ifndef IMAGES_IMG_HAZARD_H
#define IMAGES_IMG_HAZARD_H

#include "img_check.h"

/* Errors: MOE_FAILED naming the template, both instructions, and the overlap that has no barrier. `templates` must have
 * passed img_check_templates (so must the input of the functions below, but for the missing barriers). */
enum moe_code img_hazard_check(const struct img_templates_view *templates, const struct img_modules_view *modules,
                               struct moe_error *err);

/* The instructions of a section before and after barriers are inserted; the arrays are owned, give them to
 * img_hazard_deinit. */
struct img_hazard_result {
  struct img_inst *inst;
  struct img_body *body;
  struct img_template *template;
  uint32_t n_inst;
};

/* Inserts the barriers that the rule asks for and no more than a greedy pass needs: a barrier stands directly before
 * the first dispatch that conflicts with one since the last barrier; in a body it counts for every call. Bodies and
 * templates must not share instructions. result: copies of the arrays with adjusted ranges; words, regions and tables
 * stay as they are. Errors: MOE_FAILED (memory, too many regions between barriers). */
enum moe_code img_hazard_derive(const struct img_templates_view *templates, struct img_hazard_result *result,
                                struct moe_error *err);
void img_hazard_deinit(struct img_hazard_result *result);

#endif
