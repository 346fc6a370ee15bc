/* img_tokenizer_build.c: writes a TOKENIZER payload.
 *
 * Owns: sizing and filling of the payload's tables. Does not own: what they mean (img_tokenizer.h).
 * Invariants: the bytes are a function of the source alone; what it returns has passed img_tokenizer_open. */
#include "img_tokenizer.h"

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

/* Sort key of an added token: its bytes, then its id. Carries the source because qsort passes no context. */
struct added_key {
  const uint8_t *bytes;
  uint32_t len, id;
};

static int added_order(const void *pa, const void *pb) {
  const struct added_key *a = pa, *b = pb;
  int c = memcmp(a->bytes, b->bytes, a->len < b->len ? a->len : b->len);
  if (c) return c;
  if (a->len != b->len) return a->len < b->len ? -1 : 1;
  return (a->id > b->id) - (a->id < b->id);
}

/* Added tokens ascending by bytes, each byte string once (its lowest id). Returns their number; *keys is malloc'd. */
static uint32_t collect_added(const struct img_tokenizer_source *s, struct added_key **keys) {
  uint32_t n = 0, kept = 0;
  for (uint32_t i = 0; i < s->n_vocab; i++) n += is_added(s, i);
  struct added_key *list = malloc(((size_t)n + 1) * sizeof *list);
  *keys = list;
  if (!list) return 0;
  n = 0;
  for (uint32_t i = 0; i < s->n_vocab; i++)
    if (is_added(s, i)) list[n++] = (struct added_key){s->token_text[i], s->token_len[i], i};
  qsort(list, n, sizeof *list, added_order);
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
static uint32_t collect_eog(const struct img_tokenizer_source *s, uint32_t **ids) {
  uint32_t *list = malloc(((size_t)s->n_eog + 1) * sizeof *list), kept = 0;
  *ids = list;
  if (!list) return 0;
  if (s->n_eog) memcpy(list, s->eog, s->n_eog * sizeof *list);
  qsort(list, s->n_eog, sizeof *list, id_order);
  for (uint32_t i = 0; i < s->n_eog; i++)
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
    if ((s->token_attr[i] & 0xff) != IMG_TOKEN_NORMAL) continue;
    if (n == 1 && byte_ids[text[at - 1]] == IMG_TOKEN_NONE) byte_ids[text[at - 1]] = i;
    uint32_t slot = img_token_slot(text + start[i], n, h->n_token_slot);
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
    uint32_t slot = img_merge_slot(m.left, m.right, h->n_merge_slot);
    for (; slots[slot].left != IMG_TOKEN_NONE; slot = (slot + 1) & (h->n_merge_slot - 1))
      if (slots[slot].left == m.left && slots[slot].right == m.right)
        return moe_fail(err, MOE_FAILED, "TOKENIZER merges[%u]: tokens %u and %u merge already with rank %u", i, m.left,
                        m.right, slots[slot].rank);
    slots[slot] = m;
  }
  return MOE_OK;
}

/* Sizes of the tables in bytes; false when the tokens' bytes do not fit 32-bit offsets. */
static bool table_sizes(const struct img_tokenizer_source *s, const struct img_tokenizer_header *h,
                        uint64_t bytes[IMG_TOKENIZER_T_COUNT]) {
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
  };
  memcpy(bytes, sizes, sizeof sizes);
  return text <= UINT32_MAX;
}

static enum moe_code write_payload(const struct img_tokenizer_source *s, struct img_tokenizer_header *h,
                                   const struct added_key *added, const uint32_t *eog, uint8_t **bytes, uint64_t *len,
                                   struct moe_error *err) {
  uint64_t sizes[IMG_TOKENIZER_T_COUNT];
  if (!table_sizes(s, h, sizes)) return moe_fail(err, MOE_FAILED, "TOKENIZER: the tokens have over 4 GiB of text");
  *len = lay_out(h, sizes);
  uint8_t *out = calloc(1, *len);
  if (!out) return moe_fail(err, MOE_FAILED, "TOKENIZER: no memory for %llu bytes", (unsigned long long)*len);
  memcpy(out, h, sizeof *h);
  memcpy(out + h->tables[IMG_TOKENIZER_T_PRE_NAME].offset, s->pre_name, sizes[IMG_TOKENIZER_T_PRE_NAME]);
  uint8_t *pattern = out + h->tables[IMG_TOKENIZER_T_PATTERNS].offset;
  for (uint32_t i = 0; i < s->n_pattern; i++, pattern += strlen((const char *)pattern) + 1)
    memcpy(pattern, s->patterns[i], strlen(s->patterns[i]) + 1);
  fill_tokens(s, h, out);
  uint32_t *ids = (uint32_t *)(out + h->tables[IMG_TOKENIZER_T_ADDED].offset);
  for (uint32_t i = 0; i < h->n_added; i++) ids[i] = added[i].id;
  if (h->n_eog) memcpy(out + h->tables[IMG_TOKENIZER_T_EOG].offset, eog, h->n_eog * sizeof *eog);
  enum moe_code c = fill_merges(s, h, out, err);
  if (c == MOE_OK) c = img_tokenizer_check(out, *len, err);
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
  struct added_key *added;
  uint32_t *eog, n_normal = 0;
  uint32_t n_added = collect_added(s, &added), n_eog = collect_eog(s, &eog);
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
  enum moe_code c = added && eog ? write_payload(s, &h, added, eog, bytes, len, err)
                                 : moe_fail(err, MOE_FAILED, "TOKENIZER: no memory for the lists of added tokens");
  free(added);
  free(eog);
  return c;
}
