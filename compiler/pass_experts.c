/* pass_experts.c: the patterns of feed-forward blocks: ROUTER; two products + GLU; a GLU alone; EXPERT_LINEAR + COMBINE
 * [+ ADD of a shared expert's row [+ its gate]] [+ residual ADD].
 *
 * Owns: whether experts run row by row (GEMV form, few pairs) or in tiles over a schedule. Invariants: all experts of a
 * block take the same form, chosen by shape alone. A row's sum has one order in both: the shared expert's row, the
 * slots in turn, the residual. */
#include "pass_state.h"

/* Row by row while hardly any two rows share an expert; beyond, tiles read each expert's weights once. Tier dot has no
 * tiles of its own, and a row's result there is the same in each number of few rows. */
static bool pass_row_by_row(const struct pass *p, const struct ir_attr *a) {
  if (p->n_row > PASS_FEW_ROWS) return false;
  return p->tier >= IMG_TIER_DOT || (uint64_t)p->n_row * a->n_expert_used <= a->n_expert;
}

/* Rows of a tile: near the mean number of pairs an expert gets. */
static double pass_tile_rows(const struct pass *p, const struct ir_attr *a) {
  uint64_t mean = (uint64_t)p->n_row * a->n_expert_used / a->n_expert;
  if (p->tier >= IMG_TIER_KHR) return mean <= 8 ? 16 : mean <= 16 ? 32 : 64;
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

/* What router and topk have in common: how a choice is made of logits. */
struct pass_choice {
  double norm_w, w_scale, logit_bias, select_bias, n_group, n_group_used, n_group_sum;
  struct plan_operand bias, selection;
};

static struct pass_choice pass_choice_of(struct pass *p, int i) {
  const struct ir_node *node = &p->graph->node[i];
  const struct ir_attr *a = &node->a;
  bool groups = a->n_group > 1;
  return (struct pass_choice){.norm_w = a->renormalize,
                              .w_scale = a->weight_scale != 0 ? a->weight_scale : 1,
                              .logit_bias = node->weight[1] != NULL,
                              .select_bias = node->weight[2] != NULL,
                              .n_group = groups ? a->n_group : 1,
                              .n_group_used = groups ? a->n_group_used : 1,
                              .n_group_sum = a->n_group_sum ? a->n_group_sum : 2,
                              .bias = node->weight[1] ? pass_plane(p, i, 1, true, NULL) : PASS_NONE,
                              .selection = node->weight[2] ? pass_plane(p, i, 2, true, NULL) : PASS_NONE};
}
#define PASS_CHOICE(c, a)                                                                                              \
  {"N_EXPERT", (a)->n_expert}, {"N_EXPERT_USED", (a)->n_expert_used}, {"N_ROW", p->n_row}, {"NORM_W", (c).norm_w},     \
      {"W_SCALE", (c).w_scale}, {"GATING", (a)->gating}, {"LOGIT_BIAS", (c).logit_bias},                               \
      {"SELECT_BIAS", (c).select_bias}, {"N_GROUP", (c).n_group}, {"N_GROUP_USED", (c).n_group_used}, {                \
    "N_GROUP_SUM", (c).n_group_sum                                                                                     \
  }

/* Norm, product, choice in one dispatch; its normed rows are the block's input. */
static void pass_router_fused(struct pass *p, int i, uint64_t ids, uint64_t weights, uint64_t logits) {
  const struct ir_node *node = &p->graph->node[i];
  struct pass_value x = p->value[node->in[0]];
  const struct ir_node *norm = &p->graph->node[x.norm];
  uint64_t xn = pass_buffer(p, p->n_row, norm->width);
  double format;
  struct plan_operand weight = pass_plane(p, i, 0, false, &format);
  const struct pass_choice c = pass_choice_of(p, i);
  pass_emit(p, KERNEL_ROUTER, IMG_ROLE_ROUTER,
            PASS_PARAMS({"FMT", format}, {"D_MODEL", norm->width}, {"EPS", norm->a.eps}, PASS_CHOICE(c, &node->a)),
            PASS_ARGS({"x", PASS_ACT(x.act)}, {"norm", pass_plane(p, x.norm, 0, true, NULL)}, {"weight", weight},
                      {"xn", PASS_ACT(xn)}, {"ids", PASS_ACT(ids)}, {"weights", PASS_ACT(weights)},
                      {"logits", PASS_ACT(logits)}, {"counter", PASS_ACT(p->plan->router_counter)}, {"bias", c.bias},
                      {"select_bias", c.selection}, {"step", PASS_STEP}));
  pass_done(p, node->in[0], xn);
}

bool pass_router(struct pass *p, int i) {
  const struct ir_node *node = &p->graph->node[i];
  const struct ir_attr *a = &node->a;
  if (!pass_ready(p, node->in[0])) return false;
  uint64_t ids = pass_buffer(p, p->n_row, a->n_expert_used), weights = pass_buffer(p, p->n_row, a->n_expert_used);
  uint64_t logits = pass_buffer(p, p->n_row, a->n_expert);
  int norm = p->value[node->in[0]].norm;
  bool plain = norm != IR_NONE && p->graph->node[norm].a.scale == 0 && !node->weight[3];
  if (p->n_row <= PASS_FEW_ROWS && plain) {
    pass_router_fused(p, i, ids, weights, logits);
  } else {
    pass_product(p, i, IMG_ROLE_ROUTER, logits, IR_NONE);
    const struct pass_choice c = pass_choice_of(p, i);
    pass_emit(p, KERNEL_TOPK, IMG_ROLE_ROUTER,
              PASS_PARAMS(PASS_CHOICE(c, a), {"EXPERT_SCALE", node->weight[3] != NULL}),
              PASS_ARGS({"logits", PASS_ACT(logits)}, {"ids", PASS_ACT(ids)}, {"weights", PASS_ACT(weights)},
                        {"bias", c.bias}, {"select_bias", c.selection},
                        {"expert_scale", node->weight[3] ? pass_plane(p, i, 3, true, NULL) : PASS_NONE},
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
  if (gate->op != up->op || gate->in[0] != up->in[0] || gate->width != up->width) return false;
  if (p->n_use[mul->in[0]] != 1 || p->n_use[mul->in[1]] != 1) return false;
  if (gate->op != IR_LINEAR && gate->op != IR_EXPERT_LINEAR) return false;
  if (gate->weight[0]->dim[0] != node[gate->in[0]].width || !gate->weight[1] != !up->weight[1]) return false;
  if (!pass_ready(p, gate->in[0])) return false;
  *router = IR_NONE;
  if (gate->op == IR_LINEAR) return !gate->selected && ir_scale(gate) == 1 && ir_scale(up) == 1;
  *router = gate->in[1];
  return gate->in[1] == up->in[1] && pass_ready(p, *router);
}

bool pass_gate_up_takes(const struct pass *p, int i) {
  int router, mul = p->last_use[i];
  return p->n_use[i] == 1 && p->graph->node[mul].op == IR_GLU && pass_gate_up_match(p, mul, &router);
}

/* The COMBINE whose sum begins with node i, a value that only the ADD of the two reads; or IR_NONE. */
static int pass_combine_after(const struct pass *p, int i) {
  const struct ir_node *node = p->graph->node;
  int add = p->last_use[i];
  if (p->n_use[i] != 1 || node[add].op != IR_ADD) return IR_NONE;
  int other = node[add].in[0] == i ? node[add].in[1] : node[add].in[0];
  if (ir_scale(&node[add]) != 1 || node[other].op != IR_COMBINE || p->n_use[other] != 1) return IR_NONE;
  return other > i ? other : IR_NONE;
}

bool pass_glu(struct pass *p, int i) {
  const struct ir_node *glu = &p->graph->node[i];
  const struct ir_node *a = &p->graph->node[glu->in[0]];
  bool one = a->width == 1 && glu->width != 1;
  if (!pass_ready(p, glu->in[0]) || !pass_ready(p, glu->in[1]) || glu->selected) return false;
  if (one && glu->a.activation == IR_SIGMOID && pass_combine_after(p, i) != IR_NONE) return false; /* it takes it */
  uint64_t from_a = pass_read(p, glu->in[0]), from_b = pass_read(p, glu->in[1]);
  uint64_t y = pass_buffer(p, p->n_row, glu->width);
  pass_emit(p, KERNEL_GLU, IMG_ROLE_GATE_UP,
            PASS_PARAMS({"N_COL", glu->width}, {"N_ROW", p->n_row}, {"ACTIVATION", glu->a.activation}, {"A_ONE", one}),
            PASS_ARGS({"a", PASS_ACT(from_a)}, {"b", PASS_ACT(from_b)}, {"y", PASS_ACT(y)}, {"step", PASS_STEP}));
  pass_done(p, i, y);
  return true;
}

bool pass_gate_up(struct pass *p, int i) {
  const struct ir_node *mul = &p->graph->node[i], *gate = &p->graph->node[mul->in[0]];
  int router;
  if (!pass_gate_up_match(p, i, &router)) return false;
  bool routed = router != IR_NONE;
  const struct ir_attr dense = {.n_expert = 1, .n_expert_used = 1}, *a = routed ? &gate->a : &dense;
  bool rows = routed ? pass_row_by_row(p, a) : p->n_row <= PASS_FEW_ROWS;
  double format_gate, format_up, d_model = (double)gate->weight[0]->dim[0], d_ff = (double)gate->weight[0]->dim[1];
  bool dot = rows && pass_has_dot(p, mul->in[0], p->n_row) &&
             gate->weight[0]->format_number == p->graph->node[mul->in[1]].weight[0]->format_number;
  struct pass_norm norm = {.weight = PASS_NONE};
  if (dot) norm = pass_norm_ahead(p, gate->in[0]);
  uint64_t xn = dot ? norm.x : pass_read(p, gate->in[0]), h = pass_buffer(p, p->n_row, mul->width);
  struct plan_operand w_gate = pass_plane(p, mul->in[0], 0, false, &format_gate);
  struct plan_operand w_up = pass_plane(p, mul->in[1], 0, false, &format_up);
  const struct pass_value v = routed ? p->value[router] : (struct pass_value){0};
  bool bias = gate->weight[1] != NULL;
  struct plan_operand b_gate = bias ? pass_plane(p, mul->in[0], 1, true, NULL) : PASS_NONE;
  struct plan_operand b_up = bias ? pass_plane(p, mul->in[1], 1, true, NULL) : PASS_NONE;
  if (dot)
    pass_emit(p, KERNEL_EXPERT_GATE_UP_DOT, IMG_ROLE_GATE_UP,
              PASS_PARAMS({"FMT", format_gate}, {"D_MODEL", d_model}, {"D_FF", d_ff}, {"N_EXPERT", a->n_expert},
                          {"N_EXPERT_USED", a->n_expert_used}, {"N_ROW", p->n_row}, {"ROUTED", routed},
                          {"ACTIVATION", mul->a.activation}, {"BIAS", bias}, {"NORM", norm.folded}, {"EPS", norm.eps}),
              PASS_ARGS({"xn", PASS_ACT(xn)}, {"norm", norm.weight}, {"gate", w_gate}, {"up", w_up},
                        {"ids", routed ? PASS_ACT(v.act) : PASS_NONE}, {"h", PASS_ACT(h)}, {"gate_bias", b_gate},
                        {"up_bias", b_up}, {"step", PASS_STEP}));
  else if (rows)
    pass_emit(p, KERNEL_EXPERT_GATE_UP, IMG_ROLE_GATE_UP,
              PASS_PARAMS({"FMT_GATE", format_gate}, {"FMT_UP", format_up}, {"D_MODEL", d_model}, {"D_FF", d_ff},
                          {"N_EXPERT", a->n_expert}, {"N_EXPERT_USED", a->n_expert_used}, {"N_ROW", p->n_row},
                          {"ROUTED", routed}, {"ACTIVATION", mul->a.activation}, {"BIAS", bias}),
              PASS_ARGS({"xn", PASS_ACT(xn)}, {"gate", w_gate}, {"up", w_up},
                        {"ids", routed ? PASS_ACT(v.act) : PASS_NONE}, {"h", PASS_ACT(h)}, {"gate_bias", b_gate},
                        {"up_bias", b_up}, {"step", PASS_STEP}));
  else
    pass_emit(
        p, p->tier >= IMG_TIER_KHR ? KERNEL_EXPERT_GATE_UP_GEMM_KHR : KERNEL_EXPERT_GATE_UP_GEMM, IMG_ROLE_GATE_UP,
        PASS_PARAMS({"FMT_GATE", format_gate}, {"FMT_UP", format_up}, {"D_MODEL", d_model}, {"D_FF", d_ff},
                    {"N_EXPERT", a->n_expert}, {"N_EXPERT_USED", a->n_expert_used}, {"N_ROW", p->n_row},
                    {"TM", pass_tile_rows(p, a)}, {"ROUTED", routed}, {"ACTIVATION", mul->a.activation},
                    {"BIAS", bias}),
        PASS_ARGS({"xn", PASS_ACT(xn)}, {"gate", w_gate}, {"up", w_up},
                  {"tiles", routed ? PASS_ACT(v.tiles) : PASS_NONE}, {"pairs", routed ? PASS_ACT(v.pairs) : PASS_NONE},
                  {"h", PASS_ACT(h)}, {"gate_bias", b_gate}, {"up_bias", b_up}, {"step", PASS_STEP}));
  p->covered[mul->in[0]] = p->covered[mul->in[1]] = true;
  pass_done(p, i, h);
  return true;
}

/* What the down products of a block end in. */
struct pass_down {
  const struct ir_node *down;
  int w_node, router;
  struct plan_operand shared_row, shared_gate;
  double shared; /* kernels.def: SHARED */
  double scale;  /* of the sum */
  bool residual;
  uint64_t x; /* takes the sum, or is added to */
};

static void pass_down_tiles(struct pass *p, const struct pass_down *d) {
  const struct ir_attr *a = &d->down->a;
  const struct pass_value *router = &p->value[d->router];
  double format, d_ff = (double)d->down->weight[0]->dim[0], d_model = (double)d->down->weight[0]->dim[1];
  struct plan_operand weight = pass_plane(p, d->w_node, 0, false, &format);
  bool bias = d->down->weight[1] != NULL;
  uint64_t y = pass_buffer(p, p->n_row, d->down->width);
  pass_emit(p, p->tier >= IMG_TIER_KHR ? KERNEL_EXPERT_DOWN_GEMM_KHR : KERNEL_EXPERT_DOWN_GEMM, IMG_ROLE_DOWN,
            PASS_PARAMS({"FMT", format}, {"D_FF", d_ff}, {"D_MODEL", d_model}, {"N_EXPERT", a->n_expert},
                        {"N_EXPERT_USED", a->n_expert_used}, {"N_ROW", p->n_row}, {"TM", pass_tile_rows(p, a)},
                        {"BIAS", bias}),
            PASS_ARGS({"h", PASS_ACT(p->value[d->down->in[0]].act)}, {"down", weight},
                      {"tiles", PASS_ACT(router->tiles)}, {"pairs", PASS_ACT(router->pairs)}, {"y", PASS_ACT(y)},
                      {"bias", bias ? pass_plane(p, d->w_node, 1, true, NULL) : PASS_NONE}, {"step", PASS_STEP}));
  pass_emit(p, KERNEL_COMBINE, IMG_ROLE_COMBINE,
            PASS_PARAMS({"D_MODEL", d_model}, {"N_EXPERT_USED", a->n_expert_used}, {"N_ROW", p->n_row},
                        {"SHARED", d->shared}, {"RESIDUAL", d->residual}, {"SCALE", d->scale}),
            PASS_ARGS({"y", PASS_ACT(y)}, {"weights", PASS_ACT(router->weights)}, {"x", PASS_ACT(d->x)},
                      {"shared_row", d->shared_row}, {"shared_gate", d->shared_gate}, {"step", PASS_STEP}));
}

static void pass_down_rows(struct pass *p, const struct pass_down *d) {
  const struct ir_attr *a = &d->down->a;
  const struct pass_value *router = &p->value[d->router];
  double format, d_ff = (double)d->down->weight[0]->dim[0], d_model = (double)d->down->weight[0]->dim[1];
  struct plan_operand weight = pass_plane(p, d->w_node, 0, false, &format);
  bool bias = d->down->weight[1] != NULL;
  enum kernel_id kernel = pass_has_dot(p, d->w_node, p->n_row) ? KERNEL_EXPERT_DOWN_DOT : KERNEL_EXPERT_DOWN;
  pass_emit(p, kernel, IMG_ROLE_DOWN,
            PASS_PARAMS({"FMT", format}, {"D_FF", d_ff}, {"D_MODEL", d_model}, {"N_EXPERT", a->n_expert},
                        {"N_EXPERT_USED", a->n_expert_used}, {"N_ROW", p->n_row}, {"BIAS", bias}, {"SHARED", d->shared},
                        {"RESIDUAL", d->residual}, {"SCALE", d->scale}),
            PASS_ARGS({"h", PASS_ACT(p->value[d->down->in[0]].act)}, {"down", weight}, {"ids", PASS_ACT(router->act)},
                      {"weights", PASS_ACT(router->weights)}, {"x", PASS_ACT(d->x)},
                      {"bias", bias ? pass_plane(p, d->w_node, 1, true, NULL) : PASS_NONE},
                      {"shared_row", d->shared_row}, {"shared_gate", d->shared_gate}, {"step", PASS_STEP}));
}

/* The shared expert's row that COMBINE `i` is added to, and its gate. Returns the ADD; i when there is none. */
static int pass_shared(struct pass *p, int i, struct pass_down *d) {
  const struct ir_node *node = p->graph->node;
  int add = p->last_use[i];
  if (p->n_use[i] != 1 || node[add].op != IR_ADD || p->n_use[add] != 1) return i; /* the stream has more readers */
  int row = node[add].in[0] == i ? node[add].in[1] : node[add].in[0];
  if (pass_combine_after(p, row) != i || ir_scale(&node[add]) != 1) return i;
  if (pass_ready(p, row)) {
    d->shared = 1;
    d->shared_row = PASS_ACT(pass_read(p, row));
    return add;
  }
  if (node[row].op != IR_GLU || !pass_ready(p, node[row].in[0]) || !pass_ready(p, node[row].in[1])) return i;
  d->shared = 2; /* pass_glu has left it */
  d->shared_gate = PASS_ACT(pass_read(p, node[row].in[0]));
  d->shared_row = PASS_ACT(pass_read(p, node[row].in[1]));
  p->covered[row] = true;
  return add;
}

bool pass_expert_down(struct pass *p, int i) {
  const struct ir_node *node = p->graph->node, *combine = &node[i];
  struct pass_down d = {.down = &node[combine->in[0]], .w_node = combine->in[0], .router = combine->in[1]};
  if (d.down->op != IR_EXPERT_LINEAR || d.down->in[1] != d.router || p->n_use[d.w_node] != 1) return false;
  if (!pass_ready(p, d.down->in[0]) || !pass_ready(p, d.router) || p->value[d.down->in[0]].norm != IR_NONE)
    return false;
  if (node[d.down->in[0]].width != d.down->weight[0]->dim[0] * d.down->a.n_expert_used) return false;
  int x, sum = pass_shared(p, i, &d), add = pass_residual(p, sum, &x);
  d.residual = add != IR_NONE;
  d.scale = d.residual ? ir_scale(&node[add]) : 1;
  d.x = d.residual ? p->value[x].act : pass_buffer(p, p->n_row, combine->width);
  if (pass_row_by_row(p, &d.down->a))
    pass_down_rows(p, &d);
  else
    pass_down_tiles(p, &d);
  p->covered[d.w_node] = p->covered[i] = true;
  if (d.residual) {
    p->covered[sum] = p->covered[add] = true;
    p->value[add] = p->value[x];
  } else {
    pass_done(p, sum, d.x);
  }
  return true;
}
