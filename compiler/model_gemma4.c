/* model_gemma4.c: Gemma 4, text, dense and with experts. As Gemma 3, but: heads of layers over all positions are wider
 * than those with a window, rotate by factors that leave most of a head alone, and may have no v of their own (then
 * it is k as projected); v has a norm without weight; logits are not scaled down; each layer may end in a gain. With
 * experts, the dense block and the routed experts both read the stream, each through norms of its own, and are added;
 * the router reads the stream through a norm, times a vector and 1 / sqrt(d_model); each expert has a factor.
 * Per-layer embeddings and layers that share keys and values (the E2B and E4B sizes) are not compiled; their keys
 * decline. Source: the Gemma4 reference implementation (transformers) and llama.cpp, src/models/gemma4.cpp. */
#include "model_blocks.h"

#include <math.h>

enum { GEMMA4_PERIOD = 6 };

void model_gemma4_build(struct blocks *b);

/* The kind of layer that has a window, or that has none, as far as the whole model says. */
static struct blocks_attention gemma4_attention(struct blocks *b, bool local) {
  const struct hparams *h = &b->h;
  struct blocks_attention kind = {.qk_norm = BLOCKS_NORM_HEADS,
                                  .pairs = IR_ROPE_HALVES,
                                  .value_norm = true,
                                  .scale = 1,
                                  .post_norm = "post_attention_norm",
                                  .d_head = h->d_head};
  if (local) {
    kind.window = blocks_window(b);
    kind.d_head = h->d_head_window ? h->d_head_window : h->d_head;
    kind.rope = (struct blocks_rope_kind){
        .base = h->rope_base_window, .n_rot = h->n_rot_window ? h->n_rot_window : kind.d_head, .unscaled = true};
  } else {
    kind.rope.factors = blocks_rope_factors(b, h->n_rot);
  }
  return kind;
}

static int gemma4_experts(struct blocks *b, int layer, int x) {
  const struct hparams *h = &b->h;
  const struct blocks_experts kind = {.activation = IR_GELU, .renormalize = true, .expert_scale = true};
  const struct gguf_tensor *w = blocks_tensor(b, layer, "ffn_gate_inp.scale", h->d_model, 1, 1);
  int router =
      blocks_node(b, &(struct ir_node){.op = IR_RMSNORM,
                                       .layer = layer,
                                       .in = {x},
                                       .weight = {w},
                                       .a = {.eps = h->eps, .group = h->d_model, .scale = 1 / sqrt(h->d_model)}});
  router = blocks_router(b, layer, router, &kind);
  return blocks_routed(b, layer, blocks_norm(b, layer, x, "pre_ffw_norm_2", h->d_model), router, &kind);
}

static int gemma4_ffn(struct blocks *b, int layer, int x) {
  uint32_t d = b->h.d_model;
  int y = blocks_dense(b, layer, x, &(struct blocks_ffn){.activation = IR_GELU});
  if (blocks_has_tensor(b, layer, "ffn_gate_inp.weight")) {
    y = blocks_norm(b, layer, y, "post_ffw_norm_1", d);
    y = blocks_add(b, layer, y, blocks_norm(b, layer, gemma4_experts(b, layer, x), "post_ffw_norm_2", d));
  }
  x = blocks_residual(b, layer, x, blocks_norm(b, layer, y, "post_ffw_norm", d));
  const struct gguf_tensor *gain = blocks_optional_tensor(b, layer, "layer_output_scale.weight", 1, 1, 1);
  if (!gain) return x;
  return blocks_node(b, &(struct ir_node){.op = IR_GAIN, .layer = layer, .in = {x}, .weight = {gain}});
}

void model_gemma4_build(struct blocks *b) {
  /* Without the key: as the released models have it, and as llama.cpp takes it. */
  double softcap = blocks_honours(b, "final_logit_softcapping", 30);
  struct blocks_attention full = gemma4_attention(b, false), local = gemma4_attention(b, true);
  int x = blocks_embed_scaled(b, sqrt(b->h.d_model));
  for (int layer = 0; layer < (int)b->h.n_layer; layer++) {
    struct blocks_attention *kind = blocks_is_local(b, layer, GEMMA4_PERIOD) ? &local : &full;
    kind->value_is_key = !blocks_has_tensor(b, layer, "attn_v.weight");
    x = gemma4_ffn(b, layer, blocks_attention(b, layer, x, kind));
  }
  blocks_softcap(b, IR_NO_LAYER, blocks_head(b, x), softcap);
}
