/* vocabulary.h: a vocabulary-only GGUF out of a published tokenizer (tokenizer.json and tokenizer_config.json).
 *
 * Owns: the conversion, as converters of models do it. Does not own: the files (cmake/vocabularies.sh fetches them). */
#ifndef TESTS_SUPPORT_VOCABULARY_H
#define TESTS_SUPPORT_VOCABULARY_H

#include "gguf_maker.h"

struct gguf;

/* Makes and opens the model file of DIR/tokenizer.json.
 * model: value of tokenizer.ggml.model. "gpt2" and "gemma4" take the merges of tokenizer.json; "llama" takes scores
 * instead: a token's number with a minus, since SentencePiece numbers the pieces of its BPE in the order of their
 * scores, but for runs of spaces, which have -10^9 in Llama's model. space_prefix: value of
 * tokenizer.ggml.add_space_prefix, or -1 for none. pre: value of tokenizer.ggml.pre, or NULL. m: holds the file;
 * maker_deinit it after gguf_close. Ends the test when something is missing. */
struct gguf *vocabulary_open(const char *dir, const char *model, const char *pre, int space_prefix, struct maker *m);

#endif
