/* emit_merges.h: the merges of a BPE vocabulary, read from the file or made from scores.
 *
 * Does not own: the vocabulary (emit_vocab.h), the table's layout (images/). */
#ifndef COMPILER_EMIT_MERGES_H
#define COMPILER_EMIT_MERGES_H

#include "emit_tokenizer.h"
#include "emit_vocab.h"

/* tokenizer.ggml.merges. *merges: malloc'd, the caller frees it in any case; *n: how many, each pair once.
 * What can never apply and what a later merge of the same pair replaces is left out and counted in note (may be NULL).
 * Errors: MOE_FAILED with the key, for a missing or too long array, for no memory. */
enum moe_code merges_read(const struct gguf *g, const struct vocab *v, struct img_merge **merges, uint32_t *n,
                          struct emit_tokenizer_note *note, struct moe_error *err);

/* The merges that do what SentencePiece's BPE does: of all neighbours that are a normal token together, the token of
 * the highest score is made first, the leftmost of equals. Every way to cut a token into two normal tokens is a merge;
 * its rank is the token's place among the scores, equal for equal ones. Characters that are no token are not merged (in
 * a trained model every character of a piece is one). Same results and errors. Source: sentencepiece, bpe_model.cc. */
enum moe_code merges_from_scores(const struct vocab *v, struct img_merge **merges, uint32_t *n, struct moe_error *err);

#endif
