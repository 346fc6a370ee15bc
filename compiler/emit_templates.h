/* emit_templates.h: the section TEMPLATES: a plan's dispatches as instructions, layers folded into bodies, barriers
 * derived.
 *
 * Owns: turning operands into words and regions, sharing of layer bodies. Does not own: which dispatches there are
 * (pass.h), where barriers must be (img_hazard.h).
 * Invariants: layers whose instructions are equal but for per-layer values share a body; what it reads of planes and
 * states comes from the body's table, a row a layer. A template's table in device memory
 * (plan_add_resident) stands behind the tables of all bodies. The result has passed img_check_templates and
 * img_hazard_check. */
#ifndef COMPILER_EMIT_TEMPLATES_H
#define COMPILER_EMIT_TEMPLATES_H

#include "emit_bytes.h"
#include "emit_modules.h"
#include "plan.h"

/* section: empty; owned by the caller also when this fails. */
enum moe_code emit_templates(struct emit_bytes *section, const struct plan *plan, const struct emit_modules *modules,
                             struct moe_error *err);

#endif
