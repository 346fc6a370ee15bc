/* oracle.h: runs a model's graph in double precision over the GGUF's own weights: what every kernel, tier and image is
 * compared with.
 *
 * Owns: greedy generation, the log-probabilities of the most likely tokens, the router's margins. Does not own: the
 * definitions of operations (oracle_ops.h), which tokens end a text (the caller says).
 * Invariants: weights are the floats that dequant_row gives, widened to double; nothing is rounded to less than double
 * on the way. Results do not depend on the number of threads. Weights are streamed: a tensor is read once for up to
 * ORACLE_CHUNK tokens. */
#ifndef COMPILER_ORACLE_H
#define COMPILER_ORACLE_H

#include "ir.h"
#include "parallel.h"

enum { ORACLE_CHUNK = 512, ORACLE_MAX_TOP = 1024 };

struct oracle_request {
  const uint32_t *prompt; /* n_prompt ids, at least one; borrowed */
  uint32_t n_prompt, n_predict;
  uint32_t n_top;       /* log-probabilities kept a position, at most ORACLE_MAX_TOP */
  const uint32_t *stop; /* n_stop ids that end the text; borrowed */
  uint32_t n_stop;
  const uint32_t *suppress; /* n_suppress ids that are never chosen (they stay in the log-probabilities); borrowed */
  uint32_t n_suppress;
};

struct oracle_top {
  uint32_t id;
  double logprob;
};

struct oracle_result {
  uint32_t *ids; /* n_id generated ids, the one that ended the text included */
  uint32_t n_id;
  struct oracle_top *top; /* [n_id][n_top], most likely first, ties by lower id */
  uint32_t n_top;
  /* [n_prompt + n_id - 1], one a position that was computed: the smallest difference, over the layers, between the
   * scores (logits, or p and bias: ir_ops.def) of the last chosen expert and of the best one that was not chosen, and
   * those of the last kept group and the next; INFINITY without routers. The token ids[i] comes from position
   * n_prompt - 1 + i. */
  double *margin;
  uint32_t n_margin;
  double prompt_ms, predict_ms;
};

/* result: uninitialized; on success owned by the caller (oracle_deinit).
 * Errors: MOE_FAILED for ids outside the vocabulary, more positions than n_ctx, no memory. */
enum moe_code oracle_run(const struct ir_graph *graph, struct parallel *pool, const struct oracle_request *request,
                         struct oracle_result *result, struct moe_error *err);
void oracle_deinit(struct oracle_result *result);

enum { ORACLE_DAMAGE_BYTES = 384 };

/* Why logits are not finite: reads all weights of the graph and names the first that is not, into text. Returns text.
 */
const char *oracle_damage(const struct ir_graph *graph, char text[ORACLE_DAMAGE_BYTES]);

/* Prints the object that `moert run --json` prints, and "router_margin" (null without routers).
 * text: the generated text as a JSON string literal with its quotes, or NULL. */
void oracle_print_json(const struct oracle_request *request, const struct oracle_result *result, const char *text,
                       FILE *out);

#endif
