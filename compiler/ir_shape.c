/* ir_shape.c: the shape rule of every operation of ir_ops.def.
 *
 * Owns: ir_shape_<name>. Does not own: the presence of inputs and weights (ir_add has checked it).
 * Invariants: when a rule returns MOE_OK, the definition in ir_ops.def reads no element outside its operands. */
#include "ir.h"

static const struct ir_node *ir_input(const struct ir_graph *g, const struct ir_node *node, int i) {
  return &g->node[node->in[i]];
}

/* weight[i] is [n_mat][n_out][n_in]; 0 takes any. The message counts tensors as the file does. */
static enum moe_code ir_check_weight(const struct ir_node *node, int i, uint64_t n_in, uint64_t n_out, uint64_t n_mat,
                                     struct moe_error *err) {
  const struct gguf_tensor *t = node->weight[i];
  const struct {
    const char *what;
    uint64_t found, wanted;
  } checks[] = {{"columns", t->dim[0], n_in}, {"rows", t->dim[1], n_out}, {"matrices", t->dim[2], n_mat}};
  for (int k = 0; k < 3; k++)
    if (checks[k].wanted && checks[k].found != checks[k].wanted)
      return moe_fail(err, MOE_FAILED, "layer %d, %s: %s has %llu %s where its operation has %llu", node->layer,
                      ir_ops[node->op].name, t->name, (unsigned long long)checks[k].found, checks[k].what,
                      (unsigned long long)checks[k].wanted);
  if (t->dim[3] != 1)
    return moe_fail(err, MOE_FAILED, "layer %d, %s: %s has four dimensions", node->layer, ir_ops[node->op].name,
                    t->name);
  return MOE_OK;
}

static enum moe_code ir_bad_width(const struct ir_node *node, uint64_t found, uint64_t wanted, struct moe_error *err) {
  return moe_fail(err, MOE_FAILED, "layer %d, %s: input of width %llu where its attributes give %llu", node->layer,
                  ir_ops[node->op].name, (unsigned long long)found, (unsigned long long)wanted);
}

/* *width = a * b, below 2^31. */
static enum moe_code ir_width(const struct ir_node *node, uint64_t a, uint64_t b, uint32_t *width,
                              struct moe_error *err) {
  uint64_t product;
  if (!moe_mul(a, b, &product) || product == 0 || product > INT32_MAX)
    return moe_fail(err, MOE_FAILED, "layer %d, %s: an output of %llu times %llu columns; allowed: 1 to 2147483647",
                    node->layer, ir_ops[node->op].name, (unsigned long long)a, (unsigned long long)b);
  *width = (uint32_t)product;
  return MOE_OK;
}

/* The second input is a ROUTER with the node's expert counts. */
static enum moe_code ir_check_router(const struct ir_graph *g, const struct ir_node *node, struct moe_error *err) {
  const struct ir_node *router = ir_input(g, node, 1);
  if (router->op != IR_ROUTER || router->a.n_expert_used != node->a.n_expert_used)
    return moe_fail(err, MOE_FAILED, "layer %d, %s: its second input is no router of %u chosen experts", node->layer,
                    ir_ops[node->op].name, node->a.n_expert_used);
  return MOE_OK;
}

enum moe_code ir_shape_embed(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,
                             struct moe_error *err) {
  enum moe_code code = ir_check_weight(node, 0, g->d_model, g->n_vocab, 1, err);
  return code ? code : ir_width(node, node->weight[0]->dim[0], 1, width, err);
}

enum moe_code ir_shape_select(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,
                              struct moe_error *err) {
  return ir_width(node, ir_input(g, node, 0)->width, 1, width, err);
}

enum moe_code ir_shape_rmsnorm(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,
                               struct moe_error *err) {
  uint32_t in = ir_input(g, node, 0)->width;
  if (node->a.group == 0 || in % node->a.group) return ir_bad_width(node, in, node->a.group, err);
  enum moe_code code = node->weight[0] ? ir_check_weight(node, 0, node->a.group, 1, 1, err) : MOE_OK;
  return code ? code : ir_width(node, in, 1, width, err);
}

enum moe_code ir_shape_gain(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,
                            struct moe_error *err) {
  enum moe_code code = ir_check_weight(node, 0, 1, 1, 1, err);
  return code ? code : ir_width(node, ir_input(g, node, 0)->width, 1, width, err);
}

enum moe_code ir_shape_linear(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,
                              struct moe_error *err) {
  enum moe_code code = ir_check_weight(node, 0, ir_input(g, node, 0)->width, 0, 1, err);
  if (!code && node->weight[1]) code = ir_check_weight(node, 1, node->weight[0]->dim[1], 1, 1, err);
  return code ? code : ir_width(node, node->weight[0]->dim[1], 1, width, err);
}

