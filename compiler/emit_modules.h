/* emit_modules.h: the section MODULES: every kernel that a plan's dispatches ask for, compiled once.
 *
 * Owns: compiling in parallel, dropping duplicates, the section's bytes. Does not own: compilation (shadergen.h).
 * Invariants: the order is that of first use in the plan; equal modules are stored once. */
#ifndef COMPILER_EMIT_MODULES_H
#define COMPILER_EMIT_MODULES_H

#include "emit_bytes.h"
#include "parallel.h"
#include "plan.h"

struct emit_modules {
  struct emit_bytes section;
  uint32_t *of_op; /* module index by dispatch, through all templates in order */
  uint32_t n_module;
  uint32_t max_workgroup, max_shared_bytes, max_push_bytes; /* over modules and tunings of the lowest tier */
};

/* level: of zstd. modules: uninitialized; give it to emit_modules_deinit also when this fails.
 * Errors: those of shadergen_compile with the dispatch's role and layer; MOE_USAGE becomes MOE_DECLINED: the shapes are
 * such that no kernel takes them. */
enum moe_code emit_modules_make(struct emit_modules *modules, const struct plan *plan, int level, struct parallel *pool,
                                struct moe_error *err);
void emit_modules_deinit(struct emit_modules *modules);

#endif
