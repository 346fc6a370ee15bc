#include "pass.h"

#include "pass_state.h"
#include "pass_step.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- Helpers of all patterns ---- */

bool pass_fail(struct pass *p, enum moe_code code, const char *format, ...) {
  if (p->code) return true;
  char text[sizeof p->err->message];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  p->code = moe_fail(p->err, code, "layer %d: %s", p->layer, text);
  return true;
}

uint64_t pass_buffer(struct pass *p, uint64_t rows, uint64_t words) {
  uint64_t at = p->act_at, n, bytes = 0;
  if (!moe_mul(rows, words, &n) || !moe_mul(n, 4, &bytes) || bytes > INT32_MAX) {
    pass_fail(p, MOE_DECLINED, "a buffer of %llu rows of %llu words; kernels address less than 2 GiB of one",
              (unsigned long long)rows, (unsigned long long)words);
    return at;
  }
  p->act_at = plan_align(at + bytes);
  if (p->act_at > p->template->act_bytes) p->template->act_bytes = p->act_at;
  return at;
}

uint64_t pass_private(struct pass *p, uint64_t bytes) {
  uint64_t at = plan_align(plan_act_bytes(p->plan));
  p->act_at = p->template->act_bytes = plan_align(at + bytes);
  return at;
}

void pass_done(struct pass *p, int i, uint64_t act) {
  p->value[i] = (struct pass_value){.ready = true, .epoch = p->epoch, .act = act, .norm = IR_NONE};
  p->covered[i] = true;
}

bool pass_ready(const struct pass *p, int i) {
  return p->value[i].ready && (p->value[i].epoch == 0 || p->value[i].epoch == p->epoch);
}

struct plan_operand pass_plane(struct pass *p, int i, int k, bool vector, double *format) {
  struct plan_operand operand = PASS_NONE;
  if (!p->code) p->code = plan_add_plane(p->plan, p->graph->node[i].weight[k], vector, &operand, p->err);
  if (format) *format = p->code ? 0 : p->plan->plane[operand.index].layout.format->number;
  return operand;
}

/* What kernels.def says in words about shapes: kernels would read or leave out columns otherwise. max 0: none. */
static const struct {
  const char *param;
  uint32_t multiple, max;
} pass_limits[] = {{"N_IN", 32, 0},      {"D_MODEL", 32, 0},       {"D_FF", 32, 0},    {"D_HEAD", 32, 1024},
                   {"D_HEAD_V", 4, 512}, {"N_ROT", 4, 0},          {"D_A", 4, 0},      {"D_B", 4, 0},
                   {"N_EXPERT", 1, 512}, {"N_EXPERT_USED", 1, 64}, {"N_GROUP", 1, 32}, {"N_COL", 4, 0}};

static bool pass_fits(struct pass *p, const char *kernel, const struct shadergen_param *param) {
  for (size_t i = 0; i < sizeof pass_limits / sizeof *pass_limits; i++) {
    if (strcmp(pass_limits[i].param, param->name)) continue;
    uint64_t value = (uint64_t)param->value, multiple = pass_limits[i].multiple, max = pass_limits[i].max;
    if (value % multiple == 0 && (max == 0 || value <= max)) continue;
    char most[32] = "";
    if (max) snprintf(most, sizeof most, " up to %llu", (unsigned long long)max);
    pass_fail(p, MOE_DECLINED, "kernel %s: %s %llu; it takes multiples of %llu%s", kernel, param->name,
              (unsigned long long)value, (unsigned long long)multiple, most);
    return false;
  }
  return true;
}

void pass_emit(struct pass *p, enum kernel_id kernel, enum img_role role, const struct shadergen_param *params,
               const struct pass_arg *args) {
  if (p->code) return;
  const struct kernel_info *info = kernel_get(kernel);
  struct plan_op op = {.role = role, .layer = p->layer, .request = {.kernel = kernel}};
  for (; params->name; params++) {
    if (!pass_fits(p, info->name, params)) return;
    op.request.param[op.request.n_param++] = *params;
  }
  op.request.param[op.request.n_param++] = (struct shadergen_param){"MAX_ROW", p->plan->max_row};
  uint32_t given = 0;
  for (; args->name; args++, given++) {
    int field = kernel_push_index(info, args->name);
    if (field < 0) {
      pass_fail(p, MOE_FAILED, "kernel %s has no push field %s", info->name, args->name);
      return;
    }
    op.operand[field] = args->operand;
  }
  int codebook = kernel_push_index(info, "codebook");
  if (codebook >= 0) {
    given++;
    op.operand[codebook] = PASS_NONE;
    if (shadergen_needs_codebooks(&op.request)) p->code = plan_add_codebooks(p->plan, &op.operand[codebook], p->err);
    if (p->code) return;
  }
  if (given != info->n_push) {
    pass_fail(p, MOE_FAILED, "kernel %s: %u of %u push fields given", info->name, given, info->n_push);
    return;
  }
  p->code = plan_add_op(p->template, &op, p->err);
}

