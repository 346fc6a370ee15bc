#include "model_blocks_impl.h"

#include "nextn.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define HPARAM_REQUIRED (-1)
#define BLOCKS_MAX_D_FF (1u << 24) /* of shared experts together, as of every row of hparams.def */

int blocks_fail(struct blocks *b, enum moe_code code, const char *format, ...) {
  if (b->code) return IR_NONE;
  char text[sizeof b->err->message];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  b->code = moe_fail(b->err, code, "%s", text);
  return IR_NONE;
}

/* ---- Hyperparameters ---- */

const char *blocks_key(const struct blocks *b, const char *key, char *text, size_t capacity) {
  snprintf(text, capacity, "%s.%s", b->graph->family, key);
  return text;
}

void blocks_read_u32(struct blocks *b, const char *key, double fallback, uint32_t min, uint32_t max, uint32_t *value) {
  char name[192];
  blocks_key(b, key, name, sizeof name);
  if (b->code) return;
  if (fallback < 0)
    b->code = gguf_get_u32(b->gguf, name, value, b->err);
  else
    b->code = gguf_get_u32_or(b->gguf, name, (uint32_t)fallback, value, b->err);
  if (!b->code && (*value < min || *value > max))
    blocks_fail(b, MOE_FAILED, "%s: %u; allowed: %u to %u", name, *value, min, max);
}

void blocks_read_real(struct blocks *b, const char *key, double fallback, double min, double max, double *value) {
  char name[192];
  blocks_key(b, key, name, sizeof name);
  if (b->code) return;
  float found = 0;
  if (fallback < 0)
    b->code = gguf_get_f32(b->gguf, name, &found, b->err);
  else
    b->code = gguf_get_f32_or(b->gguf, name, (float)fallback, &found, b->err);
  *value = (double)found;
  if (!b->code && !(*value >= min && *value <= max)) /* a NaN fails too */
    blocks_fail(b, MOE_FAILED, "%s: %g; allowed: %g to %g", name, *value, min, max);
}

static void blocks_check_heads(struct blocks *b) {
  struct hparams *h = &b->h;
  if (h->n_kv_head == 0) h->n_kv_head = h->n_head;
  /* Of arrays these are two layers' numbers; blocks_attention compares a layer's. */
  bool each = b->each[BLOCKS_EACH_n_head] || b->each[BLOCKS_EACH_n_kv_head];
  if (!each && h->n_head % h->n_kv_head)
    blocks_fail(b, MOE_FAILED, "%s.attention.head_count: %u heads do not share %u key/value heads evenly",
                b->graph->family, h->n_head, h->n_kv_head);
  if (h->d_head == 0 && h->d_model % h->n_head)
    blocks_fail(b, MOE_FAILED,
                "%s.embedding_length: %u does not divide by %u heads, and attention.key_length is missing",
                b->graph->family, h->d_model, h->n_head);
  if (h->d_head == 0) h->d_head = h->d_model / h->n_head;
  if (h->d_head > BLOCKS_MAX_HEAD)
    blocks_fail(b, MOE_FAILED, "%s.embedding_length: %u over %u heads gives heads of %u; allowed: at most %d",
                b->graph->family, h->d_model, h->n_head, h->d_head, BLOCKS_MAX_HEAD);
  if (h->d_head_value == 0) h->d_head_value = h->d_head;
  if (h->n_rot == 0) h->n_rot = h->d_head;
  if (h->n_rot > h->d_head || h->n_rot % 2)
    blocks_fail(b, MOE_FAILED, "%s.rope.dimension_count: %u; allowed: even, at most a head's %u", b->graph->family,
                h->n_rot, h->d_head);
}

static void blocks_check_experts(struct blocks *b) {
  const struct hparams *h = &b->h;
  if (h->n_expert && (h->n_expert_used == 0 || h->n_expert_used > h->n_expert))
    blocks_fail(b, MOE_FAILED, "%s.expert_used_count: %u of %u experts; allowed: 1 to expert_count", b->graph->family,
                h->n_expert_used, h->n_expert);
}

