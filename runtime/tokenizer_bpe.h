/* tokenizer_bpe.h: the merge loop of BPE, over bytes or characters, and the list of ids that encoding fills; for
 * tokenizer.c alone.
 *
 * Owns: scratch memory of one encoding. Does not own: the tables (img_tokenizer.h). Invariants: one struct bpe belongs
 * to one call. */
#ifndef RUNTIME_TOKENIZER_BPE_H
#define RUNTIME_TOKENIZER_BPE_H

#include "img_tokenizer.h"

/* A symbol of the chunk: a token, linked to its living neighbours by index. */
struct bpe_symbol {
  uint32_t id;         /* IMG_TOKEN_NONE once it has been merged into its left neighbour */
  uint32_t prev, next; /* IMG_TOKEN_NONE at the ends */
};

/* A candidate merge. Stale when the symbols at `at` and after it are no longer left and right. */
struct bpe_candidate {
  uint64_t order; /* rank * 2^32 + at: lowest rank first, leftmost of equals first */
  uint32_t left, right, result;
};

struct bpe {
  const struct img_tokenizer *view;
  uint32_t *ids; /* the output */
  size_t n_id, id_capacity, max_id;
  bool full; /* a push was refused: there are more than max_id ids */
  struct bpe_symbol *symbols;
  size_t symbol_capacity;
  struct bpe_candidate *heap; /* binary min-heap by order */
  size_t n_heap, heap_capacity;
};

/* Appends one id. false: no memory, or (full is set) max_id of them are there. */
bool bpe_push(struct bpe *b, uint32_t id);

/* Whether each of the bytes has a token of its own; and appends those. */
bool bpe_has_bytes(const struct bpe *b, const uint8_t *bytes, uint32_t len);
bool bpe_push_bytes(struct bpe *b, const uint8_t *bytes, uint32_t len);

/* Appends what stands for bytes that are no UTF-8, in SentencePiece's kinds: tokens of bytes, or one unk_id. */
bool bpe_ill_formed(struct bpe *b, const uint8_t *bytes, uint32_t len);

/* Appends the tokens of one chunk: len < 2^32 - 1 bytes, of kind IMG_TOKENIZER_CHAR_BPE valid UTF-8. false as bpe_push.
 * Time O(len log len), since a chunk of n symbols has at most n - 1 merges, each of which adds at most two candidates.
 */
bool bpe_chunk(struct bpe *b, const uint8_t *bytes, uint32_t len);

/* Frees the scratch, not the ids. */
void bpe_deinit(struct bpe *b);

#endif
