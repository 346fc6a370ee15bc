/* model_blocks.h: the building blocks of which a model_<family>.c is put together.
 *
 * Owns: reading hyperparameters, finding tensors and checking their shapes, the usual attention, feed-forward and
 * mixture-of-experts blocks. Does not own: which blocks a family has (model_*.c), operations (ir.h), the table of
 * families (family.h).
 * Invariants: errors are sticky: after the first failure every function returns IR_NONE or NULL at once and does
 * nothing, so that a family is a straight line and blocks_finish reports. Every tensor of the file must be asked for
 * by its family: one that is left over makes the model a different one than we would compute, and is declined.
 * Thread rules: a struct blocks belongs to one thread. */
#ifndef COMPILER_MODEL_BLOCKS_H
#define COMPILER_MODEL_BLOCKS_H

#include "blocks_attention.h"
#include "blocks_delta.h"
#include "ir.h"

#define BLOCKS_MAX_HEAD 4096

struct hparams {
#define HPARAM(field, key, fallback, min, max) uint32_t field;
#define HPARAM_EACH HPARAM
#define HPARAM_REAL(field, key, fallback, min, max) double field;
#include "hparams.def"
#undef HPARAM
#undef HPARAM_REAL
  uint32_t n_vocab; /* rows of token_embd.weight */
};

/* The hyperparameters that may differ from layer to layer. */
enum blocks_each {
#define HPARAM(field, key, fallback, min, max)
#define HPARAM_REAL(field, key, fallback, min, max)
#define HPARAM_EACH(field, key, fallback, min, max) BLOCKS_EACH_##field,
#include "hparams.def"
#undef HPARAM
#undef HPARAM_REAL
  BLOCKS_N_EACH
};

struct blocks {
  struct ir_graph *graph; /* under construction, borrowed */
  const struct gguf *gguf;
  struct hparams h;
  bool *used;                    /* by tensor index */
  bool *honoured;                /* by HPARAM_OPTION row */
  uint32_t *each[BLOCKS_N_EACH]; /* n_layer values, where the file has an array; else NULL */
  bool each_asked[BLOCKS_N_EACH];
  bool yarn;             /* rope.scaling.type */
  double residual_scale; /* multiplies what whole blocks add to the stream; 0: 1. A family sets it before its blocks */
  bool window_asked;
  bool sections, sections_halves, sections_asked; /* rope.dimension_sections: any; its first two are above 0; asked */
  enum moe_code code;
  struct moe_error *err;
};

/* Feed-forward blocks. Everything that is zero is the plain form: SiLU, no biases, the norm "ffn_norm". */
struct blocks_ffn {
  const char *norm; /* NULL: "ffn_norm" */
  enum ir_activation activation;
  bool bias;             /* ffn_gate.bias, ffn_up.bias, ffn_down.bias */
  bool fused;            /* no ffn_gate: ffn_up has the gate's rows, then up's own */
  uint32_t d_ff;         /* 0: the hyperparameter feed_forward_length */
  const char *post_norm; /* the norm between the block and the residual sum; NULL: none */
};

/* An expert that every row passes: ffn_gate_shexp, ffn_up_shexp, ffn_down_shexp. */
struct blocks_shared {
  enum ir_activation activation;
  bool gated;    /* its output is multiplied by sigmoid(ffn_gate_inp_shexp . x), a number a row */
  uint32_t d_ff; /* 0: the hyperparameter expert_shared_feed_forward_length */
};

/* What kind of mixture of experts a layer has. Zero: softmax over all, the probabilities as they are, no shared expert.
 */
struct blocks_experts {
  const char *norm; /* NULL: "ffn_norm" */
  enum ir_activation activation;
  enum ir_gating gating;
  bool renormalize;                            /* the chosen experts' weights are divided by their sum */
  double weight_scale;                         /* multiplies them; 0: 1 */
  bool router_bias;                            /* ffn_gate_inp.bias, on the logits */
  bool selection_bias;                         /* exp_probs_b.bias, on what experts are chosen by */
  bool expert_scale;                           /* ffn_down_exps.scale, where the file has it: a factor an expert */
  bool bias;                                   /* ffn_gate_exps.bias, ffn_up_exps.bias, ffn_down_exps.bias */
  uint32_t n_group, n_group_used, n_group_sum; /* ir.h */
  uint32_t d_ff; /* 0: the hyperparameter expert_feed_forward_length, or feed_forward_length where that is missing */
  const struct blocks_shared *shared; /* NULL: none */
};

/* Reads hyperparameters (hparams.def) and checks what they say about each other: heads divide, the chosen experts are
 * at most all. graph: initialized, empty. Errors as in blocks_finish, later. */
void blocks_init(struct blocks *b, struct ir_graph *graph, const struct gguf *gguf, struct moe_error *err);

/* Frees what blocks_init took and returns the first error: MOE_FAILED for what is missing or does not fit together,
 * MOE_DECLINED for tensors, formats or variants that moec has no place for. */
enum moe_code blocks_finish(struct blocks *b);