/* The rows of hparams.def that only some families honour. */
static const struct blocks_option {
  const char *key;
  double min, max, neutral[2];
} blocks_options[] = {
#define HPARAM(field, key, fallback, min, max)
#define HPARAM_REAL(field, key, fallback, min, max)
#define HPARAM_OPTION(key, min, max, a, b) {key, min, max, {a, b}},
#include "hparams.def"
#undef HPARAM
#undef HPARAM_REAL
};
enum { BLOCKS_N_OPTION = sizeof blocks_options / sizeof *blocks_options };

/* Whether the file has the key; *value: NaN when it is no number. */
static bool blocks_option_value(const struct blocks *b, const char *key, char name[192], double *value) {
  int64_t whole = 0;
  float real = 0;
  bool flag = false;
  if (!gguf_has(b->gguf, blocks_key(b, key, name, 192))) return false;
  *value = (double)NAN;
  if (!gguf_get_i64(b->gguf, name, &whole, NULL))
    *value = (double)whole;
  else if (!gguf_get_f32(b->gguf, name, &real, NULL))
    *value = (double)real;
  else if (!gguf_get_bool(b->gguf, name, &flag, NULL))
    *value = flag;
  return true;
}

double blocks_honours(struct blocks *b, const char *key, double fallback) {
  char name[192];
  double value = fallback;
  if (b->code) return fallback;
  for (int i = 0; i < BLOCKS_N_OPTION; i++) {
    const struct blocks_option *o = &blocks_options[i];
    if (strcmp(o->key, key)) continue;
    b->honoured[i] = true;
    if (!blocks_option_value(b, key, name, &value) || (value >= o->min && value <= o->max)) return value;
    blocks_fail(b, MOE_FAILED, "%s: %.10g; allowed: %g to %g", name, value, o->min, o->max);
    return fallback;
  }
  blocks_fail(b, MOE_FAILED, "%s: no row HPARAM_OPTION has this key", key);
  return fallback;
}

/* A key that the family does not honour must have a value that changes nothing. */
static void blocks_check_options(struct blocks *b) {
  char name[192];
  double value;
  for (int i = 0; i < BLOCKS_N_OPTION && !b->code; i++) {
    const struct blocks_option *o = &blocks_options[i];
    if (b->honoured[i] || !blocks_option_value(b, o->key, name, &value)) continue;
    if (value != o->neutral[0] && value != o->neutral[1])
      blocks_fail(b, MOE_DECLINED, "%s: %.10g changes what the model computes, and %s does not have it here", name,
                  value, b->graph->family);
  }
}

/* A window that no layer asked for must change nothing. */
static void blocks_check_window(struct blocks *b) {
  if (!b->window_asked && b->h.window != 0 && b->h.window < b->h.n_ctx)
    blocks_fail(b, MOE_DECLINED,
                "%s.attention.sliding_window: %u of a context of %u; moec attends to all positions in this family",
                b->graph->family, b->h.window, b->h.n_ctx);
}

/* Sections that no layer asked for: q and k may stand in another order than the family takes them. */
static void blocks_check_sections_asked(struct blocks *b) {
  if (b->sections && !b->sections_asked)
    blocks_fail(b, MOE_DECLINED, "%s.rope.dimension_sections: %s has no rotations in sections here", b->graph->family,
                b->graph->family);
}

static void blocks_read_family(struct blocks *b) {
  struct gguf_string family;
  if ((b->code = gguf_get_string(b->gguf, "general.architecture", &family, b->err))) return;
  if (family.bytes == 0 || family.bytes >= sizeof b->graph->family)
    blocks_fail(b, MOE_FAILED, "general.architecture: a name of %zu bytes; allowed: 1 to %zu", family.bytes,
                sizeof b->graph->family - 1);
  else
    memcpy(b->graph->family, family.data, family.bytes);
}

