/* gguf_edit.h: a well-formed GGUF taken apart, and put together again with something in it changed.
 *
 * Owns: the places of keys and tensors in a file's bytes. Does not own: making files from nothing (gguf_maker.h), any
 * check of ours; the file must be one that gguf_open takes. Ends the program without memory. */
#ifndef TESTS_SUPPORT_GGUF_EDIT_H
#define TESTS_SUPPORT_GGUF_EDIT_H

#include "gguf_maker.h"

#include <stdbool.h>

/* Bytes [start, end) of a pair or a tensor's record. */
struct edit_place {
  const char *name; /* in the bytes, not terminated */
  size_t name_bytes, start, end;
};

struct edit {
  uint8_t *bytes;
  size_t n;
  struct edit_place *key, *tensor;
  size_t n_key, n_tensor;
  size_t data; /* where the tensors' data start */
};

/* Reads a file. Ends the program when it cannot. */
void edit_open(struct edit *e, const char *path);
void edit_close(struct edit *e);

/* The key's index, or -1. */
int edit_find_key(const struct edit *e, const char *key);

/* The file with the key `key` replaced or added (type and value as in the file; value NULL: taken out), in m, which is
 * initialized here; maker_path opens it. alignment of the data: 32. */
void edit_key(const struct edit *e, struct maker *m, const char *key, uint32_t type, const void *value, size_t bytes);

/* A copy of the file in m, for changes in place: all stands where it stands in e. */
void edit_copy(const struct edit *e, struct maker *m);

#endif
