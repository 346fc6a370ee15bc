/* test_recurrent_ops.c: SHORT_CONV and DELTA_RULE of the oracle against values worked out by hand, their shape rules.
 * Kernels are compared in tests/kernels/test_recurrent.c. */
#include "ir.h"
#include "oracle_ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* An F32 matrix over the caller's floats. */
static struct gguf_tensor tensor(const char *name, const float *data, uint64_t n_in, uint64_t n_out) {
  return (struct gguf_tensor){.name = name,
                              .n_dim = n_out > 1 ? 2 : 1,
                              .dim = {n_in, n_out, 1, 1},
                              .format = format_find(0),
                              .n_element = n_in * n_out,
                              .data = (const uint8_t *)data,
                              .bytes = 4 * n_in * n_out};
}

static void near(double got, double want) {
  if (!(fabs(got - want) < 1e-12)) fail_msg("%.17g, wanted %.17g", got, want);
}

static double silu(double x) {
  return x / (1 + exp(-x));
}

/* Runs a node over n_row rows. */
static void run(const struct ir_node *node, const double *const *in, double *state, uint32_t n_row, double *out) {
  double scratch[64], *recurrent[] = {state};
  struct moe_error err = {0};
  struct parallel *pool;
  assert_int_equal(parallel_create(2, &pool, &err), MOE_OK);
  struct oracle_call call = {.node = node,
                             .pool = pool,
                             .out = out,
                             .n_row = n_row,
                             .recurrent = recurrent,
                             .scratch = scratch,
                             .scratch_stride = 16};
  for (int i = 0; i < ir_ops[node->op].n_in; i++) call.in[i] = in[i];
  if (node->op == IR_SHORT_CONV)
    oracle_short_conv(&call);
  else
    oracle_delta_rule(&call);
  parallel_destroy(pool);
}

static void test_short_conv(void **state) {
  (void)state;
  static const float taps[] = {1, 2, 4, 0.5f, -1, 1};
  static const double x[] = {1, 2, 3, 4, 5, 6}, sums[] = {4, 2, 14, 2, 27, 3};
  struct gguf_tensor w = tensor("w", taps, 3, 2);
  const struct ir_node node = {.op = IR_SHORT_CONV, .weight = {&w}, .width = 2, .a = {.n_tap = 3}};
  for (uint32_t first = 1; first <= 3; first++) { /* a call of `first` rows, then one of the others */
    double window[4] = {0}, y[6];
    run(&node, (const double *const[]){x}, window, first, y);
    if (first < 3) run(&node, (const double *const[]){x + 2 * first}, window, 3 - first, y + 2 * first);
    for (int i = 0; i < 6; i++) near(y[i], silu(sums[i]));
  }
}

/* a = -1 and alpha + dt = 0: the state halves; beta = 0: half of the difference goes in. */
static void test_delta_rule(void **state) {
  (void)state;
  static const float a[] = {-1}, dt[] = {-0.75f};
  static const double q[] = {3, 4, 1, 0, 0, 1}, k[] = {1, 0, 0, 2, 1, 0}, v[] = {2, 4, 1, 1, 1, 1};
  static const double alpha[] = {0.75, 0.75, 0.75}, beta[] = {0, 0, 0};
  static const double want[] = {0.6, 1.2, 0.5, 1, 0.25, 0.25}; /* times 1 / sqrt(2) */
  struct gguf_tensor wa = tensor("a", a, 1, 1), wdt = tensor("dt", dt, 1, 1);
  const struct ir_node node = {
      .op = IR_DELTA_RULE, .weight = {&wa, &wdt}, .width = 2, .a = {.n_head = 1, .n_kv_head = 1, .d_head = 2}};
  for (uint32_t first = 1; first <= 3; first++) {
    double matrix[4] = {0}, y[6];
    run(&node, (const double *const[]){q, k, v, alpha, beta}, matrix, first, y);
    if (first < 3)
      run(&node, (const double *const[]){q + 2 * first, k + 2 * first, v + 2 * first, alpha, beta}, matrix, 3 - first,
          y + 2 * first);
    for (int i = 0; i < 6; i++) near(y[i], want[i] / sqrt(2));
  }
}

