/* model_olmoe.c: OLMoE. Norms over the whole width of q and k before the rotation; every layer has experts: softmax
 * over all, the best n_expert_used with their probabilities as they are; no shared expert. Source: Muennighoff et al.,
 * "OLMoE: Open Mixture-of-Experts Language Models", arXiv 2409.02060, section 2 and table 1. */
#include "model_blocks.h"

void model_olmoe_build(struct blocks *b);

void model_olmoe_build(struct blocks *b) {
  const struct blocks_attention attention = {.qk_norm = BLOCKS_NORM_WHOLE, .pairs = IR_ROPE_HALVES};
  const struct blocks_experts experts = {.renormalize = blocks_honours(b, "expert_weights_norm", 0) != 0};
  int x = blocks_embed(b);
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    x = blocks_attention(b, layer, x, &attention);
    x = blocks_expert_ffn(b, layer, x, &experts);
  }
  blocks_head(b, x);
}
