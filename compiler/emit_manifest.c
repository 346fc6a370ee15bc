#include "emit_manifest.h"

#include "gguf_text.h"
#include "img_manifest.h"
#include "oracle.h"

#include <stdlib.h>
#include <string.h>

#define EMIT_LARGE 1000000000ull /* weights */
/* What the modules' SPIR-V is made for. */
#define EMIT_VULKAN_MAJOR 1
#define EMIT_VULKAN_MINOR 3

static uint64_t emit_n_param(const struct gguf *g) {
  uint64_t n = 0;
  for (uint64_t i = 0; i < gguf_n_tensor(g); i++) n += gguf_tensor(g, i)->n_element;
  return n;
}

/* The formats that hold at least a tenth of the bytes, most first: "Q4_K+Q6_K". */
static void emit_quantization(const struct gguf *g, char *text, size_t capacity) {
  uint64_t bytes[256] = {0}, all = 0;
  for (uint64_t i = 0; i < gguf_n_tensor(g); i++) {
    const struct gguf_tensor *t = gguf_tensor(g, i);
    if (t->format && t->format_number < 256) bytes[t->format_number] += t->bytes;
    all += t->bytes;
  }
  size_t at = 0;
  text[0] = 0;
  for (int n = 0; n < 4; n++) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < 256; i++)
      if (bytes[i] > bytes[best]) best = i;
    if (bytes[best] == 0 || bytes[best] < all / 10 || at + 16 > capacity) break;
    at += (size_t)snprintf(text + at, capacity - at, "%s%s", n ? "+" : "", format_find(best)->name);
    bytes[best] = 0;
  }
}

