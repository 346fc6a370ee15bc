/* pass_attention.c: the patterns that end in ATTENTION: norms and rotations of q and k with the state's update, by
 * rope_store or, where heads are joined of two parts, by concat_store; then attention.
 *
 * Owns: the choice of splits. Invariants: rope_store rotates q in place, k and v go into the page, so the values of the
 * norms and rotations exist nowhere else: a pattern matches only when nobody else reads them. */
#include "pass_state.h"

/* q or k: [an RMSNORM of each head after or before] [ROPE], over a value that is there. IR_NONE: not so. */
struct pass_heads {
  int rope, norm, from;
  bool norm_after;
};

static bool pass_is_head_norm(const struct pass *p, int i, uint32_t d_head) {
  const struct ir_node *node = &p->graph->node[i];
  if (node->op != IR_RMSNORM || node->a.group != d_head || !node->weight[0] || p->n_use[i] != 1) return false;
  return !p->covered[i] || p->value[i].norm == i; /* one head: it waits for its reader like any norm of a whole width */
}

static bool pass_is_rope(const struct pass *p, int i, uint32_t d_head) {
  const struct ir_node *node = &p->graph->node[i];
  return node->op == IR_ROPE && node->a.d_head == d_head && p->n_use[i] == 1 && !p->covered[i];
}

/* in_place: the value is overwritten, so that nobody else may read it. */
static bool pass_heads_match(const struct pass *p, int i, uint32_t d_head, bool in_place, struct pass_heads *h) {
  const struct ir_node *node = p->graph->node;
  *h = (struct pass_heads){IR_NONE, IR_NONE, i, false};
  if (pass_is_head_norm(p, i, d_head) && pass_is_rope(p, node[i].in[0], d_head)) {
    *h = (struct pass_heads){node[i].in[0], i, node[node[i].in[0]].in[0], true};
  } else {
    if (pass_is_rope(p, h->from, d_head)) h->rope = h->from, h->from = node[h->from].in[0];
    if (pass_is_head_norm(p, h->from, d_head)) h->norm = h->from, h->from = node[h->from].in[0];
  }
  return pass_ready(p, h->from) && (!in_place || p->n_use[h->from] == 1);
}

/* Splits fill a device while heads and rows are few: some 256 workgroups of all rows together, and no more than the
 * longest context has use for. How many of them a row uses follows from its length, on the device. */
static uint32_t pass_splits(const struct pass *p, const struct ir_attr *a) {
  uint32_t groups = a->n_head / ATTENTION_HEADS(a->n_head / a->n_kv_head, ATTENTION_MOST(a->d_head)),
           pages = (p->graph->n_ctx + 63) / 64;
  if (a->window > 0 && pages > a->window / 64 + 2) pages = a->window / 64 + 2;
  uint32_t splits = 1;
  while (splits < ATTENTION_MAX_SPLIT && 2 * splits * groups * p->n_row <= 256 && splits < pages) splits *= 2;
  return splits;
}

/* What both kernels that update the state, and attention, need to know of a node. */
struct pass_shape {
  const struct ir_attr *a;
  uint32_t d_value;
  bool latent;
  struct plan_operand state;
};

static struct pass_shape pass_shape_of(const struct ir_node *node) {
  const struct ir_attr *a = &node->a;
  return (struct pass_shape){.a = a,
                             .d_value = a->d_head_value ? a->d_head_value : a->d_head,
                             .latent = node->in[1] == node->in[2],
                             .state = {PLAN_STATE, a->state, 0}};
}

static void pass_attend(struct pass *p, int i, const struct pass_shape *s, uint64_t q) {
  const struct ir_node *node = &p->graph->node[i];
  const struct ir_attr *a = s->a;
  uint32_t splits = pass_splits(p, a);
  bool sinks = node->weight[0];
  uint64_t out = pass_buffer(p, p->n_row, node->width);
  uint64_t partial = splits > 1 ? pass_buffer(p, (uint64_t)p->n_row * a->n_head * splits, s->d_value + 4) : 0;
  pass_emit(p, KERNEL_ATTENTION, IMG_ROLE_ATTENTION,
            PASS_PARAMS({"N_HEAD", a->n_head}, {"N_KV_HEAD", a->n_kv_head}, {"D_HEAD", a->d_head},
                        {"D_HEAD_V", s->d_value}, {"N_ROW", p->n_row}, {"Q_STRIDE", (double)a->n_head * a->d_head},
                        {"Y_STRIDE", node->width}, {"PAGE_BYTES", (double)p->plan->page_bytes}, {"N_SPLIT", splits},
                        {"SCALE", a->scale}, {"KV", p->plan->kv}, {"LATENT", s->latent}, {"WINDOW", a->window},
                        {"SOFTCAP", a->softcap}, {"SINKS", sinks}),
            PASS_ARGS({"q", PASS_ACT(q)}, {"state", s->state}, {"step", PASS_STEP}, {"y", PASS_ACT(out)},
                      {"partial", splits > 1 ? PASS_ACT(partial) : PASS_NONE},
                      {"counter", splits > 1 ? PASS_ACT(p->plan->attention_counter) : PASS_NONE},
                      {"sinks", sinks ? pass_plane(p, i, 0, true, NULL) : PASS_NONE}));
  pass_done(p, i, out);
}

