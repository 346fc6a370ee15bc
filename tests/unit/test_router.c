/* test_router.c: ROUTER and GLU of the oracle against values worked out by hand, the margin of a choice, and the shape
 * rules of what a mixture of experts is made of. Kernels are compared in tests/kernels/test_experts_kinds.c. */
#include "ir.h"
#include "oracle_ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* An F32 tensor over the caller's floats. */
static struct gguf_tensor tensor(const char *name, const float *data, uint64_t n_in, uint64_t n_out, uint64_t n_mat) {
  return (struct gguf_tensor){.name = name,
                              .n_dim = n_mat > 1   ? 3
                                       : n_out > 1 ? 2
                                                   : 1,
                              .dim = {n_in, n_out, n_mat, 1},
                              .format_number = 0,
                              .format = format_find(0),
                              .n_element = n_in * n_out * n_mat,
                              .data = (const uint8_t *)data,
                              .bytes = 4 * n_in * n_out * n_mat};
}

/* ---- ROUTER ---- */

enum { N = 8, MAX_USED = 4 };

struct routed {
  double y[2 * MAX_USED], margin;
};

/* One row whose logits are `logits`: the router's matrix has one column, the row is 1. */
static void route(const struct ir_attr *attr, const float *logits, const float *bias, const float *select_bias,
                  struct routed *r) {
  struct gguf_tensor w = tensor("w", logits, 1, N, 1), b = tensor("b", bias, N, 1, 1),
                     s = tensor("s", select_bias, N, 1, 1);
  struct ir_node nodes[] = {{.op = IR_EMBED, .width = 1},
                            {.op = IR_ROUTER,
                             .weight = {&w, bias ? &b : NULL, select_bias ? &s : NULL},
                             .a = *attr,
                             .width = 2 * attr->n_expert_used}};
  struct ir_graph graph = {.node = nodes, .n_node = 2};
  struct moe_error err = {0};
  struct parallel *pool;
  const double x = 1;
  assert_int_equal(parallel_create(1, &pool, &err), MOE_OK);
  uint64_t stride = oracle_scratch(&graph, 1);
  double *scratch = malloc(2 * stride * sizeof *scratch);
  assert_non_null(scratch);
  r->margin = INFINITY;
  const struct oracle_call call = {.graph = &graph,
                                   .node = &nodes[1],
                                   .pool = pool,
                                   .out = r->y,
                                   .in = {&x},
                                   .in_node = {&nodes[0]},
                                   .n_row = 1,
                                   .margin = &r->margin,
                                   .scratch = scratch,
                                   .scratch_stride = stride};
  oracle_router(&call);
  free(scratch);
  parallel_destroy(pool);
}

static void near(double got, double want) {
  if (!(fabs(got - want) < 1e-12)) fail_msg("%.17g, wanted %.17g", got, want);
}

static void expect(const struct routed *r, uint32_t n_used, const double *ids, const double *weights, double margin) {
  for (uint32_t j = 0; j < n_used; j++) {
    near(r->y[j], ids[j]);
    near(r->y[n_used + j], weights[j]);
  }
  near(r->margin, margin);
}
#define LIST(...) ((const double[]){__VA_ARGS__})

static double sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

static void test_gatings(void **state) {
  (void)state;
  static const float logits[N] = {0, 2, -1, 3, 2, 0.5f, -4, 1};
  struct ir_attr a = {.n_expert = N, .n_expert_used = 2};
  struct routed r;
  double total = 0;
  for (int e = 0; e < N; e++) total += exp((double)logits[e]);
  route(&a, logits, NULL, NULL, &r); /* the tie of 1 and 4: the lower id; the margin is that of the logits */
  expect(&r, 2, LIST(3, 1), LIST(exp(3) / total, exp(2) / total), 0);
  a.renormalize = true;
  a.weight_scale = 2.5;
  route(&a, logits, NULL, NULL, &r);
  expect(&r, 2, LIST(3, 1), LIST(2.5 * exp(3) / (exp(3) + exp(2)), 2.5 * exp(2) / (exp(3) + exp(2))), 0);
  a = (struct ir_attr){.n_expert = N, .n_expert_used = 3, .gating = IR_GATING_SIGMOID};
  route(&a, logits, NULL, NULL, &r);
  expect(&r, 3, LIST(3, 1, 4), LIST(sigmoid(3), sigmoid(2), sigmoid(2)), 1);
  a = (struct ir_attr){.n_expert = N, .n_expert_used = 3, .gating = IR_GATING_SOFTMAX_AFTER};
  total = exp(3) + 2 * exp(2);
  route(&a, logits, NULL, NULL, &r);
  expect(&r, 3, LIST(3, 1, 4), LIST(exp(3) / total, exp(2) / total, exp(2) / total), 1);
}

