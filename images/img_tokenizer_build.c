/* img_tokenizer_build.c: writes a TOKENIZER payload.
 *
 * Owns: sizing and filling of the payload's tables. Does not own: what they mean (img_tokenizer.h).
 * Invariants: the bytes are a function of the source alone; what it returns has passed img_tokenizer_open. */
#include "img_tokenizer.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* Slots for n entries: a power of two that leaves at least three eighths free, so that a probe stays short. */
static uint32_t slots_for(uint32_t n) {
  uint64_t slots = 2;
  while (slots * 5 < (uint64_t)n * 8 || slots <= n) slots *= 2;
  return (uint32_t)slots;
}

static bool is_added(const struct img_tokenizer_source *s, uint32_t id) {
  unsigned type = s->token_attr[id] & 0xff;
  return (type == IMG_TOKEN_CONTROL || type == IMG_TOKEN_USER_DEFINED || type == IMG_TOKEN_UNKNOWN) &&
         s->token_len[id] > 0;
}

static bool is_piece(const struct img_tokenizer_source *s, uint32_t id) {
  return s->kind == IMG_TOKENIZER_UNIGRAM && (s->token_attr[id] & 0xff) == IMG_TOKEN_NORMAL && s->token_len[id] > 0;
}

/* Sort key of a token: its bytes, then its id. Carries the source because qsort passes no context. */
struct token_key {
  const uint8_t *bytes;
  uint32_t len, id;
};

static int key_order(const void *pa, const void *pb) {
  const struct token_key *a = pa, *b = pb;
  int c = memcmp(a->bytes, b->bytes, a->len < b->len ? a->len : b->len);
  if (c) return c;
  if (a->len != b->len) return a->len < b->len ? -1 : 1;
  return (a->id > b->id) - (a->id < b->id);
}

/* The tokens that `wanted` takes, ascending by bytes, each byte string once (its lowest id). Returns their number;
 * *keys is malloc'd. */
static uint32_t collect(const struct img_tokenizer_source *s,
                        bool (*wanted)(const struct img_tokenizer_source *s, uint32_t id), struct token_key **keys) {
  uint32_t n = 0, kept = 0;
  for (uint32_t i = 0; i < s->n_vocab; i++) n += wanted(s, i);
  struct token_key *list = malloc(((size_t)n + 1) * sizeof *list);
  *keys = list;
  if (!list) return 0;
  n = 0;
  for (uint32_t i = 0; i < s->n_vocab; i++)
    if (wanted(s, i)) list[n++] = (struct token_key){s->token_text[i], s->token_len[i], i};
  qsort(list, n, sizeof *list, key_order);
  for (uint32_t i = 0; i < n; i++)
    if (kept == 0 || list[kept - 1].len != list[i].len || memcmp(list[kept - 1].bytes, list[i].bytes, list[i].len) != 0)
      list[kept++] = list[i];
  return kept;
}

static int id_order(const void *pa, const void *pb) {
  uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
  return (a > b) - (a < b);
}

/* The ids ascending, each once. Returns their number; *ids is malloc'd. */
static uint32_t collect_ids(const uint32_t *from, uint32_t n, uint32_t **ids) {
  uint32_t *list = malloc(((size_t)n + 1) * sizeof *list), kept = 0;
  *ids = list;
  if (!list) return 0;
  if (n) memcpy(list, from, n * sizeof *list);
  qsort(list, n, sizeof *list, id_order);
  for (uint32_t i = 0; i < n; i++)
    if (kept == 0 || list[kept - 1] != list[i]) list[kept++] = list[i];
  return kept;
}

/* Places the tables one after the other on multiples of 16 and returns the payload's size. */
static uint64_t lay_out(struct img_tokenizer_header *h, const uint64_t bytes[IMG_TOKENIZER_T_COUNT]) {
  uint64_t at = sizeof *h;
  for (int t = 0; t < IMG_TOKENIZER_T_COUNT; t++) {
    at = (at + 15) & ~UINT64_C(15);
    h->tables[t].offset = at;
    h->tables[t].bytes = bytes[t];
    at += bytes[t];
  }
  return (at + 15) & ~UINT64_C(15);
}

