/* pass_step.c: a whole decoding step of one row as one dispatch of resident workgroups (kernel `step`), where all
 * layers are of the plain kind: norm, q, k, v, attention, output, residual; norm, feed-forward network (dense, or
 * experts chosen by a router, with or without a shared one), residual.
 *
 * Owns: finding these parts in the graph. Does not own: the table of phases
 * (pass_step_table.c), the kernel. Invariants: every node is part of exactly one layer, or the pass does
 * nothing: the template is then made like those of lower tiers. */
#include "pass_step.h"

#include <stdlib.h>
#include <string.h>

enum { STEP_MAX_EXPERT = 512, STEP_MAX_USED = 32 };

static const struct ir_node *step_node(const struct step_graph *s, int i) {
  return &s->g->node[i];
}

/* Whether node i is `op` and has one reader only; it is then one of the layer's. */
static bool step_is(struct step_graph *s, int i, enum ir_op op, bool one_reader) {
  if (i < 0 || step_node(s, i)->op != op || s->seen[i] || (one_reader && s->p->n_use[i] != 1)) return false;
  return s->seen[i] = true;
}

static bool step_plain_norm(struct step_graph *s, int i) {
  const struct ir_node *n = step_node(s, i);
  return n->op == IR_RMSNORM && n->a.group == n->width && n->weight[0] && n->a.scale == 0 &&
         step_is(s, i, IR_RMSNORM, false);
}

static bool step_linear(struct step_graph *s, int i, int in) {
  const struct ir_node *n = step_node(s, i);
  return n->op == IR_LINEAR && n->in[0] == in && ir_scale(n) == 1 && n->weight[0]->dim[0] % 64 == 0 &&
         n->weight[0]->dim[1] % 2 == 0 && step_is(s, i, IR_LINEAR, true);
}

/* The first reader of node i with this operation, or IR_NONE. */
static int step_reader(const struct step_graph *s, int i, enum ir_op op) {
  for (int k = i + 1; k < s->g->n_node; k++)
    for (int n = 0; step_node(s, k)->op == op && n < ir_ops[op].n_in; n++)
      if (step_node(s, k)->in[n] == i) return k;
  return IR_NONE;
}

/* The ADD of the residual stream x and node i. */
static int step_residual(struct step_graph *s, int x, int i) {
  int add = i < 0 || s->p->n_use[i] != 1 ? IR_NONE : s->p->last_use[i];
  if (add < 0 || step_node(s, add)->op != IR_ADD || ir_scale(step_node(s, add)) != 1) return IR_NONE;
  const int *in = step_node(s, add)->in;
  if (!((in[0] == x && in[1] == i) || (in[0] == i && in[1] == x)) || !step_is(s, add, IR_ADD, false)) return IR_NONE;
  return add;
}

/* q or k: [ROPE] of [RMSNORM] of a LINEAR of the norm. */
static bool step_heads(struct step_graph *s, struct step_layer *l, int i, int *linear, int *norm, int *rope) {
  *norm = *rope = IR_NONE;
  if (step_node(s, i)->op == IR_ROPE && step_is(s, i, IR_ROPE, true)) *rope = i, i = step_node(s, i)->in[0];
  if (step_node(s, i)->op == IR_RMSNORM && step_node(s, i)->weight[0] && step_node(s, i)->a.scale == 0 &&
      step_is(s, i, IR_RMSNORM, true))
    *norm = i, i = step_node(s, i)->in[0];
  *linear = i;
  return step_linear(s, i, l->norm);
}

static bool step_attention(struct step_graph *s, struct step_layer *l) {
  l->attention = IR_NONE;
  for (int i = l->x + 1; i < s->g->n_node && l->attention == IR_NONE; i++)
    if (step_node(s, i)->op == IR_ATTENTION) l->attention = i;
  if (!step_is(s, l->attention, IR_ATTENTION, true)) return false;
  const struct ir_node *at = step_node(s, l->attention);
  if (at->in[1] == at->in[2] || (at->a.d_head_value && at->a.d_head_value != at->a.d_head) || at->a.softcap != 0)
    return false;
  l->norm = step_reader(s, l->x, IR_RMSNORM);
  if (l->norm < 0 || !step_plain_norm(s, l->norm)) return false;
  int k_rope;
  if (!step_heads(s, l, at->in[0], &l->q, &l->q_norm, &l->rope)) return false;
  if (!step_heads(s, l, at->in[1], &l->k, &l->k_norm, &k_rope)) return false;
  if ((l->q_norm < 0) != (l->k_norm < 0) || (l->rope < 0) != (k_rope < 0)) return false;
  if (l->rope >= 0 && step_node(s, l->rope)->a.rope != step_node(s, k_rope)->a.rope) return false;
  l->v = at->in[2];
  if (!step_linear(s, l->v, l->norm)) return false;
  l->output = s->p->last_use[l->attention];
  if (!step_linear(s, l->output, l->attention)) return false;
  l->x1 = step_residual(s, l->x, l->output);
  return l->x1 >= 0;
}