static void test_biases(void **state) {
  (void)state;
  static const float logits[N] = {0, 2, -1, 3, 2, 0.5f, -4, 1}, bias[N] = {4, 0, 0, -3, 0.25f, 0, 0, 0},
                     select_bias[N] = {0, 0, 1, 0, 0, 0, 0.5f, 0};
  struct ir_attr a = {.n_expert = N, .n_expert_used = 2, .gating = IR_GATING_SOFTMAX_AFTER};
  struct routed r;
  route(&a, logits, bias, NULL, &r); /* on the logits: 4, 2, -1, 0, 2.25, ... */
  expect(&r, 2, LIST(0, 4), LIST(exp(4) / (exp(4) + exp(2.25)), exp(2.25) / (exp(4) + exp(2.25))), 0.25);
  a.gating = IR_GATING_SIGMOID; /* for the choice alone: 2 comes first with its own small weight */
  route(&a, logits, NULL, select_bias, &r);
  expect(&r, 2, LIST(2, 3), LIST(sigmoid(-1), sigmoid(3)), sigmoid(3) - sigmoid(2));
}

/* Groups of two: {0, 1}, {2, 3}, {4, 5}, {6, 7}. */
static void test_groups(void **state) {
  (void)state;
  static const float logits[N] = {1, 1, 3, -5, 0.5f, 1.5f, -2, 0};
  struct ir_attr a = {.n_expert = N,
                      .n_expert_used = 2,
                      .gating = IR_GATING_SIGMOID,
                      .n_group = 4,
                      .n_group_used = 2,
                      .n_group_sum = 2};
  struct routed r;
  double first = 2 * sigmoid(1), second = sigmoid(3) + sigmoid(-5), third = sigmoid(0.5) + sigmoid(1.5);
  assert_true(first > second && third > second && first > third);
  route(&a, logits, NULL, NULL, &r); /* expert 2, the best of all, is in neither */
  expect(&r, 2, LIST(5, 0), LIST(sigmoid(1.5), sigmoid(1)), 0);
  a.n_group_sum = 1; /* now it is: the groups of 2 and 5 */
  route(&a, logits, NULL, NULL, &r);
  expect(&r, 2, LIST(2, 5), LIST(sigmoid(3), sigmoid(1.5)), sigmoid(1.5) - sigmoid(1));
  a.n_expert_used = 3;
  route(&a, logits, NULL, NULL, &r);
  expect(&r, 3, LIST(2, 5, 4), LIST(sigmoid(3), sigmoid(1.5), sigmoid(0.5)), sigmoid(1.5) - sigmoid(1));
}

/* Damaged weights give some answer: ids of experts. */
static void test_not_a_number(void **state) {
  (void)state;
  static const float logits[N] = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN}, some[N] = {1, NAN, INFINITY, -INFINITY};
  struct routed r;
  for (int gating = 0; gating < 3; gating++)
    for (int groups = 0; groups < 2 && (gating < 2 || !groups); groups++) {
      const struct ir_attr a = {.n_expert = N,
                                .n_expert_used = 4,
                                .gating = (enum ir_gating)gating,
                                .renormalize = true,
                                .n_group = groups ? 4 : 0,
                                .n_group_used = 2};
      for (int k = 0; k < 2; k++) {
        route(&a, k ? some : logits, NULL, NULL, &r);
        for (int j = 0; j < 4; j++) assert_true(r.y[j] >= 0 && r.y[j] < N);
      }
    }
}

/* ---- GLU ---- */

static void test_glu(void **state) {
  (void)state;
  enum { ROWS = 2, WIDTH = 3 };
  static const double a[ROWS * WIDTH] = {0.5, -1, 9, -8, 0, 2}, b[ROWS * WIDTH] = {2, -3, 10, -11, 5, 0.5};
  double want[4][ROWS * WIDTH], y[ROWS * WIDTH];
  for (int i = 0; i < ROWS * WIDTH; i++) {
    double clamped = a[i] > 7 ? 7 : a[i], other = b[i] > 7 ? 7 : b[i] < -7 ? -7 : b[i];
    want[IR_SILU][i] = a[i] / (1 + exp(-a[i])) * b[i];
    want[IR_GELU][i] = 0.5 * a[i] * (1 + tanh(0.7978845608028654 * (a[i] + 0.044715 * pow(a[i], 3)))) * b[i];
    want[IR_SIGMOID][i] = sigmoid(a[i]) * b[i];
    want[IR_SWIGLU_OAI][i] = clamped * sigmoid(1.702 * clamped) * (other + 1);
  }
  for (int k = 0; k < 4; k++) {
    struct ir_node in = {.width = WIDTH}, one = {.width = 1};
    struct ir_node node = {.op = IR_GLU, .a = {.activation = (enum ir_activation)k}, .width = WIDTH};
    struct oracle_call call = {.node = &node, .out = y, .in = {a, b}, .in_node = {&in, &in}, .n_row = ROWS};
    oracle_glu(&call);
    for (int i = 0; i < ROWS * WIDTH; i++) near(y[i], want[k][i]);
    call.in_node[0] = &one; /* a[0] for the first row, a[1] for the second */
    node.a.activation = IR_SIGMOID;
    oracle_glu(&call);
    for (int i = 0; i < ROWS * WIDTH; i++) near(y[i], sigmoid(a[i / WIDTH]) * b[i]);
  }
}

