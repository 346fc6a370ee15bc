/* emit_tokenizer.c: reads tokenizer.ggml.* and hands what it found to img_tokenizer_build.
 *
 * Owns: the vocabulary while it is read (one struct vocab per call), the check of every key. Does not own: the
 * payload's layout. Invariants: untrusted counts are bounded before anything is sized by them; ids are checked where
 * they are read. */
#include "emit_tokenizer.h"

#include "gguf_text.h"
#include "src_gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRETOKENIZER_MAX_PATTERN 6

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

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The vocabulary while it is read. */
struct vocab {
  uint32_t n;
  struct gguf_string *name; /* [n] as in the file, borrowed */
  const uint8_t **text;     /* [n] raw bytes: the name, or the part of arena that the name stands for */
  uint32_t *len;            /* [n] */
  uint16_t *attr;           /* [n] */
  uint8_t *arena;           /* decoded bytes */
  uint32_t *slots;          /* hash table of all names: ids or IMG_TOKEN_NONE */
  uint32_t n_slot;          /* a power of two */
};

static void vocab_deinit(struct vocab *v) {
  free(v->name);
  free((void *)v->text);
  free(v->len);
  free(v->attr);
  free(v->arena);
  free(v->slots);
}

/* The first token of that name, or IMG_TOKEN_NONE. */
static uint32_t vocab_find(const struct vocab *v, const char *name, size_t bytes) {
  uint32_t s = img_token_slot((const uint8_t *)name, (uint32_t)bytes, v->n_slot);
  for (; v->slots[s] != IMG_TOKEN_NONE; s = (s + 1) & (v->n_slot - 1)) {
    const struct gguf_string *other = &v->name[v->slots[s]];
    if (other->bytes == bytes && memcmp(other->data, name, bytes) == 0) return v->slots[s];
  }
  return IMG_TOKEN_NONE;
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

/* ---- Reading ---- */

static enum moe_code no_memory(struct moe_error *err) {
  return moe_fail(err, MOE_FAILED, "tokenizer: no memory for the vocabulary");
}

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

/* Gives v->text and v->len their values and enters all names in the hash table. */
static void enter_tokens(struct vocab *v) {
  uint8_t *at = v->arena;
  memset(v->slots, 0xff, (size_t)v->n_slot * sizeof *v->slots);
  for (uint32_t i = 0; i < v->n; i++) {
    const struct gguf_string *name = &v->name[i];
    bool coded = v->attr[i] == IMG_TOKEN_NORMAL || v->attr[i] == IMG_TOKEN_BYTE;
    if (coded && alphabet_decode(name, at, &v->len[i])) {
      v->text[i] = at;
      at += v->len[i];
    } else {
      v->text[i] = (const uint8_t *)name->data;
      v->len[i] = (uint32_t)name->bytes;
    }
    if (vocab_find(v, name->data, name->bytes) != IMG_TOKEN_NONE) continue; /* the lower id keeps the name */
    uint32_t s = img_token_slot((const uint8_t *)name->data, (uint32_t)name->bytes, v->n_slot);
    while (v->slots[s] != IMG_TOKEN_NONE) s = (s + 1) & (v->n_slot - 1);
    v->slots[s] = i;
  }
}

static enum moe_code read_vocab(const struct gguf *g, struct vocab *v, struct moe_error *err) {
  const char *key = "tokenizer.ggml.tokens";
  struct gguf_array a;
  enum moe_code c = gguf_get_array_of(g, key, GGUF_STRING, &a, err);
  if (c) return c;
  if (a.count < 1 || a.count > IMG_TOKENIZER_MAX_VOCAB)
    return moe_fail(err, MOE_FAILED, "%s: %" PRIu64 " tokens, allowed are 1 to %u", key, a.count,
                    IMG_TOKENIZER_MAX_VOCAB);
  v->n = (uint32_t)a.count;
  for (v->n_slot = 2; v->n_slot < v->n * 2u; v->n_slot *= 2) {
  }
  v->name = calloc(v->n, sizeof *v->name);
  v->text = calloc(v->n, sizeof *v->text);
  v->len = calloc(v->n, sizeof *v->len);
  v->attr = calloc(v->n, sizeof *v->attr);
  v->arena = malloc(a.bytes + 1); /* a name is never shorter than what it stands for */
  v->slots = malloc((size_t)v->n_slot * sizeof *v->slots);
  if (!v->name || !v->text || !v->len || !v->attr || !v->arena || !v->slots) return no_memory(err);
  uint64_t cursor = 0;
  for (uint32_t i = 0; i < v->n && gguf_array_next(&a, &cursor, &v->name[i]); i++)
    if (v->name[i].bytes > IMG_TOKENIZER_MAX_TOKEN)
      return moe_fail(err, MOE_FAILED, "%s[%u]: %zu bytes, a token has at most %u", key, i, v->name[i].bytes,
                      IMG_TOKENIZER_MAX_TOKEN);
  if ((c = read_types(g, v, err))) return c;
  enter_tokens(v);
  return MOE_OK;
}

/* One entry of tokenizer.ggml.merges: "LEFT RIGHT", neither of them empty; names hold no space (it is written U+0120).
 * Returns what is wrong with it, or NULL. */
static const char *read_merge(const struct vocab *v, const struct gguf_string *s, struct img_merge *merge,
                              char *joined) {
  const char *space = s->bytes > 2 ? memchr(s->data + 1, ' ', s->bytes - 2) : NULL;
  if (!space || s->bytes > 2 * IMG_TOKENIZER_MAX_TOKEN) return "it is not two tokens with a space between them";
  size_t left = (size_t)(space - s->data), right = s->bytes - left - 1;
  memcpy(joined, s->data, left);
  memcpy(joined + left, space + 1, right);
  merge->left = vocab_find(v, s->data, left);
  merge->right = vocab_find(v, space + 1, right);
  merge->result = vocab_find(v, joined, left + right);
  if (merge->left == IMG_TOKEN_NONE) return "the first token is not in tokenizer.ggml.tokens";
  if (merge->right == IMG_TOKEN_NONE) return "the second token is not in tokenizer.ggml.tokens";
  return merge->result == IMG_TOKEN_NONE ? "the merged token is not in tokenizer.ggml.tokens" : NULL;
}

static void skip_merge(struct emit_tokenizer_note *note, uint32_t rank, const struct gguf_string *s, const char *why) {
  char shown[80];
  if (!note || note->n_skipped++ > 0) return;
  snprintf(note->first, sizeof note->first, "merges[%u] \"%s\": %s", rank,
           gguf_text_printable(shown, sizeof shown, s->data, s->bytes), why);
}

static int pair_order(const void *pa, const void *pb) {
  const struct img_merge *a = pa, *b = pb;
  if (a->left != b->left) return a->left < b->left ? -1 : 1;
  if (a->right != b->right) return a->right < b->right ? -1 : 1;
  return (a->rank > b->rank) - (a->rank < b->rank);
}

/* Keeps the last of the merges of each pair, as the families' own tokenizers do. Returns how many are left. */
static uint32_t drop_duplicates(struct img_merge *merges, uint32_t n) {
  uint32_t kept = 0;
  qsort(merges, n, sizeof *merges, pair_order);
  for (uint32_t i = 0; i < n; i++)
    if (i + 1 == n || merges[i].left != merges[i + 1].left || merges[i].right != merges[i + 1].right)
      merges[kept++] = merges[i];
  return kept;
}

static enum moe_code read_merges(const struct gguf *g, const struct vocab *v, struct img_merge **merges, uint32_t *n,
                                 struct emit_tokenizer_note *note, struct moe_error *err) {
  const char *key = "tokenizer.ggml.merges", *why;
  struct gguf_array a;
  struct gguf_string s;
  enum moe_code c = gguf_get_array_of(g, key, GGUF_STRING, &a, err);
  if (c) return c;
  if (a.count > IMG_TOKENIZER_MAX_MERGE)
    return moe_fail(err, MOE_FAILED, "%s: %" PRIu64 " merges, at most %u allowed", key, a.count,
                    IMG_TOKENIZER_MAX_MERGE);
  char *joined = malloc(2 * IMG_TOKENIZER_MAX_TOKEN);
  *merges = malloc((a.count + 1) * sizeof **merges);
  if (!*merges || !joined) {
    free(joined);
    return no_memory(err);
  }
  uint64_t cursor = 0;
  *n = 0;
  for (uint32_t rank = 0; rank < a.count && gguf_array_next(&a, &cursor, &s); rank++) {
    if ((why = read_merge(v, &s, &(*merges)[*n], joined)))
      skip_merge(note, rank, &s, why);
    else
      (*merges)[(*n)++].rank = rank;
  }
  free(joined);
  uint32_t kept = drop_duplicates(*merges, *n);
  if (note) note->n_duplicate = *n - kept;
  *n = kept;
  return MOE_OK;
}

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

static enum moe_code choose_pretokenizer(const struct gguf *g, const struct pretokenizer **pre, struct moe_error *err) {
  struct gguf_string model, name;
  char shown[80];
  enum moe_code c = gguf_get_string(g, "tokenizer.ggml.model", &model, err);
  if (c) return c;
  if (model.bytes != 4 || memcmp(model.data, "gpt2", 4) != 0)
    return moe_fail(err, MOE_DECLINED, "tokenizer.ggml.model: \"%s\" is not served; served is: gpt2 (byte-level BPE)",
                    gguf_text_printable(shown, sizeof shown, model.data, model.bytes));
  if (!gguf_has(g, "tokenizer.ggml.pre"))
    return moe_fail(err, MOE_DECLINED,
                    "tokenizer.ggml.pre: missing, so how text is cut into words is unknown; convert the model again "
                    "with a converter that writes it");
  if ((c = gguf_get_string(g, "tokenizer.ggml.pre", &name, err))) return c;
  *pre = find_pretokenizer(&name);
  if (*pre) return MOE_OK;
  char served[1024];
  list_pretokenizers(served, sizeof served);
  return moe_fail(err, MOE_DECLINED, "tokenizer.ggml.pre: \"%s\" is not served; served are: %s",
                  gguf_text_printable(shown, sizeof shown, name.data, name.bytes), served);
}

static uint32_t choose_flags(const struct pretokenizer *pre, const struct vocab *v, bool add_bos, bool add_eos,
                             const struct img_tokenizer_source *ids) {
  uint32_t flags = pre->flags & ~(uint32_t)(IMG_TOKENIZER_ADD_BOS | IMG_TOKENIZER_ADD_EOS);
  bool own = pre->original && pre->original_id < v->n && v->name[pre->original_id].bytes == strlen(pre->original) &&
             memcmp(v->name[pre->original_id].data, pre->original, strlen(pre->original)) == 0;
  if (!own) flags &= ~(uint32_t)IMG_TOKENIZER_NFC;
  if (add_bos && ids->bos_id != IMG_TOKEN_NONE) flags |= IMG_TOKENIZER_ADD_BOS;
  if (add_eos && ids->eos_id != IMG_TOKEN_NONE) flags |= IMG_TOKENIZER_ADD_EOS;
  return flags;
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
    if (id == IMG_TOKEN_NONE || v->attr[id] == IMG_TOKEN_NORMAL) continue;
    if (unless && vocab_find(v, unless, strlen(unless)) != IMG_TOKEN_NONE) continue;
    eog[n++] = id;
    if (s->eot_id == IMG_TOKEN_NONE && eog_tokens[i].ends_turn) s->eot_id = id;
  }
  return n;
}

