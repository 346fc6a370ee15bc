/* model_qwen2.c: Qwen2 and Qwen2.5, dense. RMS norms before each block, biases on q, k and v, rotary positions in
 * halves, SiLU-gated feed-forward. Source: the Qwen2 technical report (arXiv 2407.10671), section 2.2. */
#include "model_blocks.h"

void model_qwen2_build(struct blocks *b);

void model_qwen2_build(struct blocks *b) {
  const struct blocks_attention attention = {.qkv_bias = true, .pairs = blocks_sections_pairs(b, IR_ROPE_HALVES)};
  int x = blocks_embed(b);
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    x = blocks_attention(b, layer, x, &attention);
    x = blocks_dense_ffn(b, layer, x, &(struct blocks_ffn){0});
  }
  blocks_head(b, x);
}
