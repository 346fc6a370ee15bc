/* model_qwen35.c: the hybrids with gated DeltaNet layers: Qwen3.5 (dense), Qwen3.5 and Qwen3.6 with experts,
 * Qwen3-Next. Every full_attention_interval-th layer attends instead, with norms over the heads of q and k, an output
 * gate and rotary positions over a part of each head (several sections, which are one for text). With experts: softmax
 * over all, the best renormalized, and a shared expert scaled by a sigmoid gate. Qwen3-Next's files have neighbouring
 * value heads share a key head, and beta and alpha, in older ones q, k, v and z too, in one tensor. Sources: the
 * Qwen3.5, Qwen3.5-MoE and Qwen3-Next reference implementations (transformers). */
#include "model_blocks.h"

void model_qwen35_build(struct blocks *b);
void model_qwen35moe_build(struct blocks *b);
void model_qwen3next_build(struct blocks *b);

/* experts: NULL for dense feed-forward blocks. */
static void qwen35_model(struct blocks *b, const struct blocks_delta *delta, const struct blocks_experts *experts) {
  const struct blocks_attention attention = {
      .qk_norm = BLOCKS_NORM_HEADS, .pairs = blocks_sections_pairs(b, IR_ROPE_HALVES), .output_gate = true};
  const struct blocks_ffn dense = {.norm = "post_attention_norm"};
  int x = blocks_embed(b);
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    x = blocks_is_recurrent(b, layer) ? blocks_delta_net(b, layer, x, delta)
                                      : blocks_attention(b, layer, x, &attention);
    x = experts ? blocks_expert_ffn(b, layer, x, experts) : blocks_dense_ffn(b, layer, x, &dense);
  }
  blocks_head(b, x);
}

static void qwen35_model_of_experts(struct blocks *b, const struct blocks_delta *delta) {
  const struct blocks_shared shared = {.gated = true, .d_ff = b->h.d_ff_shared ? b->h.d_ff_shared : b->h.d_ff};
  const struct blocks_experts experts = {.norm = "post_attention_norm",
                                         .renormalize = true,
                                         .weight_scale = blocks_honours(b, "expert_weights_scale", 0),
                                         .shared = &shared};
  qwen35_model(b, delta, &experts);
}

void model_qwen35_build(struct blocks *b) {
  blocks_nextn(b);
  qwen35_model(b, &(struct blocks_delta){.tiled = true}, NULL);
}

void model_qwen35moe_build(struct blocks *b) {
  blocks_nextn(b);
  qwen35_model_of_experts(b, &(struct blocks_delta){.tiled = true});
}

void model_qwen3next_build(struct blocks *b) {
  qwen35_model_of_experts(b, &(struct blocks_delta){.fused = true});
}
