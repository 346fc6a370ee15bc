/* model_glm4moe.c: GLM-4.5 and its successors with experts. Norms over the heads of q and k in the larger models,
 * biases on q, k and v, rotary positions over half a head; the first layers are dense, the others choose experts by
 * sigmoid and a bias that counts for the choice alone, beside a shared expert; NextN blocks follow. Source: the GLM-4.5
 * report (arXiv 2508.06471), section 2.1, and the Glm4Moe reference implementation (transformers). */
#include "model_blocks.h"

void model_glm4moe_build(struct blocks *b);

void model_glm4moe_build(struct blocks *b) {
  const struct blocks_attention attention = {
      .qk_norm = blocks_has_tensor(b, 0, "attn_q_norm.weight") ? BLOCKS_NORM_HEADS : BLOCKS_NO_NORM,
      .qkv_bias = blocks_has_qkv_bias(b),
      .pairs = blocks_sections_pairs(b, IR_ROPE_HALVES)};
  uint32_t n_shared = (uint32_t)blocks_honours(b, "expert_shared_count", 0);
  int n_dense = (int)blocks_honours(b, "leading_dense_block_count", 0);
  const struct blocks_ffn dense = {.norm = "post_attention_norm"};
  const struct blocks_shared shared = {.d_ff = b->h.d_ff_shared ? b->h.d_ff_shared
                                                                : blocks_shared_width(b, b->h.d_ff_expert, n_shared)};
  const struct blocks_experts experts = {.norm = "post_attention_norm",
                                         .gating = blocks_gating(b, IR_GATING_SIGMOID),
                                         .renormalize = blocks_honours(b, "expert_weights_norm", 1) != 0,
                                         .weight_scale = blocks_honours(b, "expert_weights_scale", 1),
                                         .selection_bias = true,
                                         .shared = n_shared ? &shared : NULL};
  blocks_nextn(b);
  int x = blocks_embed(b);
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    x = blocks_attention(b, layer, x, &attention);
    x = layer < n_dense ? blocks_dense_ffn(b, layer, x, &dense) : blocks_expert_ffn(b, layer, x, &experts);
  }
  blocks_head(b, x);
}
