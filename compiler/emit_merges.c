/* emit_merges.c: see emit_merges.h. */
#include "emit_merges.h"

#include "gguf_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- From the file ---- */

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
  if (merge->result == IMG_TOKEN_NONE) return "the merged token is not in tokenizer.ggml.tokens";
  return v->len[merge->left] + v->len[merge->right] != v->len[merge->result] ? "the merged token stands for other text"
                                                                             : NULL;
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

enum moe_code merges_read(const struct gguf *g, const struct vocab *v, struct img_merge **merges, uint32_t *n,
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
    return vocab_no_memory(err);
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

/* ---- From scores ---- */

struct ranked {
  float score;
  uint32_t id;
};

static int score_order(const void *pa, const void *pb) {
  const struct ranked *a = pa, *b = pb;
  if (a->score != b->score) return a->score > b->score ? -1 : 1;
  return (a->id > b->id) - (a->id < b->id);
}

/* The normal token of that name, or IMG_TOKEN_NONE. */
static uint32_t find_normal(const struct vocab *v, const char *name, size_t bytes) {
  uint32_t id = vocab_find(v, name, bytes);
  return id != IMG_TOKEN_NONE && vocab_type(v, id) == IMG_TOKEN_NORMAL ? id : IMG_TOKEN_NONE;
}

/* Appends every way to make the token out of two. */
static enum moe_code add_cuts(const struct vocab *v, uint32_t id, uint32_t rank, struct img_merge **merges, uint32_t *n,
                              uint32_t *capacity, struct moe_error *err) {
  const struct gguf_string *name = &v->name[id];
  for (size_t at = 1; at < name->bytes; at++) {
    if (((uint8_t)name->data[at] & 0xc0) == 0x80) continue; /* inside a character */
    uint32_t left = find_normal(v, name->data, at);
    if (left == IMG_TOKEN_NONE) continue;
    uint32_t right = find_normal(v, name->data + at, name->bytes - at);
    if (right == IMG_TOKEN_NONE) continue;
    if (*n == *capacity) {
      if (*n == IMG_TOKENIZER_MAX_MERGE)
        return moe_fail(err, MOE_FAILED, "tokenizer.ggml.tokens: over %u ways to make tokens out of two others",
                        IMG_TOKENIZER_MAX_MERGE);
      uint32_t grown = *capacity ? *capacity * 2 : 1024;
      if (grown > IMG_TOKENIZER_MAX_MERGE) grown = IMG_TOKENIZER_MAX_MERGE;
      struct img_merge *moved = realloc(*merges, grown * sizeof *moved);
      if (!moved) return vocab_no_memory(err);
      *merges = moved;
      *capacity = grown;
    }
    (*merges)[(*n)++] = (struct img_merge){left, right, rank, id};
  }
  return MOE_OK;
}

enum moe_code merges_from_scores(const struct vocab *v, struct img_merge **merges, uint32_t *n, struct moe_error *err) {
  struct ranked *order = malloc((size_t)v->n * sizeof *order);
  uint32_t n_order = 0, capacity = 0, rank = 0;
  enum moe_code c = order ? MOE_OK : vocab_no_memory(err);
  *merges = NULL;
  *n = 0;
  for (uint32_t i = 0; !c && i < v->n; i++) /* of equal names the first counts */
    if (vocab_type(v, i) == IMG_TOKEN_NORMAL && vocab_find(v, v->name[i].data, v->name[i].bytes) == i)
      order[n_order++] = (struct ranked){v->score[i], i};
  if (!c) qsort(order, n_order, sizeof *order, score_order);
  for (uint32_t i = 0; !c && i < n_order; i++) {
    if (i > 0 && order[i].score != order[i - 1].score) rank = i;
    c = add_cuts(v, order[i].id, rank, merges, n, &capacity, err);
  }
  free(order);
  return c;
}
