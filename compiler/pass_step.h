/* pass_step.h: a whole decoding step of one row as one dispatch: the two halves of the pass.
 *
 * Owns: struct step_layer, what a layer of the plain kind consists of. pass_step.c finds it in the graph,
 * pass_step_table.c makes the table of phases from it. */
#ifndef COMPILER_PASS_STEP_H
#define COMPILER_PASS_STEP_H

#include "pass_state.h"

/* The nodes of a layer; IR_NONE: it has no such part. */
struct step_layer {
  int x, norm, q, k, v, q_norm, k_norm, rope, attention, output, x1;
  int norm2, router, gate, up, down, shared_gate_row, shared_gate, shared_up, shared_down, x2;
};

struct step_graph {
  const struct ir_graph *g;
  const struct pass *p;
  bool *seen;
  struct step_layer *layer;
  uint32_t n_layer;
  int embed, norm, head;
};

/* Lowers the graph to embed, step, sample when all its layers are of the plain kind. Returns false, and does nothing,
 * when they are not. */
bool pass_step(struct pass *p);

/* Emits the dispatch `step` for the layers that pass_step found. x: of the token's embedding, logits: offsets in ACT.
 */
void pass_step_emit(struct pass *p, const struct step_graph *s, uint64_t x, uint64_t logits);

#endif
