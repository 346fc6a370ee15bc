/* model_qwen35.c: Qwen3.5, dense. The layers of qwen35moe (model_qwen35moe.c) with a SiLU-gated feed-forward block.
 * Source: the Qwen3.5 reference implementation (transformers). */
#include "model_blocks.h"

void model_qwen35_build(struct blocks *b);

void model_qwen35_build(struct blocks *b) {
  blocks_nextn(b);
  const struct blocks_attention attention = {
      .qk_norm = BLOCKS_NORM_HEADS, .pairs = blocks_sections_pairs(b, IR_ROPE_HALVES), .output_gate = true};
  const struct blocks_delta delta = {.tiled = true};
  const struct blocks_ffn dense = {.norm = "post_attention_norm"};
  int x = blocks_embed(b);
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    x = blocks_is_recurrent(b, layer) ? blocks_delta_net(b, layer, x, &delta)
                                      : blocks_attention(b, layer, x, &attention);
    x = blocks_dense_ffn(b, layer, x, &dense);
  }
  blocks_head(b, x);
}
