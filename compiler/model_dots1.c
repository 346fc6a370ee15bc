/* model_dots1.c: dots.llm1 and Ling 2 (bailingmoe2), which differ in the fused attn_qkv, partial rotation, groups and
 * NextN blocks that the latter's files say they have. Norms over the heads of q and k before the rotation; the first
 * layers are dense, the others choose experts by sigmoid and a bias that counts for the choice alone (with groups:
 * among the best groups, by the sum of their two best), renormalized and scaled, beside shared experts that stand as
 * one. Sources: the dots.llm1 report (arXiv 2506.05767), section 2.1; the BailingMoeV2 reference implementation
 * (inclusionAI/Ling-mini-2.0). */
#include "model_blocks.h"

void model_dots1_build(struct blocks *b);

void model_dots1_build(struct blocks *b) {
  const struct blocks_attention attention = {.qk_norm = BLOCKS_NORM_HEADS, .pairs = IR_ROPE_HALVES};
  uint32_t n_shared = (uint32_t)blocks_honours(b, "expert_shared_count", 0);
  int n_dense = (int)blocks_honours(b, "leading_dense_block_count", 0);
  const struct blocks_shared shared = {
      .d_ff = blocks_shared_width(b, b->h.d_ff_shared ? b->h.d_ff_shared : b->h.d_ff_expert, n_shared)};
  const struct blocks_experts experts = {.gating = blocks_gating(b, IR_GATING_SIGMOID),
                                         .renormalize = blocks_honours(b, "expert_weights_norm", 1) != 0,
                                         .weight_scale = blocks_honours(b, "expert_weights_scale", 1),
                                         .selection_bias = blocks_has_tensor(b, n_dense, "exp_probs_b.bias"),
                                         .n_group = (uint32_t)blocks_honours(b, "expert_group_count", 0),
                                         .n_group_used = (uint32_t)blocks_honours(b, "expert_group_used_count", 0),
                                         .n_group_sum = 2,
                                         .shared = n_shared ? &shared : NULL};
  blocks_nextn(b);
  int x = blocks_embed(b);
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    x = blocks_attention(b, layer, x, &attention);
    x = layer < n_dense ? blocks_dense_ffn(b, layer, x, &(struct blocks_ffn){0})
                        : blocks_expert_ffn(b, layer, x, &experts);
  }
  blocks_head(b, x);
}
