/* model_qwen2moe.c: Qwen1.5-MoE and Qwen2-MoE. Biases on q, k and v; every layer has experts: softmax over all, the
 * best n_expert_used with their probabilities as they are, and a shared expert scaled by a sigmoid gate. Source: the
 * Qwen2 technical report (arXiv 2407.10671), section 2.2, and the Qwen2MoE reference implementation (transformers). */
#include "model_blocks.h"

void model_qwen2moe_build(struct blocks *b);

void model_qwen2moe_build(struct blocks *b) {
  const struct blocks_attention attention = {.qkv_bias = true, .pairs = IR_ROPE_HALVES};
  const struct blocks_shared shared = {.gated = true, .d_ff = b->h.d_ff_shared ? b->h.d_ff_shared : b->h.d_ff};
  const struct blocks_experts experts = {.renormalize = blocks_honours(b, "expert_weights_norm", 0) != 0,
                                         .shared = &shared};
  int x = blocks_embed(b);
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    x = blocks_attention(b, layer, x, &attention);
    x = blocks_expert_ffn(b, layer, x, &experts);
  }
  blocks_head(b, x);
}
