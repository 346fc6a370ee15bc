#include "oracle.h"

#include "oracle_ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void (*oracle_fn)(const struct oracle_call *c);
static const oracle_fn oracle_fns[IR_N_OP] = {
#define IR_OP(ENUM, name, ...) oracle_##name,
#include "ir_ops.def"
#undef IR_OP
};

/* Above this file size a tensor's pages are given back after use: they would all stay in the process. */
#define ORACLE_RELEASE_BYTES (256u << 20)

struct oracle {
  const struct ir_graph *graph;
  struct parallel *pool;
  double **value; /* by node; NULL when not computed yet, or no longer needed */
  int *last_use;  /* by node: the last node that reads it */
  struct oracle_state *state;
  double **recurrent; /* by recurrent state of the graph */
  double *scratch;
  uint64_t scratch_stride;
  double *margin; /* by position */
  bool release;
};

static enum moe_code oracle_no_memory(struct moe_error *err, const char *what) {
  return moe_fail(err, MOE_FAILED, "out of memory: the oracle's %s", what);
}

static enum moe_code oracle_init_state(struct oracle *o, uint32_t n_position, struct moe_error *err) {
  o->state = calloc(o->graph->n_state + 1, sizeof *o->state);
  if (!o->state) return oracle_no_memory(err, "states");
  for (uint32_t i = 0; i < o->graph->n_state; i++) {
    const struct ir_state *s = &o->graph->state[i];
    uint64_t heads = (uint64_t)n_position * s->n_kv_head;
    o->state[i].k = malloc(heads * s->d_head * sizeof(double));
    o->state[i].v = malloc(heads * s->d_head_value * sizeof(double) + 1);
    if (!o->state[i].k || !o->state[i].v) return oracle_no_memory(err, "keys and values");
  }
  o->recurrent = calloc(o->graph->n_recurrent + 1, sizeof *o->recurrent);
  for (uint32_t i = 0; o->recurrent && i < o->graph->n_recurrent; i++)
    if (!(o->recurrent[i] = calloc(o->graph->recurrent[i], sizeof **o->recurrent)))
      return oracle_no_memory(err, "recurrent states");
  if (!o->recurrent) return oracle_no_memory(err, "recurrent states");
  return MOE_OK;
}

static enum moe_code oracle_init(struct oracle *o, const struct ir_graph *graph, struct parallel *pool,
                                 uint32_t n_position, struct moe_error *err) {
  memset(o, 0, sizeof *o);
  o->graph = graph;
  o->pool = pool;
  o->release = gguf_file_bytes(graph->gguf) > ORACLE_RELEASE_BYTES;
  o->value = calloc((size_t)graph->n_node, sizeof *o->value);
  o->last_use = calloc((size_t)graph->n_node, sizeof *o->last_use);
  o->scratch_stride = oracle_scratch(graph, n_position);
  o->scratch = malloc((parallel_n_thread(pool) + 1) * o->scratch_stride * sizeof *o->scratch);
  o->margin = malloc(n_position * sizeof *o->margin);
  if (!o->value || !o->last_use || !o->scratch || !o->margin) return oracle_no_memory(err, "tables");
  for (uint32_t i = 0; i < n_position; i++) o->margin[i] = INFINITY;
  for (int i = 0; i < graph->n_node; i++)
    for (int k = 0; k < ir_ops[graph->node[i].op].n_in; k++) o->last_use[graph->node[i].in[k]] = i;
  return oracle_init_state(o, n_position, err);
}

static void oracle_close(struct oracle *o) {
  for (uint32_t i = 0; o->state && i < o->graph->n_state; i++) {
    free(o->state[i].k);
    free(o->state[i].v);
  }
  for (uint32_t i = 0; o->recurrent && i < o->graph->n_recurrent; i++) free(o->recurrent[i]);
  free(o->recurrent);
  for (int i = 0; o->value && i < o->graph->n_node; i++) free(o->value[i]);
  free(o->state);
  free(o->value);
  free(o->last_use);
  free(o->scratch);
  free(o->margin);
}

