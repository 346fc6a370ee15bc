/* front_keys.h: API keys.
 *
 * Owns: the keys of --api-key-file and their comparison. Invariants: comparing takes the same time for every wrong key
 * of a length; keys are never printed. */
#ifndef RUNTIME_FRONT_KEYS_H
#define RUNTIME_FRONT_KEYS_H

#include "moe_error.h"

#include <stdbool.h>
#include <stddef.h>

enum { FRONT_MAX_KEYS = 64, FRONT_MAX_KEY_BYTES = 256 };

struct front_keys {
  char key[FRONT_MAX_KEYS][FRONT_MAX_KEY_BYTES]; /* terminated, zero-padded */
  size_t n_key;                                  /* 0: everybody is welcome */
};

/* Reads one key a line; empty lines and lines that start with # are skipped, spaces around a key removed.
 * Errors: MOE_FAILED: unreadable, no key in it, too many, a key too long. */
enum moe_code front_keys_read(struct front_keys *keys, const char *path, struct moe_error *err);

/* Whether the value of an Authorization field bears one of the keys; always true when there are none. */
bool front_keys_allow(const struct front_keys *keys, const char *authorization);

#endif
