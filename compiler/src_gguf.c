/* src_gguf.c: opens a GGUF and checks every byte of its header. See src_gguf.h.
 *
 * Owns: the walk over the header, all its limits and their messages. Does not own: the mapping (src_gguf_file.c), the
 * parts of a split model together (src_gguf_split.c), lookup of names (src_gguf_index.c), values (src_gguf_get.c).
 * Invariants: nothing is read before reader_take has found it inside the file; counts are compared with the bytes that
 * are left before memory is allocated for them, so memory is at most a few times the header's size. */
#include "src_gguf.h"

#include "gguf_text.h"
#include "src_gguf_impl.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  MIN_PAIR_BYTES = 8 + 1 + 4 + 1,           /* key, type, value */
  MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* name, n_dim, one dim, type, offset */
  MAX_COUNT = 1 << 20,                      /* of keys, and of tensors */
  MAX_KEY_BYTES = 65535,                    /* the specification's */
  MAX_NAME_BYTES = 255,                     /* the specification has 64 */
  DEFAULT_ALIGNMENT = 32,
  MIN_ALIGNMENT = 8,
  MAX_ALIGNMENT = 1 << 20,
};
#define MAX_DIMENSION 2147483647u

/* A position in the header, and where messages say it is: "key[3] general.name". */
struct reader {
  const struct gguf *g;
  uint64_t at;
  const char *part; /* "header", "key", "tensor" */
  uint64_t index;
  const char *name; /* NULL while it is not read yet */
  struct moe_error *err;
};

/* MOE_FAILED with "PATH: PART[INDEX] NAME: message". */
static enum moe_code __attribute__((format(printf, 2, 3))) refuse(const struct reader *r, const char *format, ...) {
  char text[600];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (r->part == NULL) return moe_fail(r->err, MOE_FAILED, "%.300s: %s", r->g->path, text);
  return moe_fail(r->err, MOE_FAILED, "%.300s: %s[%ju]%s%.255s: %s", r->g->path, r->part, (uintmax_t)r->index,
                  r->name == NULL ? "" : " ", r->name == NULL ? "" : r->name, text);
}

/* The next `bytes` bytes, after checking that the file has them. */
static enum moe_code take(struct reader *r, uint64_t bytes, const char *what, const uint8_t **data) {
  if (!moe_inside(r->at, bytes, r->g->bytes))
    return refuse(r, "truncated file: %s needs %ju bytes at byte %ju, the file has %ju bytes", what, (uintmax_t)bytes,
                  (uintmax_t)r->at, (uintmax_t)r->g->bytes);
  *data = r->g->map + r->at;
  r->at += bytes;
  return MOE_OK;
}

static enum moe_code take_u32(struct reader *r, const char *what, uint32_t *value) {
  const uint8_t *data = NULL;
  enum moe_code code = take(r, sizeof *value, what, &data);
  if (code == MOE_OK) memcpy(value, data, sizeof *value);
  return code;
}

static enum moe_code take_u64(struct reader *r, const char *what, uint64_t *value) {
  const uint8_t *data = NULL;
  enum moe_code code = take(r, sizeof *value, what, &data);
  if (code == MOE_OK) memcpy(value, data, sizeof *value);
  return code;
}

/* A length word and its text. */
static enum moe_code take_string(struct reader *r, const char *what, struct gguf_string *s) {
  uint64_t bytes;
  const uint8_t *data;
  enum moe_code code = take_u64(r, what, &bytes);
  if (code == MOE_OK) code = take(r, bytes, what, &data);
  if (code == MOE_OK) *s = (struct gguf_string){(const char *)data, bytes};
  return code;
}

/* A key or a tensor name, checked and copied. */
static enum moe_code take_name(struct gguf *g, struct reader *r, const char *what, uint64_t most, const char **name) {
  struct gguf_string s;
  enum moe_code code = take_string(r, what, &s);
  if (code != MOE_OK) return code;
  if (s.bytes == 0 || s.bytes > most)
    return refuse(r, "%s of %zu bytes, allowed 1 to %ju", what, s.bytes, (uintmax_t)most);
  if (!gguf_text_plain(s.data, s.bytes)) {
    char printable[128];
    return refuse(r, "%s is not valid UTF-8 or has control characters: \"%s\"", what,
                  gguf_text_printable(printable, sizeof printable, s.data, s.bytes));
  }
  *name = gguf_names_copy(g, s.data, s.bytes);
  if (*name == NULL) return refuse(r, "out of memory for %s of %zu bytes", what, s.bytes);
  r->name = *name;
  return MOE_OK;
}

