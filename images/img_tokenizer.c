/* img_tokenizer.c: checks a TOKENIZER payload.
 *
 * Owns: what a well-formed payload is. Does not own: lookups (img_tokenizer_find.c), writing (img_tokenizer_build.c).
 * Invariants: nothing of the payload is used before it was checked; every loop is bounded by a checked count. */
#include "img_tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const table_names[IMG_TOKENIZER_T_COUNT] = {
    "pre_name", "patterns", "token_start", "token_bytes", "token_attr", "token_slots",  "merge_slots", "byte_ids",
    "added",    "eog",      "scores",      "sorted",      "charsmap",   "replacements", "suppress"};

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
  if (h->kind < IMG_TOKENIZER_BPE || h->kind > IMG_TOKENIZER_LAST_KIND)
    return moe_fail(err, MOE_FAILED, "TOKENIZER kind: %u, known are %d to %d", h->kind, IMG_TOKENIZER_BPE,
                    IMG_TOKENIZER_LAST_KIND);
  if (h->flags & ~(uint32_t)IMG_TOKENIZER_FLAGS)
    return moe_fail(err, MOE_FAILED, "TOKENIZER flags: 0x%x, known are 0x%x", h->flags, IMG_TOKENIZER_FLAGS);
  if ((c = check_count("n_vocab", h->n_vocab, 1, IMG_TOKENIZER_MAX_VOCAB, err))) return c;
  if ((c = check_count("n_merge", h->n_merge, 0, IMG_TOKENIZER_MAX_MERGE, err))) return c;
  bool chars = h->kind != IMG_TOKENIZER_BPE, unigram = h->kind == IMG_TOKENIZER_UNIGRAM;
  if (h->flags & (chars ? IMG_TOKENIZER_NFC : IMG_TOKENIZER_SPACE_PREFIX | IMG_TOKENIZER_FEW_SPACES))
    return moe_fail(err, MOE_FAILED, "TOKENIZER flags: 0x%x has a flag of other kinds than %u", h->flags, h->kind);
  if (h->key.left % 2 == 0 || h->key.right % 2 == 0) return moe_fail(err, MOE_FAILED, "TOKENIZER key: an even factor");
  if ((c = check_count("n_pattern", h->n_pattern, chars ? 0 : 1, 16, err))) return c;
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
                                                (uint64_t)h->n_eog * 4,
                                                unigram ? (uint64_t)h->n_vocab * 4 : 0,
                                                unigram ? UINT64_MAX : 0,
                                                chars ? UINT64_MAX : 0,
                                                chars ? UINT64_MAX : 0,
                                                UINT64_MAX};
  for (int t = 0; t < IMG_TOKENIZER_T_COUNT; t++)
    if ((c = check_table(h, len, (enum img_tokenizer_table)t, want[t], err))) return c;
  for (int t = IMG_TOKENIZER_T_SORTED; t < IMG_TOKENIZER_T_COUNT; t++)
    if ((h->tables[t].bytes % 4 != 0 && t != IMG_TOKENIZER_T_REPLACEMENTS) || h->tables[t].bytes / 4 > UINT32_MAX)
      return moe_fail(err, MOE_FAILED, "TOKENIZER %s: %" PRIu64 " bytes are not a number of entries", table_names[t],
                      h->tables[t].bytes);
  uint64_t most = h->n_vocab - 1 < IMG_TOKENIZER_MAX_SUPPRESS ? h->n_vocab - 1 : IMG_TOKENIZER_MAX_SUPPRESS;
  if ((c = check_count("suppress bytes", h->tables[IMG_TOKENIZER_T_SUPPRESS].bytes, 0, 4 * most, err))) return c;
  return check_count("pre_name bytes", h->tables[IMG_TOKENIZER_T_PRE_NAME].bytes, 1, 255, err);
}

static enum moe_code check_patterns(const struct img_tokenizer *v, uint64_t bytes, struct moe_error *err) {
  uint32_t ends = 0;
  for (uint64_t i = 0; i < bytes; i++) ends += v->patterns[i] == 0;
  if (ends == v->n_pattern && (bytes == 0 || v->patterns[bytes - 1] == 0)) return MOE_OK;
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
    if (v->kind != IMG_TOKENIZER_BPE && type == IMG_TOKEN_NORMAL && b - a > IMG_TOKENIZER_MAX_PIECE)
      return moe_fail(err, MOE_FAILED, "TOKENIZER token_start[%u]: a normal token of %u bytes, kind %d allows %u", i,
                      b - a, v->kind, IMG_TOKENIZER_MAX_PIECE);
  }
  return MOE_OK;
}

/* Bounds the time of a lookup: no longer run of occupied slots, cyclically, than IMG_TOKENIZER_MAX_RUN. `word` is the
 * first word of a slot, all ones in a free one; the next slot is `words` further. */
