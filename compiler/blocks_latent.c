/* blocks_latent.c: multi-head latent attention: keys and values of all heads are products of one short row, the latent
 * c, and of one rotated key; only these are kept. Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1; what the keys of
 * its yarn mean: llama.cpp, src/models/deepseek2.cpp.
 *
 * Files have one of two layouts. attn_k_b and attn_v_b (a matrix a head, k's transposed) are made for the absorbed
 * form: q[h] = [k_b[h] q_nope[h], rope(q_pe[h])], k = [c, rope(k_pe)], v = c, y[h] = v_b[h] attention(q, k, v)[h] with
 * one head of keys. attn_kv_b has the rows of k's and v's matrices head by head; quantized, they cannot be transposed
 * without loss, so that keys and values are kept multiplied out: q[h] = [q_nope[h], rope(q_pe[h])], k[h] = [k_b[h] c,
 * rope(k_pe)], v[h] = v_b[h] c */
#include "model_blocks_impl.h"

#include <math.h>

/* One layer's widths: of a query head without and with rotation, of a value, of the latent. */
struct blocks_latent_shape {
  uint32_t n_head, d_nope, d_rope, d_value, d_latent;
};

static struct blocks_latent_shape blocks_latent_shape(struct blocks *b, int layer, bool absorbed) {
  const struct hparams *h = &b->h;
  uint32_t d_head = absorbed ? h->d_head_latent : h->d_head;
  struct blocks_latent_shape s = {.n_head = blocks_n_head(b, layer),
                                  .d_rope = h->n_rot,
                                  .d_value = absorbed ? h->d_head_value_latent : h->d_head_value,
                                  .d_latent = h->d_latent};
  if (s.n_head == 0 || s.d_latent == 0 || s.d_value == 0 || d_head <= s.d_rope)
    blocks_fail(
        b, MOE_FAILED,
        "%s.attention: kv_lora_rank %u, %u heads of %u with %u rotated, values of %u; allowed: all above 0, and "
        "less rotated columns than a head has",
        b->graph->family, s.d_latent, s.n_head, d_head, s.d_rope, s.d_value);
  else
    s.d_nope = d_head - s.d_rope;
  return s;
}

/* What the logits are multiplied by. With yarn, 1 + y ln(factor), squared, has the part of its attention factor that
 * cosine and sine do not have; y is the file's yarn_log_multiplier. */
static double blocks_latent_scale(struct blocks *b, const struct blocks_latent_shape *s) {
  double y = blocks_honours(b, "rope.scaling.yarn_log_multiplier", 0), m = 1;
  if (b->yarn && y == 0)
    blocks_fail(b, MOE_DECLINED, "%s.rope.scaling.yarn_log_multiplier: missing beside yarn; convert the model again",
                b->graph->family);
  if (b->yarn && b->h.rope_factor > 1) m = 1 + y * log(b->h.rope_factor);
  return m * m / sqrt(s->d_nope + s->d_rope);
}

static int blocks_concat(struct blocks *b, int layer, int x, int y, uint32_t n_head, uint32_t n_y_head) {
  return blocks_node(
      b,
      &(struct ir_node){.op = IR_CONCAT, .layer = layer, .in = {x, y}, .a = {.n_head = n_head, .n_kv_head = n_y_head}});
}

static int blocks_head_linear(struct blocks *b, int layer, int x, const char *name, uint32_t n_in, uint32_t n_out,
                              uint32_t n_head) {
  const struct gguf_tensor *w = blocks_tensor(b, layer, name, n_in, n_out, n_head);
  return blocks_node(
      b, &(struct ir_node){.op = IR_HEAD_LINEAR, .layer = layer, .in = {x}, .weight = {w}, .a = {.n_head = n_head}});
}

/* Two interleaved parts of a projection whose rows are, head by head, `first` of one and `second` of the other. */
static void blocks_two_parts(struct blocks *b, int layer, int x, const struct gguf_tensor *w, uint32_t n_head,
                             uint32_t first, uint32_t second, const char *const name[2], int part[2]) {
  uint64_t period = (uint64_t)first + second;
  part[0] = blocks_product(b, layer, x, blocks_rows(b, w, 0, (uint64_t)n_head * first, first, period, name[0]), NULL);
  part[1] =
      blocks_product(b, layer, x, blocks_rows(b, w, first, (uint64_t)n_head * second, second, period, name[1]), NULL);
}

