/* blocks_attention.h: rotary positions and attention as building blocks of families.
 *
 * Owns: what kinds of attention and rope there are, as structs whose zero is the plainest kind. Does not own: the
 * other blocks (model_blocks.h, which includes this), operations (ir.h). Invariants: as in model_blocks.h. */
#ifndef COMPILER_BLOCKS_ATTENTION_H
#define COMPILER_BLOCKS_ATTENTION_H

#include "ir.h"

struct blocks;

/* How a head is rotated. Angle of pair j at position p: p * f(j), f(j) = base^(-2 j / n_rot) / factors[j], then scaled
 * as the file says: linear divides it by rope.scaling.factor; yarn (arXiv 2309.00071; as llama.cpp and transformers
 * compute it) blends f and f / factor along a ramp of j between the pairs that turn beta_fast and beta_slow times in
 * the original context, and multiplies cosine and sine by 0.1 ln(factor) + 1. rope.scaling.attn_factor multiplies them
 * too. Rotations in several sections over the parts of an image (qwen3vl, qwen35) are, for text, plain ones: all
 * sections have the token's position. */
struct blocks_rope_kind {
  bool none;      /* no rotation at all */
  bool unscaled;  /* the file's scaling is not for this layer (gemma3's local layers) */
  bool mscale;    /* deepseek2's yarn: cosine and sine stay as they are (the attention's scale has it instead) */
  double base;    /* 0: rope.freq_base */
  uint32_t n_rot; /* 0: rope.dimension_count */
  const struct gguf_tensor *factors; /* rope_freqs.weight, one a pair; NULL: all 1 */
};

enum blocks_qk_norm {
  BLOCKS_NO_NORM = 0,
  BLOCKS_NORM_HEADS,      /* attn_q_norm, attn_k_norm over each head, before the rotation */
  BLOCKS_NORM_AFTER_ROPE, /* the same after it (hunyuan) */
  BLOCKS_NORM_WHOLE,      /* over the whole width, before the rotation (olmoe) */
};

/* What kind of attention a layer has. q, k and v come from attn_q, attn_k and attn_v, or from attn_qkv, which has their
 * rows one after another. */
struct blocks_attention {
  enum blocks_qk_norm qk_norm;
  enum ir_rope_pairs pairs;
  struct blocks_rope_kind rope;
  bool qkv_bias;                            /* attn_q.bias, attn_k.bias, attn_v.bias; or attn_qkv.bias */
  bool output_gate;                         /* q's rows are, a head, q's and a gate's: y times sigmoid(gate) goes out */
  bool output_bias;                         /* attn_output.bias */
  bool sinks;                               /* attn_sinks.weight: one more logit a head */
  bool value_norm;                          /* an RMS norm without weight over each head of v (gemma4) */
  bool value_is_key;                        /* no attn_v: v is what attn_k gives, before norm and rotation (gemma4) */
  uint32_t window;                          /* 0: all positions; else blocks_window(b) */
  double scale;                             /* of the logits; 0: 1 / sqrt(d_head) */
  double softcap;                           /* of the logits; 0: none */
  uint32_t n_kv_head, d_head, d_head_value; /* 0: the file's */
  const char *post_norm;                    /* the norm between output and residual sum; NULL: none */
};

/* The norm attn_norm, attention, the residual sum. */
int blocks_attention(struct blocks *b, int layer, int x, const struct blocks_attention *kind);

/* attention.sliding_window, 0 when it is as long as the context. Who asks honours it; a window that no layer asked for
 * is declined. */
uint32_t blocks_window(struct blocks *b);

/* Whether a layer is one of those with a window: the last of every `period` layers is not;
 * attention.sliding_window_pattern is another period, or a flag a layer. */
bool blocks_is_local(struct blocks *b, int layer, uint32_t period);

/* How q and k are rotated in a family whose files may say rope.dimension_sections (rotations in sections over the parts
 * of an image): in halves when they do, since converters put the rows so; else `plain`. Files with sections are
 * declined in families that do not ask. */
enum ir_rope_pairs blocks_sections_pairs(struct blocks *b, enum ir_rope_pairs plain);

/* Latent attention (blocks_latent.c) with its norm and residual. */
int blocks_latent_attention(struct blocks *b, int layer, int x, const struct blocks_rope_kind *rope,
                            enum ir_rope_pairs pairs);

/* rope_freqs.weight with n_rot / 2 factors, or NULL when the file has none. */
const struct gguf_tensor *blocks_rope_factors(struct blocks *b, uint32_t n_rot);

/* x rotated: n_head heads of d_head columns. */
int blocks_rope(struct blocks *b, int layer, int x, uint32_t n_head, uint32_t d_head, enum ir_rope_pairs pairs,
                const struct blocks_rope_kind *kind);

#endif
