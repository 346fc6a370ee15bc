/* gguf_text.h: untrusted text, checked and made printable.
 *
 * Owns: the rules for names, and the printable form of any bytes. Does not own: what the text is for. */
#ifndef COMPILER_GGUF_TEXT_H
#define COMPILER_GGUF_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether bytes are valid UTF-8 (no overlong forms, no surrogates, at most U+10FFFF) without control characters (U+0000
 * to U+001F, U+007F to U+009F): what keys and tensor names must be. Source: RFC 3629. */
bool gguf_text_plain(const char *data, size_t bytes);

/* Copies bytes as valid UTF-8 without control characters: each offending byte or character becomes U+FFFD. Cut between
 * characters to fit capacity, always terminated when capacity is not 0. Returns dst. */
const char *gguf_text_printable(char *dst, size_t capacity, const char *data, size_t bytes);

#endif
