/* emit_tokenizer.c: reads tokenizer.ggml.* and hands what it found to img_tokenizer_build.
 *
 * Owns: which kind of tokenizer a file has and what its keys mean. Does not own: tokens and merges (emit_vocab.h,
 * emit_merges.h), the payload's layout. Invariants: ids are checked where they are read. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "emit_tokenizer.h"

#include "emit_merges.h"
#include "emit_vocab.h"
#include "gguf_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRETOKENIZER_MAX_PATTERN 6

/* Room for the pattern that cuts SentencePiece's text (cut_at_spaces). */
#define CUT_CHARS 64
#define CUT_BYTES (CUT_CHARS * 10 + 64)

struct pretokenizer {
  const char *name;
  uint32_t flags;
  const char *original; /* the family's own vocabulary has this token ... */
  uint32_t original_id; /* ... at this id */
  const char *patterns[PRETOKENIZER_MAX_PATTERN + 1];
};

static const struct pretokenizer pretokenizers[] = {
#define PRETOKENIZER(name, flags, original, original_id, source, ...)                                                  \
  {name, flags, original, original_id, {__VA_ARGS__}},
#define PRETOKENIZER_ALIAS(alias, name)
#include "pretokenizers.def"
};

static const char *const aliases[][2] = {
#define PRETOKENIZER(name, flags, original, original_id, source, ...)
#define PRETOKENIZER_ALIAS(alias, name) {alias, name},
#include "pretokenizers.def"
};

static const struct {
  const char *text;
  bool ends_turn;
  const char *unless;
} eog_tokens[] = {
#define EOG_TOKEN(text, ends_turn, unless) {text, ends_turn, unless},
#include "eog_tokens.def"
};

