/* pass_step_table.c: the table of layers that the kernel `step` walks (step_cells.def), and the dispatch.
 *
 * Owns: cells, the exchange's size, into how many parts rows are cut. Invariants: the exchange lies behind all that
 * other templates use of ACT, so that its tags stay. */
#include "pass_step.h"

#include <stdlib.h>

enum step_cell {
#define STEP_CELL(NAME, INDEX, WHAT) CELL_##NAME = INDEX,
#define STEP_FORMAT(NAME, INDEX)
#include "step_cells.def"
#undef STEP_CELL
#undef STEP_FORMAT
  N_STEP_CELL
};
enum step_format {
#define STEP_CELL(NAME, INDEX, WHAT)
#define STEP_FORMAT(NAME, INDEX) STEP_FORMAT_##NAME = INDEX,
#include "step_cells.def"
#undef STEP_CELL
#undef STEP_FORMAT
  N_STEP_FORMAT
};

/* The device that rows are cut into parts for: any other computes the same, perhaps slower. */
enum { STEP_GROUPS = 132, STEP_SUBGROUPS = 16, STEP_LANES = 32, STEP_MAX_PARTS = 4 };
enum { STEP_MAX_HEADS = 4, STEP_MAX_SPLITS = 16 };

/* What the kernel has as literals, gathered while the table grows. */
struct step_table {
  struct pass *p;
  const struct step_graph *s;
  struct plan_operand *row;              /* at hand, [N_STEP_CELL] */
  uint64_t formats[2];                   /* of the row at hand */
  uint32_t used[2];                      /* FORMATS_0, FORMATS_1 */
  uint32_t one[N_STEP_FORMAT], one_head; /* the only format of a role; UINT32_MAX: none yet; 0: several */
};

static uint64_t step_columns(const struct step_table *t, int node) {
  return t->s->g->node[node].weight[0]->dim[0];
}
static uint64_t step_rows(const struct step_table *t, int node) {
  return t->s->g->node[node].weight[0]->dim[1];
}
static bool step_biased(const struct step_table *t, int node) {
  return node >= 0 && t->s->g->node[node].weight[1];
}

/* A vector (a norm's weights, a bias) of node; nothing when it has none. */
static void step_vector(struct step_table *t, enum step_cell cell, int node, int weight) {
  if (node >= 0 && t->s->g->node[node].weight[weight]) t->row[cell] = pass_plane(t->p, node, weight, true, NULL);
}

/* A matrix of node. */
static void step_matrix(struct step_table *t, enum step_cell cell, enum step_format at, int node) {
  if (node < 0) return;
  double number;
  t->row[cell] = pass_plane(t->p, node, 0, false, &number);
  uint32_t format = (uint32_t)number;
  t->formats[at / 7] |= (uint64_t)format << 8 * (at % 7);
  t->used[format / 24] |= 1u << format % 24;
  uint32_t *one = node == t->s->head ? &t->one_head : &t->one[at];
  *one = *one == UINT32_MAX || *one == format ? format : 0;
}

static void step_begin_row(struct step_table *t, struct plan_operand *row) {
  t->row = row;
  t->formats[0] = t->formats[1] = 0;
  for (int i = 0; i < N_STEP_CELL; i++) row[i] = (struct plan_operand){PLAN_IMM, 0, 0};
}
static void step_end_row(struct step_table *t) {
  t->row[CELL_FORMATS].offset = t->formats[0];
  t->row[CELL_FORMATS_SHARED].offset = t->formats[1];
}

static void step_layer_row(struct step_table *t, struct plan_operand *row, const struct step_layer *l) {
  const struct ir_node *at = &t->s->g->node[l->attention];
  step_begin_row(t, row);
  step_vector(t, CELL_NORM, l->norm, 0);
  step_matrix(t, CELL_Q, STEP_FORMAT_Q, l->q);
  step_matrix(t, CELL_K, STEP_FORMAT_K, l->k);
  step_matrix(t, CELL_V, STEP_FORMAT_V, l->v);
  step_matrix(t, CELL_O, STEP_FORMAT_O, l->output);
  step_vector(t, CELL_Q_BIAS, l->q, 1);
  step_vector(t, CELL_K_BIAS, l->k, 1);
  step_vector(t, CELL_V_BIAS, l->v, 1);
  step_vector(t, CELL_O_BIAS, l->output, 1);
  step_vector(t, CELL_Q_NORM, l->q_norm, 0);
  step_vector(t, CELL_K_NORM, l->k_norm, 0);
  step_vector(t, CELL_SINKS, l->attention, 0);
  row[CELL_STATE].offset = t->p->plan->state_offset[at->a.state];
  row[CELL_WINDOW].offset = at->a.window;
  step_vector(t, CELL_FFN_NORM, l->norm2, 0);
  step_vector(t, CELL_ROUTER, l->router, 0);
  step_vector(t, CELL_ROUTER_BIAS, l->router, 1);
  step_vector(t, CELL_SHARED_WEIGHT, l->shared_gate_row, 0);
  step_matrix(t, CELL_GATE, STEP_FORMAT_GATE, l->gate);
  step_matrix(t, CELL_UP, STEP_FORMAT_UP, l->up);
  step_matrix(t, CELL_DOWN, STEP_FORMAT_DOWN, l->down);
  step_vector(t, CELL_GATE_BIAS, l->gate, 1);
  step_vector(t, CELL_UP_BIAS, l->up, 1);
  step_vector(t, CELL_DOWN_BIAS, l->down, 1);
  step_matrix(t, CELL_SHARED_GATE, STEP_FORMAT_SHARED_GATE, l->shared_gate);
  step_matrix(t, CELL_SHARED_UP, STEP_FORMAT_SHARED_UP, l->shared_up);
  step_matrix(t, CELL_SHARED_DOWN, STEP_FORMAT_SHARED_DOWN, l->shared_down);
  step_end_row(t);
}