/* Records a failure of the model (the first one stays). Returns IR_NONE. */
int blocks_fail(struct blocks *b, enum moe_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The value of an HPARAM_OPTION of hparams.def ("key" without the architecture), `fallback` when the file has none: the
 * family computes with it, whatever it is. Keys that no call has asked for are declined unless they change nothing.
 * Fails for values outside the row's bounds, and for a key that is no row. */
double blocks_honours(struct blocks *b, const char *key, double fallback);

/* The columns of n_shared shared experts of d_ff each, which stand as one: their product. Fails beyond what a
 * feed-forward block may have. */
uint32_t blocks_shared_width(struct blocks *b, uint32_t d_ff, uint32_t n_shared);

/* Whether q, k and v have biases: layer 0 has attn_q.bias or attn_qkv.bias. */
bool blocks_has_qkv_bias(struct blocks *b);

/* How routers weigh, by the option expert_gating_func; `fallback` where the file says none. */
enum ir_gating blocks_gating(struct blocks *b, enum ir_gating fallback);

/* The blocks behind the trunk, nextn_predict_layers of them (nextn.h): whole ones are carried in the image, others left
 * out, and h.n_layer becomes the trunk's. Call it first, in families that have them. */
void blocks_nextn(struct blocks *b);

/* A layer's hyperparameters, where the file may have one a layer; 0: the layer has none of it. A family that reads
 * b->h instead is declined for files whose layers differ. */
uint32_t blocks_n_head(struct blocks *b, int layer);
uint32_t blocks_n_kv_head(struct blocks *b, int layer);
uint32_t blocks_d_ff(struct blocks *b, int layer);

/* Tensors. Name: "blk.<layer>.<name>", or only <name> with IR_NO_LAYER. n_in columns, n_out rows, n_mat matrices,
 * exactly. NULL after a failure; blocks_optional_tensor also returns NULL, without failing, when the file has none. */
const struct gguf_tensor *blocks_tensor(struct blocks *b, int layer, const char *name, uint64_t n_in, uint64_t n_out,
                                        uint64_t n_mat);
const struct gguf_tensor *blocks_optional_tensor(struct blocks *b, int layer, const char *name, uint64_t n_in,
                                                 uint64_t n_out, uint64_t n_mat);

/* Parts of a tensor as weights of their own (ir_add_view, ir_add_vector_view): rows of every matrix; elements of a
 * vector. NULL in, NULL out. */
const struct gguf_tensor *blocks_rows(struct blocks *b, const struct gguf_tensor *t, uint64_t first, uint64_t n_out,
                                      uint64_t run, uint64_t period, const char *suffix);
const struct gguf_tensor *blocks_slice(struct blocks *b, const struct gguf_tensor *t, uint64_t first, uint64_t n,
                                       const char *suffix);

/* The key/value state of one more layer: its index, for ir_attr.state. */
uint32_t blocks_state(struct blocks *b, uint32_t n_kv_head, uint32_t d_head, uint32_t d_head_value);

/* Whether the file has the tensor; it is not asked for by this. */
bool blocks_has_tensor(struct blocks *b, int layer, const char *name);

/* A node by itself. Returns its value. */
int blocks_node(struct blocks *b, const struct ir_node *node);

/* Single operations. x, returned: values of the graph. Norms are "<name>.weight"; linear layers too, with
 * "<name>.bias" when `bias`. */
int blocks_embed(struct blocks *b);
int blocks_embed_scaled(struct blocks *b, double scale);
/* cap * tanh(x / cap); x itself when cap is 0. */
int blocks_softcap(struct blocks *b, int layer, int x, double cap);
int blocks_norm(struct blocks *b, int layer, int x, const char *name, uint32_t group);
int blocks_linear(struct blocks *b, int layer, int x, const char *name, uint32_t n_out, bool bias);
int blocks_product(struct blocks *b, int layer, int x, const struct gguf_tensor *w, const struct gguf_tensor *bias);
int blocks_add(struct blocks *b, int layer, int x, int y);

/* x + residual_scale * y: how a block's output y goes onto the stream x. */
int blocks_residual(struct blocks *b, int layer, int x, int y);

/* f(norm(x)) of the dense block, without residual. */
int blocks_dense(struct blocks *b, int layer, int x, const struct blocks_ffn *kind);

/* Whole blocks with their norm and residual: x + f(norm(x)). */
int blocks_dense_ffn(struct blocks *b, int layer, int x, const struct blocks_ffn *kind);
int blocks_expert_ffn(struct blocks *b, int layer, int x, const struct blocks_experts *kind);

/* Its parts, for normed rows n, without residual: the choice (its rows may be others than the experts'), the routed
 * experts' sum, and the shared expert's row, gated when it is. */
int blocks_router(struct blocks *b, int layer, int n, const struct blocks_experts *kind);
int blocks_routed(struct blocks *b, int layer, int n, int router, const struct blocks_experts *kind);
int blocks_shared_expert(struct blocks *b, int layer, int n, const struct blocks_shared *kind);

/* act(a) * b; a of one column holds for all of b's. */
int blocks_glu(struct blocks *b, int layer, int gate, int up, enum ir_activation activation);

/* Output norm and output matrix over the selected rows; output.weight, or token_embd.weight where the two are tied. */
int blocks_head(struct blocks *b, int x);
int blocks_head_scaled(struct blocks *b, int x, double scale); /* the logits times scale */

#endif
