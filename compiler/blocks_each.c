/* blocks_each.c: hyperparameters that a file may give layer by layer (HPARAM_EACH of hparams.def).
 *
 * Owns: reading them, what a family gets of them. Does not own: other hyperparameters (model_blocks.c). Invariants: a
 * file whose layers differ is only compiled when its family, or a block of it, has asked by layer; a family that takes
 * the one value of struct hparams would compute another model, and is declined. */
#include "model_blocks_impl.h"

#include <stdlib.h>

static const char *const blocks_each_keys[BLOCKS_N_EACH] = {
#define HPARAM(field, key, fallback, min, max)
#define HPARAM_REAL(field, key, fallback, min, max)
#define HPARAM_EACH(field, key, fallback, min, max) [BLOCKS_EACH_##field] = key,
#include "hparams.def"
#undef HPARAM
#undef HPARAM_REAL
};

void blocks_read_each(struct blocks *b, enum blocks_each row, double fallback, uint32_t min, uint32_t max,
                      uint32_t *value) {
  char name[192];
  enum gguf_type type = GGUF_U32;
  struct gguf_array array;
  if (b->code) return;
  blocks_key(b, blocks_each_keys[row], name, sizeof name);
  if (gguf_get_array(b->gguf, name, &array, NULL) == MOE_OK) type = GGUF_ARRAY;
  if (type != GGUF_ARRAY) {
    blocks_read_u32(b, blocks_each_keys[row], fallback, min, max, value);
    return;
  }
  uint32_t n = b->h.n_layer, *each = calloc(n, sizeof *each);
  b->each[row] = each;
  if (!each) blocks_fail(b, MOE_FAILED, "out of memory: %s of %u layers", name, n);
  if (!b->code) b->code = gguf_get_u32_each(b->gguf, name, n, each, b->err);
  for (uint32_t i = 0; i < n && !b->code; i++) {
    if (each[i] > max) blocks_fail(b, MOE_FAILED, "%s[%u]: %u; allowed: 0 to %u", name, i, each[i], max);
    if (*value == 0) *value = each[i];
  }
  if (!b->code && *value < min) blocks_fail(b, MOE_FAILED, "%s: %u in all layers; allowed: from %u", name, *value, min);
}

static uint32_t blocks_each_value(struct blocks *b, enum blocks_each row, uint32_t single, int layer) {
  b->each_asked[row] = true;
  if (!b->each[row] || layer < 0 || (uint32_t)layer >= b->h.n_layer) return single;
  return b->each[row][layer];
}

uint32_t blocks_n_head(struct blocks *b, int layer) {
  return blocks_each_value(b, BLOCKS_EACH_n_head, b->h.n_head, layer);
}

uint32_t blocks_n_kv_head(struct blocks *b, int layer) {
  char name[192];
  /* Without the key every head has keys and values of its own, in each layer as many as there are. */
  if (!gguf_has(b->gguf, blocks_key(b, blocks_each_keys[BLOCKS_EACH_n_kv_head], name, sizeof name)))
    return blocks_n_head(b, layer);
  return blocks_each_value(b, BLOCKS_EACH_n_kv_head, b->h.n_kv_head, layer);
}

uint32_t blocks_d_ff(struct blocks *b, int layer) {
  return blocks_each_value(b, BLOCKS_EACH_d_ff, b->h.d_ff, layer);
}

void blocks_check_each(struct blocks *b) {
  for (int row = 0; row < BLOCKS_N_EACH && !b->code; row++) {
    const uint32_t *each = b->each_asked[row] ? NULL : b->each[row];
    for (uint32_t i = 1; each && i < b->h.n_layer && !b->code; i++)
      if (each[i] != each[0])
        blocks_fail(b, MOE_DECLINED, "%s.%s: %u in layer 0, %u in layer %u; %s has one value for all layers here",
                    b->graph->family, blocks_each_keys[row], each[0], each[i], i, b->graph->family);
  }
}

void blocks_free_each(struct blocks *b) {
  for (int row = 0; row < BLOCKS_N_EACH; row++) {
    free(b->each[row]);
    b->each[row] = NULL;
  }
}