/* The queries' parts: without and with rotation. */
static void blocks_latent_query(struct blocks *b, int layer, int n, const struct blocks_latent_shape *s, int q[2]) {
  static const char *const name[2] = {"nope", "rope"};
  uint32_t rank = b->h.d_latent_query, n_in = rank ? rank : b->h.d_model;
  if (rank) n = blocks_norm(b, layer, blocks_linear(b, layer, n, "attn_q_a", rank, false), "attn_q_a_norm", rank);
  const struct gguf_tensor *w = blocks_tensor(b, layer, rank ? "attn_q_b.weight" : "attn_q.weight", n_in,
                                              (uint64_t)s->n_head * (s->d_nope + s->d_rope), 1);
  blocks_two_parts(b, layer, n, w, s->n_head, s->d_nope, s->d_rope, name, q);
}

/* The latent, normed, and the key that all heads share, not yet rotated. */
static void blocks_latent_key(struct blocks *b, int layer, int n, const struct blocks_latent_shape *s, int k[2]) {
  static const char *const name[2] = {"latent", "rope"};
  const struct gguf_tensor *w =
      blocks_tensor(b, layer, "attn_kv_a_mqa.weight", b->h.d_model, (uint64_t)s->d_latent + s->d_rope, 1);
  blocks_two_parts(b, layer, n, w, 1, s->d_latent, s->d_rope, name, k);
  k[0] = blocks_norm(b, layer, k[0], "attn_kv_a_norm", s->d_latent);
}

int blocks_latent_attention(struct blocks *b, int layer, int x, const struct blocks_rope_kind *rope,
                            enum ir_rope_pairs pairs) {
  static const char *const name[2] = {"k", "v"};
  if (b->code) return IR_NONE;
  bool absorbed = blocks_has_tensor(b, layer, "attn_k_b.weight");
  const struct blocks_latent_shape s = blocks_latent_shape(b, layer, absorbed);
  int n = blocks_norm(b, layer, x, "attn_norm", b->h.d_model), q[2], k[2], kv[2] = {IR_NONE, IR_NONE};
  if (b->code) return IR_NONE;
  blocks_latent_query(b, layer, n, &s, q);
  blocks_latent_key(b, layer, n, &s, k);
  q[1] = blocks_rope(b, layer, q[1], s.n_head, s.d_rope, pairs, rope);
  k[1] = blocks_rope(b, layer, k[1], 1, s.d_rope, pairs, rope);
  if (absorbed)
    q[0] = blocks_head_linear(b, layer, q[0], "attn_k_b.weight", s.d_nope, s.d_latent, s.n_head);
  else
    blocks_two_parts(
        b, layer, k[0],
        blocks_tensor(b, layer, "attn_kv_b.weight", s.d_latent, (uint64_t)s.n_head * (s.d_nope + s.d_value), 1),
        s.n_head, s.d_nope, s.d_value, name, kv);
  struct ir_attr a = {.n_head = s.n_head, .scale = blocks_latent_scale(b, &s)};
  a.n_kv_head = absorbed ? 1 : s.n_head;
  a.d_head = (absorbed ? s.d_latent : s.d_nope) + s.d_rope;
  a.d_head_value = absorbed ? s.d_latent : s.d_value;
  a.state = blocks_state(b, a.n_kv_head, a.d_head, absorbed ? 0 : s.d_value);
  int queries = blocks_concat(b, layer, q[0], q[1], s.n_head, s.n_head);
  int keys = blocks_concat(b, layer, absorbed ? k[0] : kv[0], k[1], a.n_kv_head, 1);
  int y = blocks_node(
      b, &(struct ir_node){.op = IR_ATTENTION, .layer = layer, .in = {queries, keys, absorbed ? keys : kv[1]}, .a = a});
  if (absorbed) y = blocks_head_linear(b, layer, y, "attn_v_b.weight", s.d_latent, s.d_value, s.n_head);
  return blocks_residual(b, layer, x, blocks_linear(b, layer, y, "attn_output", b->h.d_model, false));
}
