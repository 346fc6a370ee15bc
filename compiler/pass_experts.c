/* pass_experts.c: the patterns of feed-forward blocks: ROUTER; two products + GLU; EXPERT_LINEAR + COMBINE + ADD.
 *
 * Owns: whether experts run row by row (GEMV form, few pairs) or in tiles over a schedule. Invariants: all experts of a
 * block take the same form, chosen by shape alone. */
#include "pass_state.h"

/* Row by row while hardly any two rows share an expert; beyond, tiles read each expert's weights once. */
static bool pass_row_by_row(const struct pass *p, const struct ir_attr *a) {
  return p->n_row <= PASS_FEW_ROWS && (uint64_t)p->n_row * a->n_expert_used <= a->n_expert;
}

/* Rows of a tile: near the mean number of pairs an expert gets. */
static double pass_tile_rows(const struct pass *p, const struct ir_attr *a) {
  uint64_t mean = (uint64_t)p->n_row * a->n_expert_used / a->n_expert;
  return mean <= 8 ? 8 : 32;
}

static void pass_schedule(struct pass *p, int i) {
  const struct ir_attr *a = &p->graph->node[i].a;
  struct pass_value *v = &p->value[i];
  uint64_t tm = (uint64_t)pass_tile_rows(p, a), pairs = (uint64_t)p->n_row * a->n_expert_used;
  v->tiles = pass_buffer(p, EXPERT_N_TILE(p->n_row, a->n_expert_used, a->n_expert, tm), 4);
  v->pairs = pass_buffer(p, pairs, 1);
  pass_emit(p, KERNEL_EXPERT_SCHEDULE, IMG_ROLE_SCHEDULE,
            PASS_PARAMS({"N_EXPERT", a->n_expert}, {"N_EXPERT_USED", a->n_expert_used}, {"N_ROW", p->n_row},
                        {"TM", (double)tm}),
            PASS_ARGS({"ids", PASS_ACT(v->act)}, {"tiles", PASS_ACT(v->tiles)}, {"pairs", PASS_ACT(v->pairs)},
                      {"step", PASS_STEP}));
}

/* Norm, product, choice in one dispatch; its normed rows are the block's input. */
static void pass_router_fused(struct pass *p, int i, uint64_t ids, uint64_t weights, uint64_t logits) {
  const struct ir_node *node = &p->graph->node[i];
  const struct ir_attr *a = &node->a;
  struct pass_value x = p->value[node->in[0]];
  const struct ir_node *norm = &p->graph->node[x.norm];
  uint64_t xn = pass_buffer(p, p->n_row, norm->width);
  double format;
  struct plan_operand weight = pass_plane(p, i, 0, false, &format);
  pass_emit(p, KERNEL_ROUTER, IMG_ROLE_ROUTER,
            PASS_PARAMS({"FMT", format}, {"D_MODEL", norm->width}, {"N_EXPERT", a->n_expert},
                        {"N_EXPERT_USED", a->n_expert_used}, {"N_ROW", p->n_row}, {"EPS", norm->a.eps},
                        {"NORM_W", a->renormalize}),
            PASS_ARGS({"x", PASS_ACT(x.act)}, {"norm", pass_plane(p, x.norm, 0, true, NULL)}, {"weight", weight},
                      {"xn", PASS_ACT(xn)}, {"ids", PASS_ACT(ids)}, {"weights", PASS_ACT(weights)},
                      {"logits", PASS_ACT(logits)}, {"counter", PASS_ACT(p->plan->router_counter)},
                      {"step", PASS_STEP}));
  pass_done(p, node->in[0], xn);
}

