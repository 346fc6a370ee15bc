/* pass_attention.c: the pattern [norm of heads] + ROPE + ATTENTION: rope_store, then attention.
 *
 * Owns: the choice of splits. Invariants: q is rotated in place, k and v go into the page, so the values of the norms
 * and rotations exist nowhere else: the pattern matches only when nobody else reads them. */
#include "pass_state.h"

/* q or k: ROPE over [RMSNORM of each head over] a value that is there. */
struct pass_heads {
  int rope, norm, from;
};

static bool pass_heads_match(const struct pass *p, int i, uint32_t d_head, struct pass_heads *h) {
  const struct ir_node *node = p->graph->node;
  if (node[i].op != IR_ROPE || p->n_use[i] != 1) return false;
  *h = (struct pass_heads){i, IR_NONE, node[i].in[0]};
  const struct ir_node *norm = &node[h->from];
  if (norm->op == IR_RMSNORM && norm->a.group == d_head && p->n_use[h->from] == 1 && !p->covered[h->from]) {
    h->norm = h->from;
    h->from = norm->in[0];
  }
  return pass_ready(p, h->from) && p->value[h->from].norm == IR_NONE && p->n_use[h->from] == 1;
}

/* Splits fill a device while heads and rows are few. One number for all templates that split: they share a module. */
static uint32_t pass_splits(const struct pass *p, uint32_t n_head) {
  return n_head * p->n_row < 128 ? 8 : 1;
}

static void pass_rope_store(struct pass *p, const struct ir_node *node, const struct pass_heads *q,
                            const struct pass_heads *k, struct plan_operand state) {
  const struct ir_attr *a = &node->a;
  uint32_t rope = p->graph->node[q->rope].a.rope;
  bool norm = q->norm != IR_NONE;
  struct plan_operand q_norm = norm ? pass_plane(p, q->norm, 0, true, NULL) : PASS_NONE;
  struct plan_operand k_norm = norm ? pass_plane(p, k->norm, 0, true, NULL) : PASS_NONE;
  uint32_t kv_width = a->n_kv_head * a->d_head;
  pass_emit(p, KERNEL_ROPE_STORE, IMG_ROLE_ROPE_STORE,
            PASS_PARAMS({"N_HEAD", a->n_head}, {"N_KV_HEAD", a->n_kv_head}, {"D_HEAD", a->d_head},
                        {"N_ROT", p->graph->rope[rope].n_rot}, {"N_ROW", p->n_row}, {"Q_STRIDE", node->width},
                        {"K_STRIDE", kv_width}, {"V_STRIDE", kv_width}, {"PAGE_BYTES", (double)p->plan->page_bytes},
                        {"KV_F32", p->plan->kv_f32}, {"NEOX", p->graph->rope[rope].pairs == IR_ROPE_HALVES},
                        {"QK_NORM", norm}, {"EPS", norm ? p->graph->node[q->norm].a.eps : 0}),
            PASS_ARGS({"q", PASS_ACT(p->value[q->from].act)}, {"k", PASS_ACT(p->value[k->from].act)},
                      {"v", PASS_ACT(p->value[node->in[2]].act)}, {"q_norm", q_norm}, {"k_norm", k_norm},
                      {"rope", {PLAN_TABLE, 0, p->plan->rope_table[rope]}}, {"state", state}, {"step", PASS_STEP}));
}

bool pass_attention(struct pass *p, int i) {
  const struct ir_node *node = &p->graph->node[i];
  const struct ir_attr *a = &node->a;
  struct pass_heads q, k;
  int v = node->in[2];
  if (!pass_heads_match(p, node->in[0], a->d_head, &q) || !pass_heads_match(p, node->in[1], a->d_head, &k))
    return false;
  if (!pass_ready(p, v) || p->value[v].norm != IR_NONE) return false;
  if (p->graph->node[q.rope].a.rope != p->graph->node[k.rope].a.rope) return false;
  if ((q.norm == IR_NONE) != (k.norm == IR_NONE)) return false;
  if (q.norm != IR_NONE && p->graph->node[q.norm].a.eps != p->graph->node[k.norm].a.eps) return false;
  struct plan_operand state = {PLAN_STATE, a->state, 0};
  pass_rope_store(p, node, &q, &k, state);
  uint32_t splits = pass_splits(p, a->n_head);
  uint64_t out = pass_buffer(p, p->n_row, node->width);
  uint64_t partial = splits > 1 ? pass_buffer(p, (uint64_t)p->n_row * a->n_head * splits, a->d_head + 4) : 0;
  pass_emit(p, KERNEL_ATTENTION, IMG_ROLE_ATTENTION,
            PASS_PARAMS({"N_HEAD", a->n_head}, {"N_KV_HEAD", a->n_kv_head}, {"D_HEAD", a->d_head}, {"N_ROW", p->n_row},
                        {"Q_STRIDE", node->width}, {"Y_STRIDE", node->width},
                        {"PAGE_BYTES", (double)p->plan->page_bytes}, {"N_SPLIT", splits}, {"SCALE", a->scale},
                        {"KV_F32", p->plan->kv_f32}),
            PASS_ARGS({"q", PASS_ACT(p->value[q.from].act)}, {"state", state}, {"step", PASS_STEP},
                      {"y", PASS_ACT(out)}, {"partial", splits > 1 ? PASS_ACT(partial) : PASS_NONE},
                      {"counter", splits > 1 ? PASS_ACT(p->plan->attention_counter) : PASS_NONE}));
  const int covered[] = {q.rope, k.rope, q.norm, k.norm};
  for (int n = 0; n < 4; n++)
    if (covered[n] != IR_NONE) p->covered[covered[n]] = true;
  pass_done(p, i, out);
  return true;
}