static void step_head_row(struct step_table *t, struct plan_operand *row) {
  step_begin_row(t, row);
  step_vector(t, CELL_NORM, t->s->norm, 0);
  step_matrix(t, CELL_Q, STEP_FORMAT_Q, t->s->head);
  step_end_row(t);
}

/* ---- shapes ---- */

/* GLU outputs of the chosen experts, and of the shared one. */
static uint64_t step_routed(const struct step_table *t, const struct step_layer *l) {
  return l->gate < 0 ? 0 : step_rows(t, l->gate) * t->s->g->node[l->router].a.n_expert_used;
}
static uint64_t step_shared_ff(const struct step_table *t, const struct step_layer *l) {
  return l->shared_gate < 0 ? 0 : step_rows(t, l->shared_gate);
}

/* log2 of the parts that rows are cut into: the fewest loads in a row for a lane of the device above. */
static uint32_t step_parts(uint64_t n_row, uint64_t unit, uint64_t n_column) {
  uint64_t each = unit * ((n_row + unit * STEP_GROUPS - 1) / (unit * STEP_GROUPS)), best = UINT64_MAX;
  uint32_t parts = 0;
  for (uint32_t i = 0; i <= STEP_MAX_PARTS; i++) {
    uint64_t items = ((each << i) + STEP_SUBGROUPS - 1) / STEP_SUBGROUPS;
    uint64_t cost = items * ((n_column / 64 + (STEP_LANES << i) - 1) / (STEP_LANES << i));
    if (cost < best) best = cost, parts = i;
  }
  return parts;
}

/* Query heads that are taken together, and splits of long contexts. */
static uint32_t step_heads_together(const struct ir_attr *a) {
  uint32_t each = a->n_head / a->n_kv_head;
  return each % STEP_MAX_HEADS == 0 ? STEP_MAX_HEADS : each % 2 == 0 ? 2 : 1;
}
static uint32_t step_splits(const struct ir_attr *a) {
  uint32_t n = STEP_GROUPS * step_heads_together(a) / a->n_head;
  return n > STEP_MAX_SPLITS ? STEP_MAX_SPLITS : n > 1 ? n : 2;
}

/* Bytes of the exchange: step_layer.glsl's places, one after another. */
static uint64_t step_exchange(const struct step_table *t, const struct step_layer *l) {
  const struct ir_attr *a = &t->s->g->node[l->attention].a;
  uint64_t q = (uint64_t)a->n_head * a->d_head, kv = (uint64_t)a->n_kv_head * a->d_head, d = t->s->g->d_model;
  uint64_t n_expert = l->router < 0 ? 1 : t->s->g->node[l->router].a.n_expert;
  uint64_t pairs = 3 * d + 2 * q + 2 * kv + step_routed(t, l) + step_shared_ff(t, l);
  uint64_t floats = n_expert + 2 + a->n_head * step_splits(a) * (uint64_t)(a->d_head + 2);
  return plan_align(16 + 4 * pairs + 8 * floats);
}

