/* random_text.h: random Unicode text with what trips tokenizers: all planes, combining marks, emoji held together by
 * joiners, runs of white space, control characters, contractions, digits. Valid UTF-8; a function of the seed alone. */
#ifndef TESTS_SUPPORT_RANDOM_TEXT_H
#define TESTS_SUPPORT_RANDOM_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Room for a text of at most n units: a unit has up to 8 characters of up to 4 bytes. */
#define RANDOM_TEXT_BYTES(n) ((n)*32 + 1)

/* The next random number; the state must not be 0. Source: Marsaglia 2003, Xorshift RNGs. */
uint64_t random_next(uint64_t *state);

/* Writes up to max_units units and a NUL that does not count. Returns the bytes. U+0000 and U+2581 are left out: the
 * former ends C strings in messages, the latter is a space to SentencePiece. */
size_t random_text(uint64_t *state, char *out, size_t max_units);

#endif
