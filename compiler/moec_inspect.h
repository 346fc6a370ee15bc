/* moec_inspect.h: the verb `moec inspect MODEL.gguf`.
 *
 * Owns: the report about a GGUF: what it is, which formats its tensors have, whether it can be compiled and why not.
 * Does not own: the command line (moec_main), what compiles (family.h, emit.h), what is no model (gguf_kind.h).
 * Invariants: the text is printed from the same JSON that --json prints, so the two never differ. */
#ifndef COMPILER_MOEC_INSPECT_H
#define COMPILER_MOEC_INSPECT_H

#include "moe_error.h"
#include "options.h"

#include <jansson.h>
#include <stdio.h>

struct inspect_options {
#define OPTION OPTION_FIELD
#include "moec_inspect_options.def"
#undef OPTION
};

/* Writes the report on a file to `out`: text, or one JSON object that also lists every tensor.
 * Text from the file is made printable (control characters and invalid UTF-8 become U+FFFD).
 * Returns MOE_OK also for a file that cannot be compiled (the report says why); otherwise gguf_open's errors, or
 * MOE_FAILED when `out` cannot be written. */
enum moe_code inspect_run(const char *path, const struct inspect_options *options, FILE *out, struct moe_error *err);

/* The report as text. */
void inspect_print(const json_t *report, FILE *out);

#endif
