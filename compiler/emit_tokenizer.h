/* emit_tokenizer.h: from a GGUF's tokenizer keys to the payload of the TOKENIZER section.
 *
 * Owns: reading and checking tokenizer.ggml.*, the table of pre-tokenizers. Does not own: the payload's layout
 * (images/img_tokenizer.h). Invariants: the payload is a function of the keys alone. */
#ifndef COMPILER_EMIT_TOKENIZER_H
#define COMPILER_EMIT_TOKENIZER_H

#include "img_tokenizer.h"
#include "moe_error.h"

struct gguf;

/* What was wrong with the vocabulary and could be passed over, for a note to the user. */
struct emit_tokenizer_note {
  uint32_t n_skipped, n_duplicate; /* merges of no use: tokens that do not exist; a later one of the same pair */
  char first[256];                 /* the first skipped one and what is wrong with it */
};

/* Writes the TOKENIZER payload of a model file.
 * g: an open file. *bytes: receives a malloc'd payload that the caller frees; *len: its bytes.
 * note: what was passed over, or NULL where nobody asks.
 * Errors: MOE_DECLINED for a tokenizer kind or pre-tokenizer that is not served (named, with the list of those that
 * are); MOE_FAILED for keys that are missing or contradict each other: the message names the key, the index, what was
 * found and what is allowed.
 * Thread rules: reads g only. Source: the GGUF specification, section Tokenizer; the byte alphabet is that of
 * openai/gpt-2's encoder.py (bytes_to_unicode). */
enum moe_code emit_tokenizer(const struct gguf *g, uint8_t **bytes, uint64_t *len, struct emit_tokenizer_note *note,
                             struct moe_error *err);

/* Whether the file's tokenizer can be compiled, without reading its vocabulary: for `moec inspect`. Same errors. */
enum moe_code emit_tokenizer_served(const struct gguf *g, struct moe_error *err);

#endif