bool pass_router(struct pass *p, int i) {
  const struct ir_node *node = &p->graph->node[i];
  const struct ir_attr *a = &node->a;
  if (!pass_ready(p, node->in[0]) || a->gating != IR_GATING_SOFTMAX || a->n_group > 1 || a->weight_scale != 0 ||
      node->weight[1] || node->weight[2])
    return false;
  uint64_t ids = pass_buffer(p, p->n_row, a->n_expert_used), weights = pass_buffer(p, p->n_row, a->n_expert_used);
  uint64_t logits = pass_buffer(p, p->n_row, a->n_expert);
  if (p->n_row <= PASS_FEW_ROWS && p->value[node->in[0]].norm != IR_NONE) {
    pass_router_fused(p, i, ids, weights, logits);
  } else {
    pass_product(p, i, IMG_ROLE_ROUTER, logits, IR_NONE);
    pass_emit(p, KERNEL_TOPK, IMG_ROLE_ROUTER,
              PASS_PARAMS({"N_EXPERT", a->n_expert}, {"N_EXPERT_USED", a->n_expert_used}, {"N_ROW", p->n_row},
                          {"NORM_W", a->renormalize}),
              PASS_ARGS({"logits", PASS_ACT(logits)}, {"ids", PASS_ACT(ids)}, {"weights", PASS_ACT(weights)},
                        {"step", PASS_STEP}));
  }
  pass_done(p, i, ids);
  p->value[i].weights = weights;
  if (!pass_row_by_row(p, a)) pass_schedule(p, i);
  return true;
}

/* The gate and up products of a GLU, over the same rows. router: IR_NONE for a dense block. */
static bool pass_gate_up_match(const struct pass *p, int i, int *router) {
  const struct ir_node *node = p->graph->node, *mul = &node[i];
  const struct ir_node *gate = &node[mul->in[0]], *up = &node[mul->in[1]];
  if (mul->a.activation != IR_SILU || gate->op != up->op || gate->in[0] != up->in[0] || p->n_use[mul->in[0]] != 1 ||
      p->n_use[mul->in[1]] != 1)
    return false;
  if (gate->weight[0]->dim[0] != node[gate->in[0]].width || !pass_ready(p, gate->in[0])) return false;
  *router = IR_NONE;
  if (gate->op == IR_LINEAR)
    return !gate->weight[1] && !up->weight[1] && !gate->selected && ir_scale(gate) == 1 && ir_scale(up) == 1;
  if (gate->op != IR_EXPERT_LINEAR || gate->in[1] != up->in[1] || gate->weight[1] || up->weight[1]) return false;
  *router = gate->in[1];
  return pass_ready(p, *router);
}

bool pass_gate_up(struct pass *p, int i) {
  const struct ir_node *mul = &p->graph->node[i], *gate = &p->graph->node[mul->in[0]];
  int router;
  if (!pass_gate_up_match(p, i, &router)) return false;
  bool routed = router != IR_NONE;
  const struct ir_attr dense = {.n_expert = 1, .n_expert_used = 1}, *a = routed ? &gate->a : &dense;
  bool rows = routed ? pass_row_by_row(p, a) : p->n_row <= PASS_FEW_ROWS;
  double format_gate, format_up, d_model = (double)gate->weight[0]->dim[0], d_ff = (double)gate->weight[0]->dim[1];
  uint64_t xn = pass_read(p, gate->in[0]), h = pass_buffer(p, p->n_row, mul->width);
  struct plan_operand w_gate = pass_plane(p, mul->in[0], 0, false, &format_gate);
  struct plan_operand w_up = pass_plane(p, mul->in[1], 0, false, &format_up);
  const struct pass_value v = routed ? p->value[router] : (struct pass_value){0};
  if (rows)
    pass_emit(p, KERNEL_EXPERT_GATE_UP, IMG_ROLE_GATE_UP,
              PASS_PARAMS({"FMT_GATE", format_gate}, {"FMT_UP", format_up}, {"D_MODEL", d_model}, {"D_FF", d_ff},
                          {"N_EXPERT", a->n_expert}, {"N_EXPERT_USED", a->n_expert_used}, {"N_ROW", p->n_row},
                          {"ROUTED", routed}),
              PASS_ARGS({"xn", PASS_ACT(xn)}, {"gate", w_gate}, {"up", w_up},
                        {"ids", routed ? PASS_ACT(v.act) : PASS_NONE}, {"h", PASS_ACT(h)}, {"step", PASS_STEP}));
  else
    pass_emit(p, KERNEL_EXPERT_GATE_UP_GEMM, IMG_ROLE_GATE_UP,
              PASS_PARAMS({"FMT_GATE", format_gate}, {"FMT_UP", format_up}, {"D_MODEL", d_model}, {"D_FF", d_ff},
                          {"N_EXPERT", a->n_expert}, {"N_EXPERT_USED", a->n_expert_used}, {"N_ROW", p->n_row},
                          {"TM", pass_tile_rows(p, a)}, {"ROUTED", routed}),
              PASS_ARGS({"xn", PASS_ACT(xn)}, {"gate", w_gate}, {"up", w_up},
                        {"tiles", routed ? PASS_ACT(v.tiles) : PASS_NONE},
                        {"pairs", routed ? PASS_ACT(v.pairs) : PASS_NONE}, {"h", PASS_ACT(h)}, {"step", PASS_STEP}));
  p->covered[mul->in[0]] = p->covered[mul->in[1]] = true;
  pass_done(p, i, h);
  return true;
}

