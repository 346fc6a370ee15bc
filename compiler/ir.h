/* ir.h: the model as a short list of typed operations, between the families (which write it) and everything that reads
 * it: the oracle, the passes, the emitter.
 *
 * Owns: struct ir_node, struct ir_graph, building and printing them. Does not own: what an operation computes
 * (ir_ops.def says it, an oracle_*.c does it), its shape rule (ir_shape.c), how families compose it (model_blocks.h),
 * weights' bytes (src_gguf).
 * Invariants: single assignment: a node is its value, inputs are earlier nodes, the last node is the graph's result
 * (the logits). Every node has passed its shape rule, so that readers need not check shapes again. A finished graph
 * does not change: any threads may read it. */
#ifndef COMPILER_IR_H
#define COMPILER_IR_H

#include "moe_error.h"
#include "src_gguf.h"

#include <stdio.h>

enum ir_op {
#define IR_OP(ENUM, ...) IR_##ENUM,
#include "ir_ops.def"
#undef IR_OP
  IR_N_OP
};

enum { IR_MAX_IN = 5, IR_MAX_WEIGHT = 4, IR_NONE = -1, IR_NO_LAYER = -1 };

/* A row of ir_ops.def. */
struct ir_op_info {
  const char *name;
  int n_in, n_weight, n_optional;
  const char *attributes, *definition;
};
extern const struct ir_op_info ir_ops[IR_N_OP];

enum ir_rope_pairs { IR_ROPE_HALVES = 0, IR_ROPE_NEIGHBOURS = 1 }; /* (j, j + n_rot/2); (2j, 2j + 1) */

/* Of a GLU (ir_ops.def has the formulas). The numbers are also the kernels' parameter ACTIVATION. GELU is the tanh
 * form; Source of SWIGLU_OAI: gpt-oss' reference implementation (limit 7, alpha 1.702). */
enum ir_activation { IR_SILU = 0, IR_GELU = 1, IR_SIGMOID = 2, IR_SWIGLU_OAI = 3 };
#define IR_SWIGLU_ALPHA 1.702
#define IR_SWIGLU_LIMIT 7.0

/* How a ROUTER makes weights of logits; the kernels' parameter GATING. SOFTMAX_AFTER: over the chosen logits alone. */
enum ir_gating { IR_GATING_SOFTMAX = 0, IR_GATING_SIGMOID = 1, IR_GATING_SOFTMAX_AFTER = 2 };

/* A rotation: angle of pair j at position p is p * inv_freq[j] radians; cosine and sine are multiplied by `scale`.
 * inv_freq: n_rot / 2, owned by the graph. */
struct ir_rope {
  enum ir_rope_pairs pairs;
  uint32_t n_rot;
  double scale;
  double *inv_freq;
};

/* Attributes; each operation uses those that its row names. */
struct ir_attr {
  double eps, scale;
  uint32_t group;
  uint32_t n_head, n_kv_head, d_head;
  uint32_t d_head_value; /* of ATTENTION: width of a value; 0: d_head */
  uint32_t window;       /* of ATTENTION: the positions that a token sees, itself included; 0: all before it */
  double softcap;        /* of ATTENTION and SOFTCAP; of ATTENTION 0: none */
  uint32_t rope;         /* index into the graph's ropes */
  uint32_t state;        /* index into the graph's states */
  uint32_t recurrent;    /* index into the graph's recurrent states */
  uint32_t n_tap;        /* of SHORT_CONV */
  bool tiled;            /* of DELTA_RULE: head h has key head h % n_kv_head, not h / (n_head / n_kv_head) */
  uint32_t n_expert, n_expert_used;
  bool renormalize;
  enum ir_activation activation;
  enum ir_gating gating;
  double weight_scale;            /* of a ROUTER; 0: 1 */
  uint32_t n_group, n_group_used; /* of a ROUTER; n_group 0 or 1: experts are in no groups */
  uint32_t n_group_sum;           /* scores that make a group's: 1 (DeepSeek-V2) or 2 (DeepSeek-V3); 0: 2 */
};

struct ir_node {
  enum ir_op op;
  int layer; /* 0 .. n_layer - 1, or IR_NO_LAYER: for reports and for what the passes may put into one layer body */
  int in[IR_MAX_IN];
  const struct gguf_tensor *weight[IR_MAX_WEIGHT]; /* borrowed from the struct gguf */
  struct ir_attr a;
  uint32_t width; /* columns of the value: ir_add fills it */
  bool selected;  /* the value has only the selected rows: ir_add fills it */
};

