#include "img_manifest.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MANIFEST_MAX_BYTES (1u << 20)

typedef unsigned long long ull;

/* jansson's integers are signed: numbers above INT64_MAX do not occur (no file is that large) and are refused. */
static enum moe_code get_number(const json_t *root, const char *object, const char *key, uint64_t min, uint64_t max,
                                uint64_t *out, struct moe_error *err) {
  const json_t *value = json_object_get(json_object_get(root, object), key);
  if (!json_is_integer(value))
    return moe_fail(err, MOE_FAILED, "MANIFEST: %s.%s: missing or not an integer", object, key);
  json_int_t n = json_integer_value(value);
  if (n < 0 || (uint64_t)n < min || (uint64_t)n > max)
    return moe_fail(err, MOE_FAILED, "MANIFEST: %s.%s: %lld, allowed %llu to %llu", object, key, (long long)n, (ull)min,
                    (ull)max);
  *out = (uint64_t)n;
  return MOE_OK;
}

static enum moe_code get_string(const json_t *root, const char *object, const char *key, char *out, size_t bytes,
                                struct moe_error *err) {
  const json_t *value = json_object_get(json_object_get(root, object), key);
  if (!json_is_string(value)) return moe_fail(err, MOE_FAILED, "MANIFEST: %s.%s: missing or not a string", object, key);
  size_t length = json_string_length(value);
  if (length >= bytes || memchr(json_string_value(value), 0, length))
    return moe_fail(err, MOE_FAILED, "MANIFEST: %s.%s: %zu bytes, allowed at most %zu and no NUL", object, key, length,
                    bytes - 1);
  memcpy(out, json_string_value(value), length + 1);
  return MOE_OK;
}

static enum moe_code get_fields(const json_t *root, struct img_manifest *m, struct moe_error *err) {
  uint64_t n = 0;
  enum moe_code code = MOE_OK;
#define IMG_STRING(OBJECT, KEY, BYTES, WHAT)                                                                           \
  if (code == MOE_OK) code = get_string(root, #OBJECT, #KEY, m->OBJECT##_##KEY, BYTES, err);
#define IMG_NUMBER(OBJECT, KEY, TYPE, MIN, MAX, WHAT)                                                                  \
  if (code == MOE_OK) code = get_number(root, #OBJECT, #KEY, MIN, (uint64_t)(MAX), &n, err);                           \
  m->OBJECT##_##KEY = (img_manifest_##TYPE)n;
#include "img_manifest.def"
#undef IMG_STRING
#undef IMG_NUMBER
  return code;
}

enum moe_code img_manifest_parse(const void *text, uint64_t bytes, struct img_manifest *manifest,
                                 struct moe_error *err) {
  memset(manifest, 0, sizeof *manifest);
  if (!text || bytes > MANIFEST_MAX_BYTES)
    return moe_fail(err, MOE_FAILED, "MANIFEST: %llu bytes, allowed 1 to %u", (ull)bytes, MANIFEST_MAX_BYTES);
  json_error_t at;
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &at);
  if (!root) return moe_fail(err, MOE_FAILED, "MANIFEST: not JSON: line %d: %s", at.line, at.text);
  enum moe_code code = get_fields(root, manifest, err);
  json_decref(root);
  return code;
}

static int put(json_t *root, const char *object, const char *key, json_t *value) {
  json_t *inner = json_object_get(root, object);
  if (!inner) {
    json_object_set_new(root, object, json_object());
    inner = json_object_get(root, object);
  }
  return json_object_set_new(inner, key, value);
}

enum moe_code img_manifest_format(const struct img_manifest *m, char **text, uint64_t *bytes, struct moe_error *err) {
  json_t *root = json_object();
  int failed = !root;
#define IMG_STRING(OBJECT, KEY, BYTES, WHAT)                                                                           \
  if (!failed && put(root, #OBJECT, #KEY, json_string(m->OBJECT##_##KEY)))                                             \
    failed = 1, moe_fail(err, MOE_FAILED, "manifest field %s.%s is not UTF-8", #OBJECT, #KEY);
#define IMG_NUMBER(OBJECT, KEY, TYPE, MIN, MAX, WHAT)                                                                  \
  if (!failed) failed = put(root, #OBJECT, #KEY, json_integer((json_int_t)m->OBJECT##_##KEY));
#include "img_manifest.def"
#undef IMG_STRING
#undef IMG_NUMBER
  *text = failed ? NULL : json_dumps(root, JSON_INDENT(2));
  json_decref(root);
  if (!*text) return moe_fail(err, MOE_FAILED, "out of memory for the manifest");
  *bytes = strlen(*text);
  struct img_manifest again;
  enum moe_code code = img_manifest_parse(*text, *bytes, &again, err);
  if (code != MOE_OK) {
    free(*text);
    *text = NULL;
  }
  return code;
}