/* down(glu(gate(n), up(n))), all of `op`, whose last product is `down`. */
static bool step_ffn(struct step_graph *s, int down, int n, enum ir_op op, int *gate, int *up) {
  const struct ir_node *d = step_node(s, down);
  if (d->op != op || d->weight[0]->dim[0] % 64 != 0 || !step_is(s, down, op, true)) return false;
  int glu = d->in[0];
  if (!step_is(s, glu, IR_GLU, true)) return false;
  *gate = step_node(s, glu)->in[0];
  *up = step_node(s, glu)->in[1];
  const struct ir_node *a = step_node(s, *gate), *b = step_node(s, *up);
  if (a->op != op || b->op != op || a->in[0] != n || b->in[0] != n || a->width != b->width) return false;
  if (!a->weight[1] != !b->weight[1] || ir_scale(a) != 1 || ir_scale(b) != 1 || ir_scale(d) != 1) return false;
  return step_is(s, *gate, op, true) && step_is(s, *up, op, true);
}

/* The shared expert's row: [GLU by a gate of one column] of a feed-forward network. */
static bool step_shared(struct step_graph *s, struct step_layer *l, int row) {
  const struct ir_node *n = step_node(s, row);
  if (n->op == IR_GLU) {
    l->shared_gate_row = n->in[0];
    const struct ir_node *g = step_node(s, l->shared_gate_row);
    if (n->a.activation != IR_SIGMOID || g->op != IR_LINEAR || g->width != 1 || g->in[0] != l->norm2 || g->weight[1] ||
        ir_scale(g) != 1 || !step_is(s, row, IR_GLU, true) || !step_is(s, l->shared_gate_row, IR_LINEAR, true))
      return false;
    row = n->in[1];
  }
  l->shared_down = row;
  return step_ffn(s, row, l->norm2, IR_LINEAR, &l->shared_gate, &l->shared_up) && !step_node(s, row)->weight[1] &&
         !step_node(s, l->shared_gate)->weight[1];
}

static bool step_experts(struct step_graph *s, struct step_layer *l) {
  int combine = step_reader(s, l->router, IR_COMBINE);
  const struct ir_node *r = step_node(s, l->router);
  if (!step_is(s, l->router, IR_ROUTER, false) || !step_is(s, combine, IR_COMBINE, true)) return false;
  if (r->weight[2] || r->weight[3] || r->a.n_group > 1 || r->weight[0]->format_number != FORMAT_F32 ||
      r->a.n_expert > STEP_MAX_EXPERT || r->a.n_expert_used > STEP_MAX_USED)
    return false;
  l->down = step_node(s, combine)->in[0];
  if (!step_ffn(s, l->down, l->norm2, IR_EXPERT_LINEAR, &l->gate, &l->up)) return false;
  int sum = combine;
  l->x2 = step_residual(s, l->x1, combine);
  if (l->x2 >= 0) return true;
  sum = s->p->last_use[combine];
  const struct ir_node *add = step_node(s, sum);
  if (add->op != IR_ADD || ir_scale(add) != 1 || !step_is(s, sum, IR_ADD, true)) return false;
  if (!step_shared(s, l, add->in[0] == combine ? add->in[1] : add->in[0])) return false;
  l->x2 = step_residual(s, l->x1, sum);
  return l->x2 >= 0;
}

static bool step_dense(struct step_graph *s, struct step_layer *l) {
  int x2 = s->p->last_use[l->x1];
  if (step_node(s, x2)->op != IR_ADD) return false;
  const int *in = step_node(s, x2)->in;
  l->shared_down = in[0] == l->x1 ? in[1] : in[0];
  if (!step_ffn(s, l->shared_down, l->norm2, IR_LINEAR, &l->shared_gate, &l->shared_up)) return false;
  if (step_node(s, l->shared_down)->weight[1] || step_node(s, l->shared_gate)->weight[1]) return false;
  l->x2 = step_residual(s, l->x1, l->shared_down);
  return l->x2 >= 0;
}

static bool step_layer(struct step_graph *s, int x, struct step_layer *l) {
  *l = (struct step_layer){.x = x,
                           .router = IR_NONE,
                           .gate = IR_NONE,
                           .up = IR_NONE,
                           .down = IR_NONE,
                           .shared_gate_row = IR_NONE,
                           .shared_gate = IR_NONE,
                           .shared_up = IR_NONE,
                           .shared_down = IR_NONE};
  if (!step_attention(s, l)) return false;
  l->norm2 = step_reader(s, l->x1, IR_RMSNORM);
  if (l->norm2 < 0 || !step_plain_norm(s, l->norm2)) return false;
  l->router = step_reader(s, l->norm2, IR_ROUTER);
  return l->router >= 0 ? step_experts(s, l) : step_dense(s, l);
}