/* ---- Shape rules ---- */

static void test_shapes(void **state) {
  (void)state;
  static const float none[1];
  struct gguf_tensor w = tensor("w", none, 4, N, 1), b = tensor("b", none, N, 1, 1),
                     short_b = tensor("short", none, 7, 1, 1), experts = tensor("experts", none, 4, 6, N),
                     e_bias = tensor("e_bias", none, 6, N, 1), e_short = tensor("e_short", none, 6, 7, 1);
  struct ir_node nodes[] = {{.op = IR_EMBED, .width = 4},
                            {.op = IR_EMBED, .width = 1},
                            {.op = IR_EMBED, .width = 2},
                            {.op = IR_ROUTER, .width = 4, .a = {.n_expert = N, .n_expert_used = 2}}};
  struct ir_graph graph = {.node = nodes, .n_node = 4};
  const struct {
    struct ir_node node;
    const char *message; /* NULL: it fits */
  } cases[] = {
      {{.op = IR_GLU, .in = {0, 0}}, NULL},
      {{.op = IR_GLU, .in = {1, 0}}, NULL},
      {{.op = IR_GLU, .in = {0, 1}}, "input of width 4 where its attributes give 1"},
      {{.op = IR_GLU, .in = {2, 0}}, "input of width 2 where its attributes give 4"},
      {{.op = IR_ROUTER, .weight = {&w, &b, &b}, .a = {.n_expert = N, .n_expert_used = 2}}, NULL},
      {{.op = IR_ROUTER, .weight = {&w, &short_b}, .a = {.n_expert = N, .n_expert_used = 2}}, "short has 7 columns"},
      {{.op = IR_ROUTER, .weight = {&w, NULL, &short_b}, .a = {.n_expert = N, .n_expert_used = 2}},
       "short has 7 columns"},
      {{.op = IR_ROUTER, .weight = {&w}, .a = {.n_expert = N, .n_expert_used = 9}}, "chooses 9 of 8"},
      {{.op = IR_ROUTER, .weight = {&w}, .a = {.n_expert = N, .n_expert_used = 4, .n_group = 4, .n_group_used = 2}},
       NULL},
      {{.op = IR_ROUTER, .weight = {&w}, .a = {.n_expert = N, .n_expert_used = 2, .n_group = 3, .n_group_used = 2}},
       "8 experts in 3 groups"},
      {{.op = IR_ROUTER, .weight = {&w}, .a = {.n_expert = N, .n_expert_used = 5, .n_group = 4, .n_group_used = 2}},
       "of which 2 have the chosen 5"},
      {{.op = IR_ROUTER, .weight = {&w}, .a = {.n_expert = N, .n_expert_used = 2, .n_group = 4, .n_group_used = 5}},
       "8 experts in 4 groups"},
      {{.op = IR_ROUTER, .weight = {&w}, .a = {.n_expert = N, .n_expert_used = 2, .n_group = 8, .n_group_used = 4}},
       "equal groups of two or more"},
      {{.op = IR_ROUTER,
        .weight = {&w, NULL, &b},
        .a = {.n_expert = N, .n_expert_used = 2, .gating = IR_GATING_SOFTMAX_AFTER}},
       "need probabilities before the choice"},
      {{.op = IR_EXPERT_LINEAR, .in = {0, 3}, .weight = {&experts, &e_bias}, .a = {.n_expert = N, .n_expert_used = 2}},
       NULL},
      {{.op = IR_EXPERT_LINEAR, .in = {0, 3}, .weight = {&experts, &e_short}, .a = {.n_expert = N, .n_expert_used = 2}},
       "e_short has 7 rows"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct ir_node *n = &cases[i].node;
    struct moe_error err = {0};
    uint32_t width = 0;
    enum moe_code code = n->op == IR_GLU      ? ir_shape_glu(&graph, n, &width, &err)
                         : n->op == IR_ROUTER ? ir_shape_router(&graph, n, &width, &err)
                                              : ir_shape_expert_linear(&graph, n, &width, &err);
    if (cases[i].message ? code != MOE_FAILED || !strstr(err.message, cases[i].message) : code != MOE_OK)
      fail_msg("case %zu: code %d: %s", i, (int)code, err.message);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gatings),      cmocka_unit_test(test_biases), cmocka_unit_test(test_groups),
      cmocka_unit_test(test_not_a_number), cmocka_unit_test(test_glu),    cmocka_unit_test(test_shapes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
