/* tokenizer_normal.c: see tokenizer_normal.h. */
#include "tokenizer_normal.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Longest run of combining marks that is normalized: putting a run in canonical order takes the square of its length,
 * and no text has runs like that (Unicode's stream-safe format allows 30). */
#define MAX_MARKS 128

/* Whether normalization could change the text (it has anything beyond ASCII) and is worth its time (MAX_MARKS). */
static bool wants_nfc(const uint8_t *s, size_t len) {
  size_t beyond = 0, marks = 0;
  for (size_t i = 0; i < len;) {
    utf8proc_int32_t cp;
    if (s[i] < 0x80) {
      i++;
      marks = 0;
      continue;
    }
    beyond++;
    i += (size_t)utf8proc_iterate(s + i, (utf8proc_ssize_t)(len - i), &cp);
    marks = utf8proc_get_property(cp)->combining_class ? marks + 1 : 0;
    if (marks > MAX_MARKS) return false;
  }
  return beyond > 0;
}

/* A growing text of SentencePiece. */
struct pieces {
  uint8_t *bytes;
  size_t len, capacity;
  bool few_spaces; /* of several spaces the first stays, at the beginning none */
  bool after_space;
};

static enum moe_code no_memory(struct moe_error *err, size_t len) {
  return moe_fail(err, MOE_FAILED, "text: no memory to normalize %zu bytes", len);
}

static enum moe_code put(struct pieces *p, const uint8_t *bytes, size_t n, struct moe_error *err) {
  if (p->capacity - p->len < n) {
    if (n > TOKENIZER_MAX_NORMAL - p->len)
      return moe_fail(err, MOE_FAILED, "text: over %u bytes once it is normalized, at most that many can be tokenized",
                      TOKENIZER_MAX_NORMAL);
    size_t grown = p->capacity * 2 + n < TOKENIZER_MAX_NORMAL ? p->capacity * 2 + n : TOKENIZER_MAX_NORMAL;
    uint8_t *moved = realloc(p->bytes, grown);
    if (!moved) return no_memory(err, grown);
    p->bytes = moved;
    p->capacity = grown;
  }
  for (size_t i = 0; i < n; i++) {
    if (p->few_spaces && p->after_space && bytes[i] == ' ') continue;
    p->bytes[p->len++] = bytes[i];
    p->after_space = bytes[i] == ' ';
  }
  return MOE_OK;
}

/* The first character or, where the table has it, the longest input: its bytes, and what comes out for them. */
static size_t replace(const struct img_tokenizer *v, const uint8_t *s, size_t len, const uint8_t **out, size_t *n) {
  const char *replacement;
  uint32_t replaced = v->n_charsmap ? img_tokenizer_replace(v, s, len, &replacement) : 0;
  if (replaced) {
    *out = (const uint8_t *)replacement;
    *n = strlen(replacement);
    return replaced;
  }
  int k = utf8_next(s, len);
  size_t bytes = k > 0 ? (size_t)k : 1; /* a hostile table may have taken half of a character */
  bool space = bytes == 3 && memcmp(s, "\xe2\x96\x81", 3) == 0;
  *out = space ? (const uint8_t *)" " : s;
  *n = space ? 1 : bytes;
  return bytes;
}

static enum moe_code normalize_pieces(const struct img_tokenizer *v, const uint8_t *s, size_t len, bool first,
                                      struct pieces *p, struct moe_error *err) {
  bool prefix = first && (v->flags & IMG_TOKENIZER_SPACE_PREFIX);
  p->few_spaces = v->flags & IMG_TOKENIZER_FEW_SPACES;
  p->capacity = len + 1;
  p->bytes = malloc(p->capacity);
  if (!p->bytes) return no_memory(err, len);
  if (prefix) p->bytes[p->len++] = ' ';
  p->after_space = first || prefix;
  for (size_t i = 0; i < len;) {
    const uint8_t *out;
    size_t n;
    i += replace(v, s + i, len - i, &out, &n);
    enum moe_code code = put(p, out, n, err);
    if (code) return code;
  }
  if (p->few_spaces && p->len > 0 && p->bytes[p->len - 1] == ' ') p->len--; /* what is only the prefix goes too */
  return MOE_OK;
}

enum moe_code tokenizer_normalize(const struct img_tokenizer *v, const uint8_t *text, size_t len, bool first,
                                  const uint8_t **out, size_t *out_len, uint8_t **owned, struct moe_error *err) {
  *out = text;
  *out_len = len;
  *owned = NULL;
  if (len == 0) return MOE_OK;
  if (v->kind == IMG_TOKENIZER_BPE) {
    if (!(v->flags & IMG_TOKENIZER_NFC) || !wants_nfc(text, len)) return MOE_OK;
    utf8proc_ssize_t n =
        utf8proc_map(text, (utf8proc_ssize_t)len, (utf8proc_uint8_t **)owned, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n < 0) return no_memory(err, len); /* the text is valid */
    *out_len = (size_t)n;
    *out = *owned;
    return MOE_OK;
  }
  struct pieces p = {0};
  enum moe_code code = normalize_pieces(v, text, len, first, &p, err);
  if (code) {
    free(p.bytes);
    return code;
  }
  *owned = p.bytes;
  *out = p.bytes;
  *out_len = p.len;
  return MOE_OK;
}
