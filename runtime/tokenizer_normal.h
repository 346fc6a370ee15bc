/* tokenizer_normal.h: the normalization that a text goes through before it is cut; for tokenizer.c alone.
 *
 * Owns: Unicode NFC and SentencePiece's normalization. Does not own: the table of replacements (img_tokenizer.h). */
#ifndef RUNTIME_TOKENIZER_NORMAL_H
#define RUNTIME_TOKENIZER_NORMAL_H

#include "tokenizer.h"

/* Most bytes that SentencePiece's normalization may make of a text: its table of replacements could put 255 in the
 * place of each. (NFC triples a text at worst.) What comes out always has a length below 2^32. */
#define TOKENIZER_MAX_NORMAL (2u * TOKENIZER_MAX_TEXT)

/* Normalizes valid UTF-8, at most TOKENIZER_MAX_TEXT bytes, between added tokens as the flags of the section say.
 * first: nothing but an added token, or nothing, is before it. *out: *out_len bytes, either `text` itself or *owned,
 * which is malloc'd and the caller's to free (NULL else; after an error too). Time O(len).
 * Errors: MOE_FAILED for a text that comes to over TOKENIZER_MAX_NORMAL bytes, no memory.
 * Source: images/FORMAT-tokenizer.md; sentencepiece, normalizer.cc; The Unicode Standard, UAX 15. */
enum moe_code tokenizer_normalize(const struct img_tokenizer *v, const uint8_t *text, size_t len, bool first,
                                  const uint8_t **out, size_t *out_len, uint8_t **owned, struct moe_error *err);

#endif