enum moe_code ir_shape_rope(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,
                            struct moe_error *err) {
  uint32_t in = ir_input(g, node, 0)->width;
  uint64_t wanted = (uint64_t)node->a.n_head * node->a.d_head;
  if (in != wanted) return ir_bad_width(node, in, wanted, err);
  if (node->a.rope >= g->n_rope || g->rope[node->a.rope].n_rot > node->a.d_head)
    return moe_fail(err, MOE_FAILED, "layer %d, rope: more rotated dimensions than a head's %u", node->layer,
                    node->a.d_head);
  return ir_width(node, in, 1, width, err);
}

enum moe_code ir_shape_concat(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,
                              struct moe_error *err) {
  uint32_t a = ir_input(g, node, 0)->width, b = ir_input(g, node, 1)->width;
  uint32_t n = node->a.n_head, n_b = node->a.n_kv_head;
  if (n == 0 || (n_b != n && n_b != 1))
    return moe_fail(err, MOE_FAILED, "layer %d, concat: %u heads beside %u; allowed: as many, or one for all",
                    node->layer, n_b, n);
  if (a % n) return ir_bad_width(node, a, n, err);
  if (b % n_b) return ir_bad_width(node, b, n_b, err);
  return ir_width(node, (uint64_t)a / n + b / n_b, n, width, err);
}

enum moe_code ir_shape_head_linear(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,
                                   struct moe_error *err) {
  uint32_t in = ir_input(g, node, 0)->width, n = node->a.n_head;
  if (n == 0 || in % n) return ir_bad_width(node, in, n, err);
  enum moe_code code = ir_check_weight(node, 0, in / n, 0, n, err);
  return code ? code : ir_width(node, node->weight[0]->dim[1], n, width, err);
}

/* The state has the node's heads. */
static enum moe_code ir_check_state(const struct ir_graph *g, const struct ir_node *node, uint32_t d_value,
                                    struct moe_error *err) {
  const struct ir_attr *a = &node->a;
  const struct ir_state *state = a->state < g->n_state ? &g->state[a->state] : NULL;
  uint32_t wanted = node->in[2] == node->in[1] ? 0 : d_value; /* no values of their own: they are the keys' columns */
  if (!state || a->n_kv_head != state->n_kv_head || a->d_head != state->d_head || wanted != state->d_head_value)
    return moe_fail(err, MOE_FAILED, "layer %d, attention: state %u is not the graph's, or of other heads", node->layer,
                    a->state);
  return MOE_OK;
}

enum moe_code ir_shape_attention(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,
                                 struct moe_error *err) {
  const struct ir_attr *a = &node->a;
  uint32_t d_value = a->d_head_value ? a->d_head_value : a->d_head;
  bool shared = node->in[2] == node->in[1];
  if (a->n_kv_head == 0 || a->n_head % a->n_kv_head)
    return moe_fail(err, MOE_FAILED, "layer %d, attention: %u heads do not share %u key/value heads evenly",
                    node->layer, a->n_head, a->n_kv_head);
  if (shared && d_value > a->d_head)
    return moe_fail(err, MOE_FAILED, "layer %d, attention: values of %u columns out of keys of %u", node->layer,
                    d_value, a->d_head);
  uint64_t wanted[3] = {(uint64_t)a->n_head * a->d_head, (uint64_t)a->n_kv_head * a->d_head,
                        (uint64_t)a->n_kv_head * (shared ? a->d_head : d_value)};
  for (int i = 0; i < 3; i++)
    if (ir_input(g, node, i)->width != wanted[i])
      return ir_bad_width(node, ir_input(g, node, i)->width, wanted[i], err);
  enum moe_code code = ir_check_state(g, node, d_value, err);
  if (!code && node->weight[0]) code = ir_check_weight(node, 0, a->n_head, 1, 1, err);
  return code ? code : ir_width(node, a->n_head, d_value, width, err);
}

enum moe_code ir_shape_softcap(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,
                               struct moe_error *err) {
  if (!(node->a.softcap > 0))
    return moe_fail(err, MOE_FAILED, "layer %d, softcap: %g; allowed: above 0", node->layer, node->a.softcap);
  return ir_width(node, ir_input(g, node, 0)->width, 1, width, err);
}

enum moe_code ir_shape_add(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,
                           struct moe_error *err) {
  uint32_t a = ir_input(g, node, 0)->width, b = ir_input(g, node, 1)->width;
  return a == b ? ir_width(node, a, 1, width, err) : ir_bad_width(node, b, a, err);
}

enum moe_code ir_shape_glu(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,
                           struct moe_error *err) {
  uint32_t a = ir_input(g, node, 0)->width, b = ir_input(g, node, 1)->width;
  return a == b || a == 1 ? ir_width(node, b, 1, width, err) : ir_bad_width(node, a, b, err);
}

