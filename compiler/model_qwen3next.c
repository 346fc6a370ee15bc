/* model_qwen3next.c: Qwen3-Next. As qwen35moe (model_qwen35moe.c); files have neighbouring value heads share a key
 * head, and beta and alpha, in older ones q, k, v and z too, in one tensor. Source: the Qwen3-Next reference
 * implementation (transformers). */
#include "model_blocks.h"

void model_qwen3next_build(struct blocks *b);

void model_qwen3next_build(struct blocks *b) {
  const struct blocks_attention attention = {
      .qk_norm = BLOCKS_NORM_HEADS, .pairs = blocks_sections_pairs(b, IR_ROPE_HALVES), .output_gate = true};
  const struct blocks_delta delta = {.fused = true};
  const struct blocks_shared shared = {.gated = true, .d_ff = b->h.d_ff_shared ? b->h.d_ff_shared : b->h.d_ff};
  const struct blocks_experts experts = {.norm = "post_attention_norm",
                                         .renormalize = true,
                                         .weight_scale = blocks_honours(b, "expert_weights_scale", 0),
                                         .shared = &shared};
  int x = blocks_embed(b);
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    x = blocks_is_recurrent(b, layer) ? blocks_delta_net(b, layer, x, &delta)
                                      : blocks_attention(b, layer, x, &attention);
    x = blocks_expert_ffn(b, layer, x, &experts);
  }
  blocks_head(b, x);
}
