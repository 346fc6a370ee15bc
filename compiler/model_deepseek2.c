/* model_deepseek2.c: DeepSeek-V2 and V3 and what shares their architecture: latent attention with or without a low rank
 * of the queries, yarn; the first layers dense, the others with a shared expert beside routed ones: softmax and the
 * best groups by their best expert (V2), or sigmoid, a bias for the choice, and groups by their best two (V3). Sources:
 * arXiv 2405.04434, section 2; arXiv 2412.19437, section 2.1. Files without expert_gating_func are V2's and
 * GLM-4.7-Flash's (llama.cpp, pull request 18980), which is as V3: the bias tells them apart, V2 has none. */
#include "model_blocks.h"

void model_deepseek2_build(struct blocks *b);

void model_deepseek2_build(struct blocks *b) {
  const struct blocks_rope_kind rope = {.mscale = true};
  uint32_t n_shared = (uint32_t)blocks_honours(b, "expert_shared_count", 0);
  int n_dense = (int)blocks_honours(b, "leading_dense_block_count", 0);
  bool biased = blocks_has_tensor(b, n_dense, "exp_probs_b.bias");
  enum ir_gating gating = blocks_gating(b, biased ? IR_GATING_SIGMOID : IR_GATING_SOFTMAX);
  const struct blocks_shared shared = {.d_ff = blocks_shared_width(b, b->h.d_ff_expert, n_shared)};
  struct blocks_experts experts = {.gating = gating,
                                   .renormalize = blocks_honours(b, "expert_weights_norm", 0) != 0,
                                   .weight_scale = blocks_honours(b, "expert_weights_scale", 1),
                                   .n_group = (uint32_t)blocks_honours(b, "expert_group_count", 0),
                                   .n_group_used = (uint32_t)blocks_honours(b, "expert_group_used_count", 0),
                                   .n_group_sum = gating == IR_GATING_SIGMOID ? 2 : 1,
                                   .shared = n_shared ? &shared : NULL};
  blocks_nextn(b);
  int x = blocks_embed(b);
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    x = blocks_latent_attention(b, layer, x, &rope, IR_ROPE_NEIGHBOURS);
    experts.selection_bias = blocks_has_tensor(b, layer, "exp_probs_b.bias");
    x = layer < n_dense ? blocks_dense_ffn(b, layer, x, &(struct blocks_ffn){0})
                        : blocks_expert_ffn(b, layer, x, &experts);
  }
  blocks_head(b, x);
}
