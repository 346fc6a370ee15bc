/* pass.h: from a graph to the dispatches of one template: fusion of operations into kernels by patterns.
 *
 * Owns: which kernel, with which parameters and buffers, computes which operations. Does not own: kernels
 * (kernels.def), planes and dispatch lists (plan.h), barriers (img_hazard). Invariants: every node of the graph is
 * covered by exactly one pattern or the model is declined by name. The same graph and sizes give the same dispatches.
 * Buffers of one layer are reused by the next; the residual stream stays in place.
 */
#ifndef COMPILER_PASS_H
#define COMPILER_PASS_H

#include "plan.h"

/* Adds the template `kind`(n_row) of a tier with up to n_select rows of logits to the plan. All planes that it uses are
 * added. plan->max_row must be final. Lower tiers come first: their templates' planes then lie in the same places,
 * whichever higher tiers follow. Errors: MOE_DECLINED naming the operation that no kernel covers. */
enum moe_code pass_lower(struct plan *plan, enum img_tier tier, enum img_template_kind kind, uint32_t n_row,
                         uint32_t n_select, struct moe_error *err);

#endif
