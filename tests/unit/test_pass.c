/* test_pass.c: families, shape rules, and the lowering of the embedded model: what every dispatch reads was written
 * before, layers are alike, and what no kernel covers is declined by name. */
#include "emit_templates.h"
#include "family.h"
#include "img_check.h"
#include "parallel.h"
#include "pass.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct model {
  struct gguf *gguf;
  struct ir_graph graph;
};

static void model_open_named(struct model *m, const char *name) {
  char path[4096];
  struct moe_error err = {0};
  snprintf(path, sizeof path, "%s/models/%s.gguf", getenv("TESTS_DIR"), name);
  if (gguf_open(path, &m->gguf, &err) || family_build(m->gguf, &m->graph, &err)) fail_msg("%s", err.message);
}

static void model_open(struct model *m) {
  model_open_named(m, "wordnet-moe");
}

static void model_close(struct model *m) {
  ir_deinit(&m->graph);
  gguf_close(m->gguf);
}

static void test_graph_of_the_embedded_model(void **state) {
  (void)state;
  struct model m;
  model_open(&m);
  assert_string_equal(m.graph.family, "qwen3moe");
  assert_int_equal(m.graph.n_layer, 4);
  assert_int_equal(m.graph.n_node, 4 + 19 * 4);
  const struct ir_node *last = &m.graph.node[m.graph.n_node - 1];
  assert_int_equal(last->op, IR_LINEAR);
  assert_int_equal(last->width, 4096);
  assert_true(last->selected);
  assert_true(m.graph.rope[0].inv_freq[0] == 1);
  assert_int_equal(m.graph.n_rope, 1);
  model_close(&m);
}

