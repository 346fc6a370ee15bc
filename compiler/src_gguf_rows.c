/* src_gguf_rows.c: where a row of a tensor, or of a row view, lies. Owns: gguf_row, gguf_row_run. */
#include "src_gguf.h"

/* Bytes of a row: rows are whole blocks of their format. */
static uint64_t gguf_row_bytes(const struct gguf_tensor *t) {
  return t->dim[0] / t->format->elements * t->format->bytes;
}

const uint8_t *gguf_row(const struct gguf_tensor *t, uint64_t row) {
  const struct gguf_rows *v = t->rows;
  if (!v) return t->data + row * gguf_row_bytes(t);
  uint64_t matrix = row / t->dim[1], r = row % t->dim[1];
  return gguf_row(v->whole, matrix * v->whole->dim[1] + v->first + r / v->run * v->period + r % v->run);
}

uint64_t gguf_row_run(const struct gguf_tensor *t, uint64_t row) {
  uint64_t r = row % t->dim[1], left = t->dim[1] - r;
  if (!t->rows) return left;
  uint64_t run = t->rows->run - r % t->rows->run;
  return run < left ? run : left;
}