/* Groups divide the experts evenly, and those that are kept have enough of them. */
static enum moe_code ir_check_groups(const struct ir_node *node, struct moe_error *err) {
  const struct ir_attr *a = &node->a;
  if (a->gating == IR_GATING_SOFTMAX_AFTER && (a->n_group > 1 || node->weight[2]))
    return moe_fail(
        err, MOE_FAILED,
        "layer %d, router: groups or a selection bias need probabilities before the choice; softmax over the "
        "chosen has them after",
        node->layer);
  if (a->n_group <= 1) return MOE_OK;
  uint32_t size = a->n_expert / a->n_group, n_sum = a->n_group_sum ? a->n_group_sum : 2;
  if (a->n_expert % a->n_group || a->n_group_used == 0 || a->n_group_used > a->n_group || n_sum > 2 || n_sum > size ||
      (uint64_t)size * a->n_group_used < a->n_expert_used)
    return moe_fail(
        err, MOE_FAILED,
        "layer %d, router: %u experts in %u groups, of which %u have the chosen %u; allowed: equal groups of "
        "two or more, and as many experts in those kept as are chosen",
        node->layer, a->n_expert, a->n_group, a->n_group_used, a->n_expert_used);
  return MOE_OK;
}

enum moe_code ir_shape_router(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,
                              struct moe_error *err) {
  const struct ir_attr *a = &node->a;
  if (a->n_expert_used == 0 || a->n_expert_used > a->n_expert)
    return moe_fail(err, MOE_FAILED, "layer %d, router: chooses %u of %u experts", node->layer, a->n_expert_used,
                    a->n_expert);
  enum moe_code code = ir_check_weight(node, 0, ir_input(g, node, 0)->width, a->n_expert, 1, err);
  for (int i = 1; i <= 3 && !code; i++)
    if (node->weight[i]) code = ir_check_weight(node, i, a->n_expert, 1, 1, err);
  if (!code) code = ir_check_groups(node, err);
  return code ? code : ir_width(node, a->n_expert_used, 2, width, err);
}

enum moe_code ir_shape_expert_linear(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,
                                     struct moe_error *err) {
  enum moe_code code = ir_check_router(g, node, err);
  if (code) return code;
  uint64_t in = ir_input(g, node, 0)->width, n_in = node->weight[0]->dim[0];
  if (in != n_in && in != n_in * node->a.n_expert_used) return ir_bad_width(node, in, n_in, err);
  code = ir_check_weight(node, 0, n_in, 0, node->a.n_expert, err);
  if (!code && node->weight[1]) code = ir_check_weight(node, 1, node->weight[0]->dim[1], node->a.n_expert, 1, err);
  return code ? code : ir_width(node, node->weight[0]->dim[1], node->a.n_expert_used, width, err);
}

enum moe_code ir_shape_combine(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,
                               struct moe_error *err) {
  enum moe_code code = ir_check_router(g, node, err);
  if (code) return code;
  uint32_t in = ir_input(g, node, 0)->width, n = node->a.n_expert_used;
  return in % n ? ir_bad_width(node, in, n, err) : ir_width(node, in / n, 1, width, err);
}

/* The node's recurrent state is one of the graph's and has n words. */
static enum moe_code ir_check_recurrent(const struct ir_graph *g, const struct ir_node *node, uint64_t n,
                                        struct moe_error *err) {
  uint32_t i = node->a.recurrent;
  if (i < g->n_recurrent && g->recurrent[i] == n) return MOE_OK;
  return moe_fail(err, MOE_FAILED,
                  "layer %d, %s: recurrent state %u is not one of the graph's %u, or not of %llu words", node->layer,
                  ir_ops[node->op].name, i, g->n_recurrent, (unsigned long long)n);
}

enum moe_code ir_shape_short_conv(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,
                                  struct moe_error *err) {
  uint32_t in = ir_input(g, node, 0)->width, n_tap = node->a.n_tap;
  if (n_tap < 2 || n_tap > 32)
    return moe_fail(err, MOE_FAILED, "layer %d, short_conv: %u taps; allowed: 2 to 32", node->layer, n_tap);
  enum moe_code code = ir_check_weight(node, 0, n_tap, in, 1, err);
  if (!code) code = ir_check_recurrent(g, node, (uint64_t)(n_tap - 1) * in, err);
  return code ? code : ir_width(node, in, 1, width, err);
}

enum moe_code ir_shape_delta_rule(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,
                                  struct moe_error *err) {
  const struct ir_attr *a = &node->a;
  if (a->n_kv_head == 0 || a->d_head == 0 || a->n_head % a->n_kv_head)
    return moe_fail(err, MOE_FAILED, "layer %d, delta_rule: %u heads of %u do not share %u key heads evenly",
                    node->layer, a->n_head, a->d_head, a->n_kv_head);
  uint64_t keys = (uint64_t)a->n_kv_head * a->d_head, values = (uint64_t)a->n_head * a->d_head, n;
  const uint64_t wanted[5] = {keys, keys, values, a->n_head, a->n_head};
  for (int i = 0; i < 5; i++)
    if (ir_input(g, node, i)->width != wanted[i])
      return ir_bad_width(node, ir_input(g, node, i)->width, wanted[i], err);
  enum moe_code code = ir_width(node, values, 1, width, err);
  for (int i = 0; i < 2 && !code; i++) code = ir_check_weight(node, i, a->n_head, 1, 1, err);
  if (!code && !moe_mul(values, a->d_head, &n)) n = UINT64_MAX;
  return code ? code : ir_check_recurrent(g, node, n, err);
}