uint64_t pass_read(struct pass *p, int i) {
  struct pass_value *v = &p->value[i];
  if (v->norm == IR_NONE) return v->act;
  const struct ir_node *norm = &p->graph->node[v->norm];
  uint64_t y = pass_buffer(p, p->n_row, norm->width);
  pass_emit(p, KERNEL_NORM, IMG_ROLE_NORM,
            PASS_PARAMS({"D_MODEL", norm->width}, {"N_ROW", p->n_row}, {"EPS", norm->a.eps},
                        {"SCALE", norm->a.scale != 0 ? norm->a.scale : 1}),
            PASS_ARGS({"x", PASS_ACT(v->act)}, {"weight", pass_plane(p, v->norm, 0, true, NULL)}, {"y", PASS_ACT(y)},
                      {"gain", PASS_NONE}, {"step", PASS_STEP}));
  pass_done(p, i, y);
  return y;
}

bool pass_norm_waits(const struct pass *p, int x, int i) {
  for (int k = 0; k < i; k++)
    if (k != x && p->value[k].ready && p->value[k].norm != IR_NONE && p->value[k].act == p->value[x].act &&
        p->last_use[k] > i)
      return true;
  return false;
}

int pass_residual(const struct pass *p, int i, int *x) {
  const struct ir_graph *g = p->graph;
  int add = p->last_use[i];
  if (p->n_use[i] != 1 || g->node[add].op != IR_ADD) return IR_NONE;
  *x = g->node[add].in[0] == i ? g->node[add].in[1] : g->node[add].in[0];
  if (g->node[add].in[1] != i && ir_scale(&g->node[add]) != 1) return IR_NONE;
  if (p->last_use[*x] != add || !p->value[*x].ready || p->value[*x].norm != IR_NONE) return IR_NONE;
  for (int k = i + 1; k < add; k++)
    for (int n = 0; n < ir_ops[g->node[k].op].n_in; n++)
      if (g->node[k].in[n] == *x) return IR_NONE;
  return pass_norm_waits(p, *x, i) ? IR_NONE : add;
}

/* ---- Products ---- */

double pass_matrix_rows(uint32_t rows, double n_out) {
  double tm = rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
  while (tm > 16 && rows / tm * n_out / 64 < PASS_TILES) tm /= 2;
  return tm;
}

void pass_product(struct pass *p, int i, enum img_role role, uint64_t y, int add) {
  const struct ir_node *node = &p->graph->node[i];
  uint32_t rows = node->selected ? p->n_select : p->n_row;
  if (pass_has_dot(p, i, rows)) {
    pass_gemv_dot(p, &i, 1, role, &y, add);
    return;
  }
  const struct gguf_tensor *w = node->weight[0];
  int bias = node->op == IR_LINEAR && node->weight[1] ? 1 : 0;
  bool gemv = rows <= PASS_FEW_ROWS, residual = add != IR_NONE;
  double scale = node->op == IR_LINEAR ? ir_scale(node) : 1;
  if (residual) scale *= ir_scale(&p->graph->node[add]);
  double n_in = (double)w->dim[0], n_out = (double)w->dim[1], n_mat = node->op == IR_HEAD_LINEAR ? node->a.n_head : 1;
  double tm = p->tier >= IMG_TIER_KHR ? pass_matrix_rows(rows, n_out * n_mat) : 32;
  /* One row: the norm is cheaper again in every workgroup than in a dispatch and a barrier of its own. */
  int norm = gemv && p->n_row == 1 ? p->value[node->in[0]].norm : IR_NONE;
  if (norm != IR_NONE && (p->graph->node[norm].a.scale != 0 || node->op == IR_HEAD_LINEAR)) norm = IR_NONE;
  uint64_t x = norm == IR_NONE ? pass_read(p, node->in[0]) : p->value[node->in[0]].act;
  double format, eps = norm == IR_NONE ? 0 : p->graph->node[norm].a.eps;
  struct plan_operand weight = pass_plane(p, i, 0, false, &format);
  struct plan_operand b = bias ? pass_plane(p, i, 1, true, NULL) : PASS_NONE;
  struct plan_operand n = norm == IR_NONE ? PASS_NONE : pass_plane(p, norm, 0, true, NULL);
  if (gemv)
    pass_emit(p, KERNEL_GEMV, role,
              PASS_PARAMS({"FMT", format}, {"N_IN", n_in}, {"N_OUT", n_out}, {"N_ROW", rows},
                          {"X_STRIDE", n_in * n_mat}, {"Y_STRIDE", n_out * n_mat}, {"N_MAT", n_mat},
                          {"X_ROWS", p->n_row}, {"NORM", norm != IR_NONE}, {"EPS", eps}, {"RESIDUAL", residual},
                          {"BIAS", bias}, {"SCALE", scale}, {"ROWSEL", node->selected}),
              PASS_ARGS({"weight", weight}, {"x", PASS_ACT(x)}, {"norm", n}, {"bias", b}, {"y", PASS_ACT(y)},
                        {"step", PASS_STEP}));
  else
    pass_emit(p, p->tier >= IMG_TIER_KHR ? KERNEL_GEMM_KHR : KERNEL_GEMM, role,
              PASS_PARAMS({"FMT", format}, {"N_IN", n_in}, {"N_OUT", n_out}, {"N_ROW", rows},
                          {"X_STRIDE", n_in * n_mat}, {"Y_STRIDE", n_out * n_mat}, {"N_MAT", n_mat},
                          {"X_ROWS", p->n_row}, {"TM", tm}, {"RESIDUAL", residual}, {"BIAS", bias}, {"SCALE", scale},
                          {"ROWSEL", node->selected}),
              PASS_ARGS({"weight", weight}, {"x", PASS_ACT(x)}, {"bias", b}, {"y", PASS_ACT(y)}, {"step", PASS_STEP}));
}

