/* tokenizer_unigram.c: see tokenizer_unigram.h.
 *
 * Invariants: places inside a character are never gone on from; each character's end is reached, if by no token then by
 * the character as unknown. */
#include "tokenizer_unigram.h"
#include "utf8.h"

#include <stdlib.h>

float unigram_unknown_score(const struct img_tokenizer *v) {
  float lowest = 0;
  for (uint32_t i = 0; i < v->n_sorted; i++)
    if (v->scores[v->sorted[i]] < lowest) lowest = v->scores[v->sorted[i]];
  return lowest - 10;
}

/* Takes a way to place `to` if it is better than what is known; the first one of equals stays. */
static void offer(struct unigram_node *nodes, uint32_t from, uint32_t to, uint32_t id, float score) {
  float total = nodes[from].score + score;
  if (nodes[to].from != IMG_TOKEN_NONE && nodes[to].score >= total) return;
  nodes[to] = (struct unigram_node){total, from, id};
}

/* Puts the best way's tokens in the order of the text: from[to] of a place becomes the next place. */
static void turn_around(struct unigram_node *nodes, uint32_t len) {
  uint32_t next = IMG_TOKEN_NONE, next_id = IMG_TOKEN_NONE;
  for (uint32_t at = len;;) {
    struct unigram_node *n = &nodes[at];
    uint32_t from = n->from, id = n->id;
    n->from = next;
    n->id = next_id;
    if (at == 0) return;
    next = at;
    next_id = id;
    at = from;
  }
}

/* Appends what stands for an unknown character. *unknown: whether unk_id was the last. */
static bool push_unknown(struct bpe *b, const uint8_t *bytes, uint32_t len, bool *unknown) {
  if (bpe_has_bytes(b, bytes, len)) {
    *unknown = false;
    return bpe_push_bytes(b, bytes, len);
  }
  if (*unknown || b->view->unk_id == IMG_TOKEN_NONE) return true;
  *unknown = true;
  return bpe_push(b, b->view->unk_id);
}

bool unigram_chunk(struct unigram *u, struct bpe *b, float unknown_score, const uint8_t *bytes, uint32_t len) {
  if (u->capacity < (size_t)len + 1) {
    size_t grown = u->capacity * 2 > (size_t)len + 1 ? u->capacity * 2 : (size_t)len + 1;
    struct unigram_node *moved = realloc(u->nodes, grown * sizeof *moved);
    if (!moved) return false;
    u->nodes = moved;
    u->capacity = grown;
  }
  for (uint32_t i = 0; i <= len; i++) u->nodes[i] = (struct unigram_node){0, IMG_TOKEN_NONE, IMG_TOKEN_NONE};
  u->nodes[0].from = 0;
  for (uint32_t at = 0; at < len;) {
    struct img_prefix_walk walk = {0};
    int k = utf8_next(bytes + at, len - at);
    uint32_t id, step = k > 0 ? (uint32_t)k : 1;
    bool known = false;
    while ((id = img_tokenizer_next_prefix(b->view, &walk, bytes + at, len - at)) != IMG_TOKEN_NONE) {
      offer(u->nodes, at, at + walk.depth, id, b->view->scores[id]);
      known |= walk.depth == step;
    }
    if (!known) offer(u->nodes, at, at + step, IMG_TOKEN_NONE, unknown_score);
    at += step;
  }
  turn_around(u->nodes, len);
  bool unknown = false;
  for (uint32_t at = 0; at < len; at = u->nodes[at].from) {
    uint32_t id = u->nodes[at].id;
    bool ok = id == IMG_TOKEN_NONE ? push_unknown(b, bytes + at, u->nodes[at].from - at, &unknown) : bpe_push(b, id);
    if (!ok) return false;
    if (id != IMG_TOKEN_NONE) unknown = false;
  }
  return true;
}

void unigram_deinit(struct unigram *u) {
  free(u->nodes);
}
