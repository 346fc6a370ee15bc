/* emit_vocab.h: the tokens of a GGUF, read and checked, with what their names stand for.
 *
 * Owns: tokenizer.ggml.tokens, token_type and scores, the alphabets that names are written in. Does not own: what is
 * decided from them (emit_tokenizer.c). Invariants: untrusted counts are bounded before anything is sized by them;
 * lookups by name take constant time whatever the names are (the hash has a random key). */
#ifndef COMPILER_EMIT_VOCAB_H
#define COMPILER_EMIT_VOCAB_H

#include "img_tokenizer.h"
#include "moe_error.h"
#include "src_gguf.h"

struct vocab {
  enum img_tokenizer_kind kind;
  uint32_t n;
  struct gguf_string *name; /* [n] as in the file, borrowed */
  const uint8_t **text;     /* [n] raw bytes: the name, or the part of arena that the name stands for */
  uint32_t *len;            /* [n] */
  uint16_t *attr;           /* [n] */
  float *score;             /* [n] or NULL: none were asked for */
  uint8_t *arena;           /* decoded bytes */
  uint32_t *slots;          /* hash table of all names: ids or IMG_TOKEN_NONE */
  uint32_t n_slot;          /* a power of two */
  uint8_t key[16];          /* of the hash */
};

/* Reads the tokens of a model whose names are written as `kind` has them. v: zeroed; vocab_deinit it in any case.
 * scores: whether tokenizer.ggml.scores is needed. Errors: MOE_FAILED with the key, the index, what was found. */
enum moe_code vocab_read(const struct gguf *g, enum img_tokenizer_kind kind, bool scores, struct vocab *v,
                         struct moe_error *err);
void vocab_deinit(struct vocab *v);

/* The first token of that name, or IMG_TOKEN_NONE. */
uint32_t vocab_find(const struct vocab *v, const char *name, size_t bytes);

static inline enum img_token_type vocab_type(const struct vocab *v, uint32_t id) {
  return (enum img_token_type)(v->attr[id] & 0xff);
}

enum moe_code vocab_no_memory(struct moe_error *err);

#endif
