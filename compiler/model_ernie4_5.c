/* model_ernie4_5.c: ERNIE 4.5, dense and with experts: Llama's layers; behind the dense first layers each
 * has experts, chosen by softmax and a bias that counts for the choice alone, renormalized, beside a shared expert.
 * Source: the ERNIE 4.5 technical report (Baidu, 2025), section 2, and the Ernie4_5_Moe reference implementation
 * (transformers). */
#include "model_blocks.h"

void model_ernie4_5_build(struct blocks *b);

void model_ernie4_5_build(struct blocks *b) {
  const struct blocks_attention attention = {.qkv_bias = blocks_has_qkv_bias(b), .pairs = IR_ROPE_NEIGHBOURS};
  int n_dense = (int)blocks_honours(b, "leading_dense_block_count", 0);
  /* expert_shared_feed_forward_length is that of all shared experts, which stand as one. */
  uint32_t n_shared = (uint32_t)blocks_honours(b, "expert_shared_count", b->h.d_ff_shared != 0);
  const struct blocks_shared shared = {.d_ff = b->h.d_ff_shared ? b->h.d_ff_shared
                                                                : blocks_shared_width(b, b->h.d_ff_expert, n_shared)};
  struct blocks_experts experts = {.renormalize = true, .shared = n_shared ? &shared : NULL};
  int x = blocks_embed(b);
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    bool dense = b->h.n_expert == 0 || layer < n_dense;
    experts.selection_bias = blocks_has_tensor(b, layer, "exp_probs_b.bias");
    x = blocks_attention(b, layer, x, &attention);
    x = dense ? blocks_dense_ffn(b, layer, x, &(struct blocks_ffn){0}) : blocks_expert_ffn(b, layer, x, &experts);
  }
  blocks_head(b, x);
}