/* Each breaks one thing that a shape rule guards. */
static void test_shape_rules(void **state) {
  (void)state;
  struct model m;
  model_open(&m);
  struct ir_graph *g = &m.graph;
  const struct gguf_tensor *q = gguf_find_tensor(m.gguf, "blk.0.attn_q.weight");
  const struct gguf_tensor *norm = gguf_find_tensor(m.gguf, "blk.0.attn_norm.weight");
  const struct gguf_tensor *down = gguf_find_tensor(m.gguf, "blk.0.ffn_down_exps.weight");
  const struct {
    struct ir_node node;
    const char *message;
  } cases[] = {
      {{.op = IR_LINEAR, .in = {0}}, "weight 0 of 1 is missing"},
      {{.op = IR_LINEAR, .in = {g->n_node}, .weight = {q}}, "input 0 is value"},
      {{.op = IR_LINEAR, .in = {2}, .weight = {q}}, "has 256 columns where its operation has 512"},
      {{.op = IR_LINEAR, .in = {0}, .weight = {q, norm}}, "has 256 columns where its operation has 512"},
      {{.op = IR_RMSNORM, .in = {0}, .weight = {norm}, .a = {.group = 0}}, "input of width 256"},
      {{.op = IR_RMSNORM, .in = {2}, .weight = {norm}, .a = {.group = 300}}, "input of width 512"},
      {{.op = IR_ADD, .in = {0, 2}}, "input of width 512 where its attributes give 256"},
      {{.op = IR_ROPE, .in = {2}, .a = {.n_head = 4, .d_head = 64}}, "give 256"},
      {{.op = IR_ROPE, .in = {2}, .a = {.n_head = 16, .d_head = 32}}, "more rotated dimensions"},
      {{.op = IR_ATTENTION, .in = {2, 3, 4}, .a = {.n_head = 8, .n_kv_head = 3, .d_head = 64}}, "evenly"},
      {{.op = IR_ATTENTION, .in = {2, 3, 4}, .a = {.n_head = 8, .n_kv_head = 2, .d_head = 64, .state = 4}},
       "state 4 is not the graph's"},
      {{.op = IR_ATTENTION, .in = {2, 3, 4}, .a = {.n_head = 8, .n_kv_head = 2, .d_head = 64, .d_head_value = 32}},
       "input of width 128 where its attributes give 64"},
      {{.op = IR_ATTENTION, .in = {2, 3, 3}, .a = {.n_head = 8, .n_kv_head = 2, .d_head = 64, .d_head_value = 65}},
       "values of 65 columns out of keys of 64"},
      {{.op = IR_ATTENTION, .in = {2, 3, 3}, .a = {.n_head = 8, .n_kv_head = 2, .d_head = 64}}, "of other heads"},
      {{.op = IR_ATTENTION, .in = {2, 3, 4}, .weight = {norm}, .a = {.n_head = 8, .n_kv_head = 2, .d_head = 64}},
       "has 256 columns where its operation has 8"},
      {{.op = IR_CONCAT, .in = {2, 3}, .a = {.n_head = 8, .n_kv_head = 2}}, "2 heads beside 8"},
      {{.op = IR_CONCAT, .in = {2, 3}, .a = {.n_head = 3, .n_kv_head = 3}}, "input of width 512"},
      {{.op = IR_HEAD_LINEAR, .in = {2}, .weight = {q}, .a = {.n_head = 8}},
       "has 256 columns where its operation has 64"},
      {{.op = IR_SOFTCAP, .in = {0}}, "allowed: above 0"},
      {{.op = IR_ROUTER, .in = {0}, .weight = {q}, .a = {.n_expert = 4, .n_expert_used = 5}}, "chooses 5 of 4"},
      {{.op = IR_EXPERT_LINEAR, .in = {0, 0}, .weight = {down}, .a = {.n_expert = 16, .n_expert_used = 4}},
       "no router of 4"},
      {{.op = IR_COMBINE, .in = {0, 1}, .a = {.n_expert_used = 4}}, "no router of 4"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct moe_error err = {0};
    int value, before = g->n_node;
    assert_int_equal(ir_add(g, &cases[i].node, &value, &err), MOE_FAILED);
    if (!strstr(err.message, cases[i].message)) fail_msg("case %zu: %s", i, err.message);
    assert_int_equal(g->n_node, before);
  }
  model_close(&m);
}

/* Bytes of ACT that an operand's field touches. */
static uint64_t act_extent(const struct plan_op *op, uint32_t field) {
  uint64_t bytes = 0;
  struct moe_error err = {0};
  if (shadergen_extent(&op->request, field, &bytes, &err)) fail_msg("%s", err.message);
  return bytes;
}

/* A parameter of an operation's request; -1 when it has none of this name. */
static double param_of(const struct plan_op *op, const char *name) {
  for (uint32_t i = 0; i < op->request.n_param; i++)
    if (!strcmp(op->request.param[i].name, name)) return op->request.param[i].value;
  return -1;
}

/* Follows a template: a byte that is read was written by an earlier dispatch, or is a counter. */
static void check_template(const struct plan *plan, const struct plan_template *t) {
  uint8_t *written = calloc(1, t->act_bytes);
  assert_non_null(written);
  memset(written, 1, plan->counter_bytes);
  for (uint32_t i = 0; i < t->n_op; i++) {
    const struct plan_op *op = &t->op[i];
    const struct kernel_info *info = kernel_get(op->request.kernel);
    for (uint32_t f = 0; f < info->n_push; f++) {
      if (op->operand[f].kind != PLAN_ACT) continue;
      uint64_t at = op->operand[f].offset, n = act_extent(op, f);
      assert_true(at % IMG_PLANE_ALIGN == 0 && at + n <= t->act_bytes);
      bool scratch = info->push[f].access == KERNEL_ACCESS_RW &&
                     (!strcmp(info->push[f].name, "partial") || !strcmp(info->push[f].name, "logits"));
      bool product = !strcmp(info->push[f].name, "y") || /* RW for the residual form; the other writes first */
                     (!strcmp(info->push[f].name, "x") && param_of(op, "RESIDUAL") == 0);
      bool private = !strcmp(info->push[f].name, "exchange"); /* the kernel's own from step to step */
      if ((info->push[f].access & KERNEL_ACCESS_R) && !scratch && !product && !private)
        for (uint64_t b = 0; b < n; b++)
          if (!written[at + b])
            fail_msg("token(%u): dispatch %u, %s.%s reads ACT+%llu, which nothing wrote", t->n_row, i, info->name,
                     info->push[f].name, (unsigned long long)(at + b));
    }
    for (uint32_t f = 0; f < info->n_push; f++)
      if (op->operand[f].kind == PLAN_ACT && (info->push[f].access & KERNEL_ACCESS_W))
        memset(written + op->operand[f].offset, 1, act_extent(op, f));
  }
  free(written);
}

/* The layers' dispatches are the same but for weights and states: that is what bodies are made of. */
static void check_layers(const struct plan_template *t) {
  uint32_t first = 0, n = 0;
  for (uint32_t i = 0; i < t->n_op; i++)
    if (t->op[i].request.kernel == KERNEL_STEP) return; /* has them all */
  while (t->op[first].layer != 0) first++;
  while (t->op[first + n].layer == 0) n++;
  for (int layer = 1; layer < 4; layer++)
    for (uint32_t i = 0; i < n; i++) {
      const struct plan_op *a = &t->op[first + i], *b = &t->op[first + (uint32_t)layer * n + i];
      assert_int_equal(b->layer, layer);
      assert_int_equal(a->request.kernel, b->request.kernel);
      for (uint32_t f = 0; f < kernel_get(a->request.kernel)->n_push; f++) {
        assert_int_equal(a->operand[f].kind, b->operand[f].kind);
        if (a->operand[f].kind == PLAN_ACT) assert_true(a->operand[f].offset == b->operand[f].offset);
        if (a->operand[f].kind == PLAN_STATE) assert_int_equal(b->operand[f].index, layer);
        if (a->operand[f].kind == PLAN_PLANE) assert_int_not_equal(a->operand[f].index, b->operand[f].index);
      }
    }
}

static void test_lowering(void **state) {
  (void)state;
  static const uint32_t rows[] = {1, 2, 4, 5, 8, 9, 16, 64, 512};
  struct model m;
  model_open(&m);
  struct plan plan;
  struct moe_error err = {0};
  assert_int_equal(plan_init(&plan, &m.graph, PLAN_KV_F16, 512, &err), MOE_OK);
  for (uint32_t i = 0; i < IMG_N_TIER * (sizeof rows / sizeof *rows); i++) {
    uint32_t tier = i % IMG_N_TIER, n = rows[i / IMG_N_TIER];
    enum img_template_kind kind = n > 64 ? IMG_TEMPLATE_WINDOW : IMG_TEMPLATE_TOKEN;
    if (pass_lower(&plan, tier, kind, n, n < 64 ? n : 64, &err)) fail_msg("%s", err.message);
    check_template(&plan, &plan.template[i]);
    check_layers(&plan.template[i]);
  }
  assert_int_equal(plan.n_plane, gguf_n_tensor(m.gguf));
  assert_int_equal(plan.page_bytes, 4 * 2 * 2 * 64 * 64 * 2);
  plan_deinit(&plan);
  model_close(&m);
}

/* Shared experts, biases, leading dense layers, recurrent ones: nothing is read that was not written. */
static void test_lowering_of_families(void **state) {
  (void)state;
  static const char *const names[] = {"wordnet-glm4moe-q4_k_m", "wordnet-gptoss-mxfp4", "wordnet-qwen35moe-q4_k_m"};
  static const uint32_t rows[] = {1, 2, 8, 9, 64, 512};
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    struct model m;
    struct plan plan;
    struct moe_error err = {0};
    model_open_named(&m, names[n]);
    assert_int_equal(plan_init(&plan, &m.graph, PLAN_KV_F16, 512, &err), MOE_OK);
    for (uint32_t i = 0; i < IMG_N_TIER * (sizeof rows / sizeof *rows); i++) {
      uint32_t tier = i % IMG_N_TIER, n_row = rows[i / IMG_N_TIER];
      enum img_template_kind kind = n_row > 64 ? IMG_TEMPLATE_WINDOW : IMG_TEMPLATE_TOKEN;
      if (pass_lower(&plan, tier, kind, n_row, n_row < 64 ? n_row : 64, &err))
        fail_msg("%s: %s", names[n], err.message);
      check_template(&plan, &plan.template[i]);
    }
    plan_deinit(&plan);
    model_close(&m);
  }
}