static enum moe_code check_runs(const char *name, const uint32_t *word, uint32_t slots, uint32_t words,
                                struct moe_error *err) {
  uint64_t run = 0;
  for (uint64_t s = 0; s < (uint64_t)slots + IMG_TOKENIZER_MAX_RUN; s++) { /* past the end: the run that goes on at 0 */
    run = word[(s & (slots - 1)) * words] == IMG_TOKEN_NONE ? 0 : run + 1;
    if (run > IMG_TOKENIZER_MAX_RUN)
      return moe_fail(err, MOE_FAILED, "TOKENIZER %s: over %u occupied slots in a row, up to slot %" PRIu64, name,
                      IMG_TOKENIZER_MAX_RUN, s & (slots - 1));
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
  enum moe_code c = check_slots("token_slots", v->n_token_slot, used, err);
  return c ? c : check_runs("token_slots", v->token_slots, v->n_token_slot, 1, err);
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
  if (used == v->n_merge) return check_runs("merge_slots", &v->merge_slots->left, v->n_merge_slot, 4, err);
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
  for (uint32_t i = 0; i < v->n_suppress; i++)
    if (v->suppress[i] >= v->n_vocab || (i > 0 && v->suppress[i] <= v->suppress[i - 1]))
      return moe_fail(err, MOE_FAILED,
                      "TOKENIZER suppress[%u]: token %u is none of the %u tokens or not in ascending order", i,
                      v->suppress[i], v->n_vocab);
  return MOE_OK;
}

static enum moe_code check_unigram(const struct img_tokenizer *v, struct moe_error *err) {
  for (uint32_t i = 0; v->kind == IMG_TOKENIZER_UNIGRAM && i < v->n_vocab; i++)
    if (!isfinite(v->scores[i])) return moe_fail(err, MOE_FAILED, "TOKENIZER scores[%u]: not a finite number", i);
  for (uint32_t i = 0; i < v->n_sorted; i++) {
    uint32_t id = v->sorted[i];
    if (id >= v->n_vocab || v->token_start[id] == v->token_start[id + 1] || img_token_type(v, id) != IMG_TOKEN_NORMAL)
      return moe_fail(err, MOE_FAILED, "TOKENIZER sorted[%u]: token %u is none of the %u tokens, empty or not normal",
                      i, id, v->n_vocab);
    if (i > 0 && token_order(v, v->sorted[i - 1], id) >= 0)
      return moe_fail(err, MOE_FAILED, "TOKENIZER sorted[%u]: token %u is not above token %u in byte order", i, id,
                      v->sorted[i - 1]);
  }
  return MOE_OK;
}

/* The double array is followed with a check of each step; its outputs must end, and soon. */
static enum moe_code check_replacements(const struct img_tokenizer *v, struct moe_error *err) {
  uint32_t start = 0;
  for (uint32_t i = 0; i < v->replacements_len; i++) {
    if (v->replacements[i] == 0) start = i + 1;
    if (i + 1 - start > IMG_TOKENIZER_MAX_REPLACEMENT)
      return moe_fail(err, MOE_FAILED, "TOKENIZER replacements: the one at byte %u has over %u bytes", start,
                      IMG_TOKENIZER_MAX_REPLACEMENT);
  }
  if (start == v->replacements_len) return MOE_OK;
  return moe_fail(err, MOE_FAILED, "TOKENIZER replacements: the one at byte %u does not end", start);
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
      .suppress = AT(SUPPRESS),
      .n_suppress = (uint32_t)(h->tables[IMG_TOKENIZER_T_SUPPRESS].bytes / 4),
      .key = &h->key,
      .scores = AT(SCORES),
      .sorted = AT(SORTED),
      .n_sorted = (uint32_t)(h->tables[IMG_TOKENIZER_T_SORTED].bytes / 4),
      .charsmap = AT(CHARSMAP),
      .n_charsmap = (uint32_t)(h->tables[IMG_TOKENIZER_T_CHARSMAP].bytes / 4),
      .replacements = AT(REPLACEMENTS),
      .replacements_len = (uint32_t)h->tables[IMG_TOKENIZER_T_REPLACEMENTS].bytes,
  };
#undef AT
  if ((c = check_patterns(view, h->tables[IMG_TOKENIZER_T_PATTERNS].bytes, err))) return c;
  if ((c = check_tokens(view, h->tables[IMG_TOKENIZER_T_TOKEN_BYTES].bytes, err))) return c;
  if ((c = check_token_slots(view, err))) return c;
  if ((c = check_merge_slots(view, err))) return c;
  if ((c = check_bytes(view, err))) return c;
  if ((c = check_lists(view, err))) return c;
  if ((c = check_unigram(view, err))) return c;
  return check_replacements(view, err);
}

enum moe_code img_tokenizer_check(const void *bytes, uint64_t len, struct moe_error *err) {
  struct img_tokenizer view;
  return img_tokenizer_open(bytes, len, &view, err);
}