/* Key head 0's q is its k, key head 1's is at a right angle to it: what is stored is read by the heads of the first. */
static void test_heads_of_keys(void **state) {
  (void)state;
  static const float zero[4] = {0};
  static const double q[] = {1, 0, 1, 0}, k[] = {1, 0, 0, 1}, v[] = {2, 4, 6, 8, 10, 12, 14, 16}, none[4] = {0};
  struct gguf_tensor w = tensor("zero", zero, 4, 1);
  for (int tiled = 0; tiled < 2; tiled++) {
    const struct ir_node node = {.op = IR_DELTA_RULE,
                                 .weight = {&w, &w},
                                 .width = 8,
                                 .a = {.n_head = 4, .n_kv_head = 2, .d_head = 2, .tiled = tiled}};
    double matrix[16] = {0}, y[8];
    run(&node, (const double *const[]){q, k, v, none, none}, matrix, 1, y);
    for (int i = 0; i < 8; i++) {
      int head = i / 2, key = tiled ? head % 2 : head / 2;
      near(y[i], key == 0 ? v[i] / 2 / sqrt(2) : 0);
    }
  }
}

static void test_shapes(void **state) {
  (void)state;
  static const float data[64] = {0};
  struct gguf_tensor w = tensor("w", data, 3, 8), vector = tensor("vector", data, 4, 1),
                     small = tensor("small", data, 3, 1);
  struct ir_node nodes[] = {{.op = IR_EMBED, .width = 8}, {.op = IR_EMBED, .width = 4}, {.op = IR_EMBED, .width = 16}};
  uint64_t words[] = {16, 64, 15};
  struct ir_graph graph = {.node = nodes, .n_node = 3, .recurrent = words, .n_recurrent = 3};
  const struct ir_attr heads = {.n_head = 4, .n_kv_head = 2, .d_head = 4, .recurrent = 1};
  struct ir_attr odd = heads, other = heads, none = heads;
  odd.n_kv_head = 3, other.recurrent = 0, none.recurrent = 3;
  const struct {
    struct ir_node node;
    const char *message; /* NULL: it fits */
  } cases[] = {
      {{.op = IR_SHORT_CONV, .in = {0}, .weight = {&w}, .a = {.n_tap = 3}}, NULL},
      {{.op = IR_SHORT_CONV, .in = {1}, .weight = {&w}, .a = {.n_tap = 3}}, "w has 8 rows where its operation has 4"},
      {{.op = IR_SHORT_CONV, .in = {0}, .weight = {&w}, .a = {.n_tap = 4}}, "w has 3 columns"},
      {{.op = IR_SHORT_CONV, .in = {0}, .weight = {&w}, .a = {.n_tap = 1}}, "1 taps; allowed: 2 to 32"},
      {{.op = IR_SHORT_CONV, .in = {0}, .weight = {&w}, .a = {.n_tap = 3, .recurrent = 2}}, "not of 16 words"},
      {{.op = IR_DELTA_RULE, .in = {0, 0, 2, 1, 1}, .weight = {&vector, &vector}, .a = heads}, NULL},
      {{.op = IR_DELTA_RULE, .in = {0, 0, 2, 1, 1}, .weight = {&vector, &vector}, .a = odd},
       "do not share 3 key heads"},
      {{.op = IR_DELTA_RULE, .in = {0, 2, 2, 1, 1}, .weight = {&vector, &vector}, .a = heads}, "input of width 16"},
      {{.op = IR_DELTA_RULE, .in = {0, 0, 2, 1, 0}, .weight = {&vector, &vector}, .a = heads}, "input of width 8"},
      {{.op = IR_DELTA_RULE, .in = {0, 0, 2, 1, 1}, .weight = {&vector, &small}, .a = heads}, "small has 3 columns"},
      {{.op = IR_DELTA_RULE, .in = {0, 0, 2, 1, 1}, .weight = {&vector, &vector}, .a = other}, "not of 64 words"},
      {{.op = IR_DELTA_RULE, .in = {0, 0, 2, 1, 1}, .weight = {&vector, &vector}, .a = none},
       "recurrent state 3 is not"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct ir_node *n = &cases[i].node;
    struct moe_error err = {0};
    uint32_t width = 0;
    enum moe_code code = n->op == IR_SHORT_CONV ? ir_shape_short_conv(&graph, n, &width, &err)
                                                : ir_shape_delta_rule(&graph, n, &width, &err);
    if (cases[i].message ? code != MOE_FAILED || !strstr(err.message, cases[i].message) : code != MOE_OK)
      fail_msg("case %zu: code %d: %s", i, (int)code, err.message);
  }
  uint32_t index;
  struct moe_error err = {0};
  struct ir_graph empty = {0};
  assert_int_equal(ir_add_recurrent(&empty, 1ull << 29, &index, &err), MOE_DECLINED);
  assert_non_null(strstr(err.message, "536870912 words"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_short_conv),
      cmocka_unit_test(test_delta_rule),
      cmocka_unit_test(test_heads_of_keys),
      cmocka_unit_test(test_shapes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