/* ---- Keys ---- */

static enum moe_code check_bools(const struct reader *r, const uint8_t *data, uint64_t count) {
  for (uint64_t i = 0; i < count; i++)
    if (data[i] > 1) return refuse(r, "a bool has the value %u, allowed 0 and 1", data[i]);
  return MOE_OK;
}

/* `count` values of `type` that is no array; sets pair->data and pair->bytes. */
static enum moe_code read_values(struct reader *r, uint32_t type, uint64_t count, struct gguf_pair *pair) {
  uint64_t start = r->at, bytes;
  uint32_t size = gguf_type_bytes(type);
  if (type == GGUF_STRING) { /* of an array: data includes the length words */
    if (count > (r->g->bytes - r->at) / 8)
      return refuse(r, "truncated file: %ju strings need at least 8 bytes each, %ju bytes are left", (uintmax_t)count,
                    (uintmax_t)(r->g->bytes - r->at));
    struct gguf_string s;
    for (uint64_t i = 0; i < count; i++) {
      enum moe_code code = take_string(r, "a string of the array", &s);
      if (code != MOE_OK) return code;
    }
    pair->data = r->g->map + start;
    pair->bytes = r->at - start;
    return MOE_OK;
  }
  if (size == 0) return refuse(r, "unknown value type %u, allowed 0 to 12", type);
  if (!moe_mul(count, size, &bytes))
    return refuse(r, "an array of %ju values of %u bytes exceeds 2^64 bytes", (uintmax_t)count, size);
  enum moe_code code = take(r, bytes, "the value", &pair->data);
  if (code != MOE_OK) return code;
  pair->bytes = bytes;
  return type == GGUF_BOOL ? check_bools(r, pair->data, count) : MOE_OK;
}

static enum moe_code read_array(struct reader *r, struct gguf_pair *pair) {
  uint32_t element;
  enum moe_code code = take_u32(r, "the array's element type", &element);
  if (code == MOE_OK) code = take_u64(r, "the array's length", &pair->count);
  if (code != MOE_OK) return code;
  if (element == GGUF_ARRAY) return refuse(r, "an array of arrays, which is not supported");
  pair->element = (enum gguf_type)element;
  return read_values(r, element, pair->count, pair);
}

static enum moe_code read_pair(struct gguf *g, struct reader *r, struct gguf_pair *pair) {
  uint32_t type;
  struct gguf_string s;
  enum moe_code code = take_name(g, r, "the key", MAX_KEY_BYTES, &pair->name);
  if (code == MOE_OK) code = take_u32(r, "the value's type", &type);
  if (code != MOE_OK) return code;
  pair->type = (enum gguf_type)type;
  pair->count = 1;
  if (type == GGUF_ARRAY) return read_array(r, pair);
  if (type != GGUF_STRING) return read_values(r, type, 1, pair);
  code = take_string(r, "the string", &s);
  if (code == MOE_OK) {
    pair->data = (const uint8_t *)s.data;
    pair->bytes = s.bytes;
  }
  return code;
}

/* Zeroed memory for `count` records of which each has at least `least` bytes in the file. */
static enum moe_code allocate(const struct reader *r, uint64_t count, uint64_t least, size_t size, const char *what,
                              void **memory) {
  uint64_t left = r->g->bytes - r->at;
  if (count > left / least)
    return refuse(r, "truncated file: the header has %ju %s of at least %ju bytes each, %ju bytes are left",
                  (uintmax_t)count, what, (uintmax_t)least, (uintmax_t)left);
  if (count > MAX_COUNT) return refuse(r, "the header has %ju %s, allowed %d", (uintmax_t)count, what, MAX_COUNT);
  *memory = calloc(count == 0 ? 1 : count, size);
  return *memory == NULL ? refuse(r, "out of memory for %ju %s", (uintmax_t)count, what) : MOE_OK;
}