void blocks_init(struct blocks *b, struct ir_graph *graph, const struct gguf *gguf, struct moe_error *err) {
  memset(b, 0, sizeof *b);
  b->graph = graph;
  b->gguf = gguf;
  b->err = err;
  blocks_read_family(b);
#define HPARAM(field, key, fallback, min, max) blocks_read_u32(b, key, fallback, min, max, &b->h.field);
#define HPARAM_EACH(field, key, fallback, min, max)                                                                    \
  blocks_read_each(b, BLOCKS_EACH_##field, fallback, min, max, &b->h.field);
#define HPARAM_REAL(field, key, fallback, min, max) blocks_read_real(b, key, fallback, min, max, &b->h.field);
#include "hparams.def"
#undef HPARAM
#undef HPARAM_REAL
  if (!b->code) blocks_check_heads(b);
  blocks_check_experts(b);
  blocks_read_rope(b);
  if (b->code) return;
  b->used = calloc(gguf_n_tensor(gguf) + 1, sizeof *b->used);
  b->honoured = calloc(BLOCKS_N_OPTION, sizeof *b->honoured);
  if (!b->used || !b->honoured)
    blocks_fail(b, MOE_FAILED, "out of memory: a flag for each of %llu tensors",
                (unsigned long long)gguf_n_tensor(gguf));
  const struct gguf_tensor *embd = gguf_find_tensor(gguf, "token_embd.weight");
  if (!embd) {
    blocks_fail(b, MOE_FAILED, "token_embd.weight: the file has no such tensor; %s needs it", graph->family);
    return;
  }
  if (embd->dim[1] > 1u << 24)
    blocks_fail(b, MOE_FAILED, "token_embd.weight: %llu rows; allowed: at most 16777216",
                (unsigned long long)embd->dim[1]);
  b->h.n_vocab = (uint32_t)embd->dim[1];
  graph->n_layer = b->h.n_layer;
  graph->n_ctx = b->h.n_ctx;
  graph->d_model = b->h.d_model;
  graph->n_vocab = b->h.n_vocab;
}

/* Tensors that nobody asked for make the model another one. */
static void blocks_check_used(struct blocks *b) {
  uint64_t n = gguf_n_tensor(b->gguf), first = n, more = 0;
  for (uint64_t i = n; !b->code && i-- > 0;)
    if (!b->used[i]) first = i, more++;
  if (first == n) return;
  char others[64] = "";
  if (more > 1) snprintf(others, sizeof others, " and %llu more tensors", (unsigned long long)more - 1);
  blocks_fail(b, MOE_DECLINED,
              "tensor[%llu] %s%s: %s has no place for it here; the model is a variant that moec does not compile",
              (unsigned long long)first, gguf_tensor(b->gguf, first)->name, others, b->graph->family);
}

enum moe_code blocks_finish(struct blocks *b) {
  if (!b->code) blocks_check_options(b);
  blocks_check_each(b);
  blocks_check_window(b);
  blocks_check_sections_asked(b);
  blocks_check_used(b);
  free(b->used);
  free(b->honoured);
  blocks_free_each(b);
  b->used = b->honoured = NULL;
  return b->code;
}

/* ---- Tensors ---- */

static uint64_t blocks_tensor_index(const struct blocks *b, const struct gguf_tensor *t) {
  return (uint64_t)(t - gguf_tensor(b->gguf, 0));
}

static bool blocks_shape_fits(struct blocks *b, const struct gguf_tensor *t, const uint64_t wanted[3]) {
  static const char *const what[3] = {"columns", "rows", "matrices"};
  for (int i = 0; i < 3; i++)
    if (t->dim[i] != wanted[i]) {
      blocks_fail(b, MOE_FAILED, "tensor[%llu] %s: %llu %s, the hyperparameters give %llu",
                  (unsigned long long)blocks_tensor_index(b, t), t->name, (unsigned long long)t->dim[i], what[i],
                  (unsigned long long)wanted[i]);
      return false;
    }
  if (t->dim[3] != 1)
    blocks_fail(b, MOE_FAILED, "tensor[%llu] %s: four dimensions; allowed: three",
                (unsigned long long)blocks_tensor_index(b, t), t->name);
  return !b->code;
}

/* By the name that it has in a layer, or by itself. NULL when there is none. */
static const struct gguf_tensor *blocks_find(const struct blocks *b, int layer, const char *name) {
  char full[128];
  if (layer == IR_NO_LAYER)
    snprintf(full, sizeof full, "%s", name);
  else
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
  return gguf_find_tensor(b->gguf, full);
}

bool blocks_has_tensor(struct blocks *b, int layer, const char *name) {
  return !b->code && blocks_find(b, layer, name);
}

const struct gguf_tensor *blocks_optional_tensor(struct blocks *b, int layer, const char *name, uint64_t n_in,
                                                 uint64_t n_out, uint64_t n_mat) {
  if (b->code) return NULL;
  const struct gguf_tensor *t = blocks_find(b, layer, name);
  if (!t) return NULL;
  if ((b->code = format_require(t->format_number, t->name, b->err))) return NULL;
  if (!blocks_shape_fits(b, t, (const uint64_t[3]){n_in, n_out, n_mat})) return NULL;
  b->used[blocks_tensor_index(b, t)] = true;
  return t;
}

const struct gguf_tensor *blocks_tensor(struct blocks *b, int layer, const char *name, uint64_t n_in, uint64_t n_out,
                                        uint64_t n_mat) {
  const struct gguf_tensor *t = blocks_optional_tensor(b, layer, name, n_in, n_out, n_mat);
  if (!t && layer == IR_NO_LAYER)
    blocks_fail(b, MOE_FAILED, "%s: the file has no such tensor; %s needs it", name, b->graph->family);
  else if (!t)
    blocks_fail(b, MOE_FAILED, "blk.%d.%s: the file has no such tensor; %s with %u layers needs it", layer, name,
                b->graph->family, b->h.n_layer);
  return t;
}

const struct gguf_tensor *blocks_rows(struct blocks *b, const struct gguf_tensor *t, uint64_t first, uint64_t n_out,
                                      uint64_t run, uint64_t period, const char *suffix) {
  const struct gguf_tensor *view = NULL;
  if (b->code || !t) return NULL;
  b->code = ir_add_view(b->graph, t, first, n_out, run, period, suffix, &view, b->err);
  return view;
}

const struct gguf_tensor *blocks_slice(struct blocks *b, const struct gguf_tensor *t, uint64_t first, uint64_t n,
                                       const char *suffix) {
  const struct gguf_tensor *view = NULL;
  if (b->code || !t) return NULL;
  b->code = ir_add_vector_view(b->graph, t, first, n, suffix, &view, b->err);
  return view;
}

uint32_t blocks_state(struct blocks *b, uint32_t n_kv_head, uint32_t d_head, uint32_t d_head_value) {
  uint32_t index = 0;
  if (!b->code) b->code = ir_add_state(b->graph, &(struct ir_state){n_kv_head, d_head, d_head_value}, &index, b->err);
  return index;
}

uint32_t blocks_shared_width(struct blocks *b, uint32_t d_ff, uint32_t n_shared) {
  uint64_t all = (uint64_t)d_ff * n_shared;
  if (all <= BLOCKS_MAX_D_FF) return (uint32_t)all;
  blocks_fail(b, MOE_FAILED, "%s.expert_shared_count: %u shared experts of %u columns; allowed: %u columns in all",
              b->graph->family, n_shared, d_ff, BLOCKS_MAX_D_FF);
  return 0;
}

bool blocks_has_qkv_bias(struct blocks *b) {
  return blocks_has_tensor(b, 0, "attn_q.bias") || blocks_has_tensor(b, 0, "attn_qkv.bias");
}

enum ir_gating blocks_gating(struct blocks *b, enum ir_gating fallback) {
  static const enum ir_gating by_number[] = {
      [1] = IR_GATING_SOFTMAX, [2] = IR_GATING_SIGMOID, [3] = IR_GATING_SOFTMAX_AFTER};
  double number = blocks_honours(b, "expert_gating_func", 0);
  return number == 1 || number == 2 || number == 3 ? by_number[(int)number] : fallback;
}

void blocks_nextn(struct blocks *b) {
  const char *rest;
  struct nextn n;
  uint32_t n_block = (uint32_t)blocks_honours(b, "nextn_predict_layers", 0);
  if (b->code || n_block == 0) return;
  if (n_block >= b->h.n_layer) {
    blocks_fail(b, MOE_FAILED, "%s.nextn_predict_layers: %u of %u blocks; at least one must be the trunk's",
                b->graph->family, n_block, b->h.n_layer);
    return;
  }
  nextn_find(b->gguf, b->h.n_layer, n_block, &n);
  for (uint64_t i = 0; i < gguf_n_tensor(b->gguf) && !b->code; i++) {
    int64_t block = nextn_block_of(gguf_tensor(b->gguf, i)->name, &rest);
    if (block < n.n_trunk || block >= b->h.n_layer) continue;
    b->used[i] = true;
    if (n.whole[block - n.n_trunk]) b->code = ir_carry(b->graph, gguf_tensor(b->gguf, i), b->err);
  }
  b->h.n_layer = b->graph->n_layer = n.n_trunk;
  b->graph->n_nextn = n.n_whole;
}

/* ---- Operations ---- */

int blocks_node(struct blocks *b, const struct ir_node *node) {
  int value = IR_NONE;
  if (b->code) return IR_NONE;
  b->code = ir_add(b->graph, node, &value, b->err);
  return b->code ? IR_NONE : value;
}

const char *blocks_name(const char *name, const char *kind, char text[96]) {
  snprintf(text, 96, "%s.%s", name, kind);
  return text;
}

int blocks_embed(struct blocks *b) {
  return blocks_embed_scaled(b, 1);
}

int blocks_embed_scaled(struct blocks *b, double scale) {
  const struct gguf_tensor *w = blocks_tensor(b, IR_NO_LAYER, "token_embd.weight", b->h.d_model, b->h.n_vocab, 1);
  return blocks_node(b, &(struct ir_node){.op = IR_EMBED, .layer = IR_NO_LAYER, .weight = {w}, .a = {.scale = scale}});
}

int blocks_softcap(struct blocks *b, int layer, int x, double cap) {
  if (cap == 0) return x;
  return blocks_node(b, &(struct ir_node){.op = IR_SOFTCAP, .layer = layer, .in = {x}, .a = {.softcap = cap}});
}

int blocks_norm(struct blocks *b, int layer, int x, const char *name, uint32_t group) {
  char text[96];
  const struct gguf_tensor *w = blocks_tensor(b, layer, blocks_name(name, "weight", text), group, 1, 1);
  return blocks_node(
      b, &(struct ir_node){
             .op = IR_RMSNORM, .layer = layer, .in = {x}, .weight = {w}, .a = {.eps = b->h.eps, .group = group}});
}

int blocks_linear(struct blocks *b, int layer, int x, const char *name, uint32_t n_out, bool bias) {
  if (b->code) return IR_NONE;
  char text[96];
  const struct gguf_tensor *w =
      blocks_tensor(b, layer, blocks_name(name, "weight", text), b->graph->node[x].width, n_out, 1);
  const struct gguf_tensor *v = bias ? blocks_tensor(b, layer, blocks_name(name, "bias", text), n_out, 1, 1) : NULL;
  return blocks_product(b, layer, x, w, v);
}

int blocks_product(struct blocks *b, int layer, int x, const struct gguf_tensor *w, const struct gguf_tensor *bias) {
  return blocks_node(b, &(struct ir_node){.op = IR_LINEAR, .layer = layer, .in = {x}, .weight = {w, bias}});
}

int blocks_add(struct blocks *b, int layer, int x, int y) {
  return blocks_node(b, &(struct ir_node){.op = IR_ADD, .layer = layer, .in = {x, y}});
}

int blocks_residual(struct blocks *b, int layer, int x, int y) {
  return blocks_node(b,
                     &(struct ir_node){.op = IR_ADD, .layer = layer, .in = {x, y}, .a = {.scale = b->residual_scale}});
}

/* ---- Blocks ---- */

int blocks_glu(struct blocks *b, int layer, int gate, int up, enum ir_activation activation) {
  return blocks_node(
      b, &(struct ir_node){.op = IR_GLU, .layer = layer, .in = {gate, up}, .a = {.activation = activation}});
}

/* The rows of gate and up in one tensor. */
static void blocks_fused_up(struct blocks *b, int layer, int n, uint32_t d_ff, int *gate, int *up) {
  const struct gguf_tensor *w = blocks_tensor(b, layer, "ffn_up.weight", b->h.d_model, 2 * (uint64_t)d_ff, 1);
  *gate = blocks_product(b, layer, n, blocks_rows(b, w, 0, d_ff, 0, 0, "gate"), NULL);
  *up = blocks_product(b, layer, n, blocks_rows(b, w, d_ff, d_ff, 0, 0, "up"), NULL);
}

int blocks_dense(struct blocks *b, int layer, int x, const struct blocks_ffn *kind) {
  const struct hparams *h = &b->h;
  uint32_t d_ff = kind->d_ff ? kind->d_ff : blocks_d_ff(b, layer);
  int n = blocks_norm(b, layer, x, kind->norm ? kind->norm : "ffn_norm", h->d_model), gate, up;
  if (kind->fused) {
    blocks_fused_up(b, layer, n, d_ff, &gate, &up);
  } else {
    gate = blocks_linear(b, layer, n, "ffn_gate", d_ff, kind->bias);
    up = blocks_linear(b, layer, n, "ffn_up", d_ff, kind->bias);
  }
  int mul = blocks_glu(b, layer, gate, up, kind->activation);
  int y = blocks_linear(b, layer, mul, "ffn_down", h->d_model, kind->bias);
  return kind->post_norm ? blocks_norm(b, layer, y, kind->post_norm, h->d_model) : y;
}

int blocks_dense_ffn(struct blocks *b, int layer, int x, const struct blocks_ffn *kind) {
  return blocks_residual(b, layer, x, blocks_dense(b, layer, x, kind));
}

static int blocks_expert_product(struct blocks *b, int layer, int x, int router, const struct gguf_tensor *w,
                                 const struct gguf_tensor *bias) {
  const struct hparams *h = &b->h;
  return blocks_node(b, &(struct ir_node){.op = IR_EXPERT_LINEAR,
                                          .layer = layer,
                                          .in = {x, router},
                                          .weight = {w, bias},
                                          .a = {.n_expert = h->n_expert, .n_expert_used = h->n_expert_used}});
}

static int blocks_expert_linear(struct blocks *b, int layer, int x, int router, const char *name, uint64_t n_in,
                                uint64_t n_out, bool bias) {
  const struct hparams *h = &b->h;
  char text[96];
  const struct gguf_tensor *w = blocks_tensor(b, layer, blocks_name(name, "weight", text), n_in, n_out, h->n_expert);
  const struct gguf_tensor *v =
      bias ? blocks_tensor(b, layer, blocks_name(name, "bias", text), n_out, h->n_expert, 1) : NULL;
  return blocks_expert_product(b, layer, x, router, w, v);
}

/* Experts' gate and up: ffn_gate_exps and ffn_up_exps; or, without biases, ffn_gate_up_exps, which has the rows of
 * both, one after the other. */
static void blocks_gate_up(struct blocks *b, int layer, int x, int router, uint32_t d_ff, bool bias, int y[2]) {
  static const char *const name[2] = {"ffn_gate_exps", "ffn_up_exps"}, *const part[2] = {"gate", "up"};
  const struct gguf_tensor *both = NULL;
  if (!bias && blocks_has_tensor(b, layer, "ffn_gate_up_exps.weight"))
    both = blocks_tensor(b, layer, "ffn_gate_up_exps.weight", b->h.d_model, 2ull * d_ff, b->h.n_expert);
  for (int i = 0; i < 2; i++)
    y[i] =
        both ? blocks_expert_product(b, layer, x, router, blocks_rows(b, both, i ? d_ff : 0, d_ff, 0, 0, part[i]), NULL)
             : blocks_expert_linear(b, layer, x, router, name[i], b->h.d_model, d_ff, bias);
}

int blocks_router(struct blocks *b, int layer, int n, const struct blocks_experts *kind) {
  const struct hparams *h = &b->h;
  const struct ir_attr a = {.n_expert = h->n_expert,
                            .n_expert_used = h->n_expert_used,
                            .renormalize = kind->renormalize,
                            .gating = kind->gating,
                            .weight_scale = kind->weight_scale,
                            .n_group = kind->n_group,
                            .n_group_used = kind->n_group_used,
                            .n_group_sum = kind->n_group_sum};
  const struct gguf_tensor *w = blocks_tensor(b, layer, "ffn_gate_inp.weight", h->d_model, h->n_expert, 1), *v = NULL,
                           *s = NULL, *f = NULL;
  if (kind->router_bias) v = blocks_tensor(b, layer, "ffn_gate_inp.bias", h->n_expert, 1, 1);
  if (kind->selection_bias) s = blocks_tensor(b, layer, "exp_probs_b.bias", h->n_expert, 1, 1);
  if (kind->expert_scale) f = blocks_optional_tensor(b, layer, "ffn_down_exps.scale", h->n_expert, 1, 1);
  return blocks_node(b, &(struct ir_node){.op = IR_ROUTER, .layer = layer, .in = {n}, .weight = {w, v, s, f}, .a = a});
}

int blocks_routed(struct blocks *b, int layer, int n, int router, const struct blocks_experts *kind) {
  const struct hparams *h = &b->h;
  uint32_t d_ff = kind->d_ff ? kind->d_ff : h->d_ff_expert ? h->d_ff_expert : blocks_d_ff(b, layer);
  int gate_up[2];
  blocks_gate_up(b, layer, n, router, d_ff, kind->bias, gate_up);
  int mul = blocks_glu(b, layer, gate_up[0], gate_up[1], kind->activation);
  int down = blocks_expert_linear(b, layer, mul, router, "ffn_down_exps", d_ff, h->d_model, kind->bias);
  return blocks_node(b, &(struct ir_node){.op = IR_COMBINE,
                                          .layer = layer,
                                          .in = {down, router},
                                          .a = {.n_expert = h->n_expert, .n_expert_used = h->n_expert_used}});
}

int blocks_shared_expert(struct blocks *b, int layer, int n, const struct blocks_shared *kind) {
  const struct hparams *h = &b->h;
  uint32_t d_ff = kind->d_ff ? kind->d_ff : h->d_ff_shared;
  int gate = blocks_linear(b, layer, n, "ffn_gate_shexp", d_ff, false);
  int up = blocks_linear(b, layer, n, "ffn_up_shexp", d_ff, false);
  int mul = blocks_glu(b, layer, gate, up, kind->activation);
  int y = blocks_linear(b, layer, mul, "ffn_down_shexp", h->d_model, false);
  if (!kind->gated) return y;
  return blocks_glu(b, layer, blocks_linear(b, layer, n, "ffn_gate_inp_shexp", 1, false), y, IR_SIGMOID);
}

int blocks_expert_ffn(struct blocks *b, int layer, int x, const struct blocks_experts *kind) {
  int n = blocks_norm(b, layer, x, kind->norm ? kind->norm : "ffn_norm", b->h.d_model);
  int router = blocks_router(b, layer, n, kind); /* first: it can make the normed rows on the way */
  int shared = kind->shared ? blocks_shared_expert(b, layer, n, kind->shared) : IR_NONE;
  int y = blocks_routed(b, layer, n, router, kind);
  return blocks_residual(b, layer, x, kind->shared ? blocks_add(b, layer, shared, y) : y);
}

int blocks_head(struct blocks *b, int x) {
  return blocks_head_scaled(b, x, 1);
}

int blocks_head_scaled(struct blocks *b, int x, double scale) {
  int s = blocks_node(b, &(struct ir_node){.op = IR_SELECT, .layer = IR_NO_LAYER, .in = {x}});
  int n = blocks_norm(b, IR_NO_LAYER, s, "output_norm", b->h.d_model);
  const struct gguf_tensor *w = blocks_optional_tensor(b, IR_NO_LAYER, "output.weight", b->h.d_model, b->h.n_vocab, 1);
  if (!w) w = blocks_tensor(b, IR_NO_LAYER, "token_embd.weight", b->h.d_model, b->h.n_vocab, 1);
  return blocks_node(
      b, &(struct ir_node){.op = IR_LINEAR, .layer = IR_NO_LAYER, .in = {n}, .weight = {w}, .a = {.scale = scale}});
}
