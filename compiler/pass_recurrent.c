/* pass_recurrent.c: the patterns of layers with recurrent states: SHORT_CONV; DELTA_RULE; a norm of each head + GLU.
 *
 * Owns: these dispatches and what shapes they take. Invariants: a recurrent state is touched by one dispatch of a
 * template only. */
#include "pass_state.h"

static struct plan_operand pass_recurrent(const struct ir_node *node) {
  return (struct plan_operand){PLAN_RECURRENT, node->a.recurrent, 0};
}

bool pass_short_conv(struct pass *p, int i) {
  const struct ir_node *node = &p->graph->node[i];
  if (!pass_ready(p, node->in[0])) return false;
  if (node->width % 2) return pass_fail(p, MOE_DECLINED, "kernel short_conv: %u channels; it takes pairs", node->width);
  uint64_t x = pass_read(p, node->in[0]), y = pass_buffer(p, p->n_row, node->width);
  pass_emit(p, KERNEL_SHORT_CONV, IMG_ROLE_CONV,
            PASS_PARAMS({"N_CHANNEL", node->width}, {"N_TAP", node->a.n_tap}, {"N_ROW", p->n_row},
                        {"BLOCK_BYTES", (double)p->plan->block_bytes}),
            PASS_ARGS({"x", PASS_ACT(x)}, {"weight", pass_plane(p, i, 0, true, NULL)}, {"state", pass_recurrent(node)},
                      {"y", PASS_ACT(y)}, {"step", PASS_STEP}));
  pass_done(p, i, y);
  return true;
}

bool pass_delta_rule(struct pass *p, int i) {
  const struct ir_node *node = &p->graph->node[i];
  const struct ir_attr *a = &node->a;
  uint64_t in[5];
  for (int k = 0; k < 5; k++)
    if (!pass_ready(p, node->in[k])) return false;
  if (a->d_head != 32 && a->d_head != 64 && a->d_head != 128 && a->d_head != 256)
    return pass_fail(p, MOE_DECLINED, "kernel delta_rule: heads of %u; it takes 32, 64, 128 and 256", a->d_head);
  for (int k = 0; k < 5; k++) in[k] = pass_read(p, node->in[k]);
  uint64_t y = pass_buffer(p, p->n_row, node->width);
  pass_emit(p, KERNEL_DELTA_RULE, IMG_ROLE_DELTA,
            PASS_PARAMS({"N_HEAD", a->n_head}, {"N_KEY_HEAD", a->n_kv_head}, {"D_HEAD", a->d_head}, {"N_ROW", p->n_row},
                        {"BLOCK_BYTES", (double)p->plan->block_bytes}, {"TILED", a->tiled}, {"EPS", a->eps}),
            PASS_ARGS({"q", PASS_ACT(in[0])}, {"k", PASS_ACT(in[1])}, {"v", PASS_ACT(in[2])},
                      {"alpha", PASS_ACT(in[3])}, {"beta", PASS_ACT(in[4])}, {"a", pass_plane(p, i, 0, true, NULL)},
                      {"dt", pass_plane(p, i, 1, true, NULL)}, {"state", pass_recurrent(node)}, {"y", PASS_ACT(y)},
                      {"step", PASS_STEP}));
  pass_done(p, i, y);
  return true;
}

/* silu(z) * norm of each head. */
bool pass_gated_norm(struct pass *p, int i) {
  const struct ir_node *glu = &p->graph->node[i], *norm = &p->graph->node[glu->in[1]];
  if (glu->a.activation != IR_SILU || norm->op != IR_RMSNORM || norm->a.group % 4 || p->n_use[glu->in[1]] != 1)
    return false;
  if (p->covered[glu->in[1]] || !norm->weight[0] || glu->selected) return false;
  if (p->graph->node[glu->in[0]].width != glu->width) return false;
  if (!pass_ready(p, glu->in[0]) || !pass_ready(p, norm->in[0])) return false;
  uint64_t z = pass_read(p, glu->in[0]), x = pass_read(p, norm->in[0]), y = pass_buffer(p, p->n_row, glu->width);
  pass_emit(p, KERNEL_GATED_NORM, IMG_ROLE_NORM,
            PASS_PARAMS({"WIDTH", glu->width}, {"GROUP", norm->a.group}, {"N_ROW", p->n_row}, {"EPS", norm->a.eps}),
            PASS_ARGS({"x", PASS_ACT(x)}, {"gate", PASS_ACT(z)}, {"weight", pass_plane(p, glu->in[1], 0, true, NULL)},
                      {"y", PASS_ACT(y)}, {"step", PASS_STEP}));
  p->covered[glu->in[1]] = true;
  pass_done(p, i, y);
  return true;
}
