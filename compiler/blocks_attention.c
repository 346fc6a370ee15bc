/* blocks_attention.c: the attention block in all its kinds (blocks_attention.h). */
#include "model_blocks_impl.h"

#include <math.h>

uint32_t blocks_window(struct blocks *b) {
  b->window_asked = true;
  return b->h.window < b->h.n_ctx ? b->h.window : 0;
}

bool blocks_is_local(struct blocks *b, int layer, uint32_t period) {
  char name[192];
  struct gguf_array flags;
  blocks_key(b, "attention.sliding_window_pattern", name, sizeof name);
  b->window_asked = true;
  /* A window as long as the context hides nothing, but its layers keep what else they have of their own. */
  if (b->code || b->h.window == 0) return false;
  if (gguf_has(b->gguf, name) && !gguf_get_array(b->gguf, name, &flags, NULL)) {
    if (flags.type != GGUF_BOOL && flags.type != GGUF_I32 && flags.type != GGUF_U32)
      blocks_fail(b, MOE_FAILED, "%s: an array of %s; allowed: bools or integers", name, gguf_type_name(flags.type));
    else if (flags.count < b->h.n_layer)
      blocks_fail(b, MOE_FAILED, "%s: %llu flags; the model has %u layers", name, (unsigned long long)flags.count,
                  b->h.n_layer);
    return !b->code && gguf_array_i64(&flags, (uint64_t)layer) != 0;
  }
  blocks_read_u32(b, "attention.sliding_window_pattern", period, 1, 1024, &period);
  return !b->code && (uint32_t)layer % period < period - 1;
}

/* One layer's shapes. */
struct blocks_heads {
  uint32_t n_head, n_kv_head, d_head, d_value;
};

/* q, k and v as projected; gate: IR_NONE, or as wide as q. */
struct blocks_qkv {
  int q, k, v, gate;
};

/* q and gate of the first rows of w, which has for every head q's rows, then the gate's. */
static void blocks_split_gate(struct blocks *b, int layer, int x, const struct gguf_tensor *w,
                              const struct blocks_heads *s, struct blocks_qkv *y) {
  uint64_t n = (uint64_t)s->n_head * s->d_head, d = s->d_head;
  y->q = blocks_product(b, layer, x, blocks_rows(b, w, 0, n, d, 2 * d, "q"), NULL);
  y->gate = blocks_product(b, layer, x, blocks_rows(b, w, d, n, d, 2 * d, "gate"), NULL);
}

static struct blocks_qkv blocks_split_qkv(struct blocks *b, int layer, int x, const struct blocks_heads *s, bool bias,
                                          bool gate) {
  const uint64_t n[3] = {((uint64_t)s->n_head * s->d_head) << gate, (uint64_t)s->n_kv_head * s->d_head,
                         (uint64_t)s->n_kv_head * s->d_value};
  static const char *const name[3] = {"q", "k", "v"};
  uint64_t all = n[0] + n[1] + n[2], first = 0;
  const struct gguf_tensor *w = blocks_tensor(b, layer, "attn_qkv.weight", b->h.d_model, all, 1);
  const struct gguf_tensor *v = bias ? blocks_tensor(b, layer, "attn_qkv.bias", all, 1, 1) : NULL;
  int y[3] = {IR_NONE, IR_NONE, IR_NONE};
  for (int i = 0; i < 3; first += n[i], i++)
    if (i || !gate)
      y[i] = blocks_product(b, layer, x, blocks_rows(b, w, first, n[i], 0, 0, name[i]),
                            blocks_slice(b, v, first, n[i], name[i]));
  struct blocks_qkv all_of = {y[0], y[1], y[2], IR_NONE};
  if (gate) blocks_split_gate(b, layer, x, w, s, &all_of);
  return all_of;
}

