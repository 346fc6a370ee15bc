/* tokenizer_bpe.c: merges the bytes or characters of one chunk of text into tokens.
 *
 * Owns: the heap of candidates and the linked list of symbols. Does not own: how text is cut into chunks.
 * Invariants: a candidate is acted on only if both its symbols still are what they were when it was found. */
#include "tokenizer_bpe.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

/* Makes room for `need` elements in an array that grows by doubling. */
static bool reserve(void **array, size_t *capacity, size_t need, size_t size) {
  if (need <= *capacity) return true;
  size_t grown = *capacity < 64 ? 64 : *capacity * 2;
  if (grown < need) grown = need;
  void *moved = realloc(*array, grown * size);
  if (!moved) return false;
  *array = moved;
  *capacity = grown;
  return true;
}

bool bpe_push(struct bpe *b, uint32_t id) {
  if (b->n_id >= b->max_id) {
    b->full = true;
    return false;
  }
  if (!reserve((void **)&b->ids, &b->id_capacity, b->n_id + 1, sizeof *b->ids)) return false;
  b->ids[b->n_id++] = id;
  return true;
}

static bool heap_push(struct bpe *b, struct bpe_candidate c) {
  if (!reserve((void **)&b->heap, &b->heap_capacity, b->n_heap + 1, sizeof *b->heap)) return false;
  size_t i = b->n_heap++;
  for (; i > 0 && b->heap[(i - 1) / 2].order > c.order; i = (i - 1) / 2) b->heap[i] = b->heap[(i - 1) / 2];
  b->heap[i] = c;
  return true;
}

static struct bpe_candidate heap_pop(struct bpe *b) {
  struct bpe_candidate top = b->heap[0], last = b->heap[--b->n_heap];
  size_t i = 0;
  for (;;) {
    size_t child = 2 * i + 1;
    if (child >= b->n_heap) break;
    if (child + 1 < b->n_heap && b->heap[child + 1].order < b->heap[child].order) child++;
    if (b->heap[child].order >= last.order) break;
    b->heap[i] = b->heap[child];
    i = child;
  }
  b->heap[i] = last;
  return top;
}

/* Enters the merge of symbol `at` with its right neighbour, if there is one. */
static bool consider(struct bpe *b, uint32_t at) {
  if (at == IMG_TOKEN_NONE || b->symbols[at].next == IMG_TOKEN_NONE) return true;
  uint32_t left = b->symbols[at].id, right = b->symbols[b->symbols[at].next].id;
  const struct img_merge *m = img_tokenizer_find_merge(b->view, left, right);
  if (!m) return true;
  return heap_push(b, (struct bpe_candidate){(uint64_t)m->rank << 32 | at, left, right, m->result});
}

bool bpe_has_bytes(const struct bpe *b, const uint8_t *bytes, uint32_t len) {
  for (uint32_t i = 0; i < len; i++)
    if (b->view->byte_ids[bytes[i]] == IMG_TOKEN_NONE) return false;
  return true;
}

bool bpe_push_bytes(struct bpe *b, const uint8_t *bytes, uint32_t len) {
  for (uint32_t i = 0; i < len; i++)
    if (!bpe_push(b, b->view->byte_ids[bytes[i]])) return false;
  return true;
}

bool bpe_ill_formed(struct bpe *b, const uint8_t *bytes, uint32_t len) {
  if (bpe_has_bytes(b, bytes, len)) return bpe_push_bytes(b, bytes, len);
  return b->view->unk_id == IMG_TOKEN_NONE || bpe_push(b, b->view->unk_id);
}

/* Symbol n of the chunk; n - 1 is IMG_TOKEN_NONE for the first one. */
static void set_symbol(struct bpe *b, uint32_t n, uint32_t id) {
  b->symbols[n] = (struct bpe_symbol){id, n - 1, n + 1};
}

/* One symbol for each byte that has a token (or the unknown token). Returns their number. */
static uint32_t split_bytes(struct bpe *b, const uint8_t *bytes, uint32_t len) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < len; i++) {
    uint32_t id = b->view->byte_ids[bytes[i]];
    if (id == IMG_TOKEN_NONE) id = b->view->unk_id;
    if (id != IMG_TOKEN_NONE) set_symbol(b, n++, id);
  }
  return n;
}

/* One symbol for each character that is a token, else one for each of its bytes, else one unknown token for all such
 * characters in a row. Returns their number. */
static uint32_t split_chars(struct bpe *b, const uint8_t *bytes, uint32_t len) {
  uint32_t n = 0, step;
  for (uint32_t i = 0; i < len; i += step) {
    int k = utf8_next(bytes + i, len - i);
    step = k > 0 ? (uint32_t)k : 1;
    uint32_t id = img_tokenizer_find_normal(b->view, bytes + i, step), unk = b->view->unk_id;
    if (id != IMG_TOKEN_NONE)
      set_symbol(b, n++, id);
    else if (bpe_has_bytes(b, bytes + i, step))
      for (uint32_t j = 0; j < step; j++) set_symbol(b, n++, b->view->byte_ids[bytes[i + j]]);
    else if (unk != IMG_TOKEN_NONE && (n == 0 || b->symbols[n - 1].id != unk))
      set_symbol(b, n++, unk);
  }
  return n;
}

bool bpe_chunk(struct bpe *b, const uint8_t *bytes, uint32_t len) {
  if (b->view->flags & IMG_TOKENIZER_IGNORE_MERGES) {
    uint32_t whole = img_tokenizer_find_normal(b->view, bytes, len);
    if (whole != IMG_TOKEN_NONE) return bpe_push(b, whole);
  }
  if (!reserve((void **)&b->symbols, &b->symbol_capacity, len, sizeof *b->symbols)) return false;
  uint32_t n = b->view->kind == IMG_TOKENIZER_BPE ? split_bytes(b, bytes, len) : split_chars(b, bytes, len);
  if (n > 0) b->symbols[n - 1].next = IMG_TOKEN_NONE;
  b->n_heap = 0;
  for (uint32_t i = 0; i < n; i++)
    if (!consider(b, i)) return false;
  while (b->n_heap > 0) {
    struct bpe_candidate c = heap_pop(b);
    uint32_t at = (uint32_t)c.order;
    struct bpe_symbol *s = &b->symbols[at];
    if (s->id != c.left || s->next == IMG_TOKEN_NONE || b->symbols[s->next].id != c.right) continue;
    struct bpe_symbol *gone = &b->symbols[s->next];
    s->id = c.result;
    s->next = gone->next;
    if (gone->next != IMG_TOKEN_NONE) b->symbols[gone->next].prev = at;
    gone->id = IMG_TOKEN_NONE;
    if (!consider(b, s->prev) || !consider(b, at)) return false;
  }
  for (uint32_t i = 0; n > 0 && i != IMG_TOKEN_NONE; i = b->symbols[i].next)
    if (!bpe_push(b, b->symbols[i].id)) return false;
  return true;
}

void bpe_deinit(struct bpe *b) {
  free(b->symbols);
  free(b->heap);
}