static enum moe_code read_ids(const struct gguf *g, const struct vocab *v, const struct pretokenizer *pre,
                              struct img_tokenizer_source *s, uint32_t *eom_id, struct moe_error *err) {
  const struct {
    const char *key;
    uint32_t *id;
  } ids[] = {{"tokenizer.ggml.bos_token_id", &s->bos_id},     {"tokenizer.ggml.eos_token_id", &s->eos_id},
             {"tokenizer.ggml.eot_token_id", &s->eot_id},     {"tokenizer.ggml.eom_token_id", eom_id},
             {"tokenizer.ggml.padding_token_id", &s->pad_id}, {"tokenizer.ggml.unknown_token_id", &s->unk_id}};
  enum moe_code c;
  for (size_t i = 0; i < COUNT(ids); i++)
    if ((c = read_id(g, ids[i].key, v, ids[i].id, err))) return c;
  bool add_bos, add_eos;
  if ((c = gguf_get_bool_or(g, "tokenizer.ggml.add_bos_token", (pre->flags & IMG_TOKENIZER_ADD_BOS) != 0, &add_bos,
                            err)))
    return c;
  if ((c = gguf_get_bool_or(g, "tokenizer.ggml.add_eos_token", false, &add_eos, err))) return c;
  s->flags = choose_flags(pre, v, add_bos, add_eos, s);
  return MOE_OK;
}

