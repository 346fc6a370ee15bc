/* model_glm4.c: GLM-4 0414, dense: biases on q, k and v, neighbouring pairs over half a head, norms on both sides of
 * each block; gate and up stand in one tensor. Its vision models (GLM-4.1V) say rotations in sections; their converter
 * puts the rows of q and k into halves; GLM-OCR has a NextN block, too. Source: the Glm4 reference implementation
 * (transformers). */
#include "model_blocks.h"

void model_glm4_build(struct blocks *b);

void model_glm4_build(struct blocks *b) {
  blocks_nextn(b);
  const struct blocks_attention attention = {.qkv_bias = blocks_has_qkv_bias(b),
                                             .pairs = blocks_sections_pairs(b, IR_ROPE_NEIGHBOURS),
                                             .post_norm = "post_attention_norm"};
  const struct blocks_ffn ffn = {.fused = true, .post_norm = "post_ffw_norm"};
  int x = blocks_embed(b);
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    x = blocks_attention(b, layer, x, &attention);
    x = blocks_dense_ffn(b, layer, x, &ffn);
  }
  blocks_head(b, x);
}
