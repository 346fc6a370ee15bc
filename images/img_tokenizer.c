/* img_tokenizer.c: checks a TOKENIZER payload and looks things up in it.
 *
 * Owns: what a well-formed payload is, and probing of its hash tables. Does not own: writing (img_tokenizer_build.c).
 * Invariants: nothing of the payload is used before it was checked; every loop is bounded by a checked count. */
#include "img_tokenizer.h"

#include <inttypes.h>
#include <string.h>

static const char *const table_names[IMG_TOKENIZER_T_COUNT] = {
    "pre_name",    "patterns",    "token_start", "token_bytes", "token_attr",
    "token_slots", "merge_slots", "byte_ids",    "added",       "eog"};

#define HASH_FACTOR UINT64_C(0x9E3779B97F4A7C15)

static uint32_t slot_of(uint64_t hash, uint32_t slots) {
  /* slots is a power of two of at least 2, so the shift is at most 63. */
  return (uint32_t)(hash >> (64 - __builtin_ctz(slots)));
}

uint32_t img_merge_slot(uint32_t left, uint32_t right, uint32_t slots) {
  return slot_of((((uint64_t)left << 32) | right) * HASH_FACTOR, slots);
}

uint32_t img_token_slot(const uint8_t *bytes, uint32_t len, uint32_t slots) {
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (uint32_t i = 0; i < len; i++) h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
  return slot_of(h * HASH_FACTOR, slots);
}

uint32_t img_tokenizer_find_normal(const struct img_tokenizer *t, const uint8_t *bytes, uint32_t len) {
  for (uint32_t s = img_token_slot(bytes, len, t->n_token_slot);; s = (s + 1) & (t->n_token_slot - 1)) {
    uint32_t id = t->token_slots[s];
    if (id == IMG_TOKEN_NONE) return IMG_TOKEN_NONE;
    uint32_t n;
    const uint8_t *b = img_token_bytes(t, id, &n);
    if (n == len && memcmp(b, bytes, n) == 0) return id;
  }
}

const struct img_merge *img_tokenizer_find_merge(const struct img_tokenizer *t, uint32_t left, uint32_t right) {
  for (uint32_t s = img_merge_slot(left, right, t->n_merge_slot);; s = (s + 1) & (t->n_merge_slot - 1)) {
    const struct img_merge *m = &t->merge_slots[s];
    if (m->left == IMG_TOKEN_NONE) return NULL;
    if (m->left == left && m->right == right) return m;
  }
}

