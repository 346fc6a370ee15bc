/* emit_vocab.c: see emit_vocab.h. */
#include "emit_vocab.h"

#include <inttypes.h>
#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

void vocab_deinit(struct vocab *v) {
  free(v->name);
  free((void *)v->text);
  free(v->len);
  free(v->attr);
  free(v->score);
  free(v->arena);
  free(v->slots);
}

enum moe_code vocab_no_memory(struct moe_error *err) {
  return moe_fail(err, MOE_FAILED, "tokenizer: no memory for the vocabulary");
}

/* The slot that has the name, or the free one where it would go. */
static uint32_t *name_slot(const struct vocab *v, const char *name, size_t bytes) {
  uint64_t hash;
  crypto_shorthash((unsigned char *)&hash, (const unsigned char *)name, bytes, v->key);
  uint32_t s = (uint32_t)hash & (v->n_slot - 1);
  for (; v->slots[s] != IMG_TOKEN_NONE; s = (s + 1) & (v->n_slot - 1)) {
    const struct gguf_string *other = &v->name[v->slots[s]];
    if (other->bytes == bytes && memcmp(other->data, name, bytes) == 0) break;
  }
  return &v->slots[s];
}

uint32_t vocab_find(const struct vocab *v, const char *name, size_t bytes) {
  return *name_slot(v, name, bytes);
}

/* ---- The byte alphabet ---- */

/* The byte that a code point of GPT-2's alphabet stands for, or -1: printable characters of Latin-1 stand for
 * themselves, the other 68 bytes in ascending order are U+0100 and up. */
static int alphabet_byte(uint32_t cp) {
  if ((cp >= 0x21 && cp <= 0x7e) || (cp >= 0xa1 && cp <= 0xac) || (cp >= 0xae && cp <= 0xff)) return (int)cp;
  if (cp >= 0x100 && cp <= 0x120) return (int)(cp - 0x100);        /* 0x00 to 0x20 */
  if (cp >= 0x121 && cp <= 0x142) return (int)(cp - 0x121 + 0x7f); /* 0x7f to 0xa0 */
  return cp == 0x143 ? 0xad : -1;
}

/* Writes the bytes that a name stands for; false when it is not written in the alphabet. */
static bool alphabet_decode(const struct gguf_string *name, uint8_t *out, uint32_t *len) {
  uint32_t n = 0;
  for (size_t i = 0; i < name->bytes;) {
    uint32_t c = (uint8_t)name->data[i++];
    if (c >= 0x80) {
      /* The alphabet ends below U+0800: two-byte sequences suffice. */
      if (c < 0xc2 || c > 0xdf || i == name->bytes || ((uint8_t)name->data[i] & 0xc0) != 0x80) return false;
      c = (c & 0x1f) << 6 | ((uint8_t)name->data[i++] & 0x3f);
    }
    int byte = alphabet_byte(c);
    if (byte < 0) return false;
    out[n++] = (uint8_t)byte;
  }
  *len = n;
  return true;
}

/* ---- SentencePiece's names ---- */

/* The byte of a name <0xAB>, or -1. */
static int byte_of(const struct gguf_string *name) {
  if (name->bytes != 6 || memcmp(name->data, "<0x", 3) != 0 || name->data[5] != '>') return -1;
  int byte = 0;
  for (int i = 3; i < 5; i++) {
    int c = name->data[i], digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    byte = byte * 16 + digit;
  }
  return byte;
}

/* Writes a name with spaces for U+2581. */
static uint32_t spaces_decode(const struct gguf_string *name, uint8_t *out) {
  uint32_t n = 0;
  for (size_t i = 0; i < name->bytes;) {
    bool space = name->bytes - i >= 3 && memcmp(name->data + i, "\xe2\x96\x81", 3) == 0;
    out[n++] = space ? ' ' : (uint8_t)name->data[i];
    i += space ? 3 : 1;
  }
  return n;
}

/* Writes what a token stands for in text, unless that is its name. */
static bool decode_name(const struct vocab *v, uint32_t id, uint8_t *out, uint32_t *len) {
  enum img_token_type type = vocab_type(v, id);
  if (v->kind == IMG_TOKENIZER_BPE)
    return (type == IMG_TOKEN_NORMAL || type == IMG_TOKEN_BYTE) && alphabet_decode(&v->name[id], out, len);
  if (type == IMG_TOKEN_NORMAL || type == IMG_TOKEN_USER_DEFINED) {
    *len = spaces_decode(&v->name[id], out);
    return true;
  }
  int byte = type == IMG_TOKEN_BYTE ? byte_of(&v->name[id]) : -1;
  if (byte < 0) return false;
  *out = (uint8_t)byte;
  *len = 1;
  return true;
}

/* ---- Reading ---- */