/* A graph that is well formed but that no kernel can run: declined, and the operation is named. */
static void test_uncovered_operations(void **state) {
  (void)state;
  struct model m;
  model_open(&m);
  int x = 0;
  struct moe_error err = {0};
  const struct ir_node add = {.op = IR_ADD, .layer = IR_NO_LAYER, .in = {m.graph.n_node - 1, m.graph.n_node - 1}};
  assert_int_equal(ir_add(&m.graph, &add, &x, &err), MOE_OK);
  struct plan plan;
  assert_int_equal(plan_init(&plan, &m.graph, PLAN_KV_F16, 512, &err), MOE_OK);
  assert_int_equal(pass_lower(&plan, IMG_TIER_BASE, IMG_TEMPLATE_TOKEN, 1, 1, &err), MOE_DECLINED);
  assert_non_null(strstr(err.message, "no kernel covers %80, add"));
  plan_deinit(&plan);
  model_close(&m);
}

/* Bytes of a page in every kind; Q8_0 has blocks of 32, and declines heads that are not made of them. */
static void test_state_kinds(void **state) {
  (void)state;
  static const struct {
    const char *name;
    uint64_t element_bytes, scale_bytes;
  } kinds[] = {{"f16", 2, 0}, {"f32", 4, 0}, {"q8_0", 1, 4}};
  struct model m;
  struct plan plan;
  struct moe_error err = {0};
  model_open(&m);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    assert_int_equal(plan_init(&plan, &m.graph, plan_kv_find(kinds[i].name), 512, &err), MOE_OK);
    assert_int_equal(plan.page_bytes, 4 * 2 * 2 * 64 * (64 * kinds[i].element_bytes + kinds[i].scale_bytes));
    plan_deinit(&plan);
  }
  m.graph.state[1].d_head_value = 80;
  assert_int_equal(plan_init(&plan, &m.graph, PLAN_KV_F16, 512, &err), MOE_OK);
  plan_deinit(&plan);
  assert_int_equal(plan_init(&plan, &m.graph, PLAN_KV_Q8_0, 512, &err), MOE_DECLINED);
  assert_non_null(strstr(err.message, "--kv q8_0: state 1 has keys of 64 and values of 80 elements"));
  plan_deinit(&plan);
  model_close(&m);
}

