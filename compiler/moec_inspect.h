/* moec_inspect.h: the verb `moec inspect MODEL.gguf [--json]`.
 *
 * Owns: the report about a GGUF: what it is, which formats its tensors have, whether it can be compiled and why not.
 * Does not own: the command line (moec_main), which families are compiled (family.h; asked through inspect_family_fn).
 */
#ifndef COMPILER_MOEC_INSPECT_H
#define COMPILER_MOEC_INSPECT_H

#include "moe_error.h"

#include <stdbool.h>
#include <stdio.h>

/* Whether moec has a family of this general.architecture (NUL-terminated). */
typedef bool (*inspect_family_fn)(const char *architecture);

/* Writes the report on a file to `out`: text, or with `json` one JSON object that also lists every tensor.
 * Text from the file is made printable (control characters and invalid UTF-8 become U+FFFD).
 * family: NULL counts every architecture as compiled, and then the model is not built.
 * Returns MOE_OK also for a model that cannot be compiled (the report says why); otherwise gguf_open's errors, or
 * MOE_FAILED when `out` cannot be written. */
enum moe_code inspect_run(const char *path, bool json, inspect_family_fn family, FILE *out, struct moe_error *err);

#endif