/* The key of the hash tables: a hash of the whole vocabulary, so that whoever makes a vocabulary cannot choose tokens
 * that collide. `attempt` makes another one. */
static void make_key(const struct img_tokenizer_source *s, uint32_t attempt, struct img_tokenizer_key *key) {
  crypto_generichash_state state;
  crypto_generichash_init(&state, NULL, 0, sizeof *key);
  crypto_generichash_update(&state, (const uint8_t *)&attempt, sizeof attempt);
  for (uint32_t i = 0; i < s->n_vocab; i++) {
    crypto_generichash_update(&state, (const uint8_t *)&s->token_len[i], sizeof s->token_len[i]);
    crypto_generichash_update(&state, s->token_text[i], s->token_len[i]);
  }
  if (s->n_merge)
    crypto_generichash_update(&state, (const uint8_t *)s->merges, (uint64_t)s->n_merge * sizeof *s->merges);
  crypto_generichash_final(&state, (uint8_t *)key, sizeof *key);
  key->left |= 1;
  key->right |= 1;
}

static void fill_tokens(const struct img_tokenizer_source *s, const struct img_tokenizer_header *h, uint8_t *out) {
  uint32_t *start = (uint32_t *)(out + h->tables[IMG_TOKENIZER_T_TOKEN_START].offset);
  uint8_t *text = out + h->tables[IMG_TOKENIZER_T_TOKEN_BYTES].offset;
  uint32_t *slots = (uint32_t *)(out + h->tables[IMG_TOKENIZER_T_TOKEN_SLOTS].offset);
  uint32_t *byte_ids = (uint32_t *)(out + h->tables[IMG_TOKENIZER_T_BYTE_IDS].offset);
  memset(slots, 0xff, (size_t)h->n_token_slot * sizeof *slots);
  memset(byte_ids, 0xff, 256 * sizeof *byte_ids);
  memcpy(out + h->tables[IMG_TOKENIZER_T_TOKEN_ATTR].offset, s->token_attr, (size_t)s->n_vocab * sizeof(uint16_t));
  for (uint32_t i = 0, at = 0; i < s->n_vocab; i++) {
    uint32_t n = s->token_len[i];
    start[i] = at;
    if (n) memcpy(text + at, s->token_text[i], n);
    start[i + 1] = at += n;
    unsigned type = s->token_attr[i] & 0xff, single = s->kind == IMG_TOKENIZER_BPE ? IMG_TOKEN_NORMAL : IMG_TOKEN_BYTE;
    if (type == single && n == 1 && byte_ids[text[at - 1]] == IMG_TOKEN_NONE) byte_ids[text[at - 1]] = i;
    if (type != IMG_TOKEN_NORMAL) continue;
    uint32_t slot = img_token_slot(&h->key, text + start[i], n, h->n_token_slot);
    for (; slots[slot] != IMG_TOKEN_NONE; slot = (slot + 1) & (h->n_token_slot - 1)) {
      uint32_t other = slots[slot];
      if (s->token_len[other] == n && memcmp(text + start[other], text + start[i], n) == 0) break;
    }
    if (slots[slot] == IMG_TOKEN_NONE) slots[slot] = i; /* else the lower id stays */
  }
}

static enum moe_code fill_merges(const struct img_tokenizer_source *s, const struct img_tokenizer_header *h,
                                 uint8_t *out, struct moe_error *err) {
  struct img_merge *slots = (struct img_merge *)(out + h->tables[IMG_TOKENIZER_T_MERGE_SLOTS].offset);
  for (uint32_t i = 0; i < h->n_merge_slot; i++)
    slots[i] = (struct img_merge){IMG_TOKEN_NONE, IMG_TOKEN_NONE, IMG_TOKEN_NONE, IMG_TOKEN_NONE};
  for (uint32_t i = 0; i < s->n_merge; i++) {
    struct img_merge m = s->merges[i];
    uint32_t slot = img_merge_slot(&h->key, m.left, m.right, h->n_merge_slot);
    for (; slots[slot].left != IMG_TOKEN_NONE; slot = (slot + 1) & (h->n_merge_slot - 1))
      if (slots[slot].left == m.left && slots[slot].right == m.right)
        return moe_fail(err, MOE_FAILED, "TOKENIZER merges[%u]: tokens %u and %u merge already with rank %u", i, m.left,
                        m.right, slots[slot].rank);
    slots[slot] = m;
  }
  return MOE_OK;
}

