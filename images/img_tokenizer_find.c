/* img_tokenizer_find.c: looks things up in a checked TOKENIZER payload.
 *
 * Owns: the hash functions, probing, walks through the sorted lists and through SentencePiece's table of replacements.
 * Does not own: the check (img_tokenizer.c). Invariants: relies on what img_tokenizer_open promises and on nothing
 * else; every walk is bounded by the text or by a table. */
#include "img_tokenizer.h"

#include <sodium.h>
#include <string.h>

static uint32_t slot_of(uint64_t hash, uint32_t slots) {
  /* slots is a power of two of at least 2, so the shift is at most 63. */
  return (uint32_t)(hash >> (64 - __builtin_ctz(slots)));
}

uint32_t img_merge_slot(const struct img_tokenizer_key *key, uint32_t left, uint32_t right, uint32_t slots) {
  return slot_of(left * key->left + right * key->right, slots);
}

_Static_assert(crypto_shorthash_KEYBYTES == sizeof(((struct img_tokenizer_key *)0)->token), "SipHash's key");
_Static_assert(crypto_shorthash_BYTES == sizeof(uint64_t), "SipHash's result");

uint32_t img_token_slot(const struct img_tokenizer_key *key, const uint8_t *bytes, uint32_t len, uint32_t slots) {
  uint64_t h;
  crypto_shorthash((unsigned char *)&h, bytes, len, key->token);
  return slot_of(h, slots);
}

uint32_t img_tokenizer_find_normal(const struct img_tokenizer *t, const uint8_t *bytes, uint32_t len) {
  for (uint32_t s = img_token_slot(t->key, bytes, len, t->n_token_slot);; s = (s + 1) & (t->n_token_slot - 1)) {
    uint32_t id = t->token_slots[s];
    if (id == IMG_TOKEN_NONE) return IMG_TOKEN_NONE;
    uint32_t n;
    const uint8_t *b = img_token_bytes(t, id, &n);
    if (n == len && memcmp(b, bytes, n) == 0) return id;
  }
}

const struct img_merge *img_tokenizer_find_merge(const struct img_tokenizer *t, uint32_t left, uint32_t right) {
  for (uint32_t s = img_merge_slot(t->key, left, right, t->n_merge_slot);; s = (s + 1) & (t->n_merge_slot - 1)) {
    const struct img_merge *m = &t->merge_slots[s];
    if (m->left == IMG_TOKEN_NONE) return NULL;
    if (m->left == left && m->right == right) return m;
  }
}

/* First entry of list[lo, hi) whose byte at `depth` is at least `byte`; entries all have more than `depth` bytes. */
static uint32_t lower_bound(const struct img_tokenizer *t, const uint32_t *list, uint32_t lo, uint32_t hi,
                            uint32_t depth, unsigned byte) {
  while (lo < hi) {
    uint32_t mid = lo + (hi - lo) / 2, n;
    if (img_token_bytes(t, list[mid], &n)[depth] < byte)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

/* The next entry of a list, ascending by bytes, that is a prefix of the text. Before each step all of [lo, hi) start
 * with the first `depth` bytes of the text and are longer: an entry of exactly that length sorts first and is taken off
 * when it is returned. */
static uint32_t next_prefix(const struct img_tokenizer *t, const uint32_t *list, struct img_prefix_walk *w,
                            const uint8_t *text, uint64_t len) {
  while (w->depth < len && w->lo < w->hi) {
    w->lo = lower_bound(t, list, w->lo, w->hi, w->depth, text[w->depth]);
    w->hi = lower_bound(t, list, w->lo, w->hi, w->depth, text[w->depth] + 1u);
    if (w->lo == w->hi) break;
    w->depth++;
    uint32_t n, first = list[w->lo];
    (void)img_token_bytes(t, first, &n);
    if (n > w->depth) continue;
    w->lo++;
    return first;
  }
  return IMG_TOKEN_NONE;
}

uint32_t img_tokenizer_match_added(const struct img_tokenizer *t, const uint8_t *text, uint64_t len,
                                   bool accept_control) {
  struct img_prefix_walk w = {.hi = t->n_added};
  uint32_t best = IMG_TOKEN_NONE;
  for (uint32_t id; (id = next_prefix(t, t->added, &w, text, len)) != IMG_TOKEN_NONE;)
    if (accept_control || img_token_type(t, id) == IMG_TOKEN_USER_DEFINED) best = id;
  return best;
}

uint32_t img_tokenizer_next_prefix(const struct img_tokenizer *t, struct img_prefix_walk *walk, const uint8_t *text,
                                   uint64_t len) {
  if (!walk->started) *walk = (struct img_prefix_walk){.hi = t->n_sorted, .started = true};
  return next_prefix(t, t->sorted, walk, text, len);
}

/* A unit of the double array: the label in bits 0 to 7 and 31, whether a value follows in bit 8, the offset of its
 * children in bits 10 to 31, counted in 256s where bit 9 is set. Source: darts-clone, darts.h. */
static uint32_t unit_label(uint32_t unit) {
  return unit & (UINT32_C(1) << 31 | 0xff);
}
static uint32_t unit_offset(uint32_t unit) {
  return (unit >> 10) << ((unit & 0x200) >> 6);
}

uint32_t img_tokenizer_replace(const struct img_tokenizer *t, const uint8_t *text, uint64_t len,
                               const char **replacement) {
  uint32_t longest = 0, at = t->n_charsmap ? unit_offset(t->charsmap[0]) : 0;
  for (uint32_t i = 0; i < len && i < IMG_TOKENIZER_MAX_REPLACED && text[i]; i++) {
    at ^= text[i];
    if (at >= t->n_charsmap || unit_label(t->charsmap[at]) != text[i]) break;
    uint32_t unit = t->charsmap[at];
    at ^= unit_offset(unit);
    if (!(unit & 0x100)) continue;
    if (at >= t->n_charsmap) break;
    uint32_t value = t->charsmap[at] & ~(UINT32_C(1) << 31);
    if (value >= t->replacements_len) break;
    *replacement = t->replacements + value;
    longest = i + 1;
  }
  return longest;
}

uint32_t img_tokenizer_find_added(const struct img_tokenizer *t, const uint8_t *bytes, uint32_t len) {
  uint32_t id = img_tokenizer_match_added(t, bytes, len, true), n;
  if (id == IMG_TOKEN_NONE) return id;
  (void)img_token_bytes(t, id, &n);
  return n == len ? id : IMG_TOKEN_NONE;
}
