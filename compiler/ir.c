#include "ir.h"

#include <stdlib.h>
#include <string.h>

const struct ir_op_info ir_ops[IR_N_OP] = {
#define IR_OP(ENUM, name, n_in, n_weight, n_optional, attributes, definition)                                          \
  {#name, n_in, n_weight, n_optional, attributes, definition},
#include "ir_ops.def"
#undef IR_OP
};

typedef enum moe_code (*ir_shape_fn)(const struct ir_graph *g, const struct ir_node *node, uint32_t *width,
                                     struct moe_error *err);
static const ir_shape_fn ir_shapes[IR_N_OP] = {
#define IR_OP(ENUM, name, ...) ir_shape_##name,
#include "ir_ops.def"
#undef IR_OP
};

void ir_init(struct ir_graph *g, const struct gguf *gguf) {
  memset(g, 0, sizeof *g);
  g->gguf = gguf;
}

void ir_deinit(struct ir_graph *g) {
  for (uint32_t i = 0; i < g->n_rope; i++) free(g->rope[i].inv_freq);
  for (uint32_t i = 0; i < g->n_view; i++) free(g->view[i]);
  free(g->rope);
  free(g->state);
  free(g->recurrent);
  free(g->view);
  free(g->node);
  free(g->carried);
  memset(g, 0, sizeof *g);
}

/* Inputs and weights are there as the operation's row says. */
static enum moe_code ir_check_operands(const struct ir_graph *g, const struct ir_node *node, struct moe_error *err) {
  const struct ir_op_info *info = &ir_ops[node->op];
  for (int i = 0; i < info->n_in; i++)
    if (node->in[i] < 0 || node->in[i] >= g->n_node)
      return moe_fail(err, MOE_FAILED, "layer %d, %s: input %d is value %d of %d", node->layer, info->name, i,
                      node->in[i], g->n_node);
  for (int i = 0; i < info->n_weight; i++)
    if (!node->weight[i])
      return moe_fail(err, MOE_FAILED, "layer %d, %s: weight %d of %d is missing", node->layer, info->name, i,
                      info->n_weight);
  return MOE_OK;
}

enum moe_code ir_add(struct ir_graph *g, const struct ir_node *node, int *value, struct moe_error *err) {
  enum moe_code code = ir_check_operands(g, node, err);
  if (code) return code;
  uint32_t width = 0;
  if ((code = ir_shapes[node->op](g, node, &width, err))) return code;
  if (g->n_node == g->capacity) {
    int capacity = g->capacity ? 2 * g->capacity : 256;
    struct ir_node *grown = realloc(g->node, (size_t)capacity * sizeof *grown);
    if (!grown) return moe_fail(err, MOE_FAILED, "out of memory: %d nodes of the model's graph", capacity);
    g->node = grown;
    g->capacity = capacity;
  }
  struct ir_node *added = &g->node[g->n_node];
  *added = *node;
  added->width = width;
  added->selected = node->op == IR_SELECT;
  for (int i = 0; i < ir_ops[node->op].n_in; i++) added->selected |= g->node[node->in[i]].selected;
  *value = g->n_node++;
  return MOE_OK;
}

enum moe_code ir_add_rope(struct ir_graph *g, const struct ir_rope *rope, uint32_t *index, struct moe_error *err) {
  if (rope->n_rot < 2 || rope->n_rot > 65536 || rope->n_rot % 2)
    return moe_fail(err, MOE_FAILED, "rope: %u rotated dimensions; allowed: even, 2 to 65536", rope->n_rot);
  size_t bytes = rope->n_rot / 2 * sizeof *rope->inv_freq;
  for (uint32_t i = 0; i < g->n_rope; i++) {
    const struct ir_rope *r = &g->rope[i];
    if (r->pairs == rope->pairs && r->n_rot == rope->n_rot && r->scale == rope->scale &&
        !memcmp(r->inv_freq, rope->inv_freq, bytes)) {
      *index = i;
      return MOE_OK;
    }
  }
  struct ir_rope *grown = realloc(g->rope, (g->n_rope + 1) * sizeof *grown);
  double *copy = malloc(bytes);
  if (grown) g->rope = grown;
  if (!grown || !copy) {
    free(copy);
    return moe_fail(err, MOE_FAILED, "out of memory: %zu bytes for a rope table", bytes);
  }
  memcpy(copy, rope->inv_freq, bytes);
  g->rope[g->n_rope] = *rope;
  g->rope[g->n_rope].inv_freq = copy;
  *index = g->n_rope++;
  return MOE_OK;
}

enum moe_code ir_add_state(struct ir_graph *g, const struct ir_state *state, uint32_t *index, struct moe_error *err) {
  struct ir_state *grown = realloc(g->state, (g->n_state + 1) * sizeof *grown);
  if (!grown) return moe_fail(err, MOE_FAILED, "out of memory: %u states", g->n_state + 1);
  g->state = grown;
  g->state[g->n_state] = *state;
  *index = g->n_state++;
  return MOE_OK;
}

enum moe_code ir_add_recurrent(struct ir_graph *g, uint64_t n, uint32_t *index, struct moe_error *err) {
  if (n > INT32_MAX / 4)
    return moe_fail(err, MOE_DECLINED, "a recurrent state of %llu words; kernels address less than 2 GiB",
                    (unsigned long long)n);
  uint64_t *grown = realloc(g->recurrent, (g->n_recurrent + 1) * sizeof *grown);
  if (!grown) return moe_fail(err, MOE_FAILED, "out of memory: %u recurrent states", g->n_recurrent + 1);
  g->recurrent = grown;
  g->recurrent[g->n_recurrent] = n;
  *index = g->n_recurrent++;
  return MOE_OK;
}

enum moe_code ir_carry(struct ir_graph *g, const struct gguf_tensor *tensor, struct moe_error *err) {
  const struct gguf_tensor **grown = realloc(g->carried, (g->n_carried + 1) * sizeof *grown);
  if (!grown) return moe_fail(err, MOE_FAILED, "out of memory: %u tensors that are carried", g->n_carried + 1);
  g->carried = grown;
  g->carried[g->n_carried++] = tensor;
  return MOE_OK;
}

void ir_print(const struct ir_graph *g, FILE *out) {
  for (int i = 0; i < g->n_node; i++) {
    const struct ir_node *node = &g->node[i];
    const struct ir_op_info *info = &ir_ops[node->op];
    fprintf(out, "%%%d = %s", i, info->name);
    for (int k = 0; k < info->n_in; k++) fprintf(out, " %%%d", node->in[k]);
    for (int k = 0; k < info->n_weight + info->n_optional; k++)
      if (node->weight[k]) fprintf(out, " %s", node->weight[k]->name);
    fprintf(out, " : [%s][%u]\n", node->selected ? "n_select" : "n_tok", node->width);
  }
}