/* The factor of a LINEAR or an ADD: 0, in nodes that name none, is 1. */
static inline double ir_scale(const struct ir_node *node) {
  return node->a.scale == 0 ? 1 : node->a.scale;
}

/* The keys and values of one layer: for every token K [n_kv_head][d_head] and V [n_kv_head][d_head_value]; d_head_value
 * 0: a value is the first columns of its key (latent attention). Layers may differ; one without attention has none. */
struct ir_state {
  uint32_t n_kv_head, d_head, d_head_value;
};

/* A row view: a tensor that the file does not have as such. */
struct ir_view {
  struct gguf_tensor tensor;
  struct gguf_rows rows;
  char name[160];
};

struct ir_graph {
  const struct gguf *gguf; /* borrowed; outlives the graph */
  char family[64];         /* general.architecture */
  uint32_t n_layer, n_vocab, n_ctx, d_model;
  struct ir_node *node;
  int n_node, capacity;
  struct ir_rope *rope;
  uint32_t n_rope;
  struct ir_state *state;
  uint32_t n_state;
  uint64_t
      *recurrent; /* by recurrent state: f32 words that a sequence keeps between its tokens; zero before the first */
  uint32_t n_recurrent;
  struct ir_view **view; /* each allocated alone: nodes point to them */
  uint32_t n_view;
  const struct gguf_tensor **carried; /* borrowed from the struct gguf: no node reads them, the image has them */
  uint32_t n_carried, n_nextn;        /* NextN blocks that they make */
};

void ir_init(struct ir_graph *g, const struct gguf *gguf);
void ir_deinit(struct ir_graph *g);

/* Appends a copy of *node (width and selected are ignored), checked by its shape rule.
 * *value: its index. Errors: MOE_FAILED with the operation, the layer, what was found and what the rule wants. */
enum moe_code ir_add(struct ir_graph *g, const struct ir_node *node, int *value, struct moe_error *err);

/* Adds a rotation (a copy with its inv_freq); equal ones are added once. n_rot: even, 2 .. 65536.
 * *index: for ir_attr.rope. */
enum moe_code ir_add_rope(struct ir_graph *g, const struct ir_rope *rope, uint32_t *index, struct moe_error *err);

/* Adds the key/value state of one more layer; d_head_value 0: values are columns of the keys.
 * *index: for ir_attr.state. */
enum moe_code ir_add_state(struct ir_graph *g, const struct ir_state *state, uint32_t *index, struct moe_error *err);

/* Adds a recurrent state of n words. *index: for ir_attr.recurrent. Errors: MOE_DECLINED for 2 GiB and more. */
enum moe_code ir_add_recurrent(struct ir_graph *g, uint64_t n, uint32_t *index, struct moe_error *err);

/* Rows of a tensor as a weight of their own: n_out rows of every matrix, row r of which is row first + r / run * period
 * + r % run of `whole`; so that parts of fused tensors become planes like any other. run 0: n_out rows in one run.
 * Equal views are added once. *view: owned by the graph, named "<whole's name>[suffix]". Errors: MOE_FAILED when rows
 * lie outside `whole`, which names what was found. */
enum moe_code ir_add_view(struct ir_graph *g, const struct gguf_tensor *whole, uint64_t first, uint64_t n_out,
                          uint64_t run, uint64_t period, const char *suffix, const struct gguf_tensor **view,
                          struct moe_error *err);

/* The same for elements first .. first + n - 1 of a vector (one row) of a format without blocks. */
enum moe_code ir_add_vector_view(struct ir_graph *g, const struct gguf_tensor *whole, uint64_t first, uint64_t n,
                                 const char *suffix, const struct gguf_tensor **view, struct moe_error *err);

/* Adds a tensor that the image carries without using it. */
enum moe_code ir_carry(struct ir_graph *g, const struct gguf_tensor *tensor, struct moe_error *err);

/* Prints one line a node. */
void ir_print(const struct ir_graph *g, FILE *out);

/* The shape rules (ir_shape.c): *width of the output of `node`, whose inputs are nodes of g. */
#define IR_OP(ENUM, name, ...)                                                                                         \
  enum moe_code ir_shape_##name(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,                 \
                                struct moe_error *err);
#include "ir_ops.def"
#undef IR_OP

#endif
