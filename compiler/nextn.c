#include "nextn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What every NextN block has beside a layer's tensors; its own embedding and head may be missing (the trunk's then). */
static const char *const nextn_own[] = {"nextn.eh_proj.weight", "nextn.enorm.weight", "nextn.hnorm.weight"};

int64_t nextn_block_of(const char *name, const char **rest) {
  if (strncmp(name, "blk.", 4) || name[4] < '0' || name[4] > '9') return -1;
  char *end;
  unsigned long block = strtoul(name + 4, &end, 10);
  if (*end != '.' || block > UINT32_MAX) return -1;
  *rest = end + 1;
  return (int64_t)block;
}

static bool nextn_has(const struct gguf *g, uint32_t block, const char *rest) {
  char name[160];
  int n = snprintf(name, sizeof name, "blk.%u.%s", block, rest);
  const struct gguf_tensor *t = n < (int)sizeof name ? gguf_find_tensor(g, name) : NULL;
  return t && format_compiled(t->format);
}

void nextn_find(const struct gguf *g, uint32_t n_layer, uint32_t n_block, struct nextn *n) {
  const char *rest;
  uint32_t n_tensor[NEXTN_MAX] = {0};
  *n = (struct nextn){.n_trunk = n_layer - n_block, .n_block = n_block};
  for (uint32_t i = 0; i < n_block; i++) {
    n->whole[i] = true;
    for (size_t k = 0; k < sizeof nextn_own / sizeof *nextn_own; k++)
      n->whole[i] &= nextn_has(g, n->n_trunk + i, nextn_own[k]);
  }
  for (uint64_t t = 0; t < gguf_n_tensor(g); t++) {
    int64_t block = nextn_block_of(gguf_tensor(g, t)->name, &rest);
    if (block >= n->n_trunk && block < n_layer) n_tensor[block - n->n_trunk]++;
    if (block >= n->n_trunk && block < n_layer && !format_compiled(gguf_tensor(g, t)->format))
      n->whole[block - n->n_trunk] = false;
    for (uint32_t i = 0; i < n_block && block == (int64_t)n->n_trunk - 1; i++)
      n->whole[i] &= nextn_has(g, n->n_trunk + i, rest);
  }
  for (uint32_t i = 0; i < n_block; i++) {
    n->n_whole += n->whole[i];
    n->n_partial += !n->whole[i] && n_tensor[i];
  }
}
