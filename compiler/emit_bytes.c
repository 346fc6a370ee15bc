#include "emit_bytes.h"

#include <stdlib.h>
#include <string.h>

void emit_bytes_deinit(struct emit_bytes *b) {
  free(b->data);
  memset(b, 0, sizeof *b);
}

/* Room for n more bytes. */
static bool emit_bytes_grow(struct emit_bytes *b, uint64_t n) {
  uint64_t need, capacity = b->capacity ? b->capacity : 4096;
  if (b->failed || !moe_add(b->n, n, &need) || need > (uint64_t)PTRDIFF_MAX / 2) {
    b->failed = true;
    return false;
  }
  if (need <= b->capacity) return true;
  while (capacity < need) capacity *= 2;
  uint8_t *grown = realloc(b->data, capacity);
  if (!grown) {
    b->failed = true;
    return false;
  }
  b->data = grown;
  b->capacity = capacity;
  return true;
}

uint64_t emit_bytes_append(struct emit_bytes *b, const void *data, uint64_t n) {
  uint64_t at = b->n;
  if (n == 0 || !emit_bytes_grow(b, n)) return at;
  memcpy(b->data + at, data, n);
  b->n += n;
  return at;
}

uint64_t emit_bytes_align(struct emit_bytes *b, uint64_t align) {
  uint64_t n = (align - b->n % align) % align;
  if (n && emit_bytes_grow(b, n)) {
    memset(b->data + b->n, 0, n);
    b->n += n;
  }
  return b->n;
}

uint64_t emit_bytes_text(struct emit_bytes *b, const char *text) {
  return emit_bytes_append(b, text, strlen(text) + 1);
}

enum moe_code emit_bytes_check(const struct emit_bytes *b, const char *what, struct moe_error *err) {
  return b->failed ? moe_fail(err, MOE_FAILED, "out of memory: %s", what) : MOE_OK;
}
