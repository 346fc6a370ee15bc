/* formats.c: the rows of formats.def as a constant table, and lookups in it.
 *
 * Owns: the table. Does not own: the functions that rows point at (dequant_*.c, pack_*.c).
 * Invariants: rows are sorted by GGUF number, so lookup is a binary search. */
#include "formats.h"

#include "dequant.h"
#include "pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* The number of initializers in a row's list of sub-planes. */
#define COUNT_SUB(...) (sizeof((struct format_sub[]){__VA_ARGS__}) / sizeof(struct format_sub))

static const struct format table[] = {
#define FORMAT_COMPILED(number_, name_, symbol_, elements_, bytes_, ...)                                               \
  {.number = number_,                                                                                                  \
   .name = #name_,                                                                                                     \
   .symbol = #symbol_,                                                                                                 \
   .elements = elements_,                                                                                              \
   .bytes = bytes_,                                                                                                    \
   .n_sub = COUNT_SUB(__VA_ARGS__),                                                                                    \
   .sub = {__VA_ARGS__},                                                                                               \
   .dequant_row = dequant_##symbol_##_row,                                                                             \
   .pack_row = pack_##symbol_##_row,                                                                                   \
   .read_row = pack_##symbol_##_read_row},
#define FORMAT_NAMED(number_, name_, elements_, bytes_)                                                                \
  {.number = number_, .name = #name_, .elements = elements_, .bytes = bytes_},
#include "formats.def"
};

#define N_FORMAT (sizeof table / sizeof table[0])

static int compare_number(const void *key, const void *row) {
  uint32_t a = *(const uint32_t *)key, b = ((const struct format *)row)->number;
  return (a > b) - (a < b);
}

const struct format *format_find(uint32_t number) {
  return bsearch(&number, table, N_FORMAT, sizeof table[0], compare_number);
}

const struct format *format_find_name(const char *name) {
  for (size_t i = 0; i < N_FORMAT; i++)
    if (strcasecmp(table[i].name, name) == 0) return &table[i];
  return NULL;
}

uint32_t format_count(void) {
  return (uint32_t)N_FORMAT;
}

const struct format *format_at(uint32_t index) {
  return &table[index];
}

bool format_compiled(const struct format *f) {
  return f != NULL && f->n_sub != 0;
}

bool format_row_bytes(const struct format *f, uint64_t n_in, uint64_t *bytes) {
  if (n_in == 0 || n_in % f->elements != 0) return false;
  return moe_mul(n_in / f->elements, f->bytes, bytes);
}

const char *format_list_compiled(char *text, size_t capacity) {
  size_t used = 0;
  if (capacity != 0) text[0] = '\0';
  for (size_t i = 0; i < N_FORMAT && used < capacity; i++) {
    if (!format_compiled(&table[i])) continue;
    used += (size_t)snprintf(text + used, capacity - used, "%s%s", used == 0 ? "" : ", ", table[i].name);
  }
  return text;
}

enum moe_code format_require(uint32_t number, const char *tensor_name, struct moe_error *err) {
  const struct format *f = format_find(number);
  if (format_compiled(f)) return MOE_OK;
  char supported[384];
  format_list_compiled(supported, sizeof supported);
  if (f == NULL)
    return moe_fail(err, MOE_DECLINED,
                    "format number %u of tensor %s is unknown to this version of moec; supported: %s", number,
                    tensor_name, supported);
  return moe_fail(err, MOE_DECLINED, "format %s of tensor %s is not compiled yet; supported: %s", f->name, tensor_name,
                  supported);
}
