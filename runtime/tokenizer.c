/* tokenizer.c: encoding: added tokens out, normalization, pre-tokenizer patterns, BPE.
 *
 * Owns: struct tokenizer, the compiled patterns, the walk over a text. Does not own: the merge loop (tokenizer_bpe.c),
 * decoding (tokenizer_decode.c), the section's bytes. Invariants: a struct tokenizer does not change after
 * tokenizer_create; all that an encoding needs beyond it is in its own struct encoding. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer.h"
#include "tokenizer_bpe.h"
#include "utf8.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define TOKENIZER_MAX_PATTERN 16

/* Longest run of combining marks that is normalized: putting a run in canonical order takes the square of its length,
 * and no text has runs like that (Unicode's stream-safe format allows 30). */
#define MAX_MARKS 128

struct tokenizer {
  struct img_tokenizer view;
  uint32_t n_pattern;
  pcre2_code *patterns[TOKENIZER_MAX_PATTERN];
  bool starts_added[256]; /* whether an added token starts with that byte */
};

/* One call of tokenizer_encode. */
struct encoding {
  const struct tokenizer *t;
  struct bpe bpe;
  pcre2_match_data *match[TOKENIZER_MAX_PATTERN]; /* one for each pattern: a pattern cuts inside the one before it */
};

/* ---- Creation ---- */

static enum moe_code compile_patterns(struct tokenizer *t, struct moe_error *err) {
  const char *pattern = t->view.patterns;
  for (uint32_t i = 0; i < t->view.n_pattern; i++, pattern += strlen(pattern) + 1) {
    int code;
    PCRE2_SIZE where;
    t->patterns[i] = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &where, NULL);
    if (!t->patterns[i]) {
      PCRE2_UCHAR why[128];
      pcre2_get_error_message(code, why, sizeof why);
      return moe_fail(err, MOE_FAILED, "TOKENIZER patterns[%u]: %s at byte %zu of pre-tokenizer \"%.*s\"", i,
                      (char *)why, where, (int)t->view.pre_name_len, t->view.pre_name);
    }
    t->n_pattern++;
    /* Without the just-in-time compiler (a system that forbids writable code) the pattern is interpreted. */
    (void)pcre2_jit_compile(t->patterns[i], PCRE2_JIT_COMPLETE);
  }
  return MOE_OK;
}

enum moe_code tokenizer_create(const void *section, uint64_t len, struct tokenizer **out, struct moe_error *err) {
  *out = NULL;
  struct tokenizer *t = calloc(1, sizeof *t);
  if (!t) return moe_fail(err, MOE_FAILED, "tokenizer: no memory");
  enum moe_code c = img_tokenizer_open(section, len, &t->view, err);
  if (c == MOE_OK) c = compile_patterns(t, err);
  if (c) {
    tokenizer_destroy(t);
    return c;
  }
  for (uint32_t i = 0; i < t->view.n_added; i++) {
    uint32_t n;
    t->starts_added[*img_token_bytes(&t->view, t->view.added[i], &n)] = true;
  }
  *out = t;
  return MOE_OK;
}

void tokenizer_destroy(struct tokenizer *t) {
  if (!t) return;
  for (uint32_t i = 0; i < t->n_pattern; i++) pcre2_code_free(t->patterns[i]);
  free(t);
}

const struct img_tokenizer *tokenizer_view(const struct tokenizer *t) {
  return &t->view;
}

bool tokenizer_is_eog(const struct tokenizer *t, uint32_t id) {
  for (uint32_t i = 0; i < t->view.n_eog; i++)
    if (t->view.eog[i] == id) return true;
  return false;
}

/* ---- Encoding, from the inside out ---- */

/* Cuts valid UTF-8 by pattern k and the patterns after it, and merges the chunks. false: no memory.
 * The subject is the piece alone: a pattern's lookahead must not see past it. */
static bool cut(struct encoding *e, const uint8_t *s, size_t len, uint32_t k) {
  if (len == 0) return true;
  if (k == e->t->n_pattern) return bpe_chunk(&e->bpe, s, (uint32_t)len);
  size_t done = 0;
  while (done < len) {
    int found = pcre2_match(e->t->patterns[k], s, len, done, PCRE2_NO_UTF_CHECK, e->match[k], NULL);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) /* the machine code ran out of its stack */
      found = pcre2_match(e->t->patterns[k], s, len, done, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, e->match[k], NULL);
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(e->match[k]);
    if (found < 0 || at[1] <= at[0]) break; /* what is left matches nothing (or an empty string) */
    if (!cut(e, s + done, at[0] - done, k + 1) || !cut(e, s + at[0], at[1] - at[0], k + 1)) return false;
    done = at[1];
  }
  return cut(e, s + done, len - done, k + 1);
}

