/* src_gguf_get.c: answers about an open GGUF: its numbers, keys, values and tensors. See src_gguf.h.
 *
 * Owns: conversions between value types and the messages about keys. Does not own: checks of the file (src_gguf.c). */
#include "src_gguf.h"

#include "src_gguf_impl.h"

#include <string.h>

const char *gguf_path(const struct gguf *g) {
  return g->path;
}
uint32_t gguf_version(const struct gguf *g) {
  return g->version;
}
uint64_t gguf_file_bytes(const struct gguf *g) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < g->n_part; i++) bytes += gguf_part_bytes(g, i);
  return bytes;
}
uint32_t gguf_n_part(const struct gguf *g) {
  return g->n_part;
}
const char *gguf_part_path(const struct gguf *g, uint32_t part) {
  return part == 0 ? g->path : g->part[part]->path;
}
uint64_t gguf_part_bytes(const struct gguf *g, uint32_t part) {
  return part == 0 ? g->bytes : g->part[part]->bytes;
}
uint32_t gguf_alignment(const struct gguf *g) {
  return g->alignment;
}
uint64_t gguf_n_key(const struct gguf *g) {
  return g->n_pair;
}
uint64_t gguf_n_tensor(const struct gguf *g) {
  return g->n_tensor;
}
const struct gguf_tensor *gguf_tensor(const struct gguf *g, uint64_t index) {
  return &g->tensor[index];
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name) {
  return gguf_index_find(&g->tensor_index, g->hash_key, name);
}

const char *gguf_key(const struct gguf *g, uint64_t index, enum gguf_type *type) {
  if (type != NULL) *type = g->pair[index].type;
  return g->pair[index].name;
}

static const struct gguf_pair *find(const struct gguf *g, const char *key) {
  return gguf_index_find(&g->pair_index, g->hash_key, key);
}

bool gguf_has(const struct gguf *g, const char *key) {
  return find(g, key) != NULL;
}

/* ---- Types ---- */