static void emit_hex(const uint8_t hash[GGUF_HASH_BYTES], char *text) {
  for (int i = 0; i < GGUF_HASH_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", hash[i]);
}

static void emit_fill_model(struct img_manifest *m, const struct ir_graph *g) {
  struct gguf_string name;
  if (!gguf_get_string(g->gguf, "general.name", &name, NULL))
    gguf_text_printable(m->model_name, sizeof m->model_name, name.data, name.bytes);
  else
    snprintf(m->model_name, sizeof m->model_name, "%s", g->family);
  snprintf(m->model_architecture, sizeof m->model_architecture, "%s", g->family);
  emit_quantization(g->gguf, m->model_quantization, sizeof m->model_quantization);
  m->model_n_param = emit_n_param(g->gguf);
  m->model_n_layer = g->n_layer;
  m->model_n_nextn = g->n_nextn;
  m->model_d_model = g->d_model;
  m->model_n_vocab = g->n_vocab;
  m->model_n_ctx = g->n_ctx;
  for (int i = 0; i < g->n_node; i++) {
    const struct ir_node *node = &g->node[i];
    if (node->op == IR_ATTENTION && !m->model_n_head) {
      m->model_n_head = node->a.n_head;
      m->model_n_kv_head = node->a.n_kv_head;
      m->model_d_head = node->a.d_head;
    }
    if (node->op == IR_ROUTER) m->model_n_expert = node->a.n_expert, m->model_n_expert_used = node->a.n_expert_used;
    const struct ir_node *gate = node->op == IR_GLU ? &g->node[node->in[0]] : NULL;
    if (gate && (gate->op == IR_EXPERT_LINEAR || (gate->op == IR_LINEAR && !m->model_n_expert)))
      m->model_d_ff = (uint32_t)gate->weight[0]->dim[1];
  }
}

static void emit_fill_needs(struct img_manifest *m, const struct plan *plan, const struct emit_modules *modules) {
  m->memory_act_bytes = plan_act_bytes(plan);
  m->memory_max_row = plan->max_row;
  m->requires_vulkan_major = EMIT_VULKAN_MAJOR;
  m->requires_vulkan_minor = EMIT_VULKAN_MINOR;
  m->requires_workgroup = modules->max_workgroup;
  m->requires_shared_bytes = modules->max_shared_bytes;
  m->requires_push_bytes = modules->max_push_bytes;
  for (uint32_t i = 0; i < plan->n_plane - plan->n_carried; i++)
    if (plan->plane[i].layout.bytes > m->requires_plane_bytes) m->requires_plane_bytes = plan->plane[i].layout.bytes;
}

enum moe_code emit_manifest(struct emit_bytes *section, const struct plan *plan, const struct emit_modules *modules,
                            const struct emit_options *options, const uint8_t hash[GGUF_HASH_BYTES],
                            struct moe_error *err) {
  struct img_manifest m = {0};
  snprintf(m.compiler_version, sizeof m.compiler_version, "%s", MOE_VERSION);
  snprintf(m.compiler_options, sizeof m.compiler_options, "--kv %s --tier %s --compress %lld%s", options->kv,
           options->tier, (long long)options->compress, options->no_selftest ? " --no-selftest" : "");
  emit_hex(hash, m.source_blake2b);
  m.source_bytes = gguf_file_bytes(plan->graph->gguf);
  snprintf(m.state_kv, sizeof m.state_kv, "%s", options->kv);
  m.state_page_tok = PLAN_PAGE_TOK;
  m.state_page_bytes = plan->page_bytes;
  m.state_block_bytes = plan->block_bytes;
  emit_fill_model(&m, plan->graph);
  emit_fill_needs(&m, plan, modules);
  char *text = NULL;
  uint64_t bytes = 0;
  enum moe_code code = img_manifest_format(&m, &text, &bytes, err);
  if (!code) emit_bytes_append(section, text, bytes);
  free(text);
  return code ? code : emit_bytes_check(section, "the section MANIFEST", err);
}

/* ---- SELFTEST ---- */

/* The question, byte by byte: every byte-level vocabulary has these tokens. */
static uint32_t emit_prompt(const struct img_tokenizer *t, uint32_t *ids, uint32_t capacity) {
  static const char question[] = "What is a guitar?";
  uint32_t n = 0;
  for (size_t i = 0; i + 1 < sizeof question && n < capacity; i++) {
    uint32_t id = t->byte_ids[(uint8_t)question[i]];
    if (id != IMG_TOKEN_NONE) ids[n++] = id;
  }
  if (n == 0) ids[n++] = 0;
  return n;
}

static void emit_printf_ids(struct emit_bytes *b, const char *key, const uint32_t *ids, uint32_t n) {
  char text[32];
  emit_bytes_append(b, key, strlen(key));
  for (uint32_t i = 0; i < n; i++)
    emit_bytes_append(b, text, (uint64_t)snprintf(text, sizeof text, "%s%u", i ? "," : "[", ids[i]));
}

static void emit_write_selftest(struct emit_bytes *b, const struct oracle_request *request,
                                const struct oracle_result *r) {
  char text[64];
  emit_printf_ids(b, "{\"prompt_ids\":", request->prompt, request->n_prompt);
  emit_printf_ids(b, "],\"ids\":", r->ids, r->n_id);
  emit_bytes_append(b, "],\"logprobs\":[", 14);
  for (uint32_t i = 0; i < r->n_id; i++) {
    for (uint32_t k = 0; k < r->n_top; k++) {
      const struct oracle_top *top = &r->top[(uint64_t)i * r->n_top + k];
      const char *open = k ? "," : i ? ",[" : "[";
      emit_bytes_append(b, text, (uint64_t)snprintf(text, sizeof text, "%s[%u,%.4f]", open, top->id, top->logprob));
    }
    emit_bytes_append(b, "]", 1);
  }
  emit_bytes_append(b, "]}\n", 3);
}

enum moe_code emit_selftest(struct emit_bytes *section, const struct plan *plan, const struct img_tokenizer *tokenizer,
                            struct parallel *pool, struct moe_error *err) {
  const struct ir_graph *g = plan->graph;
  bool large = emit_n_param(g->gguf) > EMIT_LARGE;
  uint32_t ids[17], capacity = large ? 4 : 17, n_predict = large ? 4 : 8;
  if (capacity + n_predict > g->n_ctx) return MOE_OK; /* no room for a test: the image has none */
  const struct oracle_request request = {.prompt = ids,
                                         .n_prompt = emit_prompt(tokenizer, ids, capacity),
                                         .n_predict = n_predict,
                                         .n_top = g->n_vocab < 8 ? g->n_vocab : 8,
                                         .suppress = tokenizer->suppress,
                                         .n_suppress = tokenizer->n_suppress};
  struct oracle_result result;
  enum moe_code code = oracle_run(g, pool, &request, &result, err);
  if (code) return code;
  emit_write_selftest(section, &request, &result);
  oracle_deinit(&result);
  return emit_bytes_check(section, "the section SELFTEST", err);
}
