/* tokenizer_normal.h: the normalization that a text goes through before it is cut; for tokenizer.c alone.
 *
 * Owns: Unicode NFC and SentencePiece's normalization. Does not own: the table of replacements (img_tokenizer.h). */
#ifndef RUNTIME_TOKENIZER_NORMAL_H
#define RUNTIME_TOKENIZER_NORMAL_H

#include "img_tokenizer.h"

/* Normalizes valid UTF-8 between added tokens as the flags of the section say.
 * first: nothing but an added token, or nothing, is before it. *out: *out_len bytes, either `text` itself or *owned,
 * which is malloc'd and the caller's to free (NULL else). false: no memory. Time O(len).
 * Source: images/FORMAT-tokenizer.md; sentencepiece, normalizer.cc; The Unicode Standard, UAX 15. */
bool tokenizer_normalize(const struct img_tokenizer *v, const uint8_t *text, size_t len, bool first,
                         const uint8_t **out, size_t *out_len, uint8_t **owned);

#endif