/* A tier's template that is the one below is dropped; one that differs stays, also above one that was dropped. */
static void test_equal_templates_are_dropped(void **state) {
  (void)state;
  struct model m;
  model_open(&m);
  struct plan plan;
  struct moe_error err = {0};
  assert_int_equal(plan_init(&plan, &m.graph, PLAN_KV_F16, 512, &err), MOE_OK);
  for (int i = 0; i < 4; i++) {
    uint32_t tier = i == 0 ? IMG_TIER_BASE : IMG_TIER_NV;
    if (pass_lower(&plan, IMG_TIER_BASE, IMG_TEMPLATE_TOKEN, i == 2 ? 2 : 1, 1, &err)) fail_msg("%s", err.message);
    plan.template[plan.n_template - 1].tier = tier;
    if (i == 3) plan.template[plan.n_template - 1].op[0].operand[3].offset ^= 256;
    plan_drop_equal(&plan);
    assert_int_equal(plan.n_template, i == 0 || i == 1 ? 1 : i);
  }
  plan_deinit(&plan);
  model_close(&m);
}

/* Adds a template of one dispatch, an embedding: `weight` is its push field of that name. */
static struct plan_template *add_embedding(struct plan *plan, enum img_tier tier, struct plan_operand weight,
                                           int layer) {
  struct moe_error err = {0};
  struct plan_template *t = &plan->template[plan->n_template++];
  *t = (struct plan_template){.tier = tier, .kind = IMG_TEMPLATE_TOKEN, .n_row = 1, .n_select = 1, .act_bytes = 1024};
  const struct plan_op op = {
      .role = IMG_ROLE_EMBED,
      .layer = layer,
      .request = {.kernel = KERNEL_EMBED,
                  .n_param = 5,
                  .param = {{"FMT", 0}, {"D_MODEL", 256}, {"N_VOCAB", 4}, {"N_ROW", 1}, {"MAX_ROW", 1}}},
      .operand = {weight, {PLAN_STEP, 0, 0}, {PLAN_SLOT, 0, 0}, {PLAN_ACT, 0, 0}}};
  if (plan_add_op(t, &op, &err)) fail_msg("%s", err.message);
  return t;
}

