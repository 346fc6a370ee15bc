/* model_gemma3.c: Gemma 3, text: embeddings times the root of their width; norms before and after each block, norms
 * over the heads of q and k; five layers over a sliding window with a rope of their own, then one over all positions;
 * GELU. Norm weights stand in the file with their 1 added. Source: the Gemma 3 report (arXiv 2503.19786), section 2,
 * and the Gemma3 reference implementation (transformers). */
#include "model_blocks.h"

#include <math.h>

enum { GEMMA3_PERIOD = 6, GEMMA3_LAYERS_OF_27B = 62 };

void model_gemma3_build(struct blocks *b);

void model_gemma3_build(struct blocks *b) {
  const struct hparams *h = &b->h;
  double softcap = blocks_honours(b, "final_logit_softcapping", 0);
  struct blocks_attention full = {
      .qk_norm = BLOCKS_NORM_HEADS, .pairs = IR_ROPE_HALVES, .post_norm = "post_attention_norm"};
  /* The 27B divides by the root of d_model / n_head, which is no head's width there; files do not say so. */
  if (h->n_layer == GEMMA3_LAYERS_OF_27B) full.scale = 1 / sqrt(h->d_model / h->n_head);
  struct blocks_attention local = full;
  local.window = blocks_window(b);
  local.rope = (struct blocks_rope_kind){.base = h->rope_base_window, .unscaled = true};
  const struct blocks_ffn ffn = {.activation = IR_GELU, .post_norm = "post_ffw_norm"};
  int x = blocks_embed_scaled(b, sqrt(h->d_model));
  for (int layer = 0; layer < (int)h->n_layer; layer++) {
    x = blocks_attention(b, layer, x, blocks_is_local(b, layer, GEMMA3_PERIOD) ? &local : &full);
    x = blocks_dense_ffn(b, layer, x, &ffn);
  }
  blocks_softcap(b, IR_NO_LAYER, blocks_head(b, x), softcap);
}
