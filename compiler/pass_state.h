/* pass_state.h: what the files of the lowering pass share: its state, buffers, and writing a dispatch.
 *
 * Owns: struct pass and the helpers of patterns. Invariants: errors are sticky, as in model_blocks.h: after the first
 * one the helpers do nothing and pass_lower reports it. */
#ifndef COMPILER_PASS_STATE_H
#define COMPILER_PASS_STATE_H

#include "pass.h"

/* Rows up to which a product runs as GEMV, every weight row read once for all of them (kernels.def: gemv). */
enum { PASS_FEW_ROWS = 8 };

/* Tiles that a dense product on subgroup matrices is cut into at least, by the rows of a tile: as many as a large GPU
 * has processors. */
enum { PASS_TILES = 128 };

/* Where a node's value is. */
struct pass_value {
  bool ready;
  uint32_t epoch;        /* the layer scope that act belongs to; 0: lives as long as the template */
  uint64_t act;          /* offset in ACT. Of a ROUTER: the ids */
  uint64_t weights;      /* of a ROUTER */
  uint64_t tiles, pairs; /* of a ROUTER whose experts run in tiles */
  int norm; /* an RMSNORM over the whole width, not computed yet: what is at act is its input; or IR_NONE */
};

struct pass {
  struct plan *plan;
  const struct ir_graph *graph;
  struct plan_template *template;
  enum img_tier tier; /* kernels of this tier and of lower ones may be used */
  uint32_t n_row, n_select;
  struct pass_value *value; /* by node */
  int *n_use, *last_use;    /* by node: readers, and the last one */
  bool *covered;            /* by node: computed by some pattern, or part of one */
  int layer;                /* of the node at hand */
  uint32_t epoch;
  uint64_t act_at, act_scope; /* the next free byte of ACT; where layers begin */
  enum moe_code code;
  struct moe_error *err;
};

/* A push field's operand, by the field's name; the last one has no name. */
struct pass_arg {
  const char *name;
  struct plan_operand operand;
};
#define PASS_PARAMS(...) ((const struct shadergen_param[]){__VA_ARGS__, {NULL, 0}})
#define PASS_ARGS(...) ((const struct pass_arg[]){__VA_ARGS__, {NULL, {PLAN_UNUSED, 0, 0}}})
#define PASS_STEP ((struct plan_operand){PLAN_STEP, 0, 0})
#define PASS_NONE ((struct plan_operand){PLAN_UNUSED, 0, 0})
#define PASS_ACT(at) ((struct plan_operand){PLAN_ACT, 0, at})

/* Patterns: each covers the node `i` and what leads to it, or does nothing and returns false. */
bool pass_attention(struct pass *p, int i);
bool pass_router(struct pass *p, int i);
bool pass_add_norm(struct pass *p, int i);
bool pass_head_linear(struct pass *p, int i);
bool pass_softcap(struct pass *p, int i);
bool pass_gate_up(struct pass *p, int i);
bool pass_glu(struct pass *p, int i);
bool pass_expert_down(struct pass *p, int i);
bool pass_short_conv(struct pass *p, int i);
bool pass_delta_rule(struct pass *p, int i);
bool pass_gated_norm(struct pass *p, int i);

/* Whether pass_gate_up will take the product i. */
bool pass_gate_up_takes(const struct pass *p, int i);

/* Records a failure. Returns true: the pattern has taken the node. */
bool pass_fail(struct pass *p, enum moe_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A new buffer of the current scope. Returns its offset in ACT. */
uint64_t pass_buffer(struct pass *p, uint64_t rows, uint64_t words);

/* A buffer behind all that the templates so far use: theirs do not touch it between two steps. */
uint64_t pass_private(struct pass *p, uint64_t bytes);

/* Emits the lookup of the tokens' rows of node i, an EMBED. Returns the offset of its value. */
uint64_t pass_embedding(struct pass *p, int i);

/* Emits the sampler over the logits at that offset. */
void pass_sample(struct pass *p, uint64_t logits);

/* Declares node i computed, its value at `act`. */
void pass_done(struct pass *p, int i, uint64_t act);

/* Whether node i's value is there (a norm may be pending) and belongs to this layer or to the whole template. */
bool pass_ready(const struct pass *p, int i);

/* The offset of node i's value; a pending norm is computed first. */
uint64_t pass_read(struct pass *p, int i);

/* The plane of node i's weight k; vector: as F32. format: NULL or the plane's GGUF type number. */
struct plan_operand pass_plane(struct pass *p, int i, int k, bool vector, double *format);

/* Whether a norm of x that is still to be computed, and so still reads x's buffer, has a reader after node i. */
bool pass_norm_waits(const struct pass *p, int x, int i);

/* The ADD that is node i's only reader and whose other input may be added to in place: nothing reads that input
 * afterwards, nor between i and the ADD. *x: that input. IR_NONE when there is none, or when the ADD scales the other
 * input; what it scales i by (ir_scale of the ADD) is the caller's to apply. */
int pass_residual(const struct pass *p, int i, int *x);

/* Appends a dispatch; MAX_ROW is added to the parameters. Every push field must be among args, but for `codebook`,
 * which the formats decide. */
void pass_emit(struct pass *p, enum kernel_id kernel, enum img_role role, const struct shadergen_param *params,
               const struct pass_arg *args);

/* Rows of a tile of a dense product on subgroup matrices: as many as there are, up to 64, while there are PASS_TILES
 * workgroups to be had. */
double pass_matrix_rows(uint32_t rows, double n_out);
/* ---- Tier dot (pass_dot.c) ---- */

enum { PASS_DOT_PARTS = 3 }; /* matrices of a dispatch (kernels.def: gemv_dot) */

/* Whether a kernel of tier dot takes the product i, a LINEAR or an EXPERT_LINEAR, of `rows` rows. */
bool pass_has_dot(const struct pass *p, int i, uint32_t rows);

/* How kernels that can compute a norm on the way read node `in`'s value: x and, when folded, the norm that is pending.
 */
struct pass_norm {
  bool folded;
  uint64_t x;
  double eps;
  struct plan_operand weight;
};
struct pass_norm pass_norm_ahead(struct pass *p, int in);

/* Appends the products of n nodes, LINEARs of one input, into y[0 .. n - 1]. add: as in pass_product, of one node. */
void pass_gemv_dot(struct pass *p, const int *nodes, int n, enum img_role role, const uint64_t *y, int add);

/* Takes the LINEAR i, together with those behind it in the layer that read the same. */
bool pass_linear_dot(struct pass *p, int i, enum img_role role);

/* Appends y = W x for `rows` rows of node i, a LINEAR (with its bias and scale), a HEAD_LINEAR or a ROUTER's logits:
 * GEMV or GEMM. add: the ADD that y is the other input of (y += its scale times the product), or IR_NONE. */
void pass_product(struct pass *p, int i, enum img_role role, uint64_t y, int add);

#endif
