#include "moec_oracle.h"

#include "emit_tokenizer.h"
#include "family.h"
#include "oracle.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* *ids (give to free) from a file that holds a JSON array of integers. */
static enum moe_code moec_read_ids(const char *path, uint32_t **ids, uint32_t *n, struct moe_error *err) {
  json_error_t where;
  if (!path) return moe_fail(err, MOE_USAGE, "--ids FILE is needed: a JSON array of token ids");
  json_t *array = json_load_file(path, 0, &where);
  if (!array) return moe_fail(err, MOE_USAGE, "--ids %s: line %d: %s", path, where.line, where.text);
  size_t count = json_array_size(array);
  enum moe_code code = MOE_OK;
  if (!json_is_array(array) || count == 0 || count > UINT32_MAX)
    code = moe_fail(err, MOE_USAGE, "--ids %s: not an array of one or more token ids", path);
  *ids = code ? NULL : malloc(count * sizeof **ids);
  if (!code && !*ids) code = moe_fail(err, MOE_FAILED, "out of memory: %zu ids", count);
  for (size_t i = 0; i < count && !code; i++) {
    json_int_t id = json_integer_value(json_array_get(array, i));
    if (!json_is_integer(json_array_get(array, i)) || id < 0 || id > UINT32_MAX)
      code = moe_fail(err, MOE_USAGE, "--ids %s: element %zu is not a token id", path, i);
    else
      (*ids)[i] = (uint32_t)id;
  }
  json_decref(array);
  *n = (uint32_t)count;
  if (code) {
    free(*ids);
    *ids = NULL;
  }
  return code;
}

/* The generated text as a JSON literal (give to free), the ending token left out; NULL when it is not UTF-8. */
static char *moec_text(const struct img_tokenizer *t, const uint32_t *ids, uint32_t n) {
  uint64_t bytes = 0;
  uint32_t len;
  for (uint32_t i = 0; i < n; i++) {
    if (ids[i] >= t->n_vocab) return NULL; /* a padding row of the output matrix */
    img_token_bytes(t, ids[i], &len);
    bytes += len;
  }
  char *text = malloc(bytes + 1);
  if (!text) return NULL;
  uint64_t at = 0;
  for (uint32_t i = 0; i < n; i++) {
    const uint8_t *token = img_token_bytes(t, ids[i], &len);
    if (img_token_type(t, ids[i]) == IMG_TOKEN_CONTROL) continue;
    memcpy(text + at, token, len);
    at += len;
  }
  json_t *string = json_stringn(text, at);
  free(text);
  char *literal = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
  json_decref(string);
  return literal;
}

static void moec_print(const struct oracle_options *options, const struct img_tokenizer *tokenizer,
                       const struct oracle_request *request, const struct oracle_result *result, FILE *out) {
  if (options->json) {
    char *text = moec_text(tokenizer, result->ids, result->n_id);
    oracle_print_json(request, result, text, out);
    free(text);
    return;
  }
  for (uint32_t i = 0; i < result->n_id; i++) fprintf(out, "%s%u", i ? " " : "", result->ids[i]);
  fputc('\n', out);
}

/* With the graph and the tokenizer at hand. */
static enum moe_code moec_oracle_run(const struct ir_graph *graph, const struct img_tokenizer *tokenizer,
                                     const struct oracle_options *options, FILE *out, struct moe_error *err) {
  uint32_t *ids = NULL, n = 0;
  struct parallel *pool = NULL;
  enum moe_code code = moec_read_ids(options->ids, &ids, &n, err);
  if (!code) code = parallel_create((unsigned)options->n_thread, &pool, err);
  const struct oracle_request request = {.prompt = ids,
                                         .n_prompt = n,
                                         .n_predict = (uint32_t)options->n_predict,
                                         .n_top = (uint32_t)options->n_top,
                                         .stop = tokenizer->eog,
                                         .n_stop = tokenizer->n_eog,
                                         .suppress = tokenizer->suppress,
                                         .n_suppress = tokenizer->n_suppress};
  struct oracle_result result;
  if (!code) code = oracle_run(graph, pool, &request, &result, err);
  if (!code) {
    moec_print(options, tokenizer, &request, &result, out);
    oracle_deinit(&result);
  }
  parallel_destroy(pool);
  free(ids);
  return code;
}

enum moe_code moec_oracle(const char *path, const struct oracle_options *options, FILE *out, struct moe_error *err) {
  struct gguf *gguf = NULL;
  struct ir_graph graph;
  uint8_t *payload = NULL;
  uint64_t bytes = 0;
  struct img_tokenizer tokenizer;
  enum moe_code code = gguf_open(path, &gguf, err);
  if (!code) code = emit_tokenizer(gguf, &payload, &bytes, NULL, err);
  if (!code) code = img_tokenizer_open(payload, bytes, &tokenizer, err);
  if (!code && !(code = family_build(gguf, &graph, err))) {
    if (tokenizer.n_vocab > graph.n_vocab)
      code = moe_fail(err, MOE_FAILED, "tokenizer.ggml.tokens: %u tokens, token_embd.weight has %u rows",
                      tokenizer.n_vocab, graph.n_vocab);
    else
      code = moec_oracle_run(&graph, &tokenizer, options, out, err);
    ir_deinit(&graph);
  }
  free(payload);
  gguf_close(gguf);
  return code;
}