static enum img_role pass_linear_role(const struct pass *p, const struct ir_node *node) {
  if (node->selected) return IMG_ROLE_HEAD;
  const struct ir_node *in = &p->graph->node[node->in[0]];
  bool gated = in->op == IR_GLU && p->graph->node[in->in[1]].op != IR_LINEAR; /* of attention or of recurrent heads */
  enum ir_op from = gated ? IR_ATTENTION : in->op;
  return from == IR_ATTENTION ? IMG_ROLE_ATTENTION_OUTPUT : from == IR_GLU ? IMG_ROLE_DOWN : IMG_ROLE_QKV;
}

static bool pass_linear(struct pass *p, int i) {
  const struct ir_node *node = &p->graph->node[i];
  if (!pass_ready(p, node->in[0])) return false;
  if (pass_gate_up_takes(p, i)) return false;
  int x, add = pass_residual(p, i, &x);
  if (add != IR_NONE) {
    pass_product(p, i, pass_linear_role(p, node), p->value[x].act, add);
    p->covered[i] = p->covered[add] = true;
    p->value[add] = p->value[x];
    return true;
  }
  if (pass_linear_dot(p, i, pass_linear_role(p, node))) return true;
  uint64_t y = pass_buffer(p, node->selected ? p->n_select : p->n_row, node->width);
  pass_product(p, i, pass_linear_role(p, node), y, IR_NONE);
  pass_done(p, i, y);
  return true;
}

/* ---- Small patterns ---- */

uint64_t pass_embedding(struct pass *p, int i) {
  const struct ir_node *node = &p->graph->node[i];
  double format;
  struct plan_operand weight = pass_plane(p, i, 0, false, &format);
  uint64_t x = pass_buffer(p, p->n_row, node->width);
  pass_emit(p, KERNEL_EMBED, IMG_ROLE_EMBED,
            PASS_PARAMS({"FMT", format}, {"D_MODEL", node->width}, {"N_VOCAB", p->graph->n_vocab}, {"N_ROW", p->n_row},
                        {"SCALE", node->a.scale}),
            PASS_ARGS({"weight", weight}, {"step", PASS_STEP}, {"slot", {PLAN_SLOT, 0, 0}}, {"x", PASS_ACT(x)}));
  return x;
}

static bool pass_embed(struct pass *p, int i) {
  pass_done(p, i, pass_embedding(p, i));
  return true;
}

/* The rows stay where they are: the product that reads them gathers. */
static bool pass_select(struct pass *p, int i) {
  int in = p->graph->node[i].in[0];
  if (!pass_ready(p, in)) return false;
  p->value[i] = p->value[in];
  return p->covered[i] = true;
}

/* A norm over the whole width waits for its reader. */
static bool pass_norm(struct pass *p, int i) {
  const struct ir_node *node = &p->graph->node[i];
  int in = node->in[0];
  if (node->a.group != node->width || !node->weight[0] || !pass_ready(p, in) || p->value[in].norm != IR_NONE)
    return false;
  p->value[i] = p->value[in];
  p->value[i].norm = i;
  return p->covered[i] = true;
}