static void pass_cover(struct pass *p, const int *node, int n) {
  for (int k = 0; k < n; k++)
    if (node[k] != IR_NONE) p->covered[node[k]] = true;
}

static double pass_rope_scale(const struct pass *p, int rope) {
  return rope == IR_NONE ? 1 : p->graph->rope[p->graph->node[rope].a.rope].scale;
}

static struct plan_operand pass_rope_table(const struct pass *p, int rope) {
  if (rope == IR_NONE) return PASS_NONE;
  return (struct plan_operand){PLAN_TABLE, 0, p->plan->rope_table[p->graph->node[rope].a.rope]};
}

static bool pass_same_rope(const struct pass *p, int a, int b) {
  if (a == IR_NONE || b == IR_NONE) return a == b;
  return p->graph->node[a].a.rope == p->graph->node[b].a.rope;
}

/* ---- Heads in one piece ---- */

/* An RMSNORM without weight over each head of v, only read here; or IR_NONE. */
static int pass_value_norm(const struct pass *p, int v, uint32_t d_value) {
  const struct ir_node *node = &p->graph->node[v];
  bool fits = node->op == IR_RMSNORM && node->a.group == d_value && !node->weight[0] && p->n_use[v] == 1;
  return fits && (!p->covered[v] || p->value[v].norm == v) ? v : IR_NONE;
}

static bool pass_same_eps(const struct pass *p, int a, int b) {
  return a == IR_NONE || b == IR_NONE || p->graph->node[a].a.eps == p->graph->node[b].a.eps;
}

static bool pass_attention_rope(struct pass *p, int i) {
  const struct ir_node *node = &p->graph->node[i];
  const struct pass_shape s = pass_shape_of(node);
  struct pass_heads q, k;
  if (s.latent || !pass_heads_match(p, node->in[0], s.a->d_head, true, &q) ||
      !pass_heads_match(p, node->in[1], s.a->d_head, false, &k))
    return false;
  int v_norm = pass_value_norm(p, node->in[2], s.d_value),
      v = v_norm == IR_NONE ? node->in[2] : p->graph->node[v_norm].in[0];
  if (!pass_ready(p, v) || !pass_same_rope(p, q.rope, k.rope)) return false;
  if ((q.norm == IR_NONE) != (k.norm == IR_NONE) || q.norm_after != k.norm_after) return false;
  if (!pass_same_eps(p, q.norm, k.norm) || !pass_same_eps(p, q.norm, v_norm)) return false;
  int any_norm = q.norm != IR_NONE ? q.norm : v_norm;
  bool norm = q.norm != IR_NONE;
  const struct ir_rope *rope = q.rope == IR_NONE ? NULL : &p->graph->rope[p->graph->node[q.rope].a.rope];
  uint64_t q_at = pass_read(p, q.from), k_at = pass_read(p, k.from), v_at = pass_read(p, v);
  pass_emit(p, KERNEL_ROPE_STORE, IMG_ROLE_ROPE_STORE,
            PASS_PARAMS({"N_HEAD", s.a->n_head}, {"N_KV_HEAD", s.a->n_kv_head}, {"D_HEAD", s.a->d_head},
                        {"D_HEAD_V", s.d_value}, {"N_ROT", rope ? rope->n_rot : 0}, {"N_ROW", p->n_row},
                        {"Q_STRIDE", (double)s.a->n_head * s.a->d_head},
                        {"K_STRIDE", (double)s.a->n_kv_head * s.a->d_head},
                        {"V_STRIDE", (double)s.a->n_kv_head * s.d_value}, {"PAGE_BYTES", (double)p->plan->page_bytes},
                        {"KV", p->plan->kv}, {"NEOX", !rope || rope->pairs == IR_ROPE_HALVES},
                        {"QK_NORM", norm ? 1 + q.norm_after : 0}, {"V_NORM", v_norm != IR_NONE},
                        {"EPS", any_norm != IR_NONE ? p->graph->node[any_norm].a.eps : 0},
                        {"ROPE_MUL", pass_rope_scale(p, q.rope)}),
            PASS_ARGS({"q", PASS_ACT(q_at)}, {"k", PASS_ACT(k_at)}, {"v", PASS_ACT(v_at)},
                      {"q_norm", norm ? pass_plane(p, q.norm, 0, true, NULL) : PASS_NONE},
                      {"k_norm", norm ? pass_plane(p, k.norm, 0, true, NULL) : PASS_NONE},
                      {"rope", pass_rope_table(p, q.rope)}, {"state", s.state}, {"step", PASS_STEP}));
  pass_attend(p, i, &s, q_at);
  pass_cover(p, (const int[]){q.rope, k.rope, q.norm, k.norm, v_norm}, 5);
  return true;
}

