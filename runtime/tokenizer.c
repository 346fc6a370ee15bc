/* tokenizer.c: encoding: added tokens out, normalization, pre-tokenizer patterns, then the kind's own model.
 *
 * Owns: struct tokenizer, the compiled patterns, the walk over a text. Does not own: normalization
 * (tokenizer_normal.c), the models (tokenizer_bpe.c, tokenizer_unigram.c), decoding (tokenizer_decode.c), the section's
 * bytes. Invariants: a struct tokenizer does not change after
 * tokenizer_create; all that an encoding needs beyond it is in its own struct encoding. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer.h"
#include "tokenizer_bpe.h"
#include "tokenizer_normal.h"
#include "tokenizer_unigram.h"
#include "utf8.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define TOKENIZER_MAX_PATTERN 16

struct tokenizer {
  struct img_tokenizer view;
  uint32_t n_pattern;
  pcre2_code *patterns[TOKENIZER_MAX_PATTERN];
  bool starts_added[256]; /* whether an added token starts with that byte */
  float unknown_score;    /* kind IMG_TOKENIZER_UNIGRAM */
};

/* One call of tokenizer_encode. */
struct encoding {
  const struct tokenizer *t;
  struct bpe bpe;
  struct unigram unigram;
  pcre2_match_data *match[TOKENIZER_MAX_PATTERN]; /* one for each pattern: a pattern cuts inside the one before it */
  struct moe_error *err;
  bool said; /* err says why encoding failed */
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
  t->unknown_score = unigram_unknown_score(&t->view);
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

/* Everything that encodes returns false as bpe_push does, or when e->said. */

/* Encodes one chunk by the kind's model. */
static bool encode_chunk(struct encoding *e, const uint8_t *s, uint32_t len) {
  if (e->t->view.kind == IMG_TOKENIZER_UNIGRAM) return unigram_chunk(&e->unigram, &e->bpe, e->t->unknown_score, s, len);
  return bpe_chunk(&e->bpe, s, len);
}

/* Cuts valid UTF-8 by pattern k and the patterns after it, and merges the chunks.
 * The subject is the piece alone: a pattern's lookahead must not see past it. */
static bool cut(struct encoding *e, const uint8_t *s, size_t len, uint32_t k) {
  if (len == 0) return true;
  if (k == e->t->n_pattern) return encode_chunk(e, s, (uint32_t)len);
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

/* Encodes valid UTF-8 without added tokens. first: nothing but an added token, or nothing, is before it. */
static bool encode_valid(struct encoding *e, const uint8_t *s, size_t len, bool first) {
  const uint8_t *normal;
  uint8_t *owned;
  size_t n;
  e->said = tokenizer_normalize(&e->t->view, s, len, first, &normal, &n, &owned, e->err) != MOE_OK;
  bool ok = !e->said && cut(e, normal, n, 0);
  free(owned);
  return ok;
}

/* Encodes bytes that are no UTF-8. */
static bool encode_ill_formed(struct encoding *e, const uint8_t *s, size_t len) {
  if (e->t->view.kind == IMG_TOKENIZER_BPE) return bpe_chunk(&e->bpe, s, (uint32_t)len);
  return bpe_ill_formed(&e->bpe, s, (uint32_t)len);
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
    if (!encode_valid(e, s + start, i - start, start == 0) || !encode_ill_formed(e, s + i, bad)) return false;
    start = i += bad;
  }
  return encode_valid(e, s + start, len - start, start == 0);
}

/* Bytes of the white space character (Unicode White_Space) at the beginning of s, 0 when there is none. */
static size_t space_at(const uint8_t *s, size_t len) {
  if (len == 0) return 0;
  if (s[0] == ' ' || (s[0] >= '\t' && s[0] <= '\r')) return 1;
  if (len >= 2 && s[0] == 0xc2) return s[1] == 0x85 || s[1] == 0xa0 ? 2 : 0;
  if (len < 3 || s[0] < 0xe1 || s[0] > 0xe3) return 0;
  unsigned rest = (unsigned)s[1] << 8 | s[2];
  bool space = s[0] == 0xe1   ? rest == 0x9a80                                          /* U+1680 */
               : s[0] == 0xe2 ? (rest >= 0x8080 && rest <= 0x808a) || rest == 0x80a8 || /* U+2000 to 200A, 2028 */
                                    rest == 0x80a9 || rest == 0x80af || rest == 0x819f  /* U+2029, 202F, 205F */
                              : rest == 0x8080;                                         /* U+3000 */
  return space ? 3 : 0;
}

/* The same at the end of s. */
static size_t space_before(const uint8_t *s, size_t len) {
  for (size_t n = 1; n <= 3 && n <= len; n++)
    if (space_at(s + len - n, n) == n) return n;
  return 0;
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
      for (size_t k; (k = space_before(s + start, end - start)) > 0;) end -= k;
    if (!encode_piece(e, s + start, end - start) || !bpe_push(&e->bpe, id)) return false;
    i += n;
    if (v->token_attr[id] & IMG_TOKEN_RSTRIP)
      for (size_t k; (k = space_at(s + i, len - i)) > 0;) i += k;
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
  struct encoding e = {.t = t, .bpe = {.view = &t->view, .max_id = max_id}, .err = err};
  *ids = NULL;
  *n = 0;
  if (len > TOKENIZER_MAX_TEXT)
    return moe_fail(err, MOE_FAILED, "text: %zu bytes, at most %u can be tokenized at once", len, TOKENIZER_MAX_TEXT);
  bool ok = encode(&e, text, len, flags) || e.bpe.full;
  if (ok && !e.bpe.ids) ok = (e.bpe.ids = malloc(sizeof *e.bpe.ids)) != NULL;
  for (uint32_t k = 0; k < t->n_pattern; k++) pcre2_match_data_free(e.match[k]);
  bpe_deinit(&e.bpe);
  unigram_deinit(&e.unigram);
  if (!ok) {
    free(e.bpe.ids);
    return e.said ? MOE_FAILED : moe_fail(err, MOE_FAILED, "text: no memory to tokenize %zu bytes", len);
  }
  *ids = e.bpe.ids;
  *n = e.bpe.n_id;
  return MOE_OK;
}
