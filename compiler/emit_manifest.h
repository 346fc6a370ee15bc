/* emit_manifest.h: the sections MANIFEST and SELFTEST.
 *
 * Owns: what the manifest says of a model and its needs, the self-test's prompt and size. Does not own: the JSON of the
 * manifest (img_manifest.h), the computation of expected tokens (oracle.h). */
#ifndef COMPILER_EMIT_MANIFEST_H
#define COMPILER_EMIT_MANIFEST_H

#include "emit.h"
#include "emit_bytes.h"
#include "emit_modules.h"
#include "img_tokenizer.h"
#include "parallel.h"
#include "plan.h"

/* hash: of the GGUF. section: empty; owned by the caller also when this fails. */
enum moe_code emit_manifest(struct emit_bytes *section, const struct plan *plan, const struct emit_modules *modules,
                            const struct emit_options *options, const uint8_t hash[GGUF_HASH_BYTES],
                            struct moe_error *err);

/* A short question as the prompt, and what the oracle answers. Bounded: a model of over EMIT_LARGE weights gets four
 * prompt tokens and four answers, since each reads most of its weights. */
enum moe_code emit_selftest(struct emit_bytes *section, const struct plan *plan, const struct img_tokenizer *tokenizer,
                            struct parallel *pool, struct moe_error *err);

#endif
