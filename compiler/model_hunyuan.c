/* model_hunyuan.c: Hunyuan, dense and with experts. Norms over the heads of q and k behind the rotation; experts:
 * softmax over the chosen ones, beside a shared expert. The base of the rotation in the file has the long context's
 * factor in it. Source: the Hunyuan-A13B technical report (Tencent, 2025), section 2, and the HunYuanMoEV1 and
 * HunYuanDenseV1 reference implementations (transformers). */
#include "model_blocks.h"

void model_hunyuan_build(struct blocks *b);

void model_hunyuan_build(struct blocks *b) {
  const struct blocks_attention attention = {.qk_norm = BLOCKS_NORM_AFTER_ROPE,
                                             .pairs = IR_ROPE_HALVES,
                                             .rope = {.factors = blocks_rope_factors(b, b->h.n_rot)}};
  const struct blocks_shared shared = {.d_ff = b->h.d_ff_shared ? b->h.d_ff_shared : b->h.d_ff};
  /* The count is said beside the width of all of them, which stand as one. */
  const struct blocks_experts experts = {.renormalize = true,
                                         .shared = blocks_honours(b, "expert_shared_count", 1) != 0 ? &shared : NULL};
  int x = blocks_embed(b);
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    x = blocks_attention(b, layer, x, &attention);
    x = b->h.n_expert ? blocks_expert_ffn(b, layer, x, &experts)
                      : blocks_dense_ffn(b, layer, x, &(struct blocks_ffn){0});
  }
  blocks_head(b, x);
}