static const struct {
  const char *name;
  uint32_t bytes;
} types[] = {
    [GGUF_U8] = {"u8", 1},         [GGUF_I8] = {"i8", 1},       [GGUF_U16] = {"u16", 2}, [GGUF_I16] = {"i16", 2},
    [GGUF_U32] = {"u32", 4},       [GGUF_I32] = {"i32", 4},     [GGUF_F32] = {"f32", 4}, [GGUF_BOOL] = {"bool", 1},
    [GGUF_STRING] = {"string", 0}, [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8}, [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

const char *gguf_type_name(enum gguf_type type) {
  return (size_t)type < sizeof types / sizeof types[0] ? types[type].name : "unknown";
}

uint32_t gguf_type_bytes(uint32_t type) {
  return type < sizeof types / sizeof types[0] ? types[type].bytes : 0;
}

static bool is_integer(enum gguf_type type) {
  return gguf_type_bytes(type) != 0 && type != GGUF_F32 && type != GGUF_F64 && type != GGUF_BOOL;
}

static bool is_float(enum gguf_type type) {
  return type == GGUF_F32 || type == GGUF_F64;
}

/* An integer of any type as a sign and a magnitude's worth of 64 bits: negative values are in two's complement. */
struct integer {
  bool negative;
  uint64_t bits;
};

static struct integer load_integer(enum gguf_type type, const uint8_t *data) {
  uint64_t bits = 0;
  uint32_t bytes = gguf_type_bytes(type);
  memcpy(&bits, data, bytes); /* little-endian */
  bool is_signed = type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
  bool negative = is_signed && (bits >> (8 * bytes - 1)) != 0;
  if (negative && bytes < 8) bits |= UINT64_MAX << (8 * bytes);
  return (struct integer){negative, bits};
}

static double load_float(enum gguf_type type, const uint8_t *data) {
  float f;
  double d;
  if (type == GGUF_F32) {
    memcpy(&f, data, sizeof f);
    return f;
  }
  memcpy(&d, data, sizeof d);
  return d;
}

/* ---- Values by key ---- */

static enum moe_code missing(const struct gguf *g, const char *key, struct moe_error *err) {
  return moe_fail(err, MOE_FAILED, "%.300s: the key %s is missing", g->path, key);
}

static enum moe_code wrong_type(const struct gguf *g, const struct gguf_pair *p, const char *wanted,
                                struct moe_error *err) {
  if (p->type == GGUF_ARRAY)
    return moe_fail(err, MOE_FAILED, "%.300s: the key %.255s is an array of %s, expected %s", g->path, p->name,
                    gguf_type_name(p->element), wanted);
  return moe_fail(err, MOE_FAILED, "%.300s: the key %.255s is a %s, expected %s", g->path, p->name,
                  gguf_type_name(p->type), wanted);
}

/* Fails for a missing key and for one that is no integer from 0 to `most`. */
static enum moe_code get_unsigned(const struct gguf *g, const char *key, uint64_t most, uint64_t *value,
                                  struct moe_error *err) {
  const struct gguf_pair *p = find(g, key);
  if (p == NULL) return missing(g, key, err);
  if (!is_integer(p->type)) return wrong_type(g, p, "an integer", err);
  struct integer i = load_integer(p->type, p->data);
  if (i.negative)
    return moe_fail(err, MOE_FAILED, "%.300s: the key %s is %jd, allowed 0 to %ju", g->path, key, (intmax_t)i.bits,
                    (uintmax_t)most);
  if (i.bits > most)
    return moe_fail(err, MOE_FAILED, "%.300s: the key %s is %ju, allowed 0 to %ju", g->path, key, (uintmax_t)i.bits,
                    (uintmax_t)most);
  *value = i.bits;
  return MOE_OK;
}

enum moe_code gguf_get_u32(const struct gguf *g, const char *key, uint32_t *value, struct moe_error *err) {
  uint64_t wide;
  enum moe_code code = get_unsigned(g, key, UINT32_MAX, &wide, err);
  if (code == MOE_OK) *value = (uint32_t)wide;
  return code;
}

enum moe_code gguf_get_u64(const struct gguf *g, const char *key, uint64_t *value, struct moe_error *err) {
  return get_unsigned(g, key, UINT64_MAX, value, err);
}

enum moe_code gguf_get_i64(const struct gguf *g, const char *key, int64_t *value, struct moe_error *err) {
  const struct gguf_pair *p = find(g, key);
  if (p == NULL) return missing(g, key, err);
  if (!is_integer(p->type)) return wrong_type(g, p, "an integer", err);
  struct integer i = load_integer(p->type, p->data);
  if (!i.negative && i.bits > INT64_MAX)
    return moe_fail(err, MOE_FAILED, "%.300s: the key %s is %ju, allowed up to %jd", g->path, key, (uintmax_t)i.bits,
                    (intmax_t)INT64_MAX);
  *value = (int64_t)i.bits;
  return MOE_OK;
}

enum moe_code gguf_get_f32(const struct gguf *g, const char *key, float *value, struct moe_error *err) {
  const struct gguf_pair *p = find(g, key);
  if (p == NULL) return missing(g, key, err);
  if (!is_float(p->type)) return wrong_type(g, p, "a float", err);
  *value = (float)load_float(p->type, p->data);
  return MOE_OK;
}

enum moe_code gguf_get_bool(const struct gguf *g, const char *key, bool *value, struct moe_error *err) {
  const struct gguf_pair *p = find(g, key);
  if (p == NULL) return missing(g, key, err);
  if (p->type != GGUF_BOOL) return wrong_type(g, p, "a bool", err);
  *value = p->data[0] != 0;
  return MOE_OK;
}

enum moe_code gguf_get_string(const struct gguf *g, const char *key, struct gguf_string *value, struct moe_error *err) {
  const struct gguf_pair *p = find(g, key);
  if (p == NULL) return missing(g, key, err);
  if (p->type != GGUF_STRING) return wrong_type(g, p, "a string", err);
  *value = (struct gguf_string){(const char *)p->data, p->bytes};
  return MOE_OK;
}

enum moe_code gguf_get_array(const struct gguf *g, const char *key, struct gguf_array *value, struct moe_error *err) {
  const struct gguf_pair *p = find(g, key);
  if (p == NULL) return missing(g, key, err);
  if (p->type != GGUF_ARRAY) return wrong_type(g, p, "an array", err);
  *value = (struct gguf_array){p->element, p->count, p->data, p->bytes};
  return MOE_OK;
}

enum moe_code gguf_get_array_of(const struct gguf *g, const char *key, enum gguf_type kind, struct gguf_array *value,
                                struct moe_error *err) {
  struct gguf_array a;
  enum moe_code code = gguf_get_array(g, key, &a, err);
  if (code != MOE_OK) return code;
  if (kind == GGUF_I64 && !is_integer(a.type)) return wrong_type(g, find(g, key), "an array of integers", err);
  if (kind == GGUF_F32 && !is_float(a.type)) return wrong_type(g, find(g, key), "an array of floats", err);
  if (kind != GGUF_I64 && kind != GGUF_F32 && a.type != kind)
    return wrong_type(g, find(g, key), kind == GGUF_STRING ? "an array of strings" : "an array of bools", err);
  *value = a;
  return MOE_OK;
}

enum moe_code gguf_get_u32_or(const struct gguf *g, const char *key, uint32_t fallback, uint32_t *value,
                              struct moe_error *err) {
  if (gguf_has(g, key)) return gguf_get_u32(g, key, value, err);
  *value = fallback;
  return MOE_OK;
}

enum moe_code gguf_get_f32_or(const struct gguf *g, const char *key, float fallback, float *value,
                              struct moe_error *err) {
  if (gguf_has(g, key)) return gguf_get_f32(g, key, value, err);
  *value = fallback;
  return MOE_OK;
}

enum moe_code gguf_get_bool_or(const struct gguf *g, const char *key, bool fallback, bool *value,
                               struct moe_error *err) {
  if (gguf_has(g, key)) return gguf_get_bool(g, key, value, err);
  *value = fallback;
  return MOE_OK;
}

enum moe_code gguf_get_u32_each(const struct gguf *g, const char *key, uint32_t n, uint32_t *values,
                                struct moe_error *err) {
  const struct gguf_pair *p = find(g, key);
  if (p == NULL) return missing(g, key, err);
  if (p->type != GGUF_ARRAY) {
    uint32_t single;
    enum moe_code code = gguf_get_u32(g, key, &single, err);
    for (uint32_t i = 0; code == MOE_OK && i < n; i++) values[i] = single;
    return code;
  }
  if (!is_integer(p->element)) return wrong_type(g, p, "an integer or an array of integers", err);
  if (p->count != n)
    return moe_fail(err, MOE_FAILED, "%.300s: the key %s has %ju values, expected %u", g->path, key,
                    (uintmax_t)p->count, n);
  uint32_t bytes = gguf_type_bytes(p->element);
  for (uint32_t i = 0; i < n; i++) {
    struct integer v = load_integer(p->element, p->data + (uint64_t)i * bytes);
    if (v.negative || v.bits > UINT32_MAX)
      return moe_fail(err, MOE_FAILED, "%.300s: value %u of the key %s is %jd, allowed 0 to %u", g->path, i, key,
                      (intmax_t)v.bits, UINT32_MAX);
  }
  for (uint32_t i = 0; i < n; i++) values[i] = (uint32_t)load_integer(p->element, p->data + (uint64_t)i * bytes).bits;
  return MOE_OK;
}

/* ---- Arrays ---- */

int64_t gguf_array_i64(const struct gguf_array *a, uint64_t index) {
  struct integer i = load_integer(a->type, a->data + index * gguf_type_bytes(a->type));
  return !i.negative && i.bits > INT64_MAX ? INT64_MAX : (int64_t)i.bits;
}

float gguf_array_f32(const struct gguf_array *a, uint64_t index) {
  return (float)load_float(a->type, a->data + index * gguf_type_bytes(a->type));
}

bool gguf_array_next(const struct gguf_array *a, uint64_t *cursor, struct gguf_string *s) {
  uint64_t bytes;
  if (a->type != GGUF_STRING || *cursor >= a->bytes) return false;
  memcpy(&bytes, a->data + *cursor, sizeof bytes); /* gguf_open has checked all lengths */
  *s = (struct gguf_string){(const char *)a->data + *cursor + sizeof bytes, bytes};
  *cursor += sizeof bytes + bytes;
  return true;
}
