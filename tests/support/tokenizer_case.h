/* tokenizer_case.h: what tests of tokenizers say about a text.
 *
 * Owns: the comparisons; a difference ends the test. Does not own: the tokenizers. */
#ifndef TESTS_SUPPORT_TOKENIZER_CASE_H
#define TESTS_SUPPORT_TOKENIZER_CASE_H

#include "tokenizer.h"

/* The ids of a text; *n of them, malloc'd. */
uint32_t *tokenizer_case_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags, size_t *n);

/* Encodes a C string and compares with the expected ids, the last of which is followed by -1. */
void tokenizer_case_expect_ids(const struct tokenizer *t, const char *text, unsigned flags, const int64_t *want);
#define TOKENIZER_CASE_IDS(...) ((const int64_t[]){__VA_ARGS__, -1})

/* Decoding gives the text again. */
void tokenizer_case_expect_round_trip(const struct tokenizer *t, const char *text, size_t len);

/* The unit repeated up to `bytes` bytes, and the end after it, take processor seconds under the sanitizers, where a
 * quadratic walk would take hours. */
void tokenizer_case_expect_fast(const struct tokenizer *t, const char *unit, const char *end, size_t bytes);

#endif