/* The ordered lists of a payload. */
struct lists {
  struct token_key *added, *pieces;
  uint32_t *eog, *suppress;
  uint32_t n_pieces, n_suppress;
};

/* Sizes of the tables in bytes; false when the tokens' bytes do not fit 32-bit offsets. */
static bool table_sizes(const struct img_tokenizer_source *s, const struct img_tokenizer_header *h,
                        const struct lists *l, uint64_t bytes[IMG_TOKENIZER_T_COUNT]) {
  uint64_t text = 0, patterns = 0;
  for (uint32_t i = 0; i < s->n_vocab; i++) text += s->token_len[i];
  for (uint32_t i = 0; i < s->n_pattern; i++) patterns += strlen(s->patterns[i]) + 1;
  const uint64_t sizes[IMG_TOKENIZER_T_COUNT] = {
      [IMG_TOKENIZER_T_PRE_NAME] = strlen(s->pre_name),
      [IMG_TOKENIZER_T_PATTERNS] = patterns,
      [IMG_TOKENIZER_T_TOKEN_START] = ((uint64_t)s->n_vocab + 1) * 4,
      [IMG_TOKENIZER_T_TOKEN_BYTES] = text,
      [IMG_TOKENIZER_T_TOKEN_ATTR] = (uint64_t)s->n_vocab * 2,
      [IMG_TOKENIZER_T_TOKEN_SLOTS] = (uint64_t)h->n_token_slot * 4,
      [IMG_TOKENIZER_T_MERGE_SLOTS] = (uint64_t)h->n_merge_slot * sizeof(struct img_merge),
      [IMG_TOKENIZER_T_BYTE_IDS] = 256 * 4,
      [IMG_TOKENIZER_T_ADDED] = (uint64_t)h->n_added * 4,
      [IMG_TOKENIZER_T_EOG] = (uint64_t)h->n_eog * 4,
      [IMG_TOKENIZER_T_SCORES] = s->kind == IMG_TOKENIZER_UNIGRAM ? (uint64_t)s->n_vocab * 4 : 0,
      [IMG_TOKENIZER_T_SORTED] = (uint64_t)l->n_pieces * 4,
      [IMG_TOKENIZER_T_CHARSMAP] = (uint64_t)s->n_charsmap * 4,
      [IMG_TOKENIZER_T_REPLACEMENTS] = s->replacements_len,
      [IMG_TOKENIZER_T_SUPPRESS] = (uint64_t)l->n_suppress * 4,
  };
  memcpy(bytes, sizes, sizeof sizes);
  return text <= UINT32_MAX;
}

/* Everything but what is hashed. */
static void fill_lists(const struct img_tokenizer_source *s, const struct img_tokenizer_header *h,
                       const struct lists *l, const uint64_t sizes[IMG_TOKENIZER_T_COUNT], uint8_t *out) {
#define AT(which) (out + h->tables[IMG_TOKENIZER_T_##which].offset)
  memcpy(AT(PRE_NAME), s->pre_name, sizes[IMG_TOKENIZER_T_PRE_NAME]);
  uint8_t *pattern = AT(PATTERNS);
  for (uint32_t i = 0; i < s->n_pattern; i++, pattern += strlen((const char *)pattern) + 1)
    memcpy(pattern, s->patterns[i], strlen(s->patterns[i]) + 1);
  uint32_t *added = (uint32_t *)AT(ADDED), *pieces = (uint32_t *)AT(SORTED);
  for (uint32_t i = 0; i < h->n_added; i++) added[i] = l->added[i].id;
  for (uint32_t i = 0; i < l->n_pieces; i++) pieces[i] = l->pieces[i].id;
  if (h->n_eog) memcpy(AT(EOG), l->eog, h->n_eog * sizeof *l->eog);
  if (l->n_suppress) memcpy(AT(SUPPRESS), l->suppress, l->n_suppress * sizeof *l->suppress);
  if (sizes[IMG_TOKENIZER_T_SCORES]) memcpy(AT(SCORES), s->scores, sizes[IMG_TOKENIZER_T_SCORES]);
  if (s->n_charsmap) memcpy(AT(CHARSMAP), s->charsmap, sizes[IMG_TOKENIZER_T_CHARSMAP]);
  if (s->replacements_len) memcpy(AT(REPLACEMENTS), s->replacements, s->replacements_len);
#undef AT
}