static enum moe_code read_types(const struct gguf *g, struct vocab *v, struct moe_error *err) {
  const char *key = "tokenizer.ggml.token_type";
  struct gguf_array a;
  for (uint32_t i = 0; i < v->n; i++) v->attr[i] = IMG_TOKEN_NORMAL;
  if (!gguf_has(g, key)) return MOE_OK;
  enum moe_code c = gguf_get_array_of(g, key, GGUF_I64, &a, err);
  if (c) return c;
  if (a.count != v->n)
    return moe_fail(err, MOE_FAILED, "%s: %" PRIu64 " types for the %u tokens of tokenizer.ggml.tokens", key, a.count,
                    v->n);
  for (uint32_t i = 0; i < v->n; i++) {
    int64_t type = gguf_array_i64(&a, i);
    if (type < IMG_TOKEN_NORMAL || type > IMG_TOKEN_BYTE)
      return moe_fail(err, MOE_FAILED, "%s[%u]: type %" PRId64 ", types are %d to %d", key, i, type, IMG_TOKEN_NORMAL,
                      IMG_TOKEN_BYTE);
    v->attr[i] = (uint16_t)type;
  }
  return MOE_OK;
}

static enum moe_code read_scores(const struct gguf *g, struct vocab *v, struct moe_error *err) {
  const char *key = "tokenizer.ggml.scores";
  struct gguf_array a;
  bool whole = gguf_get_array_of(g, key, GGUF_I64, &a, NULL) == MOE_OK; /* some files have them as integers */
  enum moe_code c = whole ? MOE_OK : gguf_get_array_of(g, key, GGUF_F32, &a, err);
  if (c) return c;
  if (a.count != v->n)
    return moe_fail(err, MOE_FAILED, "%s: %" PRIu64 " scores for the %u tokens of tokenizer.ggml.tokens", key, a.count,
                    v->n);
  v->score = malloc((size_t)v->n * sizeof *v->score);
  if (!v->score) return vocab_no_memory(err);
  for (uint32_t i = 0; i < v->n; i++) {
    v->score[i] = whole ? (float)gguf_array_i64(&a, i) : gguf_array_f32(&a, i);
    if (!isfinite(v->score[i])) return moe_fail(err, MOE_FAILED, "%s[%u]: not a finite number", key, i);
  }
  return MOE_OK;
}

/* Gives v->text and v->len their values and enters all names in the hash table. */
static void enter_tokens(struct vocab *v) {
  uint8_t *at = v->arena;
  for (uint32_t i = 0; i < v->n; i++) {
    const struct gguf_string *name = &v->name[i];
    if (decode_name(v, i, at, &v->len[i])) {
      v->text[i] = at;
      at += v->len[i];
    } else {
      v->text[i] = (const uint8_t *)name->data;
      v->len[i] = (uint32_t)name->bytes;
    }
    uint32_t *slot = name_slot(v, name->data, name->bytes);
    if (*slot == IMG_TOKEN_NONE) *slot = i; /* else the lower id keeps the name */
  }
}

static enum moe_code make_room(struct vocab *v, uint64_t bytes, struct moe_error *err) {
  for (v->n_slot = 2; v->n_slot < v->n * 2u; v->n_slot *= 2) {
  }
  v->name = calloc(v->n, sizeof *v->name);
  v->text = calloc(v->n, sizeof *v->text);
  v->len = calloc(v->n, sizeof *v->len);
  v->attr = calloc(v->n, sizeof *v->attr);
  v->arena = malloc(bytes + 1); /* a name is never shorter than what it stands for */
  v->slots = malloc((size_t)v->n_slot * sizeof *v->slots);
  if (!v->name || !v->text || !v->len || !v->attr || !v->arena || !v->slots) return vocab_no_memory(err);
  memset(v->slots, 0xff, (size_t)v->n_slot * sizeof *v->slots);
  _Static_assert(sizeof v->key == crypto_shorthash_KEYBYTES, "SipHash's key");
  crypto_shorthash_keygen(v->key);
  return MOE_OK;
}

enum moe_code vocab_read(const struct gguf *g, enum img_tokenizer_kind kind, bool scores, struct vocab *v,
                         struct moe_error *err) {
  const char *key = "tokenizer.ggml.tokens";
  struct gguf_array a;
  enum moe_code c = gguf_get_array_of(g, key, GGUF_STRING, &a, err);
  if (c) return c;
  if (a.count < 1 || a.count > IMG_TOKENIZER_MAX_VOCAB)
    return moe_fail(err, MOE_FAILED, "%s: %" PRIu64 " tokens, allowed are 1 to %u", key, a.count,
                    IMG_TOKENIZER_MAX_VOCAB);
  v->kind = kind;
  v->n = (uint32_t)a.count;
  if ((c = make_room(v, a.bytes, err))) return c;
  uint64_t cursor = 0;
  for (uint32_t i = 0; i < v->n && gguf_array_next(&a, &cursor, &v->name[i]); i++)
    if (v->name[i].bytes > IMG_TOKENIZER_MAX_TOKEN)
      return moe_fail(err, MOE_FAILED, "%s[%u]: %zu bytes, a token has at most %u", key, i, v->name[i].bytes,
                      IMG_TOKENIZER_MAX_TOKEN);
  if ((c = read_types(g, v, err))) return c;
  if (scores && (c = read_scores(g, v, err))) return c;
  enter_tokens(v);
  for (uint32_t i = 0; kind != IMG_TOKENIZER_BPE && i < v->n; i++)
    if (vocab_type(v, i) == IMG_TOKEN_NORMAL && v->len[i] > IMG_TOKENIZER_MAX_PIECE)
      return moe_fail(err, MOE_FAILED, "%s[%u]: %u bytes, a piece of SentencePiece has at most %u", key, i, v->len[i],
                      IMG_TOKENIZER_MAX_PIECE);
  return MOE_OK;
}