/* The section TEMPLATES of a plan; MOE_OK: view is of it. */
static enum moe_code emit_section_of(const struct plan *plan, struct emit_bytes *section,
                                     struct img_templates_view *view, struct moe_error *err) {
  const uint64_t limits[IMG_N_ARENA] = {1ull << 40, 1ull << 40, 1ull << 40, 1024,
                                        1ull << 40, 1ull << 40, 1ull << 40, 1024};
  struct emit_modules modules;
  struct parallel *pool;
  assert_int_equal(parallel_create(1, &pool, err), MOE_OK);
  enum moe_code code = emit_modules_make(&modules, plan, 1, pool, err);
  parallel_destroy(pool);
  if (code) fail_msg("%s", err->message);
  code = emit_templates(section, plan, &modules, err);
  struct img_modules_view m;
  if (!code) code = img_check_modules(modules.section.data, modules.section.n, &m, err);
  if (!code) code = img_check_templates(section->data, section->n, &m, limits, NULL, view, err);
  emit_modules_deinit(&modules);
  return code;
}

/* A template's table in device memory: its cells, its word, and a region of each arena that it leads to. */
static void test_table_in_device_memory(void **state) {
  (void)state;
  struct model m;
  model_open(&m);
  struct plan plan;
  struct moe_error err = {0};
  struct plan_operand planes[2], table;
  assert_int_equal(plan_init(&plan, &m.graph, false, 1, &err), MOE_OK);
  for (int i = 0; i < 2; i++)
    assert_int_equal(plan_add_plane(&plan, gguf_find_tensor(m.gguf, i ? "blk.0.attn_q.weight" : "token_embd.weight"),
                                    false, &planes[i], &err),
                     MOE_OK);
  const struct plan_operand cells[6] = {planes[1],           {PLAN_ACT, 0, 256},         {PLAN_STATE, 2, 0},
                                        {PLAN_UNUSED, 0, 0}, {PLAN_IMM, 0, 77ull << 40}, {PLAN_TABLE, 0, 8}};
  add_embedding(&plan, IMG_TIER_BASE, planes[0], 0);
  struct plan_template *t = add_embedding(&plan, IMG_TIER_RESIDENT, planes[0], IR_NO_LAYER);
  assert_int_equal(plan_add_resident(t, 3, 2, cells, &table, &err), MOE_OK);
  t->op[0].operand[0] = table;
  assert_int_equal(plan_add_resident(t, 3, 2, cells, &table, &err), MOE_FAILED);
  assert_non_null(strstr(err.message, "second table"));
  struct emit_bytes section = {0};
  struct img_templates_view v;
  err = (struct moe_error){0};
  if (emit_section_of(&plan, &section, &v, &err)) fail_msg("%s", err.message);
  const struct img_inst *inst = &v.inst[v.template[1].first_inst];
  assert_int_equal(img_resident_table(&v, inst), 1); /* behind the body's, which has the embedding's plane */
  assert_int_equal(v.n_table, 2);
  assert_int_equal(img_table_value(&v, 0, 0, 0), plan.plane[planes[0].index].offset);
  const uint64_t imm = (uint64_t)IMG_CELL_IMM << IMG_CELL_SHIFT;
  const uint64_t expected[6] = {plan.plane[planes[1].index].offset,
                                (uint64_t)IMG_ARENA_ACT << IMG_CELL_SHIFT | 256,
                                (uint64_t)IMG_ARENA_STATE << IMG_CELL_SHIFT | plan.state_offset[2],
                                imm,
                                imm | 77ull << 40,
                                (uint64_t)IMG_ARENA_TABLES << IMG_CELL_SHIFT | 8};
  assert_int_equal(v.table[1].n_row, 3);
  for (uint32_t i = 0; i < 6; i++) assert_true(img_table_value(&v, 1, i / 2, i % 2) == expected[i]);
  static const uint8_t regions[][2] = {
      {IMG_ARENA_WEIGHTS, 1}, {IMG_ARENA_TABLES, 1}, {IMG_ARENA_STATE, 3}, {IMG_ARENA_ACT, 3}};
  for (uint32_t i = 0; i < 4; i++) {
    const struct img_region *r = &v.region[inst->first_region + i];
    assert_int_equal(r->arena, regions[i][0]);
    assert_int_equal(r->access, regions[i][1]);
    assert_true(r->bytes == IMG_WHOLE_ARENA && r->column == IMG_NO_COLUMN);
  }
  emit_bytes_deinit(&section);
  t->op[0].layer = 0; /* a body has a table of its own */
  assert_int_equal(emit_section_of(&plan, &section, &v, &err), MOE_FAILED);
  assert_non_null(strstr(err.message, "a dispatch of a layer reads the table in device memory"));
  emit_bytes_deinit(&section);
  plan_deinit(&plan);
  model_close(&m);
}

