/* tokenizer_unigram.h: cuts a chunk into the tokens of the highest total score; for tokenizer.c alone.
 *
 * Owns: scratch memory of one encoding. Does not own: scores and tokens (img_tokenizer.h), the list of ids
 * (tokenizer_bpe.h). */
#ifndef RUNTIME_TOKENIZER_UNIGRAM_H
#define RUNTIME_TOKENIZER_UNIGRAM_H

#include "tokenizer_bpe.h"

/* The best way to a place in the chunk, or that there is none yet (from == IMG_TOKEN_NONE). */
struct unigram_node {
  float score;   /* single, as sentencepiece adds them: where ways tie, the rounding decides */
  uint32_t from; /* where its last token begins */
  uint32_t id;   /* that token; IMG_TOKEN_NONE: a character that is unknown */
};

struct unigram {
  struct unigram_node *nodes;
  size_t capacity;
};

/* The score of a character that no token is: 10 below the lowest. Source: sentencepiece, unigram_model.cc. */
float unigram_unknown_score(const struct img_tokenizer *v);

/* Appends the tokens of one chunk of valid UTF-8, len < 2^32 - 1 bytes, to b's ids. An unknown character becomes its
 * bytes' tokens, or, with its unknown neighbours, one unk_id. false as bpe_push. Time O(len * longest token * log
 * n_sorted). Source: Viterbi 1967; Kudo 2018 (unigram language model). */
bool unigram_chunk(struct unigram *u, struct bpe *b, float unknown_score, const uint8_t *bytes, uint32_t len);

void unigram_deinit(struct unigram *u);

#endif
