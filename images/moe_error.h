/* moe_error.h: the one error convention of moec and moert.
 *
 * Owns: enum moe_code, struct moe_error, moe_fail(). Does not own: where an error is printed (the programs do that).
 * Invariants: a function that can fail returns enum moe_code and fills a struct moe_error; the first error wins (a
 * later moe_fail on the same struct keeps the first message); the error path never allocates. */
#ifndef IMAGES_MOE_ERROR_H
#define IMAGES_MOE_ERROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Result of a call, and, unchanged, the exit code of the programs. */
enum moe_code {
  MOE_OK = 0,
  MOE_FAILED = 1,   /* bad input, I/O, a broken file, a lost device */
  MOE_USAGE = 2,    /* the command line or the caller's arguments are wrong */
  MOE_DECLINED = 3, /* well formed, but this box or this build cannot serve it; the message says what is missing */
};

/* An error: its class and one line that says what, where, found, allowed, and what to do. */
struct moe_error {
  enum moe_code code;
  char message[1024];
};

/* Records an error, printf-style (message cut at its buffer), and returns `code`.
 * err: may be NULL (only the code is returned); keeps its first message when it already holds one.
 * Thread rules: a struct moe_error belongs to one thread. */
enum moe_code moe_fail(struct moe_error *err, enum moe_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* *product = a * b, *sum = a + b; false on overflow of uint64_t, and then the output is untouched. */
static inline bool moe_mul(uint64_t a, uint64_t b, uint64_t *product) {
  uint64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return false;
  *product = r;
  return true;
}
static inline bool moe_add(uint64_t a, uint64_t b, uint64_t *sum) {
  uint64_t r;
  if (__builtin_add_overflow(a, b, &r)) return false;
  *sum = r;
  return true;
}

/* Whether [offset, offset + bytes) lies inside [0, length), without overflow. */
static inline bool moe_inside(uint64_t offset, uint64_t bytes, uint64_t length) {
  return offset <= length && bytes <= length - offset;
}

#endif