/* Computes one node; frees inputs that nobody reads later. */
static enum moe_code oracle_node(struct oracle *o, int i, uint32_t n_row, const uint32_t *token, uint32_t position,
                                 struct moe_error *err) {
  const struct ir_node *node = &o->graph->node[i];
  uint32_t last_row = n_row - 1;
  struct oracle_call c = {.graph = o->graph,
                          .node = node,
                          .pool = o->pool,
                          .n_row = node->selected ? 1 : n_row,
                          .token = token,
                          .select = &last_row,
                          .position = position,
                          .state = o->state,
                          .recurrent = o->recurrent,
                          .margin = o->margin + position,
                          .scratch = o->scratch,
                          .scratch_stride = o->scratch_stride};
  c.out = o->value[i] = malloc((uint64_t)c.n_row * node->width * sizeof(double));
  if (!c.out) return oracle_no_memory(err, "values");
  for (int k = 0; k < ir_ops[node->op].n_in; k++) {
    c.in[k] = o->value[node->in[k]];
    c.in_node[k] = &o->graph->node[node->in[k]];
  }
  oracle_fns[node->op](&c);
  for (int k = 0; k < ir_ops[node->op].n_in; k++)
    if (o->last_use[node->in[k]] == i) {
      free(o->value[node->in[k]]);
      o->value[node->in[k]] = NULL;
    }
  for (int k = 0; o->release && k < IR_MAX_WEIGHT; k++)
    if (node->weight[k]) gguf_release(o->graph->gguf, node->weight[k]);
  return MOE_OK;
}

/* Runs consecutive rows from `position` on. want_logits: *logits (give to free) are those of the last row. */
static enum moe_code oracle_rows(struct oracle *o, const uint32_t *token, uint32_t n_row, uint32_t position,
                                 bool want_logits, double **logits, struct moe_error *err) {
  int last = o->graph->n_node - 1;
  for (int i = 0; i <= last; i++) {
    if (o->graph->node[i].selected && !want_logits) continue;
    enum moe_code code = oracle_node(o, i, n_row, token, position, err);
    if (code) return code;
  }
  if (want_logits) *logits = o->value[last];
  o->value[last] = NULL;
  for (int i = 0; i < last; i++) { /* what only skipped nodes would have read */
    free(o->value[i]);
    o->value[i] = NULL;
  }
  return MOE_OK;
}

/* The n_top largest logits as log-probabilities. */
static void oracle_top_of(double *logits, uint32_t n_vocab, uint32_t n_top, struct oracle_top *top) {
  double max = -INFINITY, sum = 0;
  for (uint32_t i = 0; i < n_vocab; i++)
    if (logits[i] > max) max = logits[i];
  for (uint32_t i = 0; i < n_vocab; i++) sum += exp(logits[i] - max);
  double offset = max + log(sum);
  for (uint32_t k = 0; k < n_top; k++) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n_vocab; i++)
      if (logits[i] > logits[best]) best = i;
    top[k] = (struct oracle_top){best, logits[best] - offset};
    logits[best] = -INFINITY;
  }
}

static double oracle_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static bool oracle_has(const uint32_t *ids, uint32_t n, uint32_t id) {
  for (uint32_t i = 0; i < n; i++)
    if (ids[i] == id) return true;
  return false;
}

/* The id of the largest logit that is not suppressed; ties to the lower id. */
static uint32_t oracle_choose(const double *logits, uint32_t n_vocab, const struct oracle_request *r) {
  uint32_t best = 0;
  while (oracle_has(r->suppress, r->n_suppress, best)) best++; /* fewer are suppressed than there are */
  for (uint32_t i = best + 1; i < n_vocab; i++)
    if (logits[i] > logits[best] && !oracle_has(r->suppress, r->n_suppress, i)) best = i;
  return best;
}
/* The prompt in chunks, then token by token. */
static enum moe_code oracle_generate(struct oracle *o, const struct oracle_request *request,
                                     struct oracle_result *result, struct moe_error *err) {
  double start = oracle_ms(), *logits = NULL;
  enum moe_code code = MOE_OK;
  for (uint32_t at = 0; at < request->n_prompt && !code; at += ORACLE_CHUNK) {
    uint32_t n = request->n_prompt - at < ORACLE_CHUNK ? request->n_prompt - at : ORACLE_CHUNK;
    bool last = at + n == request->n_prompt && request->n_predict > 0;
    code = oracle_rows(o, request->prompt + at, n, at, last, &logits, err);
  }
  result->prompt_ms = oracle_ms() - start;
  start = oracle_ms();
  for (uint32_t i = 0; i < request->n_predict && !code; i++) {
    struct oracle_top best[1];
    struct oracle_top *top = request->n_top ? result->top + (uint64_t)i * request->n_top : best;
    uint32_t chosen = oracle_choose(logits, o->graph->n_vocab, request);
    oracle_top_of(logits, o->graph->n_vocab, request->n_top ? request->n_top : 1, top);
    free(logits);
    logits = NULL;
    char why[ORACLE_DAMAGE_BYTES];
    if (!isfinite(top[0].logprob))
      return moe_fail(err, MOE_FAILED, "position %u: the logits are not finite; %s", request->n_prompt - 1 + i,
                      oracle_damage(o->graph, why));
    result->ids[result->n_id++] = chosen;
    if (oracle_has(request->stop, request->n_stop, chosen) || i + 1 == request->n_predict) break;
    code = oracle_rows(o, &result->ids[i], 1, request->n_prompt + i, true, &logits, err);
  }
  free(logits);
  result->predict_ms = oracle_ms() - start;
  result->n_margin = request->n_prompt + (result->n_id ? result->n_id - 1 : 0);
  return code;
}

