/* blocks_delta.h: the gated DeltaNet layer as a building block, and which layers of a hybrid have it.
 *
 * Owns: its hyperparameters' checks, the order of the file's rows and heads. Does not own: attention, feed-forward
 * (model_blocks.h), operations (ir.h). Invariants: as in model_blocks.h. */
#ifndef COMPILER_BLOCKS_DELTA_H
#define COMPILER_BLOCKS_DELTA_H

#include <stdbool.h>

struct blocks;

/* How a family's files have the layer. */
struct blocks_delta {
  bool tiled; /* head h has key head h % n_key_head (qwen35); else h / (n_head / n_key_head) (qwen3next) */
  bool fused; /* beta and alpha are ssm_ba, a key head's betas, then its alphas; else ssm_beta, ssm_alpha */
};

/* Whether a layer is recurrent: as attention.recurrent_layers says, else all but every full_attention_interval-th. */
bool blocks_is_recurrent(struct blocks *b, int layer);

/* The norm attn_norm, gated DeltaNet, the residual sum. q, k and v come from attn_qkv and z from attn_gate, or all from
 * ssm_in, which has them key head by key head. They pass a short convolution with SiLU each (ssm_conv1d), then the
 * gated delta rule; y = silu(z) * rmsnorm(heads) goes through ssm_out. Sources: Gated Delta Networks (arXiv
 * 2412.06464); Qwen3-Next's reference implementation (transformers); llama.cpp for the names and orders in files. */
int blocks_delta_net(struct blocks *b, int layer, int x, const struct blocks_delta *kind);

#endif