/* The check finds an unlucky key too (IMG_TOKENIZER_MAX_RUN): then another one is tried. */
enum { MAX_ATTEMPT = 3 };

static enum moe_code write_payload(const struct img_tokenizer_source *s, struct img_tokenizer_header *h,
                                   const struct lists *l, uint8_t **bytes, uint64_t *len, struct moe_error *err) {
  uint64_t sizes[IMG_TOKENIZER_T_COUNT];
  if (!table_sizes(s, h, l, sizes)) return moe_fail(err, MOE_FAILED, "TOKENIZER: the tokens have over 4 GiB of text");
  *len = lay_out(h, sizes);
  uint8_t *out = calloc(1, *len);
  if (!out) return moe_fail(err, MOE_FAILED, "TOKENIZER: no memory for %llu bytes", (unsigned long long)*len);
  fill_lists(s, h, l, sizes, out);
  enum moe_code c = MOE_FAILED;
  for (uint32_t attempt = 0; c && attempt < MAX_ATTEMPT; attempt++) {
    make_key(s, attempt, &h->key);
    memcpy(out, h, sizeof *h);
    fill_tokens(s, h, out);
    c = fill_merges(s, h, out, err);
    if (c) break;
    c = img_tokenizer_check(out, *len, attempt + 1 < MAX_ATTEMPT ? NULL : err);
  }
  if (c == MOE_OK)
    *bytes = out;
  else
    free(out);
  return c;
}

enum moe_code img_tokenizer_build(const struct img_tokenizer_source *s, uint8_t **bytes, uint64_t *len,
                                  struct moe_error *err) {
  *bytes = NULL;
  if (s->n_vocab < 1 || s->n_vocab > IMG_TOKENIZER_MAX_VOCAB || s->n_merge > IMG_TOKENIZER_MAX_MERGE)
    return moe_fail(err, MOE_FAILED, "TOKENIZER: %u tokens and %u merges, allowed are 1 to %u and 0 to %u", s->n_vocab,
                    s->n_merge, IMG_TOKENIZER_MAX_VOCAB, IMG_TOKENIZER_MAX_MERGE);
  struct lists l;
  uint32_t n_normal = 0, n_added = collect(s, is_added, &l.added), n_eog = collect_ids(s->eog, s->n_eog, &l.eog);
  l.n_suppress = collect_ids(s->suppress, s->n_suppress, &l.suppress);
  l.n_pieces = collect(s, is_piece, &l.pieces);
  for (uint32_t i = 0; i < s->n_vocab; i++) n_normal += (s->token_attr[i] & 0xff) == IMG_TOKEN_NORMAL;
  struct img_tokenizer_header h = {
      .layout = IMG_TOKENIZER_LAYOUT,
      .header_bytes = sizeof h,
      .kind = s->kind,
      .flags = s->flags,
      .n_vocab = s->n_vocab,
      .n_merge = s->n_merge,
      .bos_id = s->bos_id,
      .eos_id = s->eos_id,
      .eot_id = s->eot_id,
      .pad_id = s->pad_id,
      .unk_id = s->unk_id,
      .n_pattern = s->n_pattern,
      .n_added = n_added,
      .n_eog = n_eog,
      .n_token_slot = slots_for(n_normal),
      .n_merge_slot = slots_for(s->n_merge),
  };
  enum moe_code c = l.added && l.eog && l.suppress && l.pieces
                        ? write_payload(s, &h, &l, bytes, len, err)
                        : moe_fail(err, MOE_FAILED, "TOKENIZER: no memory for the lists of tokens");
  free(l.added);
  free(l.pieces);
  free(l.eog);
  free(l.suppress);
  return c;
}
