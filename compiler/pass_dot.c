/* pass_dot.c: what tier dot makes other than base: products of few rows by packed integer dot products, several of one
 * input in one dispatch, norms computed on the way whatever the number of rows.
 *
 * Owns: which products kernels of tier dot take. Invariants: up to PASS_FEW_ROWS rows every number of rows takes the
 * same kernels, so that a row's result does not depend on the others. A router's logits stay in f32: near ties decide
 * there. */
#include "pass_state.h"

bool pass_has_dot(const struct pass *p, int i, uint32_t rows) {
  const struct ir_node *node = &p->graph->node[i];
  return p->tier >= IMG_TIER_DOT && rows <= PASS_FEW_ROWS && (node->op == IR_LINEAR || node->op == IR_EXPERT_LINEAR) &&
         shadergen_has_dot(node->weight[0]->format_number);
}

struct pass_norm pass_norm_ahead(struct pass *p, int in) {
  int norm = p->value[in].norm;
  if (norm == IR_NONE || p->graph->node[norm].a.scale != 0)
    return (struct pass_norm){.x = pass_read(p, in), .weight = PASS_NONE};
  return (struct pass_norm){.folded = true,
                            .x = p->value[in].act,
                            .eps = p->graph->node[norm].a.eps,
                            .weight = pass_plane(p, norm, 0, true, NULL)};
}

void pass_gemv_dot(struct pass *p, const int *nodes, int n, enum img_role role, const uint64_t *y, int add) {
  const struct ir_node *node = &p->graph->node[nodes[0]];
  struct plan_operand weight[PASS_DOT_PARTS], bias[PASS_DOT_PARTS], out[PASS_DOT_PARTS];
  double format[PASS_DOT_PARTS], n_out[PASS_DOT_PARTS] = {0}, biases = 0, scale = ir_scale(node);
  uint32_t rows = node->selected ? p->n_select : p->n_row;
  for (int i = 0; i < PASS_DOT_PARTS; i++) {
    weight[i] = bias[i] = out[i] = PASS_NONE;
    format[i] = format[0];
    if (i >= n) continue;
    const struct ir_node *part = &p->graph->node[nodes[i]];
    weight[i] = pass_plane(p, nodes[i], 0, false, &format[i]);
    n_out[i] = (double)part->weight[0]->dim[1];
    out[i] = PASS_ACT(y[i]);
    if (part->weight[1]) {
      bias[i] = pass_plane(p, nodes[i], 1, true, NULL);
      biases += 1 << i;
    }
  }
  if (add != IR_NONE) scale *= ir_scale(&p->graph->node[add]);
  double n_in = (double)node->weight[0]->dim[0];
  const struct pass_norm norm = pass_norm_ahead(p, node->in[0]);
  pass_emit(p, KERNEL_GEMV_DOT, role,
            PASS_PARAMS({"FMT", format[0]}, {"FMT_2", format[1]}, {"FMT_3", format[2]}, {"N_IN", n_in},
                        {"N_OUT", n_out[0]}, {"N_OUT_2", n_out[1]}, {"N_OUT_3", n_out[2]}, {"N_ROW", rows},
                        {"X_STRIDE", n_in}, {"X_ROWS", p->n_row}, {"NORM", norm.folded}, {"EPS", norm.eps},
                        {"RESIDUAL", add != IR_NONE}, {"BIAS", biases}, {"SCALE", scale}, {"ROWSEL", node->selected}),
            PASS_ARGS({"weight", weight[0]}, {"weight_2", weight[1]}, {"weight_3", weight[2]}, {"x", PASS_ACT(norm.x)},
                      {"norm", norm.weight}, {"bias", bias[0]}, {"bias_2", bias[1]}, {"bias_3", bias[2]}, {"y", out[0]},
                      {"y_2", out[1]}, {"y_3", out[2]}, {"step", PASS_STEP}));
}

/* Whether product k, which comes after i, may be computed with it. */
static bool pass_dot_joins(const struct pass *p, int i, int k) {
  const struct ir_node *node = p->graph->node, *a = &node[i], *b = &node[k];
  if (b->op != IR_LINEAR || b->layer != a->layer || b->in[0] != a->in[0] || b->selected || p->covered[k]) return false;
  if (b->weight[0]->dim[0] != a->weight[0]->dim[0] || ir_scale(b) != ir_scale(a)) return false;
  if (!pass_has_dot(p, k, p->n_row) || pass_gate_up_takes(p, k)) return false;
  return p->n_use[k] != 1 || node[p->last_use[k]].op != IR_ADD; /* it may be added in place when its turn comes */
}

bool pass_linear_dot(struct pass *p, int i, enum img_role role) {
  const struct ir_node *node = p->graph->node;
  if (node[i].selected || !pass_has_dot(p, i, p->n_row)) return false;
  int nodes[PASS_DOT_PARTS] = {i}, n = 1;
  for (int k = i + 1; k < p->graph->n_node && node[k].layer == node[i].layer && n < PASS_DOT_PARTS; k++)
    if (pass_dot_joins(p, i, k)) nodes[n++] = k;
  uint64_t y[PASS_DOT_PARTS];
  for (int k = 0; k < n; k++) y[k] = pass_buffer(p, p->n_row, node[nodes[k]].width);
  pass_gemv_dot(p, nodes, n, role, y, IR_NONE);
  for (int k = 0; k < n; k++) pass_done(p, nodes[k], y[k]);
  return true;
}
