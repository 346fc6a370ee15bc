/* gguf_maker.h: makes GGUF files for tests, well formed or broken on purpose.
 *
 * Owns: the bytes of one file in memory, and a nameless file to open it by. Does not own: any check; what the caller
 * asks for is written. Usage: maker_init, keys, tensors, data, maker_open; the counts in the header are kept right
 * unless n_key or n_tensor is overridden. */
#ifndef TESTS_SUPPORT_GGUF_MAKER_H
#define TESTS_SUPPORT_GGUF_MAKER_H

#include <stddef.h>
#include <stdint.h>

struct maker {
  uint8_t *bytes;
  size_t used, capacity;
  uint64_t n_key, n_tensor;
  int fd;
  char path[64];
};

/* An empty file of a version: magic, version, two counts of zero. Ends the program without memory, as all calls here.
 */
void maker_init(struct maker *m, uint32_t version);
void maker_deinit(struct maker *m);

void maker_raw(struct maker *m, const void *data, size_t bytes);
void maker_u32(struct maker *m, uint32_t value);
void maker_u64(struct maker *m, uint64_t value);
void maker_text(struct maker *m, const char *text); /* a length word and the text */

/* A key and its value's type (enum gguf_type); the caller appends the value. Counted. */
void maker_key(struct maker *m, const char *key, uint32_t type);
void maker_key_u32(struct maker *m, const char *key, uint32_t value);
void maker_key_f32(struct maker *m, const char *key, float value);
void maker_key_text(struct maker *m, const char *key, const char *text);
/* A key whose value is an array; the caller appends `count` elements. */
void maker_key_array(struct maker *m, const char *key, uint32_t element, uint64_t count);

/* A tensor's record. Counted. offset: from the start of the data. */
void maker_tensor(struct maker *m, const char *name, uint32_t n_dim, const uint64_t *dim, uint32_t format,
                  uint64_t offset);
/* Zeros up to the next multiple of `alignment`, then `bytes` of data (zeros). */
void maker_data(struct maker *m, uint32_t alignment, size_t bytes);

/* Writes the counts, puts all bytes into a nameless file and returns a path of it, valid until the next call or
 * maker_deinit. */
const char *maker_path(struct maker *m);
/* The same for `bytes` bytes at any place, counts left as they are. */
const char *maker_path_of(struct maker *m, const void *data, size_t bytes);

#endif
