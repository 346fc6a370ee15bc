/* model_qwen35moe.c: Qwen3.5 and Qwen3.6, mixture of experts. Gated DeltaNet layers, every full_attention_interval-th
 * layer attends instead, with norms over the heads of q and k, an output gate and rotary positions over a part of each
 * head (several sections, which are one for text). Every layer has experts: softmax over all, the best renormalized,
 * and a shared expert scaled by a sigmoid gate. Source: the Qwen3.5-MoE reference implementation (transformers). */
#include "model_blocks.h"

void model_qwen35moe_build(struct blocks *b);

void model_qwen35moe_build(struct blocks *b) {
  blocks_nextn(b);
  const struct blocks_attention attention = {
      .qk_norm = BLOCKS_NORM_HEADS, .pairs = blocks_sections_pairs(b, IR_ROPE_HALVES), .output_gate = true};
  const struct blocks_delta delta = {.tiled = true};
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
