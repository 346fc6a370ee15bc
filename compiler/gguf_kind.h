/* gguf_kind.h: what a GGUF is, before anybody asks which family: a model that generates text, or one of the other
 * things that people keep in GGUFs.
 *
 * Owns: how they are told apart (gguf_kind.def) and the message about those that are no model. Does not own: families,
 * formats, whether a model compiles. Thread rules: pure but for the output. */
#ifndef COMPILER_GGUF_KIND_H
#define COMPILER_GGUF_KIND_H

#include "src_gguf.h"

/* What a file is: `what` completes "it is ..."; advice: what to do about it, NULL for a model that generates text. */
struct gguf_kind {
  const char *what, *advice;
  char because[160]; /* the key and value, or the lack, that told */
};

void gguf_kind_find(const struct gguf *g, struct gguf_kind *kind);

/* MOE_OK for a model that generates text; else MOE_DECLINED: why, what the file is, what to do. */
enum moe_code gguf_kind_require(const struct gguf *g, struct moe_error *err);

#endif