static enum moe_code emit(const struct gguf *g, struct vocab *v, struct img_merge **merges, uint8_t **bytes,
                          uint64_t *len, struct emit_tokenizer_note *note, struct moe_error *err) {
  const struct pretokenizer *pre;
  struct img_tokenizer_source s = {.kind = IMG_TOKENIZER_BPE};
  uint32_t eom_id, eog[COUNT(eog_tokens) + 3];
  enum moe_code c;
  if ((c = choose_pretokenizer(g, &pre, err))) return c;
  if ((c = read_vocab(g, v, err))) return c;
  if ((c = read_merges(g, v, merges, &s.n_merge, note, err))) return c;
  if ((c = read_ids(g, v, pre, &s, &eom_id, err))) return c;
  s.n_vocab = v->n;
  s.pre_name = pre->name;
  s.patterns = pre->patterns;
  while (pre->patterns[s.n_pattern]) s.n_pattern++;
  s.token_text = v->text;
  s.token_len = v->len;
  s.token_attr = v->attr;
  s.merges = *merges;
  s.n_eog = choose_eog(v, &s, eom_id, eog);
  s.eog = eog;
  return img_tokenizer_build(&s, bytes, len, err);
}

enum moe_code emit_tokenizer_served(const struct gguf *g, struct moe_error *err) {
  const struct pretokenizer *pre;
  return choose_pretokenizer(g, &pre, err);
}

enum moe_code emit_tokenizer(const struct gguf *g, uint8_t **bytes, uint64_t *len, struct emit_tokenizer_note *note,
                             struct moe_error *err) {
  struct vocab v = {0};
  if (note) *note = (struct emit_tokenizer_note){0};
  struct img_merge *merges = NULL;
  *bytes = NULL;
  enum moe_code c = emit(g, &v, &merges, bytes, len, note, err);
  free(merges);
  vocab_deinit(&v);
  return c;
}
