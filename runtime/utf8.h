/* utf8.h: well-formed UTF-8, one sequence at a time.
 *
 * Owns: the rule of what is well formed. Does not own: what callers put in place of what is not. No state. */
#ifndef RUNTIME_UTF8_H
#define RUNTIME_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Looks at the first sequence of s, n > 0 bytes.
 * Returns k > 0: a well-formed sequence of k bytes. k < 0: -k bytes that are part of no well-formed sequence (the
 * maximal subpart that one U+FFFD stands for). 0: all n bytes are the beginning of a sequence that could still become
 * well-formed.
 * Source: The Unicode Standard 15.0, table 3-7 and section 3.9 (U+FFFD substitution of maximal subparts). */
int utf8_next(const uint8_t *s, size_t n);

#endif