static double step_one(uint32_t one) {
  return one == UINT32_MAX ? 0 : one;
}
#define STEP_ONE(t, NAME)                                                                                              \
  { "ONE_" #NAME, step_one((t)->one[STEP_FORMAT_##NAME]) }

static void step_dispatch(struct step_table *t, struct plan_operand table, uint64_t x, uint64_t logits) {
  struct pass *p = t->p;
  const struct ir_graph *g = p->graph;
  const struct step_layer *l = &t->s->layer[0];
  const struct ir_node *at = &g->node[l->attention], *r = l->router < 0 ? NULL : &g->node[l->router];
  const struct ir_node *qn = l->q_norm < 0 ? NULL : &g->node[l->q_norm];
  uint32_t turn = l->rope < 0 ? 0 : g->node[l->rope].a.rope;
  const struct ir_rope *rope = l->rope < 0 ? NULL : &g->rope[turn];
  int glu = p->last_use[l->gate >= 0 ? l->gate : l->shared_gate];
  uint64_t d = g->d_model, q = step_columns(t, l->output), hidden = step_routed(t, l) + step_shared_ff(t, l);
  uint64_t qkv = q + step_rows(t, l->k) + step_rows(t, l->v), x_max = d > q ? d : q, exchange = step_exchange(t, l);
  uint32_t parts = step_parts(qkv, 2, d) | step_parts(d, 2, q) << 4 | step_parts(2 * hidden, 4, d) << 8 |
                   step_parts(d, 2, hidden) << 12;
  uint32_t biases = (step_biased(t, l->q) || step_biased(t, l->k) || step_biased(t, l->v)) |
                    step_biased(t, l->output) << 1 | step_biased(t, l->router) << 2 | step_biased(t, l->gate) << 3 |
                    step_biased(t, l->down) << 4;
  pass_emit(p, KERNEL_STEP, IMG_ROLE_STEP,
            PASS_PARAMS(
                {"D_MODEL", (double)d}, {"N_LAYER", t->s->n_layer}, {"N_VOCAB", g->n_vocab}, {"FORMATS_0", t->used[0]},
                {"FORMATS_1", t->used[1]}, STEP_ONE(t, Q), STEP_ONE(t, K), STEP_ONE(t, V), STEP_ONE(t, O),
                STEP_ONE(t, GATE), STEP_ONE(t, UP), STEP_ONE(t, DOWN), STEP_ONE(t, SHARED_GATE), STEP_ONE(t, SHARED_UP),
                STEP_ONE(t, SHARED_DOWN), {"ONE_HEAD", step_one(t->one_head)},
                {"X_MAX", (double)(x_max > hidden ? x_max : hidden)}, {"EXCHANGE_BYTES", (double)exchange},
                {"PARTS", parts}, {"BIASES", biases}, {"EPS", g->node[l->norm].a.eps}, {"N_HEAD", at->a.n_head},
                {"N_KV_HEAD", at->a.n_kv_head}, {"D_HEAD", at->a.d_head}, {"N_ROT", rope ? rope->n_rot : 0},
                {"NEOX", !rope || rope->pairs == IR_ROPE_HALVES}, {"ROPE_MUL", rope ? rope->scale : 1},
                {"QK_NORM", !qn                           ? 0
                            : qn->a.group == at->a.d_head ? 1
                                                          : 2},
                {"QK_EPS", qn ? qn->a.eps : 1}, {"SCALE", at->a.scale}, {"SINKS", at->weight[0] != NULL},
                {"PAGE_BYTES", (double)p->plan->page_bytes}, {"ATTEND_HEADS", step_heads_together(&at->a)},
                {"ATTEND_SPLITS", step_splits(&at->a)}, {"D_FF", r ? (double)step_rows(t, l->gate) : 0},
                {"D_FF_SHARED", (double)step_shared_ff(t, l)}, {"N_EXPERT", r ? r->a.n_expert : 1},
                {"N_EXPERT_USED", r ? r->a.n_expert_used : 0}, {"GATING", r ? r->a.gating : 0},
                {"NORM_W", r ? r->a.renormalize : 1}, {"W_SCALE", r && r->a.weight_scale != 0 ? r->a.weight_scale : 1},
                {"SHARED_GATE", l->shared_gate_row >= 0}, {"ACTIVATION", g->node[glu].a.activation}),
            PASS_ARGS({"table", table}, {"x", PASS_ACT(x)},
                      {"rope", rope ? (struct plan_operand){PLAN_TABLE, 0, p->plan->rope_table[turn]} : PASS_NONE},
                      {"state", {PLAN_STATE, 0, 0}}, {"exchange", PASS_ACT(pass_private(p, exchange))},
                      {"logits", PASS_ACT(logits)}, {"step", PASS_STEP}, {"result", {PLAN_RESULT, 0, 0}}));
}

void pass_step_emit(struct pass *p, const struct step_graph *s, uint64_t x, uint64_t logits) {
  size_t n_row = (size_t)s->n_layer + 1;
  struct plan_operand *cell = calloc(n_row * N_STEP_CELL, sizeof *cell);
  struct step_table t = {.p = p, .s = s, .one_head = UINT32_MAX};
  for (int i = 0; i < N_STEP_FORMAT; i++) t.one[i] = UINT32_MAX;
  if (!cell) {
    pass_fail(p, MOE_FAILED, "out of memory: a table of %zu layers", n_row);
    return;
  }
  for (uint32_t i = 0; i < s->n_layer; i++) step_layer_row(&t, cell + (size_t)i * N_STEP_CELL, &s->layer[i]);
  step_head_row(&t, cell + (size_t)s->n_layer * N_STEP_CELL);
  struct plan_operand table;
  if (!p->code) p->code = plan_add_resident(p->template, s->n_layer + 1, N_STEP_CELL, cell, &table, p->err);
  if (!p->code) step_dispatch(&t, table, x, logits);
  free(cell);
}
