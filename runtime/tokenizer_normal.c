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

static bool put(struct pieces *p, const uint8_t *bytes, size_t n) {
  if (p->capacity - p->len < n) {
    size_t grown = p->capacity * 2 + n;
    uint8_t *moved = realloc(p->bytes, grown);
    if (!moved) return false;
    p->bytes = moved;
    p->capacity = grown;
  }
  for (size_t i = 0; i < n; i++) {
    if (p->few_spaces && p->after_space && bytes[i] == ' ') continue;
    p->bytes[p->len++] = bytes[i];
    p->after_space = bytes[i] == ' ';
  }
  return true;
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

static bool normalize_pieces(const struct img_tokenizer *v, const uint8_t *s, size_t len, bool first,
                             struct pieces *p) {
  bool prefix = first && (v->flags & IMG_TOKENIZER_SPACE_PREFIX);
  p->few_spaces = v->flags & IMG_TOKENIZER_FEW_SPACES;
  p->capacity = len + 1;
  p->bytes = malloc(p->capacity);
  if (!p->bytes) return false;
  if (prefix) p->bytes[p->len++] = ' ';
  p->after_space = first || prefix;
  for (size_t i = 0; i < len;) {
    const uint8_t *out;
    size_t n;
    i += replace(v, s + i, len - i, &out, &n);
    if (!put(p, out, n)) return false;
  }
  if (p->few_spaces && p->len > 0 && p->bytes[p->len - 1] == ' ') p->len--; /* what is only the prefix goes too */
  return true;
}

bool tokenizer_normalize(const struct img_tokenizer *v, const uint8_t *text, size_t len, bool first,
                         const uint8_t **out, size_t *out_len, uint8_t **owned) {
  *out = text;
  *out_len = len;
  *owned = NULL;
  if (len == 0) return true;
  if (v->kind == IMG_TOKENIZER_BPE) {
    if (!(v->flags & IMG_TOKENIZER_NFC) || !wants_nfc(text, len)) return true;
    utf8proc_ssize_t n =
        utf8proc_map(text, (utf8proc_ssize_t)len, (utf8proc_uint8_t **)owned, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    *out_len = n < 0 ? 0 : (size_t)n;
    *out = *owned;
    return n >= 0;
  }
  struct pieces p = {0};
  bool ok = normalize_pieces(v, text, len, first, &p);
  *owned = p.bytes;
  *out = p.bytes;
  *out_len = p.len;
  return ok;
}
