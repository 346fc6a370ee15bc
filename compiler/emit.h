/* emit.h: from a GGUF to the image file.
 *
 * Owns: the order of an image's making and its progress reports. Does not own: single sections (emit_*.h), the file
 * (img_writer). Invariants: same input and options give the same bytes, whatever the number of threads, the paths and
 * the time. Nothing appears under the output's name before all of it is written. Resident memory stays below 1 GiB and
 * the largest tensor. */
#ifndef COMPILER_EMIT_H
#define COMPILER_EMIT_H

#include "moe_error.h"
#include "options.h"

struct gguf;

struct emit_options {
#define OPTION OPTION_FIELD
#include "moec_compile_options.def"
#undef OPTION
};

/* Compiles the model at `path`. Errors: MOE_DECLINED for what moec does not compile, MOE_FAILED for bad input and I/O;
 * the message names the tensor, key or file. */
enum moe_code emit_image(const char *path, const struct emit_options *options, struct moe_error *err);

/* Whether an open model compiles: graph, tokenizer, chat and plan are made as by emit_image, and dropped. Errors: as
 * there. */
enum moe_code emit_model_check(const struct gguf *gguf, struct moe_error *err);

#endif
