/* oracle_ops.h: the operations of ir_ops.def in double precision.
 *
 * Owns: oracle_<name>, struct oracle_call. Does not own: order and memory (oracle.c). */
#ifndef COMPILER_ORACLE_OPS_H
#define COMPILER_ORACLE_OPS_H

#include "ir.h"
#include "parallel.h"

/* The keys and values of one layer: [n_position][n_kv_head * d_head] each. */
struct oracle_state {
  double *k, *v;
};

/* One operation on n_row rows. */
struct oracle_call {
  const struct ir_graph *graph;
  const struct ir_node *node;
  struct parallel *pool;
  double *out;                 /* [n_row][node->width] */
  const double *in[IR_MAX_IN]; /* [n_row][width of the input]; a SELECT's input has all rows */
  const struct ir_node *in_node[IR_MAX_IN];
  uint32_t n_row;
  const uint32_t *token;      /* of EMBED: ids of the rows */
  const uint32_t *select;     /* of SELECT: rows of the input */
  uint32_t position;          /* of the first row; rows are consecutive */
  struct oracle_state *state; /* [graph->n_state] */
  double **recurrent;         /* by recurrent state: its words */
  double *margin;             /* of ROUTER: [n_row], lowered where this layer's margin is smaller */
  double *scratch;            /* of thread i: scratch + i * scratch_stride; one more behind the last thread's */
  uint64_t scratch_stride;
};

/* Sum of a[i] * b[i] in a fixed order. */
double oracle_dot(const double *a, const double *b, uint64_t n);

/* A norm weight, a bias, sinks: the tensor's row 0 as doubles. Uses the first thread's scratch memory. */
void oracle_vector(const struct oracle_call *c, const struct gguf_tensor *t, double *w);

double *oracle_thread_scratch(const struct oracle_call *c, unsigned thread);

/* The scratch_stride (in doubles) that suffices for any operation of the graph with up to n_position positions. */
uint64_t oracle_scratch(const struct ir_graph *graph, uint32_t n_position);

/* A norm weight or a bias as doubles, through the first thread's scratch floats (8 * length bytes at w are the
 * caller's). */
void oracle_vector(const struct oracle_call *c, const struct gguf_tensor *t, double *w);

/* out[t] = weight[0] in[0][t] for all rows: the product of a LINEAR or a ROUTER, without bias. */
void oracle_product_rows(const struct oracle_call *c, double *out);

#define IR_OP(ENUM, name, ...) void oracle_##name(const struct oracle_call *c);
#include "ir_ops.def"
#undef IR_OP

#endif
