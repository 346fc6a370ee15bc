/* model_qwen3.c: Qwen3, dense. RMS norms before each block, norms over the heads of q and k, rotary positions in
 * halves, SiLU-gated feed-forward. Source: the Qwen3 technical report (arXiv 2505.09388), section 2. */
#include "model_blocks.h"

void model_qwen3_build(struct blocks *b);

void model_qwen3_build(struct blocks *b) {
  const struct blocks_attention attention = {.qk_norm = BLOCKS_NORM_HEADS,
                                             .pairs = blocks_sections_pairs(b, IR_ROPE_HALVES)};
  int x = blocks_embed(b);
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    x = blocks_attention(b, layer, x, &attention);
    x = blocks_dense_ffn(b, layer, x, &(struct blocks_ffn){0});
  }
  blocks_head(b, x);
}
