/* moec_oracle.h: the verb `moec oracle MODEL.gguf --ids FILE`.
 *
 * Owns: reading the prompt's ids, which tokens end the text, the printed form. Does not own: the computation
 * (oracle.h).
 */
#ifndef COMPILER_MOEC_ORACLE_H
#define COMPILER_MOEC_ORACLE_H

#include "moe_error.h"
#include "options.h"

#include <stdio.h>

struct oracle_options {
#define OPTION OPTION_FIELD
#include "moec_oracle_options.def"
#undef OPTION
};

/* Runs the verb. Errors: those of gguf_open, family_build, emit_tokenizer, oracle_run; MOE_USAGE for ids that are no
 * JSON array of token ids. */
enum moe_code moec_oracle(const char *path, const struct oracle_options *options, FILE *out, struct moe_error *err);

#endif