static enum moe_code read_pairs(struct gguf *g, struct reader *r) {
  void *memory;
  enum moe_code code = allocate(r, g->n_pair, MIN_PAIR_BYTES, sizeof *g->pair, "keys", &memory);
  if (code != MOE_OK) return code;
  g->pair = memory;
  if (!gguf_index_init(&g->pair_index, g->pair, sizeof *g->pair, g->n_pair))
    return refuse(r, "out of memory for the keys' index");
  r->part = "key";
  for (uint64_t i = 0, other; i < g->n_pair; i++) {
    r->index = i, r->name = NULL;
    code = read_pair(g, r, &g->pair[i]);
    if (code != MOE_OK) return code;
    if (!gguf_index_add(&g->pair_index, g->hash_key, i, &other))
      return refuse(r, "duplicate key, already at key[%ju]", (uintmax_t)other);
  }
  r->part = NULL;
  return MOE_OK;
}

/* ---- Tensors ---- */

/* "2048 x 768 x 128" of the tensor's dimensions. */
static const char *shape(const struct gguf_tensor *t, char *text, size_t capacity) {
  size_t used = 0;
  for (uint32_t i = 0; i < t->n_dim && used < capacity; i++)
    used += (size_t)snprintf(text + used, capacity - used, "%s%ju", i == 0 ? "" : " x ", (uintmax_t)t->dim[i]);
  return text;
}

static enum moe_code read_dimensions(struct reader *r, struct gguf_tensor *t) {
  enum moe_code code = take_u32(r, "the number of dimensions", &t->n_dim);
  if (code != MOE_OK) return code;
  if (t->n_dim == 0 || t->n_dim > GGUF_MAX_DIM)
    return refuse(r, "%u dimensions, allowed 1 to %d", t->n_dim, GGUF_MAX_DIM);
  t->n_element = 1;
  for (uint32_t i = 0; i < GGUF_MAX_DIM; i++) t->dim[i] = 1;
  for (uint32_t i = 0; i < t->n_dim; i++) {
    code = take_u64(r, "a dimension", &t->dim[i]);
    if (code != MOE_OK) return code;
    if (t->dim[i] == 0 || t->dim[i] > MAX_DIMENSION)
      return refuse(r, "dimension %u is %ju, allowed 1 to %u", i, (uintmax_t)t->dim[i], MAX_DIMENSION);
  }
  char text[128];
  for (uint32_t i = 0; i < t->n_dim; i++)
    if (!moe_mul(t->n_element, t->dim[i], &t->n_element))
      return refuse(r, "the dimensions %s overflow 64 bits", shape(t, text, sizeof text));
  return MOE_OK;
}

static enum moe_code read_tensor(struct gguf *g, struct reader *r, struct gguf_tensor *t) {
  enum moe_code code = take_name(g, r, "the name", MAX_NAME_BYTES, &t->name);
  if (code == MOE_OK) code = read_dimensions(r, t);
  if (code == MOE_OK) code = take_u32(r, "the format", &t->format_number);
  if (code == MOE_OK) code = take_u64(r, "the offset", &t->offset);
  if (code != MOE_OK) return code;
  if (t->offset % g->alignment != 0)
    return refuse(r, "its offset %ju is no multiple of the alignment %u", (uintmax_t)t->offset, g->alignment);
  t->format = format_find(t->format_number);
  if (t->format == NULL) return MOE_OK;
  if (t->dim[0] % t->format->elements != 0)
    return refuse(r, "%ju columns, format %s needs a multiple of %u", (uintmax_t)t->dim[0], t->format->name,
                  t->format->elements);
  char text[128];
  if (!moe_mul(t->n_element / t->format->elements, t->format->bytes, &t->bytes))
    return refuse(r, "the bytes of %s weights in format %s overflow 64 bits", shape(t, text, sizeof text),
                  t->format->name);
  return MOE_OK;
}

