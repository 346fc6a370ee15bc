/* emit_bytes.h: a growing array of bytes, of which sections are made.
 *
 * Owns: the memory. Invariants: sticky failure: after a failed allocation appends do nothing and emit_bytes_check
 * reports it once, at the end. */
#ifndef COMPILER_EMIT_BYTES_H
#define COMPILER_EMIT_BYTES_H

#include "moe_error.h"

/* All zero: empty. */
struct emit_bytes {
  uint8_t *data;
  uint64_t n, capacity;
  bool failed;
};

void emit_bytes_deinit(struct emit_bytes *b);

/* Appends n bytes; returns the offset where they start. */
uint64_t emit_bytes_append(struct emit_bytes *b, const void *data, uint64_t n);

/* Appends zeros up to a multiple of `align`; returns the new size. */
uint64_t emit_bytes_align(struct emit_bytes *b, uint64_t align);

/* Appends a text with its NUL. */
uint64_t emit_bytes_text(struct emit_bytes *b, const char *text);

/* MOE_FAILED when an append ran out of memory. what: for the message. */
enum moe_code emit_bytes_check(const struct emit_bytes *b, const char *what, struct moe_error *err);

#endif
