/* model_deepseek.c: DeepSeekMoE, the first generation (deepseek-moe-16b). Llama's attention with rotary pairs of
 * neighbours; the first layers are dense, the others choose experts by softmax, their probabilities as they are, beside
 * shared experts that stand in the file as one. Source: Dai et al., "DeepSeekMoE", arXiv 2401.06066, section 3, and its
 * reference implementation. */
#include "model_blocks.h"

void model_deepseek_build(struct blocks *b);

void model_deepseek_build(struct blocks *b) {
  const struct blocks_attention attention = {.pairs = IR_ROPE_NEIGHBOURS};
  int n_dense = (int)blocks_honours(b, "leading_dense_block_count", 0);
  uint32_t n_shared = (uint32_t)blocks_honours(b, "expert_shared_count", 0);
  const struct blocks_shared shared = {.d_ff = blocks_shared_width(b, b->h.d_ff_expert, n_shared)};
  const struct blocks_experts experts = {.renormalize = blocks_honours(b, "expert_weights_norm", 0) != 0,
                                         .weight_scale = blocks_honours(b, "expert_weights_scale", 1),
                                         .shared = n_shared ? &shared : NULL};
  int x = blocks_embed(b);
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    x = blocks_attention(b, layer, x, &attention);
    x = layer < n_dense ? blocks_dense_ffn(b, layer, x, &(struct blocks_ffn){0})
                        : blocks_expert_ffn(b, layer, x, &experts);
  }
  blocks_head(b, x);
}