static enum moe_code read_tensors(struct gguf *g, struct reader *r) {
  void *memory;
  enum moe_code code = allocate(r, g->n_tensor, MIN_TENSOR_BYTES, sizeof *g->tensor, "tensors", &memory);
  if (code != MOE_OK) return code;
  g->tensor = memory;
  if (!gguf_index_init(&g->tensor_index, g->tensor, sizeof *g->tensor, g->n_tensor))
    return refuse(r, "out of memory for the tensors' index");
  r->part = "tensor";
  for (uint64_t i = 0, other; i < g->n_tensor; i++) {
    r->index = i, r->name = NULL;
    code = read_tensor(g, r, &g->tensor[i]);
    if (code != MOE_OK) return code;
    if (!gguf_index_add(&g->tensor_index, g->hash_key, i, &other))
      return refuse(r, "duplicate tensor name, already at tensor[%ju]", (uintmax_t)other);
  }
  r->part = NULL;
  return MOE_OK;
}

/* Finds every tensor's data behind the header, aligned, and inside the file. */
static enum moe_code place_data(struct gguf *g, struct reader *r) {
  uint64_t base = (r->at + g->alignment - 1) / g->alignment * g->alignment; /* r->at is at most the file's size */
  r->part = "tensor";
  for (uint64_t i = 0; i < g->n_tensor; i++) {
    struct gguf_tensor *t = &g->tensor[i];
    r->index = i, r->name = t->name;
    uint64_t first, end;
    if (!moe_add(base, t->offset, &first) || !moe_add(first, t->bytes, &end))
      return refuse(r, "its data at offset %ju overflow 64 bits", (uintmax_t)t->offset);
    if (end > g->bytes)
      return refuse(r, "truncated file: its data need %ju bytes at byte %ju, the file has %ju bytes",
                    (uintmax_t)t->bytes, (uintmax_t)first, (uintmax_t)g->bytes);
    t->offset = first;
    t->data = g->map + first;
  }
  r->part = NULL;
  return MOE_OK;
}

static int compare_offset(const void *a, const void *b) {
  const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a, *y = *(const struct gguf_tensor *const *)b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return (x > y) - (x < y);
}

/* No two tensors share bytes: else a small file could describe a model of any size. */
static enum moe_code check_overlap(const struct gguf *g, struct reader *r) {
  const struct gguf_tensor **order = malloc((g->n_tensor + 1) * sizeof *order);
  if (order == NULL) return refuse(r, "out of memory to sort %ju tensors", (uintmax_t)g->n_tensor);
  for (uint64_t i = 0; i < g->n_tensor; i++) order[i] = &g->tensor[i];
  qsort(order, g->n_tensor, sizeof *order, compare_offset);
  enum moe_code code = MOE_OK;
  for (uint64_t i = 1; i < g->n_tensor && code == MOE_OK; i++) {
    const struct gguf_tensor *before = order[i - 1], *t = order[i];
    if (t->offset - before->offset >= before->bytes) continue;
    r->part = "tensor", r->index = (uint64_t)(t - g->tensor), r->name = t->name;
    code = refuse(r, "its data at byte %ju overlap those of tensor[%ju] %s", (uintmax_t)t->offset,
                  (uintmax_t)(before - g->tensor), before->name);
  }
  free(order);
  return code;
}

/* ---- Header ---- */

