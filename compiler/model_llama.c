/* model_llama.c: Llama 1 to 3 and what shares their layout (Mistral), dense; Mixtral, where the file has experts:
 * softmax over the chosen ones. Rotary pairs are neighbours: the files' q and k rows are in that order. Sources:
 * Touvron et al., arXiv 2302.13971, section 2.2; Jiang et al., "Mixtral of Experts", arXiv 2401.04088, section 2;
 * Llama 3.1's slower rotations stand in the file as factors. */
#include "model_blocks.h"

void model_llama_build(struct blocks *b);

void model_llama_build(struct blocks *b) {
  const struct blocks_attention attention = {.qkv_bias = blocks_has_qkv_bias(b),
                                             .pairs = IR_ROPE_NEIGHBOURS,
                                             .rope = {.factors = blocks_rope_factors(b, b->h.n_rot)}};
  const struct blocks_experts experts = {.renormalize = true};
  if (b->h.n_expert && blocks_has_tensor(b, 0, "ffn_gate.0.weight"))
    blocks_fail(b, MOE_DECLINED,
                "blk.0.ffn_gate.0.weight: a tensor for each expert, as files before 2024-04 have them; "
                "moec takes ffn_gate_exps.weight: convert the model again");
  int x = blocks_embed(b);
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    x = blocks_attention(b, layer, x, &attention);
    x = b->h.n_expert ? blocks_expert_ffn(b, layer, x, &experts)
                      : blocks_dense_ffn(b, layer, x, &(struct blocks_ffn){0});
  }
  blocks_head(b, x);
}