/* Whether normalization could change the text (it has anything beyond ASCII) and is worth its time (MAX_MARKS). */
static bool wants_normalization(const uint8_t *s, size_t len) {
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

/* Encodes valid UTF-8 without added tokens. */
static bool encode_valid(struct encoding *e, const uint8_t *s, size_t len) {
  if (!(e->t->view.flags & IMG_TOKENIZER_NFC) || !wants_normalization(s, len)) return cut(e, s, len, 0);
  utf8proc_uint8_t *normal = NULL;
  utf8proc_ssize_t n = utf8proc_map(s, (utf8proc_ssize_t)len, &normal, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  if (n < 0) return false;
  bool ok = cut(e, normal, (size_t)n, 0);
  free(normal);
  return ok;
}

/* Encodes any bytes without added tokens: runs of valid UTF-8 as text, each ill-formed part as a chunk of its own. */
static bool encode_piece(struct encoding *e, const uint8_t *s, size_t len) {
  size_t start = 0, i = 0;
  while (i < len) {
    int k = utf8_next(s + i, len - i);
    if (k > 0) {
      i += (size_t)k;
      continue;
    }
    size_t bad = k < 0 ? (size_t)-k : len - i;
    if (!encode_valid(e, s + start, i - start) || !bpe_chunk(&e->bpe, s + i, (uint32_t)bad)) return false;
    start = i += bad;
  }
  return encode_valid(e, s + start, len - start);
}

static bool is_space(uint8_t c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Encodes a text with the added tokens that are in it. */
static bool encode_text(struct encoding *e, const uint8_t *s, size_t len, bool parse_special) {
  const struct img_tokenizer *v = &e->t->view;
  size_t start = 0;
  for (size_t i = 0; i < len;) {
    uint32_t id =
        e->t->starts_added[s[i]] ? img_tokenizer_match_added(v, s + i, len - i, parse_special) : IMG_TOKEN_NONE;
    if (id == IMG_TOKEN_NONE) {
      i++;
      continue;
    }
    size_t end = i;
    uint32_t n;
    (void)img_token_bytes(v, id, &n);
    if (v->token_attr[id] & IMG_TOKEN_LSTRIP)
      while (end > start && is_space(s[end - 1])) end--;
    if (!encode_piece(e, s + start, end - start) || !bpe_push(&e->bpe, id)) return false;
    i += n;
    if (v->token_attr[id] & IMG_TOKEN_RSTRIP)
      while (i < len && is_space(s[i])) i++;
    start = i;
  }
  return encode_piece(e, s + start, len - start);
}

static bool encode(struct encoding *e, const char *text, size_t len, unsigned flags) {
  const struct img_tokenizer *v = &e->t->view;
  bool add = flags & TOKENIZER_ADD_SPECIAL;
  for (uint32_t k = 0; k < e->t->n_pattern; k++) {
    e->match[k] = pcre2_match_data_create(1, NULL);
    if (!e->match[k]) return false;
  }
  if (add && (v->flags & IMG_TOKENIZER_ADD_BOS) && !bpe_push(&e->bpe, v->bos_id)) return false;
  if (!encode_text(e, (const uint8_t *)text, len, flags & TOKENIZER_PARSE_SPECIAL)) return false;
  if (add && (v->flags & IMG_TOKENIZER_ADD_EOS) && !bpe_push(&e->bpe, v->eos_id)) return false;
  return true;
}

enum moe_code tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags, size_t max_id,
                               uint32_t **ids, size_t *n, struct moe_error *err) {
  struct encoding e = {.t = t, .bpe = {.view = &t->view, .max_id = max_id}};
  *ids = NULL;
  *n = 0;
  if (len > TOKENIZER_MAX_TEXT)
    return moe_fail(err, MOE_FAILED, "text: %zu bytes, at most %u can be tokenized at once", len, TOKENIZER_MAX_TEXT);
  bool ok = encode(&e, text, len, flags) || e.bpe.full;
  if (ok && !e.bpe.ids) ok = (e.bpe.ids = malloc(sizeof *e.bpe.ids)) != NULL;
  for (uint32_t k = 0; k < t->n_pattern; k++) pcre2_match_data_free(e.match[k]);
  bpe_deinit(&e.bpe);
  if (!ok) {
    free(e.bpe.ids);
    return moe_fail(err, MOE_FAILED, "text: no memory to tokenize %zu bytes", len);
  }
  *ids = e.bpe.ids;
  *n = e.bpe.n_id;
  return MOE_OK;
}