/* What a table in device memory cannot hold; and templates that differ only in theirs are not equal. */
static void test_cells(void **state) {
  (void)state;
  struct model m;
  model_open(&m);
  struct plan plan;
  struct moe_error err = {0};
  assert_int_equal(plan_init(&plan, &m.graph, false, 1, &err), MOE_OK);
  static const struct plan_operand broken[] = {
      {PLAN_STEP, 0, 0}, {PLAN_RESULT, 0, 0}, {PLAN_RESIDENT_TABLE, 0, 0}, {PLAN_IMM, 0, 1ull << 56}};
  struct plan_operand cells[2] = {{PLAN_IMM, 0, 1}}, table;
  struct plan_template *t = add_embedding(&plan, IMG_TIER_BASE, (struct plan_operand){PLAN_UNUSED, 0, 0}, IR_NO_LAYER);
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    cells[1] = broken[i];
    assert_int_equal(plan_add_resident(t, 1, 2, cells, &table, &err), MOE_FAILED);
    assert_non_null(strstr(err.message, "row 0, column 1 is of kind"));
  }
  assert_int_equal(plan_add_resident(t, 0, 2, cells, &table, &err), MOE_FAILED);
  assert_int_equal(plan_add_resident(t, 1, 1, cells, &table, &err), MOE_OK);
  for (uint64_t number = 1; number < 3; number++) {
    cells[0].offset = number;
    t = add_embedding(&plan, IMG_TIER_RESIDENT, (struct plan_operand){PLAN_UNUSED, 0, 0}, IR_NO_LAYER);
    assert_int_equal(plan_add_resident(t, 1, 1, cells, &table, &err), MOE_OK);
    plan_drop_equal(&plan);
    assert_int_equal(plan.n_template, number);
  }
  plan_deinit(&plan);
  model_close(&m);
}

/* The SCALE of the first dispatch of a role; 0 when it has none. */
static double scale_of(const struct plan_template *t, enum img_role role) {
  for (uint32_t i = 0; i < t->n_op; i++)
    for (uint32_t k = 0; t->op[i].role == role && k < t->op[i].request.n_param; k++)
      if (!strcmp(t->op[i].request.param[k].name, "SCALE")) return t->op[i].request.param[k].value;
  return 0;
}

/* The scale of a residual sum goes into the product that it ends, times the product's own; on the other side of the sum
 * there is no kernel for it. */
static void test_scaled_sums(void **state) {
  (void)state;
  for (int swapped = 0; swapped < 2; swapped++) {
    struct model m;
    model_open(&m);
    struct moe_error err = {0};
    for (int i = 0; i < m.graph.n_node; i++) {
      struct ir_node *node = &m.graph.node[i];
      if (node->op == IR_LINEAR && m.graph.node[node->in[0]].op == IR_ATTENTION) node->a.scale = 4;
      if (node->op != IR_ADD) continue;
      node->a.scale = 0.5;
      if (swapped) node->in[0] ^= node->in[1], node->in[1] ^= node->in[0], node->in[0] ^= node->in[1];
    }
    struct plan plan;
    assert_int_equal(plan_init(&plan, &m.graph, PLAN_KV_F16, 512, &err), MOE_OK);
    enum moe_code code = pass_lower(&plan, IMG_TIER_BASE, IMG_TEMPLATE_TOKEN, 1, 1, &err);
    assert_int_equal(code, swapped ? MOE_DECLINED : MOE_OK);
    if (swapped) {
      assert_non_null(strstr(err.message, "no kernel covers"));
    } else {
      assert_true(scale_of(&plan.template[0], IMG_ROLE_ATTENTION_OUTPUT) == 2);
      assert_true(scale_of(&plan.template[0], IMG_ROLE_DOWN) == 0.5);
      assert_true(scale_of(&plan.template[0], IMG_ROLE_QKV) == 1);
    }
    plan_deinit(&plan);
    model_close(&m);
  }
}

