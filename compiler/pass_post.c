/* pass_post.c: the patterns of what stands behind a block: a norm between block and residual sum, a gain of the stream;
 * a product a head; the logits' softcap. Invariants: the residual stream stays in place. */
#include "pass_state.h"

/* Whether the buffer of value x may be added to in place at node i: nobody reads x, or a norm of it that is still to be
 * computed, afterwards. */
static bool pass_may_take(const struct pass *p, int x, int i) {
  return pass_ready(p, x) && p->last_use[x] == i && !pass_norm_waits(p, x, i);
}

/* The GAIN that is node i's only reader, or IR_NONE. */
static int pass_gain_after(const struct pass *p, int i) {
  int gain = p->last_use[i];
  return p->n_use[i] == 1 && p->graph->node[gain].op == IR_GAIN ? gain : IR_NONE;
}

bool pass_add_norm(struct pass *p, int i) {
  const struct ir_node *node = &p->graph->node[i];
  if (node->a.scale != 0) return false;
  for (int side = 1; side >= 0; side--) {
    int norm = node->in[side], x = node->in[!side];
    if (norm == x || !pass_ready(p, norm) || p->value[norm].norm != norm || p->n_use[norm] != 1) continue;
    if (!pass_may_take(p, x, i)) continue;
    const struct ir_node *n = &p->graph->node[norm];
    uint64_t y = pass_read(p, x); /* a norm itself: it is computed into a buffer of its own */
    int gain = pass_gain_after(p, i);
    pass_emit(p, KERNEL_NORM, IMG_ROLE_NORM,
              PASS_PARAMS({"D_MODEL", n->width}, {"N_ROW", p->n_row}, {"EPS", n->a.eps},
                          {"SCALE", n->a.scale != 0 ? n->a.scale : 1}, {"RESIDUAL", 1}, {"GAIN", gain != IR_NONE}),
              PASS_ARGS({"x", PASS_ACT(p->value[norm].act)}, {"weight", pass_plane(p, norm, 0, true, NULL)},
                        {"y", PASS_ACT(y)}, {"gain", gain == IR_NONE ? PASS_NONE : pass_plane(p, gain, 0, true, NULL)},
                        {"step", PASS_STEP}));
    p->covered[i] = true;
    p->value[i] = p->value[x];
    if (gain != IR_NONE) {
      p->covered[gain] = true;
      p->value[gain] = p->value[x];
    }
    return true;
  }
  return false;
}

bool pass_head_linear(struct pass *p, int i) {
  const struct ir_node *node = &p->graph->node[i];
  if (!pass_ready(p, node->in[0]) || node->selected) return false;
  uint64_t y = pass_buffer(p, p->n_row, node->width);
  pass_product(p, i, p->graph->node[node->in[0]].op == IR_ATTENTION ? IMG_ROLE_ATTENTION_OUTPUT : IMG_ROLE_QKV, y,
               IR_NONE);
  pass_done(p, i, y);
  return true;
}

bool pass_softcap(struct pass *p, int i) {
  const struct ir_node *node = &p->graph->node[i];
  if (!node->selected || !pass_may_take(p, node->in[0], i)) return false;
  uint64_t x = pass_read(p, node->in[0]);
  pass_emit(p, KERNEL_SOFTCAP, IMG_ROLE_HEAD,
            PASS_PARAMS({"WIDTH", node->width}, {"N_ROW", p->n_select}, {"SOFTCAP", node->a.softcap}),
            PASS_ARGS({"x", PASS_ACT(x)}, {"step", PASS_STEP}));
  p->covered[i] = true;
  p->value[i] = p->value[node->in[0]];
  return true;
}
