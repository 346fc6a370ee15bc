/* model_granite.c: Granite 3 and 4, dense and with experts. Llama's layers with four multipliers: of the embedding, of
 * what a block adds to the stream, of the attention's logits (in place of 1 / sqrt(d_head)) and, as a divisor, of the
 * output's logits. Experts: softmax over the chosen ones; the later ones have a shared expert, too. Sources: the
 * Granite and GraniteMoe reference implementations (transformers); IBM, "Granite 3.0 Language Models", section 3. */
#include "model_blocks.h"

void model_granite_build(struct blocks *b);

void model_granite_build(struct blocks *b) {
  const struct blocks_attention attention = {.pairs = IR_ROPE_NEIGHBOURS,
                                             .rope = {.none = blocks_honours(b, "rope.scaling.finetuned", 1) == 0,
                                                      .factors = blocks_rope_factors(b, b->h.n_rot)},
                                             .scale = blocks_honours(b, "attention.scale", 0)};
  const struct blocks_shared shared = {0};
  const struct blocks_experts experts = {.renormalize = true, .shared = b->h.d_ff_shared ? &shared : NULL};
  double embedding_scale = blocks_honours(b, "embedding_scale", 1), divisor = blocks_honours(b, "logit_scale", 1);
  b->residual_scale = blocks_honours(b, "residual_scale", 1);
  int x = blocks_embed_scaled(b, embedding_scale == 0 ? 1 : embedding_scale);
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    x = blocks_attention(b, layer, x, &attention);
    x = b->h.n_expert ? blocks_expert_ffn(b, layer, x, &experts)
                      : blocks_dense_ffn(b, layer, x, &(struct blocks_ffn){0});
  }
  blocks_head_scaled(b, x, divisor == 0 ? 1 : 1 / divisor);
}
