/* tokenizer.h: text to token ids and back, by the TOKENIZER section of an image.
 *
 * Owns: the compiled pre-tokenizer patterns. Does not own: the section's bytes (borrowed, mapped). Invariants:
 * any bytes encode, valid UTF-8 or not; what encodes without special tokens decodes to the same bytes, but for
 * normalization and what became the unknown token (images/FORMAT-tokenizer.md); encoding takes O(n log n) for n bytes
 * whatever they are. */
#ifndef RUNTIME_TOKENIZER_H
#define RUNTIME_TOKENIZER_H

#include "img_tokenizer.h"
#include "moe_error.h"

struct tokenizer;

/* Longest text that tokenizer_encode takes, in bytes. */
#define TOKENIZER_MAX_TEXT (64u << 20)

/* Opens a TOKENIZER payload: checks it and compiles its patterns (a few milliseconds for 150,000 tokens; no table is
 * built). section: len bytes, 8-byte aligned, must outlive the tokenizer. *t: owned by the caller (tokenizer_destroy).
 * Errors: MOE_FAILED for a payload that img_tokenizer_open refuses, a pattern that does not compile, no memory. */
enum moe_code tokenizer_create(const void *section, uint64_t len, struct tokenizer **t, struct moe_error *err);
void tokenizer_destroy(struct tokenizer *t);

/* The section's view: ids of BOS and so on, n_vocab, types. Borrowed until tokenizer_destroy. */
const struct img_tokenizer *tokenizer_view(const struct tokenizer *t);

/* Whether the token ends a generation. */
bool tokenizer_is_eog(const struct tokenizer *t, uint32_t id);

enum tokenizer_encode_flag {
  TOKENIZER_PARSE_SPECIAL = 1, /* the text is a rendered prompt: control tokens written out in it are those tokens.
                                  Without this only user-defined tokens are split out, which are plain vocabulary. */
  TOKENIZER_ADD_SPECIAL = 2,   /* BOS before and EOS after, where the model asks for them (the section's flags). A chat
                                  template writes its own BOS: leave this out for its result. */
};

/* Encodes len bytes of text (NUL bytes included, UTF-8 or not).
 * max_id: the largest number of ids that is of use; encoding stops there, so that a text that is far too long costs
 * little. *ids: receives a malloc'd array that the caller frees (never NULL on success); *n: its length, at most
 * max_id. Errors: MOE_FAILED for over TOKENIZER_MAX_TEXT bytes, or over twice that once replacements are made, no
 * memory. Thread rules: any number of threads may encode and decode with one tokenizer at a time. Source:
 * images/FORMAT-tokenizer.md; Sennrich, Haddow, Birch 2016 (BPE); Radford et al. 2019 (byte-level BPE); Kudo,
 * Richardson 2018 (SentencePiece). */
enum moe_code tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags, size_t max_id,
                               uint32_t **ids, size_t *n, struct moe_error *err);

/* The bytes of one token, borrowed from the section: *len of them, possibly a part of a character.
 * skip_special: a control token has no bytes. An id outside the vocabulary has none either. */
const char *tokenizer_piece(const struct tokenizer *t, uint32_t id, bool skip_special, size_t *len);

/* The bytes of n tokens in a row. *text: malloc'd, *len bytes and a NUL after them; the caller frees it.
 * Errors: MOE_FAILED for an id outside the vocabulary (index and id named), no memory. */
enum moe_code tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool skip_special, char **text,
                               size_t *len, struct moe_error *err);

/* Text of a growing token sequence, in pieces that are valid UTF-8 each: an incomplete character waits for its other
 * bytes, bytes that belong to no character come out as U+FFFD. Zero-initialize, tokenizer_stream_deinit at the end.
 * One thread at a time. */
struct tokenizer_stream {
  uint8_t held[4]; /* the beginning of a character */
  uint32_t n_held;
  char *text; /* what the last call gave out */
  size_t capacity;
};

/* Adds a token. *text: *len bytes (maybe none) and a NUL, valid until the next call with this stream.
 * Errors: MOE_FAILED for an id outside the vocabulary, no memory; the stream is then unchanged. */
enum moe_code tokenizer_stream_add(struct tokenizer_stream *s, const struct tokenizer *t, uint32_t id,
                                   bool skip_special, const char **text, size_t *len, struct moe_error *err);

/* Ends the text: what is still held comes out as one U+FFFD. Same results and errors; the stream can start over. */
enum moe_code tokenizer_stream_finish(struct tokenizer_stream *s, const char **text, size_t *len,
                                      struct moe_error *err);

void tokenizer_stream_deinit(struct tokenizer_stream *s);

#endif