static void pass_down_tiles(struct pass *p, const struct ir_node *down, int w_node, const struct pass_value *router,
                            uint64_t x, double scale) {
  const struct ir_attr *a = &down->a;
  double format, d_ff = (double)down->weight[0]->dim[0], d_model = (double)down->weight[0]->dim[1];
  struct plan_operand weight = pass_plane(p, w_node, 0, false, &format);
  uint64_t y = pass_buffer(p, p->n_row, down->width);
  pass_emit(p, KERNEL_EXPERT_DOWN_GEMM, IMG_ROLE_DOWN,
            PASS_PARAMS({"FMT", format}, {"D_FF", d_ff}, {"D_MODEL", d_model}, {"N_EXPERT", a->n_expert},
                        {"N_EXPERT_USED", a->n_expert_used}, {"N_ROW", p->n_row}, {"TM", pass_tile_rows(p, a)}),
            PASS_ARGS({"h", PASS_ACT(p->value[down->in[0]].act)}, {"down", weight}, {"tiles", PASS_ACT(router->tiles)},
                      {"pairs", PASS_ACT(router->pairs)}, {"y", PASS_ACT(y)}, {"step", PASS_STEP}));
  pass_emit(
      p, KERNEL_COMBINE, IMG_ROLE_COMBINE,
      PASS_PARAMS({"D_MODEL", d_model}, {"N_EXPERT_USED", a->n_expert_used}, {"N_ROW", p->n_row}, {"SCALE", scale}),
      PASS_ARGS({"y", PASS_ACT(y)}, {"weights", PASS_ACT(router->weights)}, {"x", PASS_ACT(x)}, {"step", PASS_STEP}));
}

static void pass_down_rows(struct pass *p, const struct ir_node *down, int w_node, const struct pass_value *router,
                           uint64_t x, double scale) {
  const struct ir_attr *a = &down->a;
  double format, d_ff = (double)down->weight[0]->dim[0], d_model = (double)down->weight[0]->dim[1];
  struct plan_operand weight = pass_plane(p, w_node, 0, false, &format);
  pass_emit(p, KERNEL_EXPERT_DOWN, IMG_ROLE_DOWN,
            PASS_PARAMS({"FMT", format}, {"D_FF", d_ff}, {"D_MODEL", d_model}, {"N_EXPERT", a->n_expert},
                        {"N_EXPERT_USED", a->n_expert_used}, {"N_ROW", p->n_row}, {"SCALE", scale}),
            PASS_ARGS({"h", PASS_ACT(p->value[down->in[0]].act)}, {"down", weight}, {"ids", PASS_ACT(router->act)},
                      {"weights", PASS_ACT(router->weights)}, {"x", PASS_ACT(x)}, {"step", PASS_STEP}));
}

bool pass_expert_down(struct pass *p, int i) {
  const struct ir_node *node = p->graph->node, *combine = &node[i], *down = &node[combine->in[0]];
  int x, add = pass_residual(p, i, &x), router = combine->in[1];
  if (add == IR_NONE || down->op != IR_EXPERT_LINEAR || down->weight[1] || down->in[1] != router ||
      p->n_use[combine->in[0]] != 1)
    return false;
  if (!pass_ready(p, down->in[0]) || !pass_ready(p, router) || p->value[down->in[0]].norm != IR_NONE) return false;
  if (node[down->in[0]].width != down->weight[0]->dim[0] * down->a.n_expert_used) return false;
  double scale = ir_scale(&node[add]);
  if (pass_row_by_row(p, &down->a))
    pass_down_rows(p, down, combine->in[0], &p->value[router], p->value[x].act, scale);
  else
    pass_down_tiles(p, down, combine->in[0], &p->value[router], p->value[x].act, scale);
  p->covered[combine->in[0]] = p->covered[i] = p->covered[add] = true;
  p->value[add] = p->value[x];
  return true;
}