static struct blocks_qkv blocks_project(struct blocks *b, int layer, int x, const struct blocks_attention *kind,
                                        const struct blocks_heads *s) {
  struct blocks_qkv y = {.gate = IR_NONE};
  if (blocks_has_tensor(b, layer, "attn_qkv.weight"))
    return blocks_split_qkv(b, layer, x, s, kind->qkv_bias, kind->output_gate);
  if (kind->output_gate)
    blocks_split_gate(b, layer, x,
                      blocks_tensor(b, layer, "attn_q.weight", b->h.d_model, 2 * (uint64_t)s->n_head * s->d_head, 1), s,
                      &y);
  else
    y.q = blocks_linear(b, layer, x, "attn_q", s->n_head * s->d_head, kind->qkv_bias);
  y.k = blocks_linear(b, layer, x, "attn_k", s->n_kv_head * s->d_head, kind->qkv_bias);
  y.v = kind->value_is_key ? y.k : blocks_linear(b, layer, x, "attn_v", s->n_kv_head * s->d_value, kind->qkv_bias);
  return y;
}

/* Norm and rotation of q or k. */
static int blocks_turn(struct blocks *b, int layer, int x, uint32_t n_head, uint32_t d_head, const char *norm,
                       const struct blocks_attention *kind) {
  if (kind->qk_norm == BLOCKS_NORM_HEADS) x = blocks_norm(b, layer, x, norm, d_head);
  if (kind->qk_norm == BLOCKS_NORM_WHOLE) x = blocks_norm(b, layer, x, norm, n_head * d_head);
  x = blocks_rope(b, layer, x, n_head, d_head, kind->pairs, &kind->rope);
  if (kind->qk_norm == BLOCKS_NORM_AFTER_ROPE) x = blocks_norm(b, layer, x, norm, d_head);
  return x;
}

int blocks_attention(struct blocks *b, int layer, int x, const struct blocks_attention *kind) {
  const struct hparams *h = &b->h;
  const struct blocks_heads s = {.n_head = blocks_n_head(b, layer),
                                 .n_kv_head = kind->n_kv_head ? kind->n_kv_head : blocks_n_kv_head(b, layer),
                                 .d_head = kind->d_head ? kind->d_head : h->d_head,
                                 .d_value = kind->d_head_value ? kind->d_head_value
                                            : kind->d_head     ? kind->d_head
                                                               : h->d_head_value};
  if (!s.n_head || !s.n_kv_head || s.n_head % s.n_kv_head)
    return blocks_fail(b, MOE_FAILED, "layer %d: %u attention heads over %u key/value heads; they must share evenly",
                       layer, s.n_head, s.n_kv_head);
  struct blocks_qkv y = blocks_project(b, layer, blocks_norm(b, layer, x, "attn_norm", h->d_model), kind, &s);
  if (kind->value_norm)
    y.v = blocks_node(
        b, &(struct ir_node){.op = IR_RMSNORM, .layer = layer, .in = {y.v}, .a = {.eps = h->eps, .group = s.d_value}});
  y.q = blocks_turn(b, layer, y.q, s.n_head, s.d_head, "attn_q_norm", kind);
  y.k = blocks_turn(b, layer, y.k, s.n_kv_head, s.d_head, "attn_k_norm", kind);
  const struct gguf_tensor *sinks = kind->sinks ? blocks_tensor(b, layer, "attn_sinks.weight", s.n_head, 1, 1) : NULL;
  int out = blocks_node(b, &(struct ir_node){.op = IR_ATTENTION,
                                             .layer = layer,
                                             .in = {y.q, y.k, y.v},
                                             .weight = {sinks},
                                             .a = {.n_head = s.n_head,
                                                   .n_kv_head = s.n_kv_head,
                                                   .d_head = s.d_head,
                                                   .d_head_value = s.d_value == s.d_head ? 0 : s.d_value,
                                                   .scale = kind->scale > 0 ? kind->scale : 1 / sqrt(s.d_head),
                                                   .softcap = kind->softcap,
                                                   .window = kind->window,
                                                   .state = blocks_state(b, s.n_kv_head, s.d_head, s.d_value)}});
  if (y.gate != IR_NONE) out = blocks_glu(b, layer, y.gate, out, IR_SIGMOID);
  out = blocks_linear(b, layer, out, "attn_output", h->d_model, kind->output_bias);
  if (kind->post_norm) out = blocks_norm(b, layer, out, kind->post_norm, h->d_model);
  return blocks_residual(b, layer, x, out);
}
