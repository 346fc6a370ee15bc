/* src_gguf_impl.h: what the files of the GGUF reader share. Nobody else includes it.
 *
 * src_gguf.c opens and checks one file, src_gguf_split.c joins several, src_gguf_get.c answers questions about keys,
 * src_gguf_index.c finds names, src_gguf_file.c maps, releases and hashes. */
#ifndef COMPILER_SRC_GGUF_IMPL_H
#define COMPILER_SRC_GGUF_IMPL_H

#include "src_gguf.h"

/* A key-value pair. For a scalar, count is 1; for a string, data and bytes are its text. */
struct gguf_pair {
  const char *name;             /* NUL-terminated; first, as in struct gguf_tensor: see gguf_index */
  enum gguf_type type, element; /* element: of an array */
  uint64_t count;
  const uint8_t *data; /* in the mapping, unaligned */
  uint64_t bytes;
};

/* A hash table from names to indices of an array of records that start with `const char *name`. Linear probing, at most
 * half full, keyed hash: a file cannot choose names that collide. */
struct gguf_index {
  uint32_t *slot; /* index + 1; 0 is free */
  uint64_t mask;
  const void *record;
  size_t stride;
};

/* Names, copied and terminated; freed as a whole. */
struct gguf_names {
  struct gguf_names *next;
  size_t used, capacity;
  char text[];
};

/* An open model. Its first file is described by the members themselves; the other parts of a split one are struct gguf
 * of their own, of which only the file and the names are used once their tensors have been joined to `tensor`. */
struct gguf {
  char *path;
  int fd;
  const uint8_t *map;
  uint64_t bytes;     /* of this file */
  struct gguf **part; /* [0] is NULL and stands for this one; NULL for a model in one file */
  uint32_t n_part;    /* at least 1 once opened */
  uint32_t version, alignment;
  uint64_t n_pair, n_tensor;
  struct gguf_pair *pair;
  struct gguf_tensor *tensor;
  struct gguf_index pair_index, tensor_index;
  struct gguf_names *names;
  uint8_t hash_key[16];
};

/* Room for n records; *index keeps `record`. false without memory. */
bool gguf_index_init(struct gguf_index *index, const void *record, size_t stride, uint64_t n);
void gguf_index_deinit(struct gguf_index *index);
/* Enters record i under its name; false, and nothing entered, when the name is there already (*other: its record). */
bool gguf_index_add(struct gguf_index *index, const uint8_t hash_key[16], uint64_t i, uint64_t *other);
/* The record of a name, or NULL. */
const void *gguf_index_find(const struct gguf_index *index, const uint8_t hash_key[16], const char *name);

/* A terminated copy that lives as long as g; NULL without memory. */
const char *gguf_names_copy(struct gguf *g, const char *data, size_t bytes);
void gguf_names_free(struct gguf *g);

/* Opens one file, a part or a whole model, and checks it: gguf_open without the joining. */
enum moe_code gguf_open_file(const char *path, struct gguf **g, struct moe_error *err);

/* Opens the other parts when *g is one of several, and joins them; *g becomes the first part when it is another one. On
 * failure *g is still to be closed (it may be NULL). */
enum moe_code gguf_split_join(struct gguf **g, struct moe_error *err);

/* Opens and maps g->path read-only: sets fd, map, bytes. Declines nothing; fails for what is no regular file or too
 * short for a header. */
enum moe_code gguf_file_map(struct gguf *g, struct moe_error *err);
void gguf_file_unmap(struct gguf *g);

/* Bytes of a value of a fixed-size type; 0 for strings, arrays and unknown types. */
uint32_t gguf_type_bytes(uint32_t type);

#endif
