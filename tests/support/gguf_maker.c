/* gguf_maker.c: see gguf_maker.h. */
#include "gguf_maker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void must(int condition, const char *what) {
  if (condition) return;
  perror(what);
  exit(99);
}

void maker_init(struct maker *m, uint32_t version) {
  *m = (struct maker){.fd = -1};
  maker_raw(m, "GGUF", 4);
  maker_u32(m, version);
  maker_u64(m, 0);
  maker_u64(m, 0);
}

void maker_deinit(struct maker *m) {
  free(m->bytes);
  if (m->fd >= 0) close(m->fd);
  *m = (struct maker){.fd = -1};
}

void maker_raw(struct maker *m, const void *data, size_t bytes) {
  if (m->capacity - m->used < bytes) {
    m->capacity = 2 * (m->used + bytes);
    m->bytes = realloc(m->bytes, m->capacity);
    must(m->bytes != NULL, "realloc");
  }
  if (bytes != 0) memcpy(m->bytes + m->used, data, bytes);
  m->used += bytes;
}

void maker_u32(struct maker *m, uint32_t value) {
  maker_raw(m, &value, sizeof value);
}
void maker_u64(struct maker *m, uint64_t value) {
  maker_raw(m, &value, sizeof value);
}

void maker_text(struct maker *m, const char *text) {
  maker_u64(m, strlen(text));
  maker_raw(m, text, strlen(text));
}

void maker_key(struct maker *m, const char *key, uint32_t type) {
  maker_text(m, key);
  maker_u32(m, type);
  m->n_key++;
}

void maker_key_u32(struct maker *m, const char *key, uint32_t value) {
  maker_key(m, key, 4);
  maker_u32(m, value);
}

void maker_key_f32(struct maker *m, const char *key, float value) {
  maker_key(m, key, 6);
  maker_raw(m, &value, sizeof value);
}

void maker_key_text(struct maker *m, const char *key, const char *text) {
  maker_key(m, key, 8);
  maker_text(m, text);
}

void maker_key_array(struct maker *m, const char *key, uint32_t element, uint64_t count) {
  maker_key(m, key, 9);
  maker_u32(m, element);
  maker_u64(m, count);
}

void maker_tensor(struct maker *m, const char *name, uint32_t n_dim, const uint64_t *dim, uint32_t format,
                  uint64_t offset) {
  maker_text(m, name);
  maker_u32(m, n_dim);
  for (uint32_t i = 0; i < n_dim; i++) maker_u64(m, dim[i]);
  maker_u32(m, format);
  maker_u64(m, offset);
  m->n_tensor++;
}

void maker_data(struct maker *m, uint32_t alignment, size_t bytes) {
  size_t pad = (alignment - m->used % alignment) % alignment;
  uint8_t *zeros = calloc(1, pad + bytes + 1);
  must(zeros != NULL, "calloc");
  maker_raw(m, zeros, pad + bytes);
  free(zeros);
}

const char *maker_path(struct maker *m) {
  memcpy(m->bytes + 8, &m->n_tensor, sizeof m->n_tensor);
  memcpy(m->bytes + 16, &m->n_key, sizeof m->n_key);
  return maker_path_of(m, m->bytes, m->used);
}

const char *maker_path_of(struct maker *m, const void *data, size_t bytes) {
  if (m->fd < 0) m->fd = memfd_create("gguf_maker", MFD_CLOEXEC);
  must(m->fd >= 0, "memfd_create");
  must(ftruncate(m->fd, 0) == 0, "ftruncate");
  for (size_t done = 0; done < bytes;) {
    ssize_t n = pwrite(m->fd, (const uint8_t *)data + done, bytes - done, (off_t)done);
    must(n > 0, "pwrite");
    done += (size_t)n;
  }
  snprintf(m->path, sizeof m->path, "/proc/self/fd/%d", m->fd);
  return m->path;
}