static const struct tokenizer_model {
  const char *model, *pre;
  enum img_tokenizer_kind kind;
  enum { FILE_MERGES, SCORES_MERGES, NONE_MERGES } merges;
  uint32_t flags, always;
  int64_t bos, eos, unk, pad;
} models[] = {
#define TOKENIZER_MODEL(model, pre, kind, merges, flags, always, bos, eos, unk, pad, source)                           \
  {model, pre, IMG_TOKENIZER_##kind, merges##_MERGES, flags, always, bos, eos, unk, pad},
#include "tokenizer_models.def"
};

static const struct {
  const char *name, *token;
  uint16_t flags;
} strips[] = {
#define STRIP_TOKEN(name, token, flags) {name, token, flags},
#include "strip_tokens.def"
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* What is being made, and what it borrows until it is written. */
struct emission {
  const struct gguf *g;
  const struct tokenizer_model *model;
  const struct pretokenizer *pre; /* NULL for other kinds than BPE */
  struct vocab v;
  struct img_merge *merges;
  uint8_t *charsmap; /* the key's bytes */
  char cut[CUT_BYTES];
  struct img_tokenizer_source s;
  uint32_t suppress[IMG_TOKENIZER_MAX_SUPPRESS];
};

/* A key that names a token; IMG_TOKEN_NONE when it is missing or all ones (which some writers mean by "none"). */
static enum moe_code read_id(const struct gguf *g, const char *key, const struct vocab *v, uint32_t *id,
                             struct moe_error *err) {
  enum moe_code c = gguf_get_u32_or(g, key, IMG_TOKEN_NONE, id, err);
  if (c || *id == IMG_TOKEN_NONE || *id < v->n) return c;
  return moe_fail(err, MOE_FAILED, "%s: token %u, tokenizer.ggml.tokens has %u", key, *id, v->n);
}

/* ---- Decisions ---- */

static const struct pretokenizer *find_pretokenizer(const struct gguf_string *name) {
  for (size_t a = 0; a < COUNT(aliases); a++) {
    if (strlen(aliases[a][0]) != name->bytes || memcmp(aliases[a][0], name->data, name->bytes) != 0) continue;
    const struct gguf_string target = {aliases[a][1], strlen(aliases[a][1])};
    return find_pretokenizer(&target);
  }
  for (size_t i = 0; i < COUNT(pretokenizers); i++)
    if (strlen(pretokenizers[i].name) == name->bytes && memcmp(pretokenizers[i].name, name->data, name->bytes) == 0)
      return &pretokenizers[i];
  return NULL;
}

/* All served names, for the message of a decline. */
static void list_pretokenizers(char *out, size_t size) {
  size_t at = 0;
  out[0] = 0;
  for (size_t i = 0; i < COUNT(pretokenizers) + COUNT(aliases) && at < size; i++) {
    const char *name = i < COUNT(pretokenizers) ? pretokenizers[i].name : aliases[i - COUNT(pretokenizers)][0];
    at += (size_t)snprintf(out + at, size - at, "%s%s", i ? ", " : "", name);
  }
}

static bool string_is(const struct gguf_string *s, const char *text) {
  return s->bytes == strlen(text) && memcmp(s->data, text, s->bytes) == 0;
}

static const struct tokenizer_model *find_model(const struct gguf_string *model, const struct gguf_string *pre) {
  for (size_t i = 0; i < COUNT(models); i++)
    if (string_is(model, models[i].model) && (!models[i].pre || string_is(pre, models[i].pre))) return &models[i];
  return NULL;
}

static enum moe_code choose_model(struct emission *e, struct moe_error *err) {
  struct gguf_string model, name = {"", 0};
  char shown[80], served[1024];
  enum moe_code c = gguf_get_string(e->g, "tokenizer.ggml.model", &model, err);
  if (c) return c;
  bool has_pre = gguf_has(e->g, "tokenizer.ggml.pre");
  if (has_pre && (c = gguf_get_string(e->g, "tokenizer.ggml.pre", &name, err))) return c;
  e->model = find_model(&model, &name);
  if (!e->model)
    return moe_fail(err, MOE_DECLINED,
                    "tokenizer.ggml.model: \"%s\" is not served; served are: gpt2 (byte-level BPE), llama and gemma4 "
                    "(SentencePiece's BPE), t5 (SentencePiece's unigram)",
                    gguf_text_printable(shown, sizeof shown, model.data, model.bytes));
  if (e->model->kind != IMG_TOKENIZER_BPE) return MOE_OK;
  if (!has_pre)
    return moe_fail(err, MOE_DECLINED,
                    "tokenizer.ggml.pre: missing, so how text is cut into words is unknown; convert the model again "
                    "with a converter that writes it");
  e->pre = find_pretokenizer(&name);
  if (e->pre) return MOE_OK;
  list_pretokenizers(served, sizeof served);
  return moe_fail(err, MOE_DECLINED, "tokenizer.ggml.pre: \"%s\" is not served; served are: %s",
                  gguf_text_printable(shown, sizeof shown, name.data, name.bytes), served);
}

/* Whether the vocabulary is the family's own, and not one that borrows its pre-tokenizer. */
static bool is_original(const struct pretokenizer *pre, const struct vocab *v) {
  return pre->original && pre->original_id < v->n && string_is(&v->name[pre->original_id], pre->original);
}

static enum moe_code read_flags(struct emission *e, struct moe_error *err) {
  uint32_t defaults = e->model->flags | (e->pre ? e->pre->flags : 0);
  const struct {
    const char *key;
    uint32_t flag;
    bool possible;
  } keys[] = {{"tokenizer.ggml.add_bos_token", IMG_TOKENIZER_ADD_BOS, e->s.bos_id != IMG_TOKEN_NONE},
              {"tokenizer.ggml.add_eos_token", IMG_TOKENIZER_ADD_EOS, e->s.eos_id != IMG_TOKEN_NONE},
              {"tokenizer.ggml.add_space_prefix", IMG_TOKENIZER_SPACE_PREFIX, !e->pre},
              {"tokenizer.ggml.remove_extra_whitespaces", IMG_TOKENIZER_FEW_SPACES, !e->pre}};
  e->s.flags = defaults & (IMG_TOKENIZER_NFC | IMG_TOKENIZER_IGNORE_MERGES);
  if (e->pre && !is_original(e->pre, &e->v)) e->s.flags &= ~(uint32_t)IMG_TOKENIZER_NFC;
  for (size_t i = 0; i < COUNT(keys); i++) {
    bool set;
    enum moe_code c = gguf_get_bool_or(e->g, keys[i].key, defaults & keys[i].flag, &set, err);
    if (c) return c;
    set |= (e->model->always & keys[i].flag) != 0;
    if (set && keys[i].possible) e->s.flags |= keys[i].flag;
  }
  return MOE_OK;
}

/* The ids that end a generation: those that the file names and those of eog_tokens.def. Returns their number. */
static uint32_t choose_eog(const struct vocab *v, struct img_tokenizer_source *s, uint32_t eom_id, uint32_t *eog) {
  uint32_t n = 0;
  const uint32_t named[] = {s->eos_id, s->eot_id, eom_id};
  for (size_t i = 0; i < COUNT(named); i++)
    if (named[i] != IMG_TOKEN_NONE) eog[n++] = named[i];
  for (size_t i = 0; i < COUNT(eog_tokens); i++) {
    uint32_t id = vocab_find(v, eog_tokens[i].text, strlen(eog_tokens[i].text));
    const char *unless = eog_tokens[i].unless;
    if (id == IMG_TOKEN_NONE || vocab_type(v, id) == IMG_TOKEN_NORMAL) continue;
    if (unless && vocab_find(v, unless, strlen(unless)) != IMG_TOKEN_NONE) continue;
    eog[n++] = id;
    if (s->eot_id == IMG_TOKEN_NONE && eog_tokens[i].ends_turn) s->eot_id = id;
  }
  return n;
}

static enum moe_code read_ids(struct emission *e, uint32_t *eom_id, struct moe_error *err) {
  struct img_tokenizer_source *s = &e->s;
  const struct {
    const char *key;
    uint32_t *id;
    int64_t missing;
  } ids[] = {{"tokenizer.ggml.bos_token_id", &s->bos_id, e->model->bos},
             {"tokenizer.ggml.eos_token_id", &s->eos_id, e->model->eos},
             {"tokenizer.ggml.eot_token_id", &s->eot_id, -1},
             {"tokenizer.ggml.eom_token_id", eom_id, -1},
             {"tokenizer.ggml.padding_token_id", &s->pad_id, e->model->pad},
             {"tokenizer.ggml.unknown_token_id", &s->unk_id, e->model->unk}};
  enum moe_code c;
  for (size_t i = 0; i < COUNT(ids); i++) {
    if ((c = read_id(e->g, ids[i].key, &e->v, ids[i].id, err))) return c;
    int64_t id = ids[i].missing;
    bool markup =
        id >= 0 && id < e->v.n &&
        (vocab_type(&e->v, (uint32_t)id) == IMG_TOKEN_CONTROL || vocab_type(&e->v, (uint32_t)id) == IMG_TOKEN_UNKNOWN);
    if (markup && !gguf_has(e->g, ids[i].key)) *ids[i].id = (uint32_t)id;
  }
  return MOE_OK;
}

/* The ids that are never sampled (newer Gemma 4 files have some), as the key has them. */
static enum moe_code read_suppressed(struct emission *e, struct moe_error *err) {
  const char *key = "tokenizer.ggml.suppress_tokens";
  struct gguf_array a;
  if (!gguf_has(e->g, key)) return MOE_OK;
  enum moe_code c = gguf_get_array_of(e->g, key, GGUF_I64, &a, err);
  if (c) return c;
  if (a.count > IMG_TOKENIZER_MAX_SUPPRESS)
    return moe_fail(err, MOE_DECLINED, "%s: %" PRIu64 " tokens, at most %u can be suppressed", key, a.count,
                    IMG_TOKENIZER_MAX_SUPPRESS);
  for (uint64_t i = 0; i < a.count; i++) {
    int64_t id = gguf_array_i64(&a, i);
    if (id < 0 || id >= IMG_TOKENIZER_MAX_VOCAB)
      return moe_fail(err, MOE_FAILED, "%s[%" PRIu64 "]: %" PRId64 " is no token", key, i, id);
    e->suppress[i] = (uint32_t)id;
  }
  e->s.suppress = e->suppress;
  e->s.n_suppress = (uint32_t)a.count;
  return MOE_OK;
}

static enum moe_code check_suppressed(const struct emission *e, struct moe_error *err) {
  for (uint32_t i = 0; i < e->s.n_suppress; i++)
    if (e->suppress[i] >= e->v.n)
      return moe_fail(err, MOE_FAILED, "tokenizer.ggml.suppress_tokens[%u]: token %u, tokenizer.ggml.tokens has %u", i,
                      e->suppress[i], e->v.n);
  return MOE_OK;
}

/* ---- Strip flags ---- */

static void apply_strip(struct vocab *v, const char *token, uint16_t flags) {
  uint32_t first = 0, end = v->n;
  if (token) {
    first = vocab_find(v, token, strlen(token));
    end = first == IMG_TOKEN_NONE ? first : first + 1;
  }
  for (uint32_t i = first; i < end; i++) {
    enum img_token_type type = vocab_type(v, i);
    if (type == IMG_TOKEN_CONTROL || type == IMG_TOKEN_USER_DEFINED || type == IMG_TOKEN_UNKNOWN)
      v->attr[i] = (uint16_t)(type | flags);
  }
}

static enum moe_code set_strip_flags(struct emission *e, struct moe_error *err) {
  struct gguf_string name;
  char lower[256];
  if (!gguf_has(e->g, "general.name")) return MOE_OK;
  enum moe_code c = gguf_get_string(e->g, "general.name", &name, err);
  if (c) return c;
  size_t n = name.bytes < sizeof lower ? name.bytes : sizeof lower;
  for (size_t i = 0; i < n; i++)
    lower[i] = (char)(name.data[i] >= 'A' && name.data[i] <= 'Z' ? name.data[i] + 'a' - 'A' : name.data[i]);
  for (size_t i = 0; i < COUNT(strips); i++)
    if (memmem(lower, n, strips[i].name, strlen(strips[i].name))) apply_strip(&e->v, strips[i].token, strips[i].flags);
  return MOE_OK;
}

/* ---- SentencePiece ---- */

/* The character that ends at `end`; anything where that is no UTF-8. */
static uint32_t char_before(const uint8_t *text, uint32_t end) {
  uint32_t cp = 0, shift = 0;
  for (; end > 0; shift += 6) {
    uint8_t b = text[--end];
    if ((b & 0xc0) == 0x80) {
      cp |= (uint32_t)(b & 0x3f) << shift;
      continue;
    }
    return cp | (uint32_t)(b < 0x80 ? b : b < 0xe0 ? b & 0x1f : b < 0xf0 ? b & 0x0f : b & 0x07) << shift;
  }
  return cp;
}

/* Merges go over a whole text, but hardly any token goes on after a character with a space: text may be cut before each
 * run of spaces, but for those that follow one of the characters that have it so in a token. Then what is merged at
 * once stays short. Without a pattern (too many such characters) the text is one piece. */
static void cut_at_spaces(struct emission *e) {
  uint32_t chars[CUT_CHARS], n = 0;
  for (uint32_t i = 0; i < e->v.n; i++) {
    const uint8_t *text = e->v.text[i];
    if (vocab_type(&e->v, i) != IMG_TOKEN_NORMAL) continue;
    for (uint32_t k = 1; k < e->v.len[i]; k++) {
      if (text[k] != ' ' || text[k - 1] == ' ') continue;
      uint32_t cp = char_before(text, k), at = 0;
      if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) continue; /* not UTF-8: it matches no text */
      while (at < n && chars[at] != cp) at++;
      if (at == CUT_CHARS) return;
      if (at == n) chars[n++] = cp;
    }
  }
  char set[CUT_CHARS * 10 + 1] = "";
  size_t len = 0;
  for (uint32_t i = 0; i < n; i++) len += (size_t)snprintf(set + len, sizeof set - len, "\\x{%x}", chars[i]);
  snprintf(e->cut, sizeof e->cut, n ? "(?: ++|[^ ]++)(?:[^ ]++|(?<=[%s]) ++)*+" : " ++[^ ]*+|[^ ]++", set);
}

/* SentencePiece's normalization: the bytes of the double array, then the replacements. */
static enum moe_code read_charsmap(struct emission *e, struct moe_error *err) {
  const char *key = "tokenizer.ggml.precompiled_charsmap";
  struct gguf_array a;
  if (!gguf_has(e->g, key)) return MOE_OK;
  enum moe_code c = gguf_get_array_of(e->g, key, GGUF_I64, &a, err);
  if (c || a.count == 0) return c;
  if (a.count > UINT32_MAX / 2) return moe_fail(err, MOE_FAILED, "%s: %" PRIu64 " bytes are too many", key, a.count);
  uint8_t *bytes = e->charsmap = malloc(a.count);
  if (!bytes) return vocab_no_memory(err);
  for (uint64_t i = 0; i < a.count; i++) bytes[i] = (uint8_t)gguf_array_i64(&a, i);
  uint32_t units = 0;
  if (a.count >= sizeof units) memcpy(&units, bytes, sizeof units);
  if (a.count < sizeof units || units % 4 != 0 || units > a.count - sizeof units)
    return moe_fail(err, MOE_FAILED, "%s: %" PRIu64 " bytes, of which %u should be units of 4 bytes", key, a.count,
                    units);
  e->s.charsmap = (const uint32_t *)(const void *)(bytes + sizeof units); /* malloc'd, hence aligned */
  e->s.n_charsmap = units / 4;
  e->s.replacements = (const char *)bytes + sizeof units + units;
  e->s.replacements_len = (uint32_t)(a.count - sizeof units - units);
  return MOE_OK;
}

/* ---- All together ---- */

static enum moe_code read_merges(struct emission *e, struct emit_tokenizer_note *note, struct moe_error *err) {
  if (e->model->merges == FILE_MERGES) return merges_read(e->g, &e->v, &e->merges, &e->s.n_merge, note, err);
  if (e->model->merges == SCORES_MERGES) return merges_from_scores(&e->v, &e->merges, &e->s.n_merge, err);
  return MOE_OK;
}

static enum moe_code emit(struct emission *e, uint8_t **bytes, uint64_t *len, struct emit_tokenizer_note *note,
                          struct moe_error *err) {
  struct img_tokenizer_source *s = &e->s;
  uint32_t eom_id, eog[COUNT(eog_tokens) + 3];
  enum moe_code c;
  if ((c = choose_model(e, err))) return c;
  if ((c = read_suppressed(e, err))) return c;
  if ((c = vocab_read(e->g, e->model->kind, e->model->merges != FILE_MERGES, &e->v, err))) return c;
  if ((c = check_suppressed(e, err))) return c;
  if ((c = read_merges(e, note, err))) return c;
  if ((c = read_ids(e, &eom_id, err))) return c;
  if ((c = read_flags(e, err))) return c;
  if ((c = set_strip_flags(e, err))) return c;
  const char *const cut[] = {e->cut};
  if (e->pre) {
    s->patterns = e->pre->patterns;
    while (s->patterns[s->n_pattern]) s->n_pattern++;
  } else {
    if ((c = read_charsmap(e, err))) return c;
    if (e->model->kind == IMG_TOKENIZER_CHAR_BPE) cut_at_spaces(e);
    s->patterns = cut;
    s->n_pattern = e->cut[0] != 0;
  }
  s->kind = e->model->kind;
  s->n_vocab = e->v.n;
  s->pre_name = e->pre ? e->pre->name : e->model->model;
  s->token_text = e->v.text;
  s->token_len = e->v.len;
  s->token_attr = e->v.attr;
  s->scores = e->v.score;
  s->merges = e->merges;
  s->n_eog = choose_eog(&e->v, s, eom_id, eog);
  s->eog = eog;
  return img_tokenizer_build(s, bytes, len, err);
}

enum moe_code emit_tokenizer_served(const struct gguf *g, struct moe_error *err) {
  struct emission e = {.g = g};
  enum moe_code c = choose_model(&e, err);
  return c ? c : read_suppressed(&e, err);
}

enum moe_code emit_tokenizer(const struct gguf *g, uint8_t **bytes, uint64_t *len, struct emit_tokenizer_note *note,
                             struct moe_error *err) {
  struct emission e = {.g = g};
  if (note) *note = (struct emit_tokenizer_note){0};
  *bytes = NULL;
  enum moe_code c = emit(&e, bytes, len, note, err);
  free(e.merges);
  free(e.charsmap);
  vocab_deinit(&e.v);
  return c;
}
