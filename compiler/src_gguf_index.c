/* src_gguf_index.c: names of keys and tensors: storage and lookup. See src_gguf_impl.h. */
#include "src_gguf_impl.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_CHUNK = 64 * 1024 };

bool gguf_index_init(struct gguf_index *index, const void *record, size_t stride, uint64_t n) {
  uint64_t capacity = 8;
  while (capacity < 2 * n) capacity *= 2;
  *index = (struct gguf_index){.mask = capacity - 1, .record = record, .stride = stride};
  index->slot = calloc(capacity, sizeof *index->slot);
  return index->slot != NULL;
}

void gguf_index_deinit(struct gguf_index *index) {
  free(index->slot);
  *index = (struct gguf_index){0};
}

static const char *name_of(const struct gguf_index *index, uint64_t i) {
  const char *name;
  memcpy(&name, (const char *)index->record + i * index->stride, sizeof name);
  return name;
}

/* The slot that holds the name, or the free one where it belongs. */
static uint64_t find_slot(const struct gguf_index *index, const uint8_t hash_key[16], const char *name) {
  uint8_t hash[crypto_shorthash_BYTES];
  uint64_t at;
  crypto_shorthash(hash, (const uint8_t *)name, strlen(name), hash_key);
  memcpy(&at, hash, sizeof at);
  for (at &= index->mask; index->slot[at] != 0; at = (at + 1) & index->mask)
    if (strcmp(name_of(index, index->slot[at] - 1), name) == 0) break;
  return at;
}

bool gguf_index_add(struct gguf_index *index, const uint8_t hash_key[16], uint64_t i, uint64_t *other) {
  uint64_t at = find_slot(index, hash_key, name_of(index, i));
  if (index->slot[at] != 0) {
    *other = index->slot[at] - 1;
    return false;
  }
  index->slot[at] = (uint32_t)(i + 1);
  return true;
}

const void *gguf_index_find(const struct gguf_index *index, const uint8_t hash_key[16], const char *name) {
  uint64_t at = find_slot(index, hash_key, name);
  if (index->slot[at] == 0) return NULL;
  return (const char *)index->record + (index->slot[at] - 1) * index->stride;
}

const char *gguf_names_copy(struct gguf *g, const char *data, size_t bytes) {
  struct gguf_names *chunk = g->names;
  if (chunk == NULL || chunk->capacity - chunk->used <= bytes) {
    size_t capacity = bytes < NAMES_CHUNK ? NAMES_CHUNK : bytes + 1;
    chunk = malloc(sizeof *chunk + capacity);
    if (chunk == NULL) return NULL;
    *chunk = (struct gguf_names){.next = g->names, .capacity = capacity};
    g->names = chunk;
  }
  char *copy = chunk->text + chunk->used;
  memcpy(copy, data, bytes);
  copy[bytes] = '\0';
  chunk->used += bytes + 1;
  return copy;
}

void gguf_names_free(struct gguf *g) {
  while (g->names != NULL) {
    struct gguf_names *next = g->names->next;
    free(g->names);
    g->names = next;
  }
}