/* First entry of added[lo, hi) whose byte at `depth` is at least `byte`; entries all have more than `depth` bytes. */
static uint32_t added_lower_bound(const struct img_tokenizer *t, uint32_t lo, uint32_t hi, uint32_t depth,
                                  unsigned byte) {
  while (lo < hi) {
    uint32_t mid = lo + (hi - lo) / 2, n;
    if (img_token_bytes(t, t->added[mid], &n)[depth] < byte)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

uint32_t img_tokenizer_match_added(const struct img_tokenizer *t, const uint8_t *text, uint64_t len,
                                   bool accept_control) {
  uint32_t best = IMG_TOKEN_NONE, lo = 0, hi = t->n_added;
  for (uint32_t depth = 0; depth < len && lo < hi; depth++) {
    /* All of [lo, hi) start with text[0, depth) and are longer than depth: an entry of exactly depth bytes sorts first
     * and was taken off below. */
    lo = added_lower_bound(t, lo, hi, depth, text[depth]);
    hi = added_lower_bound(t, lo, hi, depth, text[depth] + 1u);
    if (lo == hi) break;
    uint32_t n;
    (void)img_token_bytes(t, t->added[lo], &n);
    if (n == depth + 1) {
      if (accept_control || img_token_type(t, t->added[lo]) == IMG_TOKEN_USER_DEFINED) best = t->added[lo];
      lo++;
    }
  }
  return best;
}

uint32_t img_tokenizer_find_added(const struct img_tokenizer *t, const uint8_t *bytes, uint32_t len) {
  uint32_t id = img_tokenizer_match_added(t, bytes, len, true), n;
  if (id == IMG_TOKEN_NONE) return id;
  (void)img_token_bytes(t, id, &n);
  return n == len ? id : IMG_TOKEN_NONE;
}

/* Table `which` must lie in the payload, aligned, with exactly `want` bytes (any number when want is UINT64_MAX). */
static enum moe_code check_table(const struct img_tokenizer_header *h, uint64_t len, enum img_tokenizer_table which,
                                 uint64_t want, struct moe_error *err) {
  uint64_t offset = h->tables[which].offset, bytes = h->tables[which].bytes;
  if (offset % 16 != 0)
    return moe_fail(err, MOE_FAILED, "TOKENIZER %s: offset %" PRIu64 " is not a multiple of 16", table_names[which],
                    offset);
  if (offset < sizeof *h || !moe_inside(offset, bytes, len))
    return moe_fail(err, MOE_FAILED,
                    "TOKENIZER %s: offset %" PRIu64 " and %" PRIu64 " bytes are not between the header's %zu and the "
                    "payload's %" PRIu64 " bytes",
                    table_names[which], offset, bytes, sizeof *h, len);
  if (want != UINT64_MAX && bytes != want)
    return moe_fail(err, MOE_FAILED, "TOKENIZER %s: %" PRIu64 " bytes, the header's counts need %" PRIu64,
                    table_names[which], bytes, want);
  return MOE_OK;
}

static enum moe_code check_count(const char *name, uint64_t found, uint64_t low, uint64_t high, struct moe_error *err) {
  if (found >= low && found <= high) return MOE_OK;
  return moe_fail(err, MOE_FAILED, "TOKENIZER %s: %" PRIu64 ", allowed are %" PRIu64 " to %" PRIu64, name, found, low,
                  high);
}

static enum moe_code check_id(const char *name, uint32_t id, const struct img_tokenizer_header *h,
                              struct moe_error *err) {
  if (id == IMG_TOKEN_NONE || id < h->n_vocab) return MOE_OK;
  return moe_fail(err, MOE_FAILED, "TOKENIZER %s: token %u, the vocabulary has %u tokens", name, id, h->n_vocab);
}

static enum moe_code check_slots(const char *name, uint32_t slots, uint32_t used, struct moe_error *err) {
  if (slots >= 2 && (slots & (slots - 1)) == 0 && used < slots) return MOE_OK;
  return moe_fail(err, MOE_FAILED, "TOKENIZER %s: %u slots for %u entries, must be a power of two above them", name,
                  slots, used);
}

static enum moe_code check_header(const struct img_tokenizer_header *h, uint64_t len, struct moe_error *err) {
  enum moe_code c;
  if (h->layout != IMG_TOKENIZER_LAYOUT || h->header_bytes != sizeof *h)
    return moe_fail(err, MOE_FAILED,
                    "TOKENIZER header: layout %u of %u bytes, this program reads layout %u of %zu; compile the model "
                    "again with the moec of this version",
                    h->layout, h->header_bytes, IMG_TOKENIZER_LAYOUT, sizeof *h);
  if (h->kind != IMG_TOKENIZER_BPE)
    return moe_fail(err, MOE_FAILED, "TOKENIZER kind: %u, known is %d (byte-level BPE)", h->kind, IMG_TOKENIZER_BPE);
  if (h->flags & ~(uint32_t)IMG_TOKENIZER_FLAGS)
    return moe_fail(err, MOE_FAILED, "TOKENIZER flags: 0x%x, known are 0x%x", h->flags, IMG_TOKENIZER_FLAGS);
  if ((c = check_count("n_vocab", h->n_vocab, 1, IMG_TOKENIZER_MAX_VOCAB, err))) return c;
  if ((c = check_count("n_merge", h->n_merge, 0, IMG_TOKENIZER_MAX_MERGE, err))) return c;
  if ((c = check_count("n_pattern", h->n_pattern, 1, 16, err))) return c;
  if ((c = check_count("n_added", h->n_added, 0, h->n_vocab, err))) return c;
  if ((c = check_count("n_eog", h->n_eog, 0, h->n_vocab, err))) return c;
  if ((c = check_slots("n_token_slot", h->n_token_slot, 0, err))) return c;
  if ((c = check_slots("n_merge_slot", h->n_merge_slot, h->n_merge, err))) return c;
  const struct {
    const char *name;
    uint32_t id;
  } ids[] = {{"bos_id", h->bos_id},
             {"eos_id", h->eos_id},
             {"eot_id", h->eot_id},
             {"pad_id", h->pad_id},
             {"unk_id", h->unk_id}};
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
    if ((c = check_id(ids[i].name, ids[i].id, h, err))) return c;
  if (((h->flags & IMG_TOKENIZER_ADD_BOS) && h->bos_id == IMG_TOKEN_NONE) ||
      ((h->flags & IMG_TOKENIZER_ADD_EOS) && h->eos_id == IMG_TOKEN_NONE))
    return moe_fail(err, MOE_FAILED, "TOKENIZER flags: 0x%x adds a token that the header does not name", h->flags);
  const uint64_t want[IMG_TOKENIZER_T_COUNT] = {UINT64_MAX,
                                                UINT64_MAX,
                                                ((uint64_t)h->n_vocab + 1) * 4,
                                                UINT64_MAX,
                                                (uint64_t)h->n_vocab * 2,
                                                (uint64_t)h->n_token_slot * 4,
                                                (uint64_t)h->n_merge_slot * sizeof(struct img_merge),
                                                256 * 4,
                                                (uint64_t)h->n_added * 4,
                                                (uint64_t)h->n_eog * 4};
  for (int t = 0; t < IMG_TOKENIZER_T_COUNT; t++)
    if ((c = check_table(h, len, (enum img_tokenizer_table)t, want[t], err))) return c;
  return check_count("pre_name bytes", h->tables[IMG_TOKENIZER_T_PRE_NAME].bytes, 1, 255, err);
}

static enum moe_code check_patterns(const struct img_tokenizer *v, uint64_t bytes, struct moe_error *err) {
  uint32_t ends = 0;
  for (uint64_t i = 0; i < bytes; i++) ends += v->patterns[i] == 0;
  if (ends == v->n_pattern && bytes > 0 && v->patterns[bytes - 1] == 0) return MOE_OK;
  return moe_fail(err, MOE_FAILED, "TOKENIZER patterns: %u terminators in %" PRIu64 " bytes, the header says %u", ends,
                  bytes, v->n_pattern);
}

static enum moe_code check_tokens(const struct img_tokenizer *v, uint64_t bytes, struct moe_error *err) {
  if (v->token_start[0] != 0 || v->token_start[v->n_vocab] != bytes)
    return moe_fail(err, MOE_FAILED, "TOKENIZER token_start: goes from %u to %u, must go from 0 to %" PRIu64,
                    v->token_start[0], v->token_start[v->n_vocab], bytes);
  for (uint32_t i = 0; i < v->n_vocab; i++) {
    uint32_t a = v->token_start[i], b = v->token_start[i + 1];
    if (a > b || b - a > IMG_TOKENIZER_MAX_TOKEN)
      return moe_fail(err, MOE_FAILED, "TOKENIZER token_start[%u]: token goes from %u to %u, at most %u bytes allowed",
                      i, a, b, IMG_TOKENIZER_MAX_TOKEN);
    unsigned attr = v->token_attr[i], type = attr & 0xff, flags = attr & 0xff00;
    if (type < IMG_TOKEN_NORMAL || type > IMG_TOKEN_BYTE || (flags & ~(unsigned)(IMG_TOKEN_LSTRIP | IMG_TOKEN_RSTRIP)))
      return moe_fail(err, MOE_FAILED, "TOKENIZER token_attr[%u]: 0x%x, types are %d to %d and flags 0x%x", i, attr,
                      IMG_TOKEN_NORMAL, IMG_TOKEN_BYTE, IMG_TOKEN_LSTRIP | IMG_TOKEN_RSTRIP);
  }
  return MOE_OK;
}

static enum moe_code check_token_slots(const struct img_tokenizer *v, struct moe_error *err) {
  uint32_t used = 0;
  for (uint32_t s = 0; s < v->n_token_slot; s++) {
    uint32_t id = v->token_slots[s];
    if (id == IMG_TOKEN_NONE) continue;
    used++;
    if (id >= v->n_vocab || img_token_type(v, id) != IMG_TOKEN_NORMAL)
      return moe_fail(err, MOE_FAILED,
                      "TOKENIZER token_slots[%u]: token %u is none of the %u tokens or not a normal one", s, id,
                      v->n_vocab);
  }
  return check_slots("token_slots", v->n_token_slot, used, err);
}

static enum moe_code check_merge_slots(const struct img_tokenizer *v, struct moe_error *err) {
  uint32_t used = 0;
  for (uint32_t s = 0; s < v->n_merge_slot; s++) {
    struct img_merge m = v->merge_slots[s];
    if (m.left == IMG_TOKEN_NONE) continue;
    used++;
    if (m.left >= v->n_vocab || m.right >= v->n_vocab || m.result >= v->n_vocab)
      return moe_fail(err, MOE_FAILED, "TOKENIZER merge_slots[%u]: merge of %u and %u into %u, the vocabulary has %u",
                      s, m.left, m.right, m.result, v->n_vocab);
    const uint32_t *at = v->token_start;
    if (at[m.left + 1] - at[m.left] + at[m.right + 1] - at[m.right] != at[m.result + 1] - at[m.result])
      return moe_fail(err, MOE_FAILED, "TOKENIZER merge_slots[%u]: token %u is not as long as %u and %u together", s,
                      m.result, m.left, m.right);
  }
  if (used == v->n_merge) return MOE_OK;
  return moe_fail(err, MOE_FAILED, "TOKENIZER merge_slots: %u occupied, the header says %u", used, v->n_merge);
}

static enum moe_code check_bytes(const struct img_tokenizer *v, struct moe_error *err) {
  for (uint32_t b = 0; b < 256; b++) {
    uint32_t id = v->byte_ids[b], n;
    if (id == IMG_TOKEN_NONE) continue;
    if (id < v->n_vocab) {
      const uint8_t *bytes = img_token_bytes(v, id, &n);
      if (n == 1 && *bytes == b) continue;
    }
    return moe_fail(err, MOE_FAILED, "TOKENIZER byte_ids[%u]: token %u is not that single byte", b, id);
  }
  return MOE_OK;
}

/* Bytewise order of two tokens, a prefix before what it is a prefix of. */
static int token_order(const struct img_tokenizer *v, uint32_t a, uint32_t b) {
  uint32_t na, nb;
  const uint8_t *pa = img_token_bytes(v, a, &na), *pb = img_token_bytes(v, b, &nb);
  int c = memcmp(pa, pb, na < nb ? na : nb);
  return c ? c : (na > nb) - (na < nb);
}

static enum moe_code check_lists(const struct img_tokenizer *v, struct moe_error *err) {
  for (uint32_t i = 0; i < v->n_added; i++) {
    uint32_t id = v->added[i];
    if (id >= v->n_vocab || v->token_start[id] == v->token_start[id + 1] || img_token_type(v, id) == IMG_TOKEN_NORMAL)
      return moe_fail(err, MOE_FAILED, "TOKENIZER added[%u]: token %u is none of the %u tokens, empty or a normal one",
                      i, id, v->n_vocab);
    if (i > 0 && token_order(v, v->added[i - 1], id) >= 0)
      return moe_fail(err, MOE_FAILED, "TOKENIZER added[%u]: token %u is not above token %u in byte order", i, id,
                      v->added[i - 1]);
  }
  for (uint32_t i = 0; i < v->n_eog; i++)
    if (v->eog[i] >= v->n_vocab || (i > 0 && v->eog[i] <= v->eog[i - 1]))
      return moe_fail(err, MOE_FAILED, "TOKENIZER eog[%u]: token %u is none of the %u tokens or not in ascending order",
                      i, v->eog[i], v->n_vocab);
  return MOE_OK;
}

enum moe_code img_tokenizer_open(const void *bytes, uint64_t len, struct img_tokenizer *view, struct moe_error *err) {
  const struct img_tokenizer_header *h = bytes;
  enum moe_code c;
  if ((uintptr_t)bytes % 8 != 0) return moe_fail(err, MOE_FAILED, "TOKENIZER payload: not mapped on 8 bytes");
  if (len < sizeof *h)
    return moe_fail(err, MOE_FAILED, "TOKENIZER payload: %" PRIu64 " bytes, its header alone has %zu", len, sizeof *h);
  if ((c = check_header(h, len, err))) return c;
#define AT(which) ((const void *)((const uint8_t *)bytes + h->tables[IMG_TOKENIZER_T_##which].offset))
  *view = (struct img_tokenizer){
      .kind = (enum img_tokenizer_kind)h->kind,
      .flags = h->flags,
      .n_vocab = h->n_vocab,
      .n_merge = h->n_merge,
      .bos_id = h->bos_id,
      .eos_id = h->eos_id,
      .eot_id = h->eot_id,
      .pad_id = h->pad_id,
      .unk_id = h->unk_id,
      .pre_name = AT(PRE_NAME),
      .pre_name_len = (uint32_t)h->tables[IMG_TOKENIZER_T_PRE_NAME].bytes,
      .patterns = AT(PATTERNS),
      .n_pattern = h->n_pattern,
      .token_start = AT(TOKEN_START),
      .token_bytes = AT(TOKEN_BYTES),
      .token_attr = AT(TOKEN_ATTR),
      .token_slots = AT(TOKEN_SLOTS),
      .n_token_slot = h->n_token_slot,
      .merge_slots = AT(MERGE_SLOTS),
      .n_merge_slot = h->n_merge_slot,
      .byte_ids = AT(BYTE_IDS),
      .added = AT(ADDED),
      .n_added = h->n_added,
      .eog = AT(EOG),
      .n_eog = h->n_eog,
  };
#undef AT
  if ((c = check_patterns(view, h->tables[IMG_TOKENIZER_T_PATTERNS].bytes, err))) return c;
  if ((c = check_tokens(view, h->tables[IMG_TOKENIZER_T_TOKEN_BYTES].bytes, err))) return c;
  if ((c = check_token_slots(view, err))) return c;
  if ((c = check_merge_slots(view, err))) return c;
  if ((c = check_bytes(view, err))) return c;
  return check_lists(view, err);
}

enum moe_code img_tokenizer_check(const void *bytes, uint64_t len, struct moe_error *err) {
  struct img_tokenizer view;
  return img_tokenizer_open(bytes, len, &view, err);
}