static bool step_head(struct step_graph *s, int x) {
  int select = step_reader(s, x, IR_SELECT);
  if (!step_is(s, select, IR_SELECT, true)) return false;
  s->norm = step_reader(s, select, IR_RMSNORM);
  if (s->norm < 0 || !step_plain_norm(s, s->norm)) return false;
  s->head = step_reader(s, s->norm, IR_LINEAR);
  const struct ir_node *h = step_node(s, s->head);
  return s->head == s->g->n_node - 1 && ir_scale(h) == 1 && !h->weight[1] && h->weight[0]->dim[0] % 64 == 0 &&
         step_is(s, s->head, IR_LINEAR, false);
}

/* Whether all layers are alike in what the kernel has as literals. */
static bool step_alike(const struct step_graph *s, int a, int b, bool weights) {
  if ((a < 0) != (b < 0)) return false;
  if (a < 0) return true;
  struct ir_attr x = step_node(s, a)->a, y = step_node(s, b)->a;
  x.state = y.state = x.window = y.window = 0;
  if (memcmp(&x, &y, sizeof x)) return false;
  const struct ir_node *m = step_node(s, a), *n = step_node(s, b);
  for (int i = 0; i < IR_MAX_WEIGHT && weights; i++) {
    if (!m->weight[i] != !n->weight[i]) return false;
    if (m->weight[i] && (m->weight[i]->dim[0] != n->weight[i]->dim[0] || m->weight[i]->dim[1] != n->weight[i]->dim[1]))
      return false;
  }
  return true;
}

static bool step_uniform(const struct step_graph *s) {
  const struct step_layer *a = &s->layer[0];
  for (uint32_t i = 0; i < s->n_layer; i++) {
    const struct step_layer *b = &s->layer[i];
    const int pairs[][2] = {{a->norm, b->norm},
                            {a->norm, b->norm2},
                            {a->norm, s->norm},
                            {a->q, b->q},
                            {a->k, b->k},
                            {a->v, b->v},
                            {a->q_norm, b->q_norm},
                            {a->k_norm, b->k_norm},
                            {a->rope, b->rope},
                            {a->attention, b->attention},
                            {a->output, b->output},
                            {a->router, b->router},
                            {a->gate, b->gate},
                            {a->up, b->up},
                            {a->down, b->down},
                            {a->shared_gate_row, b->shared_gate_row},
                            {a->shared_up, b->shared_up},
                            {a->shared_down, b->shared_down}};
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
      if (!step_alike(s, pairs[k][0], pairs[k][1], true)) return false;
    int glu = b->gate >= 0 ? b->gate : b->shared_gate, other = a->gate >= 0 ? a->gate : a->shared_gate;
    if (step_node(s, s->p->last_use[glu])->a.activation != step_node(s, s->p->last_use[other])->a.activation)
      return false;
    if (b->gate >= 0 && b->shared_gate >= 0 &&
        step_node(s, s->p->last_use[b->shared_gate])->a.activation != step_node(s, s->p->last_use[glu])->a.activation)
      return false;
  }
  const struct ir_node *at = step_node(s, a->attention);
  uint32_t d = at->a.d_head, norm = a->q_norm < 0 ? 0 : step_node(s, a->q_norm)->a.group;
  if (d % 16 || d > 256 || at->a.n_head * d % 64 || s->p->plan->kv != PLAN_KV_F16 || s->g->d_model % 64) return false;
  if (norm && norm != d && (norm != at->a.n_head * d || step_node(s, a->k_norm)->a.group != at->a.n_kv_head * d))
    return false;
  return true;
}

static bool step_match(struct step_graph *s) {
  s->embed = 0;
  if (!step_is(s, 0, IR_EMBED, false)) return false;
  int x = 0;
  for (s->n_layer = 0; s->n_layer < s->g->n_layer; s->n_layer++) {
    if (!step_layer(s, x, &s->layer[s->n_layer])) return false;
    x = s->layer[s->n_layer].x2;
  }
  if (!step_head(s, x)) return false;
  for (int i = 0; i < s->g->n_node; i++)
    if (!s->seen[i]) return false;
  return step_uniform(s);
}

bool pass_step(struct pass *p) {
  size_t n = (size_t)p->graph->n_node;
  struct step_graph s = {
      .g = p->graph, .p = p, .seen = calloc(n, sizeof *s.seen), .layer = calloc(p->graph->n_layer, sizeof *s.layer)};
  bool matched = false;
  if (!s.seen || !s.layer)
    p->code = moe_fail(p->err, MOE_FAILED, "out of memory: lowering %d operations", p->graph->n_node);
  else
    matched = step_match(&s);
  if (matched) {
    uint64_t x = pass_embedding(p, s.embed), logits = pass_buffer(p, 1, p->graph->n_vocab);
    pass_step_emit(p, &s, x, logits);
    pass_sample(p, logits);
  }
  free(s.seen);
  free(s.layer);
  return matched;
}
