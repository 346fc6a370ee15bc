/* gguf_edit.c: see gguf_edit.h. */
#include "gguf_edit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *must(void *memory, const char *what) {
  if (memory != NULL) return memory;
  perror(what);
  exit(99);
}

static uint64_t take(const struct edit *e, size_t *at, size_t bytes) {
  uint64_t value = 0;
  memcpy(&value, e->bytes + *at, bytes);
  *at += bytes;
  return value;
}

static void skip_value(const struct edit *e, size_t *at, uint64_t type) {
  static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  if (type == 8) {
    uint64_t n = take(e, at, 8);
    *at += n;
  } else if (type == 9) {
    uint64_t element = take(e, at, 4), count = take(e, at, 8);
    while (count-- > 0) skip_value(e, at, element);
  } else {
    *at += bytes[type];
  }
}

static struct edit_place take_name(const struct edit *e, size_t *at) {
  struct edit_place p = {.start = *at};
  p.name_bytes = take(e, at, 8);
  p.name = (const char *)e->bytes + *at;
  *at += p.name_bytes;
  return p;
}

static void walk(struct edit *e) {
  size_t at = 8;
  e->n_tensor = take(e, &at, 8);
  e->n_key = take(e, &at, 8);
  e->key = must(calloc(e->n_key + 1, sizeof *e->key), "calloc");
  e->tensor = must(calloc(e->n_tensor + 1, sizeof *e->tensor), "calloc");
  for (size_t i = 0; i < e->n_key; i++) {
    e->key[i] = take_name(e, &at);
    skip_value(e, &at, take(e, &at, 4));
    e->key[i].end = at;
  }
  for (size_t i = 0; i < e->n_tensor; i++) {
    e->tensor[i] = take_name(e, &at);
    at += 8 * take(e, &at, 4);
    at += 4 + 8;
    e->tensor[i].end = at;
  }
  e->data = (at + 31) / 32 * 32;
}

void edit_open(struct edit *e, const char *path) {
  *e = (struct edit){0};
  FILE *file = must(fopen(path, "rb"), path);
  fseek(file, 0, SEEK_END);
  e->n = (size_t)ftell(file);
  rewind(file);
  e->bytes = must(malloc(e->n), "malloc");
  if (fread(e->bytes, 1, e->n, file) != e->n) must(NULL, path);
  fclose(file);
  walk(e);
}

void edit_close(struct edit *e) {
  free(e->bytes);
  free(e->key);
  free(e->tensor);
  *e = (struct edit){0};
}

int edit_find_key(const struct edit *e, const char *key) {
  for (size_t i = 0; i < e->n_key; i++)
    if (e->key[i].name_bytes == strlen(key) && memcmp(e->key[i].name, key, strlen(key)) == 0) return (int)i;
  return -1;
}

/* Tensor records, padding and data behind the keys that m has. */
static void finish(const struct edit *e, struct maker *m) {
  m->n_tensor = e->n_tensor;
  if (e->n_tensor != 0)
    maker_raw(m, e->bytes + e->tensor[0].start, e->tensor[e->n_tensor - 1].end - e->tensor[0].start);
  maker_data(m, 32, 0);
  if (e->data < e->n) maker_raw(m, e->bytes + e->data, e->n - e->data);
}

void edit_key(const struct edit *e, struct maker *m, const char *key, uint32_t type, const void *value, size_t bytes) {
  int old = edit_find_key(e, key);
  maker_init(m, 3);
  for (size_t i = 0; i < e->n_key; i++) {
    if ((int)i == old) continue;
    maker_raw(m, e->bytes + e->key[i].start, e->key[i].end - e->key[i].start);
    m->n_key++;
  }
  if (value != NULL) maker_key(m, key, type), maker_raw(m, value, bytes);
  finish(e, m);
}

void edit_copy(const struct edit *e, struct maker *m) {
  edit_key(e, m, "", 0, NULL, 0);
}
