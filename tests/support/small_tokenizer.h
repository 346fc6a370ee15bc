/* small_tokenizer.h: hand-made TOKENIZER payloads for tests.
 *
 * Vocabulary: 0 to 255 the single bytes, of type BYTE in other kinds than byte-level BPE, where the characters of ASCII
 * follow the others as normal tokens (SMALL_CHAR + character); then the tokens and merges that small_tokenizer.c lists,
 * by the names below. The pattern cuts before each space. Does not own: any check. */
#ifndef TESTS_SUPPORT_SMALL_TOKENIZER_H
#define TESTS_SUPPORT_SMALL_TOKENIZER_H

#include <stdint.h>

enum small_token {
  SMALL_AB = 256, /* "ab" = a b, rank 1 */
  SMALL_BC,       /* "bc" = b c, rank 0 */
  SMALL_ABC,      /* "abc" = a bc, rank 2 */
  SMALL_AA,       /* "aa" = a a, rank 3 */
  SMALL_AAAA,     /* "aaaa" = aa aa, rank 4 */
  SMALL_XYZ,      /* "xyz": no merge leads to it */
  SMALL_BOS,      /* "<s>", control */
  SMALL_EOS,      /* "</s>", control */
  SMALL_THINK,    /* "<think>", user-defined */
  SMALL_THINKING, /* "<think>ing", user-defined: the longer match */
  SMALL_PAD,      /* "<s>>", control, swallows white space on both sides */
  SMALL_UNUSED,   /* "unused", unused */
  SMALL_N_VOCAB,
  SMALL_CHAR = SMALL_N_VOCAB, /* other kinds than byte-level BPE: the characters U+0000 to U+007F */
  SMALL_N_VOCAB_OF_CHARS = SMALL_CHAR + 128,
};

/* Builds the payload with the flags of enum img_tokenizer_flag and the patterns, NULL-terminated (NULL: the default).
 * malloc'd, the caller frees it. Ends the test when it fails. */
uint8_t *small_tokenizer(uint32_t flags, const char *const *patterns, uint64_t *len);

/* The same of kind IMG_TOKENIZER_CHAR_BPE or IMG_TOKENIZER_UNIGRAM, without patterns, with one replacement: "Q"
 * becomes "a a". Scores: a character -4, SMALL_AB -7, SMALL_BC -6, SMALL_ABC -10, SMALL_AA -7.5, SMALL_AAAA -16,
 * SMALL_XYZ -13. */
uint8_t *small_pieces(int kind, uint32_t flags, uint64_t *len);

#endif
