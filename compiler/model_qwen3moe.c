/* model_qwen3moe.c: Qwen3, mixture of experts. Qwen3's attention; every layer has experts: softmax over all, the best
 * n_expert_used, renormalized; no shared expert. Source: the Qwen3 technical report (arXiv 2505.09388), section 2. */
#include "model_blocks.h"

void model_qwen3moe_build(struct blocks *b);

void model_qwen3moe_build(struct blocks *b) {
  const struct blocks_attention attention = {.qk_norm = BLOCKS_NORM_HEADS,
                                             .pairs = blocks_sections_pairs(b, IR_ROPE_HALVES)};
  const struct blocks_experts experts = {.renormalize = true};
  int x = blocks_embed(b);
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    x = blocks_attention(b, layer, x, &attention);
    x = blocks_expert_ffn(b, layer, x, &experts);
  }
  blocks_head(b, x);
}