/* A shape that kernels would silently get wrong: heads whose length is no multiple of 32. */
static void test_shapes_that_kernels_do_not_take(void **state) {
  (void)state;
  struct model m;
  model_open(&m);
  for (int i = 0; i < m.graph.n_node; i++) {
    struct ir_node *node = &m.graph.node[i];
    if (node->op == IR_ATTENTION || node->op == IR_ROPE) node->a.d_head = 48;
    if (node->op == IR_RMSNORM && node->a.group == 64) node->a.group = 48;
  }
  struct plan plan;
  struct moe_error err = {0};
  assert_int_equal(plan_init(&plan, &m.graph, PLAN_KV_F16, 512, &err), MOE_OK);
  assert_int_equal(pass_lower(&plan, IMG_TIER_BASE, IMG_TEMPLATE_TOKEN, 1, 1, &err), MOE_DECLINED);
  assert_non_null(strstr(err.message, "D_HEAD 48; it takes multiples of 32"));
  plan_deinit(&plan);
  model_close(&m);
}

static void count_item(void *context, uint64_t item, unsigned thread) {
  (void)thread;
  atomic_fetch_add((_Atomic uint64_t *)context, item);
}

static void test_parallel_runs_every_item_once(void **state) {
  (void)state;
  for (unsigned n_thread = 1; n_thread <= 5; n_thread++) {
    struct parallel *pool;
    struct moe_error err = {0};
    assert_int_equal(parallel_create(n_thread, &pool, &err), MOE_OK);
    assert_int_equal(parallel_n_thread(pool), n_thread);
    for (uint64_t n = 0; n < 200; n++) {
      _Atomic uint64_t sum = 0;
      parallel_for(pool, n, count_item, &sum);
      assert_int_equal(sum, n ? n * (n - 1) / 2 : 0);
    }
    parallel_destroy(pool);
  }
}

static void test_bytes_grow_and_align(void **state) {
  (void)state;
  struct emit_bytes b = {0};
  struct moe_error err = {0};
  for (uint64_t i = 0; i < 3000; i++) assert_int_equal(emit_bytes_append(&b, &i, sizeof i), 8 * i);
  assert_int_equal(emit_bytes_text(&b, "xy"), 24000);
  assert_int_equal(emit_bytes_align(&b, 64), 24064);
  assert_int_equal(b.data[24003], 0);
  assert_int_equal(emit_bytes_check(&b, "test", &err), MOE_OK);
  assert_int_equal(emit_bytes_append(&b, "", UINT64_MAX - 5), 24064);
  assert_int_equal(emit_bytes_check(&b, "test", &err), MOE_FAILED);
  emit_bytes_deinit(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_graph_of_the_embedded_model),
      cmocka_unit_test(test_shape_rules),
      cmocka_unit_test(test_lowering),
      cmocka_unit_test(test_lowering_of_families),
      cmocka_unit_test(test_uncovered_operations),
      cmocka_unit_test(test_state_kinds),
      cmocka_unit_test(test_equal_templates_are_dropped),
      cmocka_unit_test(test_table_in_device_memory),
      cmocka_unit_test(test_cells),
      cmocka_unit_test(test_scaled_sums),
      cmocka_unit_test(test_shapes_that_kernels_do_not_take),
      cmocka_unit_test(test_parallel_runs_every_item_once),
      cmocka_unit_test(test_bytes_grow_and_align),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