/* What the first eight bytes say that is not a GGUF of version 2 or 3. */
static enum moe_code check_magic(struct gguf *g, struct moe_error *err) {
  const uint8_t *p = g->map;
  static const char *const older[] = {"lmgg", "fmgg", "tjgg",
                                      "algg"}; /* "ggml", "ggmf", "ggjt", "ggla" as little-endian words */
  for (size_t i = 0; i < sizeof older / sizeof older[0]; i++)
    if (memcmp(p, older[i], 4) == 0)
      return moe_fail(err, MOE_DECLINED, "%.300s: a %c%c%c%c file, older than GGUF; convert the model to GGUF again",
                      g->path, p[3], p[2], p[1], p[0]);
  memcpy(&g->version, p + 4, sizeof g->version);
  bool swapped = memcmp(p, "FUGG", 4) == 0 || (g->version != 0 && (g->version & 0xffff) == 0);
  if (swapped && (memcmp(p, "FUGG", 4) == 0 || memcmp(p, "GGUF", 4) == 0))
    return moe_fail(
        err, MOE_DECLINED,
        "%.300s: a big-endian GGUF (version %u), made for a big-endian machine; moec reads little-endian "
        "ones: take that file of the model, or convert this one (gguf-convert-endian of llama.cpp's gguf-py)",
        g->path, __builtin_bswap32(g->version));
  if (memcmp(p, "GGUF", 4) != 0)
    return moe_fail(err, MOE_FAILED, "%.300s: not a GGUF file: it starts with %02x %02x %02x %02x, not with \"GGUF\"",
                    g->path, p[0], p[1], p[2], p[3]);
  if (g->version == 2 || g->version == 3) return MOE_OK;
  if (g->version == 1)
    return moe_fail(err, MOE_DECLINED,
                    "%.300s: GGUF version 1, which is not read; versions 2 and 3 are: convert the model again",
                    g->path);
  return moe_fail(err, MOE_DECLINED, "%.300s: GGUF version %u is unknown; versions 2 and 3 are read", g->path,
                  g->version);
}

static enum moe_code check_alignment(struct gguf *g, struct reader *r) {
  enum moe_code code = gguf_get_u32_or(g, "general.alignment", DEFAULT_ALIGNMENT, &g->alignment, r->err);
  if (code != MOE_OK) return code;
  uint32_t a = g->alignment;
  if (a < MIN_ALIGNMENT || a > MAX_ALIGNMENT || (a & (a - 1)) != 0)
    return refuse(r, "general.alignment is %u, allowed are powers of two from %d to %d", a, MIN_ALIGNMENT,
                  MAX_ALIGNMENT);
  return MOE_OK;
}

static enum moe_code read_all(struct gguf *g, struct moe_error *err) {
  enum moe_code code = gguf_file_map(g, err);
  if (code == MOE_OK) code = check_magic(g, err);
  if (code != MOE_OK) return code;
  struct reader r = {.g = g, .at = 8, .err = err};
  code = take_u64(&r, "the number of tensors", &g->n_tensor);
  if (code == MOE_OK) code = take_u64(&r, "the number of keys", &g->n_pair);
  if (code == MOE_OK) code = read_pairs(g, &r);
  if (code == MOE_OK) code = check_alignment(g, &r);
  if (code == MOE_OK) code = read_tensors(g, &r);
  if (code == MOE_OK) code = place_data(g, &r);
  if (code == MOE_OK) code = check_overlap(g, &r);
  return code;
}

enum moe_code gguf_open_file(const char *path, struct gguf **out, struct moe_error *err) {
  *out = NULL;
  struct gguf *g = calloc(1, sizeof *g);
  if (g == NULL) return moe_fail(err, MOE_FAILED, "out of memory to open %.300s", path);
  g->fd = -1;
  g->n_part = 1;
  g->path = strdup(path);
  enum moe_code code = MOE_OK;
  if (g->path == NULL) code = moe_fail(err, MOE_FAILED, "out of memory to open %.300s", path);
  if (code == MOE_OK && sodium_init() < 0) code = moe_fail(err, MOE_FAILED, "libsodium cannot be initialized");
  if (code == MOE_OK) {
    randombytes_buf(g->hash_key, sizeof g->hash_key);
    code = read_all(g, err);
  }
  if (code != MOE_OK) {
    gguf_close(g);
    return code;
  }
  *out = g;
  return MOE_OK;
}

enum moe_code gguf_open(const char *path, struct gguf **g, struct moe_error *err) {
  enum moe_code code = gguf_open_file(path, g, err);
  if (code == MOE_OK) code = gguf_split_join(g, err);
  if (code != MOE_OK) {
    gguf_close(*g);
    *g = NULL;
  }
  return code;
}

void gguf_close(struct gguf *g) {
  if (g == NULL) return;
  for (uint32_t i = 1; i < g->n_part; i++) gguf_close(g->part[i]);
  free(g->part);
  gguf_index_deinit(&g->pair_index);
  gguf_index_deinit(&g->tensor_index);
  gguf_names_free(g);
  gguf_file_unmap(g);
  free(g->pair);
  free(g->tensor);
  free(g->path);
  free(g);
}