static enum moe_code oracle_check(const struct ir_graph *graph, const struct oracle_request *r, struct moe_error *err) {
  if (r->n_prompt == 0) return moe_fail(err, MOE_FAILED, "the prompt has no ids; at least one is needed");
  if ((uint64_t)r->n_prompt + r->n_predict > graph->n_ctx)
    return moe_fail(err, MOE_FAILED, "a prompt of %u ids and %u to generate; the model's context is %u", r->n_prompt,
                    r->n_predict, graph->n_ctx);
  if (r->n_suppress >= graph->n_vocab)
    return moe_fail(err, MOE_FAILED, "%u suppressed ids; the vocabulary has %u", r->n_suppress, graph->n_vocab);
  if (r->n_top > ORACLE_MAX_TOP || r->n_top > graph->n_vocab)
    return moe_fail(err, MOE_FAILED, "%u log-probabilities a position; allowed: at most %u, and the %u ids there are",
                    r->n_top, ORACLE_MAX_TOP, graph->n_vocab);
  for (uint32_t i = 0; i < r->n_prompt; i++)
    if (r->prompt[i] >= graph->n_vocab)
      return moe_fail(err, MOE_FAILED, "prompt id %u is %u; the vocabulary has %u", i, r->prompt[i], graph->n_vocab);
  for (uint32_t i = 0; i < r->n_suppress; i++)
    if (r->suppress[i] >= graph->n_vocab)
      return moe_fail(err, MOE_FAILED, "suppressed id %u is %u; the vocabulary has %u", i, r->suppress[i],
                      graph->n_vocab);
  return MOE_OK;
}

enum moe_code oracle_run(const struct ir_graph *graph, struct parallel *pool, const struct oracle_request *request,
                         struct oracle_result *result, struct moe_error *err) {
  memset(result, 0, sizeof *result);
  enum moe_code code = oracle_check(graph, request, err);
  if (code) return code;
  struct oracle o;
  code = oracle_init(&o, graph, pool, request->n_prompt + request->n_predict, err);
  result->n_top = request->n_top;
  result->ids = malloc(((uint64_t)request->n_predict + 1) * sizeof *result->ids);
  result->top = malloc(((uint64_t)request->n_predict * request->n_top + 1) * sizeof *result->top);
  if (!code && (!result->ids || !result->top)) code = oracle_no_memory(err, "result");
  if (!code) code = oracle_generate(&o, request, result, err);
  result->margin = o.margin;
  o.margin = NULL;
  oracle_close(&o);
  if (code) oracle_deinit(result);
  return code;
}

void oracle_deinit(struct oracle_result *result) {
  free(result->ids);
  free(result->top);
  free(result->margin);
  memset(result, 0, sizeof *result);
}

static void oracle_print_ids(const char *key, const uint32_t *ids, uint32_t n, FILE *out) {
  fprintf(out, "\"%s\":[", key);
  for (uint32_t i = 0; i < n; i++) fprintf(out, "%s%u", i ? "," : "", ids[i]);
  fputs("],", out);
}

void oracle_print_json(const struct oracle_request *request, const struct oracle_result *r, const char *text,
                       FILE *out) {
  fputc('{', out);
  oracle_print_ids("prompt_ids", request->prompt, request->n_prompt, out);
  oracle_print_ids("ids", r->ids, r->n_id, out);
  if (text) fprintf(out, "\"text\":%s,", text);
  fputs("\"logprobs\":[", out);
  for (uint32_t i = 0; i < r->n_id; i++) {
    fputs(i ? ",[" : "[", out);
    for (uint32_t k = 0; k < r->n_top; k++) {
      const struct oracle_top *top = &r->top[(uint64_t)i * r->n_top + k];
      fprintf(out, "%s[%u,%.6f]", k ? "," : "", top->id, top->logprob);
    }
    fputc(']', out);
  }
  fputs("],\"router_margin\":", out);
  if (r->n_margin && isfinite(r->margin[0])) {
    for (uint32_t i = 0; i < r->n_margin; i++) fprintf(out, "%c%.6f", i ? ',' : '[', r->margin[i]);
    fputc(']', out);
  } else {
    fputs("null", out);
  }
  fprintf(out,
          ",\"timings\":{\"load_ms\":0,\"first_token_ms\":%.3f,\"prompt_tokens\":%u,\"prompt_ms\":%.3f,"
          "\"predicted_tokens\":%u,\"predicted_ms\":%.3f},\"device\":\"cpu\",\"tier\":\"oracle\"}\n",
          r->prompt_ms, request->n_prompt, r->prompt_ms, r->n_id, r->predict_ms);
}
