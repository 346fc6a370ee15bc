/* blocks_delta.c: the gated DeltaNet layer (blocks_delta.h). */
#include "model_blocks_impl.h"

#include <stdlib.h>

bool blocks_is_recurrent(struct blocks *b, int layer) {
  char name[192];
  struct gguf_array list;
  if (b->code) return false;
  if (!gguf_has(b->gguf, blocks_key(b, "attention.recurrent_layers", name, sizeof name)))
    return ((uint32_t)layer + 1) % b->h.full_attention_interval != 0;
  b->code = gguf_get_array(b->gguf, name, &list, b->err);
  if (!b->code && (list.type == GGUF_STRING || list.type == GGUF_ARRAY || list.count < b->h.n_layer))
    blocks_fail(b, MOE_FAILED, "%s: an array of %llu elements; allowed: a number or bool for each of %u layers", name,
                (unsigned long long)list.count, b->h.n_layer);
  return !b->code && gguf_array_i64(&list, (uint64_t)layer) != 0;
}

/* Widths of a layer. */
struct blocks_delta_shape {
  uint32_t n_head, n_key, d, n_tap, keys, values;
};

static struct blocks_delta_shape blocks_delta_shape(struct blocks *b) {
  const struct hparams *h = &b->h;
  struct blocks_delta_shape s = {
      .n_head = h->ssm_head, .n_key = h->ssm_key_head, .d = h->ssm_state, .n_tap = h->ssm_tap};
  s.keys = s.n_key * s.d;
  s.values = s.n_head * s.d;
  if (!s.n_key || !s.d || s.n_tap < 2 || s.n_head % s.n_key || !s.n_head)
    blocks_fail(b, MOE_FAILED,
                "%s.ssm: %u heads (time_step_rank), %u key heads (group_count), state_size %u, conv_kernel "
                "%u; allowed: key heads that divide the heads, a state_size, a conv_kernel from 2",
                b->graph->family, s.n_head, s.n_key, s.d, s.n_tap);
  if (!b->code && h->ssm_inner != s.values)
    blocks_fail(b, MOE_FAILED, "%s.ssm.inner_size: %u; %u heads of state_size %u give %u", b->graph->family,
                h->ssm_inner, s.n_head, s.d, s.values);
  return s;
}

static uint32_t blocks_recurrent(struct blocks *b, uint64_t n) {
  uint32_t index = 0;
  if (!b->code) b->code = ir_add_recurrent(b->graph, n, &index, b->err);
  return index;
}

/* A part of the convolution: channels first .. first + n - 1 of its weight. */
static int blocks_short_conv(struct blocks *b, int layer, int x, const struct gguf_tensor *w, uint64_t first,
                             uint32_t n, const char *suffix) {
  uint32_t n_tap = b->h.ssm_tap;
  const struct gguf_tensor *part = blocks_rows(b, w, first, n, 0, 0, suffix);
  uint32_t state = blocks_recurrent(b, (uint64_t)(n_tap - 1) * n);
  return blocks_node(
      b,
      &(struct ir_node){
          .op = IR_SHORT_CONV, .layer = layer, .in = {x}, .weight = {part}, .a = {.n_tap = n_tap, .recurrent = state}});
}

/* y = q, k, v, z of normed rows x. */
static void blocks_delta_inputs(struct blocks *b, int layer, int x, const struct blocks_delta_shape *s, int y[4]) {
  static const char *const name[4] = {"q", "k", "v", "z"};
  const uint64_t n[4] = {s->keys, s->keys, s->values, s->values};
  bool fused = blocks_has_tensor(b, layer, "ssm_in.weight");
  uint64_t group = s->values / s->n_key, first = 0, all = 2ull * s->keys + (fused ? 2ull : 1ull) * s->values;
  const uint64_t run[4] = {s->d, s->d, group, group}; /* rows of a key head, q, k, v and z one after another */
  const struct gguf_tensor *w =
      blocks_tensor(b, layer, fused ? "ssm_in.weight" : "attn_qkv.weight", b->h.d_model, all, 1);
  for (int i = 0; i < (fused ? 4 : 3); i++) {
    y[i] = blocks_product(b, layer, x,
                          fused ? blocks_rows(b, w, first, n[i], run[i], 2 * (s->d + group), name[i])
                                : blocks_rows(b, w, first, n[i], 0, 0, name[i]),
                          NULL);
    first += fused ? run[i] : n[i];
  }
  if (!fused) y[3] = blocks_linear(b, layer, x, "attn_gate", s->values, false);
}

/* y = alpha, beta. */
static void blocks_delta_gates(struct blocks *b, int layer, int x, const struct blocks_delta_shape *s, bool fused,
                               int y[2]) {
  uint32_t group = s->n_head / s->n_key;
  if (!fused) {
    y[0] = blocks_linear(b, layer, x, "ssm_alpha", s->n_head, false);
    y[1] = blocks_linear(b, layer, x, "ssm_beta", s->n_head, false);
    return;
  }
  const struct gguf_tensor *w = blocks_tensor(b, layer, "ssm_ba.weight", b->h.d_model, 2 * (uint64_t)s->n_head, 1);
  y[0] = blocks_product(b, layer, x, blocks_rows(b, w, group, s->n_head, group, 2ull * group, "alpha"), NULL);
  y[1] = blocks_product(b, layer, x, blocks_rows(b, w, 0, s->n_head, group, 2ull * group, "beta"), NULL);
}

int blocks_delta_net(struct blocks *b, int layer, int x, const struct blocks_delta *kind) {
  const struct blocks_delta_shape s = blocks_delta_shape(b);
  int in[4] = {IR_NONE, IR_NONE, IR_NONE, IR_NONE}, gate[2] = {IR_NONE, IR_NONE};
  if (b->code) return IR_NONE;
  int n = blocks_norm(b, layer, x, "attn_norm", b->h.d_model);
  blocks_delta_inputs(b, layer, n, &s, in);
  blocks_delta_gates(b, layer, n, &s, kind->fused, gate);
  const struct gguf_tensor *w = blocks_tensor(b, layer, "ssm_conv1d.weight", s.n_tap, 2ull * s.keys + s.values, 1);
  int q = blocks_short_conv(b, layer, in[0], w, 0, s.keys, "q");
  int k = blocks_short_conv(b, layer, in[1], w, s.keys, s.keys, "k");
  int v = blocks_short_conv(b, layer, in[2], w, 2ull * s.keys, s.values, "v");
  const struct gguf_tensor *a = blocks_tensor(b, layer, "ssm_a", s.n_head, 1, 1);
  const struct gguf_tensor *dt = blocks_tensor(b, layer, "ssm_dt.bias", s.n_head, 1, 1);
  uint32_t state = blocks_recurrent(b, (uint64_t)s.values * s.d);
  int y = blocks_node(b, &(struct ir_node){.op = IR_DELTA_RULE,
                                           .layer = layer,
                                           .in = {q, k, v, gate[0], gate[1]},
                                           .weight = {a, dt},
                                           .a = {.n_head = s.n_head,
                                                 .n_kv_head = s.n_key,
                                                 .d_head = s.d,
                                                 .tiled = kind->tiled,
                                                 .eps = 1e-6, /* the reference implementation's, in any model */
                                                 .recurrent = state}});
  y = blocks_glu(b, layer, in[3], blocks_norm(b, layer, y, "ssm_norm", s.d), IR_SILU);
  return blocks_residual(b, layer, x, blocks_linear(b, layer, y, "ssm_out", b->h.d_model, false));
}