/* ---- Heads joined of two parts, the second rotated: latent attention ---- */

/* CONCAT of a value and a ROPE over a value, both there. */
struct pass_joined {
  int concat, a, rope, b;
};

static bool pass_joined_match(const struct pass *p, int i, struct pass_joined *j) {
  const struct ir_node *node = &p->graph->node[i];
  if (node->op != IR_CONCAT || p->covered[i]) return false;
  int rope = node->in[1];
  *j = (struct pass_joined){i, node->in[0], rope, p->graph->node[rope].in[0]};
  if (p->graph->node[rope].op != IR_ROPE || p->n_use[rope] != 1) return false;
  const struct ir_attr *a = &p->graph->node[rope].a;
  return a->n_head == node->a.n_kv_head && a->d_head == p->graph->rope[a->rope].n_rot && pass_ready(p, j->a) &&
         pass_ready(p, j->b);
}

static bool pass_attention_joined(struct pass *p, int i) {
  const struct ir_node *node = &p->graph->node[i];
  const struct pass_shape s = pass_shape_of(node);
  struct pass_joined q, k;
  if (!pass_joined_match(p, node->in[0], &q) || !pass_joined_match(p, node->in[1], &k)) return false;
  if (p->n_use[q.concat] != 1 || p->n_use[k.concat] != 1 + s.latent || !pass_same_rope(p, q.rope, k.rope)) return false;
  if (p->graph->node[q.concat].a.n_kv_head != s.a->n_head || p->graph->node[k.concat].a.n_head != s.a->n_kv_head)
    return false;
  if (!s.latent && !pass_ready(p, node->in[2])) return false;
  const struct ir_rope *rope = &p->graph->rope[p->graph->node[q.rope].a.rope];
  uint64_t qa = pass_read(p, q.a), qb = pass_read(p, q.b), ka = pass_read(p, k.a), kb = pass_read(p, k.b);
  struct plan_operand v = s.latent ? PASS_NONE : PASS_ACT(pass_read(p, node->in[2]));
  uint64_t joined = pass_buffer(p, p->n_row, (uint64_t)s.a->n_head * s.a->d_head);
  pass_emit(p, KERNEL_CONCAT_STORE, IMG_ROLE_ROPE_STORE,
            PASS_PARAMS({"N_HEAD", s.a->n_head}, {"N_KV_HEAD", s.a->n_kv_head},
                        {"N_KB_HEAD", p->graph->node[k.concat].a.n_kv_head}, {"D_A", s.a->d_head - rope->n_rot},
                        {"D_B", rope->n_rot}, {"D_HEAD_V", s.latent ? 0 : s.d_value}, {"N_ROW", p->n_row},
                        {"PAGE_BYTES", (double)p->plan->page_bytes}, {"KV", p->plan->kv},
                        {"NEOX", rope->pairs == IR_ROPE_HALVES}, {"ROPE_MUL", rope->scale}),
            PASS_ARGS({"qa", PASS_ACT(qa)}, {"qb", PASS_ACT(qb)}, {"ka", PASS_ACT(ka)}, {"kb", PASS_ACT(kb)}, {"v", v},
                      {"q", PASS_ACT(joined)}, {"rope", pass_rope_table(p, q.rope)}, {"state", s.state},
                      {"step", PASS_STEP}));
  pass_attend(p, i, &s, joined);
  pass_cover(p, (const int[]){q.concat, k.concat, q.rope, k.rope}, 4);
  return true;
}

bool pass_attention(struct pass *p, int i) {
  return pass_attention_joined(p, i) || pass_attention_rope(p, i);
}
