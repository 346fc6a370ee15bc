/* small_tokenizer.h: a hand-made TOKENIZER payload for tests.
 *
 * Vocabulary: 0 to 255 the single bytes; then the tokens and merges that small_tokenizer.c lists, by the names below.
 * The pattern cuts before each space. Does not own: any check. */
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
};

/* Builds the payload with the flags of enum img_tokenizer_flag and the patterns, NULL-terminated (NULL: the default).
 * malloc'd, the caller frees it. Ends the test when it fails. */
uint8_t *small_tokenizer(uint32_t flags, const char *const *patterns, uint64_t *len);

#endif
