/* model_gpt_oss.c: gpt-oss: attention with biases and a sink a head, every other layer (the first too) over a sliding
 * window; yarn; experts chosen by biased logits, softmax over the chosen ones, biases, clamped SwiGLU. The norm before
 * the experts is called post_attention_norm. Source: the gpt-oss model card (arXiv 2508.10925), section 2; OpenAI's
 * reference implementation (gpt_oss/torch/model.py). */
#include "model_blocks.h"

void model_gpt_oss_build(struct blocks *b);

void model_gpt_oss_build(struct blocks *b) {
  const struct blocks_attention full = {.pairs = IR_ROPE_HALVES, .qkv_bias = true, .output_bias = true, .sinks = true};
  struct blocks_attention local = full;
  local.window = blocks_window(b);
  const struct blocks_experts experts = {.norm = "post_attention_norm",
                                         .activation = IR_SWIGLU_OAI,
                                         .gating = IR_GATING_SOFTMAX_AFTER,
                                         .router_bias = true,
                                         .bias = true};
  int x = blocks_embed(b);
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    x = blocks_attention(b, layer, x, blocks_is_local(b, layer, 2) ? &local : &full);
    x = blocks_expert_ffn(b, layer, x, &experts);
  }
  blocks_head(b, x);
}
