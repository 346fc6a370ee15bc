/* front_text.h: the text of one answer as its tokens arrive: whole characters only, up to a stop string.
 *
 * Owns: bytes that are held back because they are half a character or may become a stop string. Does not own: tokens.
 * Invariants: what is given out is valid UTF-8 and is never taken back: its last bytes are the beginning of no stop
 * string; after a stop string was found nothing more comes. Bytes that are in no well-formed sequence become U+FFFD.
 * Thread rules: an object belongs to one thread. */
#ifndef RUNTIME_FRONT_TEXT_H
#define RUNTIME_FRONT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FRONT_MAX_STOP = 4 };

struct front_text {
  char *stop[FRONT_MAX_STOP]; /* owned; not empty */
  size_t n_stop;
  uint8_t half[8]; /* the beginning of a character */
  size_t n_half;
  char *held;              /* well-formed text that was not taken yet */
  size_t n_held, capacity; /* bytes in held; allocated */
  size_t n_ready;          /* of held: may be taken */
  size_t n_taken;          /* bytes taken so far */
  bool stopped;            /* a stop string was found; it and what follows are gone */
};

/* Starts empty. The strings move into the object. */
void front_text_init(struct front_text *t, char **stop, size_t n_stop);
void front_text_deinit(struct front_text *t);

/* Appends the bytes of a token. Returns false when memory is out. Does nothing once stopped. */
bool front_text_add(struct front_text *t, const char *bytes, size_t n);

/* No more tokens: half a character becomes U+FFFD, and everything held is ready. False when memory is out. */
bool front_text_finish(struct front_text *t);

/* What may be given out now: *n bytes, valid until the next call that changes t. */
const char *front_text_ready(const struct front_text *t, size_t *n);

/* Forgets what front_text_ready showed: it was given out. */
void front_text_drop(struct front_text *t);

/* Where the next token's text begins, in bytes of the whole answer. */
size_t front_text_end(const struct front_text *t);

#endif
