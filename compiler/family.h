/* family.h: from a GGUF to the graph of its model, by the table of families (families.def).
 *
 * Owns: the choice of the family by general.architecture, the list of what is served. Does not own: a family's graph
 * (model_<family>.c), blocks (model_blocks.h). Thread rules: pure but for the output. */
#ifndef COMPILER_FAMILY_H
#define COMPILER_FAMILY_H

#include "ir.h"

/* Whether families.def has a row of this general.architecture (NUL-terminated). */
bool family_served(const char *architecture);

/* Writes "qwen3, qwen3moe" into text (cut at capacity, always terminated). Returns text. */
const char *family_list(char *text, size_t capacity);

/* Builds the model's graph and checks every tensor's presence, shape and format on the way.
 * graph: uninitialized; on success owned by the caller (ir_deinit); it borrows gguf.
 * Errors: MOE_DECLINED for a file that is no model that generates text (gguf_kind.h), an architecture without a row
 * (with the list of those that have one), a format or a variant that moec does not compile; MOE_FAILED for missing or
 * contradicting tensors and hyperparameters. */
enum moe_code family_build(const struct gguf *gguf, struct ir_graph *graph, struct moe_error *err);

#endif