static const struct pass_pattern {
  enum ir_op root;
  bool (*match)(struct pass *p, int i);
} pass_patterns[] = {
    {IR_EMBED, pass_embed},           {IR_SELECT, pass_select},           {IR_RMSNORM, pass_norm},
    {IR_LINEAR, pass_linear},         {IR_ROUTER, pass_router},           {IR_ATTENTION, pass_attention},
    {IR_GLU, pass_gate_up},           {IR_GLU, pass_gated_norm},          {IR_GLU, pass_glu},
    {IR_SHORT_CONV, pass_short_conv}, {IR_DELTA_RULE, pass_delta_rule},   {IR_COMBINE, pass_expert_down},
    {IR_ADD, pass_add_norm},          {IR_HEAD_LINEAR, pass_head_linear}, {IR_SOFTCAP, pass_softcap},
};

/* ---- The pass ---- */

static void pass_enter(struct pass *p, int layer) {
  if (layer == p->layer) return;
  if (p->epoch == 0) p->act_scope = p->act_at;
  p->act_at = p->act_scope;
  p->epoch++;
  p->layer = layer;
}

void pass_sample(struct pass *p, uint64_t logits) {
  const uint32_t n_vocab = p->graph->n_vocab;
  const struct shadergen_param *params =
      PASS_PARAMS({"N_VOCAB", n_vocab}, {"LOGIT_STRIDE", n_vocab}, {"N_SELECT", p->n_select});
  uint64_t cells = pass_buffer(p, p->n_select, 4ull * SAMPLE_N_CELL(n_vocab));
  pass_emit(p, KERNEL_SAMPLE_SCAN, IMG_ROLE_SAMPLE, params,
            PASS_ARGS({"logits", PASS_ACT(logits)}, {"step", PASS_STEP}, {"cells", PASS_ACT(cells)}));
  pass_emit(p, KERNEL_SAMPLE, IMG_ROLE_SAMPLE, params,
            PASS_ARGS({"logits", PASS_ACT(logits)}, {"step", PASS_STEP}, {"cells", PASS_ACT(cells)},
                      {"slot", {PLAN_SLOT, 0, 0}}, {"result", {PLAN_RESULT, 0, 0}}));
}

static void pass_run(struct pass *p) {
  const struct ir_graph *g = p->graph;
  for (int i = 0; i < g->n_node && !p->code; i++) {
    if (p->covered[i]) continue;
    pass_enter(p, g->node[i].layer);
    for (size_t k = 0; k < sizeof pass_patterns / sizeof *pass_patterns; k++)
      if (pass_patterns[k].root == g->node[i].op && pass_patterns[k].match(p, i)) break;
  }
  for (int i = 0; i < g->n_node && !p->code; i++)
    if (!p->covered[i] || (i == g->n_node - 1 && !g->node[i].selected)) {
      const struct gguf_tensor *w = g->node[i].weight[0];
      p->layer = g->node[i].layer;
      pass_fail(p, MOE_DECLINED, "no kernel covers %%%d, %s%s%s, as it is used here", i, ir_ops[g->node[i].op].name,
                w ? " of " : "", w ? w->name : "");
    }
  if (!p->code) pass_sample(p, p->value[g->n_node - 1].act);
}

enum moe_code pass_lower(struct plan *plan, enum img_tier tier, enum img_template_kind kind, uint32_t n_row,
                         uint32_t n_select, struct moe_error *err) {
  const struct ir_graph *g = plan->graph;
  if (plan->n_template == PLAN_MAX_TEMPLATE)
    return moe_fail(err, MOE_FAILED, "more than %d templates", PLAN_MAX_TEMPLATE);
  struct plan_template *t = &plan->template[plan->n_template++];
  *t = (struct plan_template){.tier = tier, .kind = kind, .n_row = n_row, .n_select = n_select};
  size_t n = (size_t)g->n_node;
  struct pass p = {.plan = plan,
                   .graph = g,
                   .template = t,
                   .tier = tier,
                   .n_row = n_row,
                   .n_select = n_select,
                   .value = calloc(n, sizeof *p.value),
                   .n_use = calloc(n, sizeof *p.n_use),
                   .last_use = calloc(n, sizeof *p.last_use),
                   .covered = calloc(n, sizeof *p.covered),
                   .layer = IR_NO_LAYER,
                   .act_at = plan->counter_bytes,
                   .err = err};
  if (!p.value || !p.n_use || !p.last_use || !p.covered) {
    p.code = moe_fail(err, MOE_FAILED, "out of memory: lowering %d operations", g->n_node);
  } else {
    for (int i = 0; i < g->n_node; i++)
      for (int k = 0; k < ir_ops[g->node[i].op].n_in; k++) {
        p.n_use[g->node[i].in[k]]++;
        p.last_use[g->node[i].in[k]] = i;
      }
    bool whole = tier >= IMG_TIER_RESIDENT && kind == IMG_TEMPLATE_TOKEN && n_row == 1;
    if (!whole || !pass_step(&p)) pass_run(&p);
  }
  free(p.value);
  free(p.n_use);
  free(p.last_use);
  free(p.covered);
  return p.code;
}
