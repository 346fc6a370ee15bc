/* test_ir_view.c: row views: which rows they name, of every matrix; that equal ones are one; what is refused. */
#include "ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct model {
  struct gguf *gguf;
  struct ir_graph graph;
};

static void model_open(struct model *m) {
  char path[4096];
  struct moe_error err = {0};
  snprintf(path, sizeof path, "%s/models/wordnet-moe.gguf", getenv("TESTS_DIR"));
  if (gguf_open(path, &m->gguf, &err)) fail_msg("%s", err.message);
  ir_init(&m->graph, m->gguf);
}

static void model_close(struct model *m) {
  ir_deinit(&m->graph);
  gguf_close(m->gguf);
}

/* Every row of a view of `name`, and the runs in which they lie. */
static void check_rows(struct model *m, const char *name, uint64_t first, uint64_t n_out, uint64_t run,
                       uint64_t period) {
  struct moe_error err = {0};
  const struct gguf_tensor *t = gguf_find_tensor(m->gguf, name), *v = NULL;
  assert_non_null(t);
  if (ir_add_view(&m->graph, t, first, n_out, run, period, "part", &v, &err)) fail_msg("%s", err.message);
  uint64_t row_bytes = t->dim[0] / t->format->elements * t->format->bytes;
  assert_int_equal(v->dim[0], t->dim[0]);
  assert_int_equal(v->dim[1], n_out);
  assert_int_equal(v->dim[2], t->dim[2]);
  assert_int_equal(v->bytes, n_out * t->dim[2] * row_bytes);
  for (uint64_t mat = 0; mat < t->dim[2]; mat++)
    for (uint64_t r = 0; r < n_out; r++) {
      uint64_t wanted = first + (run ? r / run * period + r % run : r), left = run ? run - r % run : n_out - r;
      assert_ptr_equal(gguf_row(v, mat * n_out + r), t->data + (mat * t->dim[1] + wanted) * row_bytes);
      assert_int_equal(gguf_row_run(v, mat * n_out + r), left < n_out - r ? left : n_out - r);
    }
}

static void test_rows(void **state) {
  (void)state;
  struct model m;
  model_open(&m);
  check_rows(&m, "blk.0.attn_q.weight", 64, 128, 0, 0);
  check_rows(&m, "blk.0.attn_q.weight", 0, 256, 64, 128);  /* [head][q, gate]: the queries */
  check_rows(&m, "blk.0.attn_q.weight", 64, 256, 64, 128); /* the gates */
  check_rows(&m, "blk.0.attn_q.weight", 3, 7, 3, 5);       /* a last run that is not whole */
  check_rows(&m, "blk.0.ffn_down_exps.weight", 16, 32, 0, 0);
  check_rows(&m, "blk.0.ffn_down_exps.weight", 1, 20, 2, 4);
  assert_int_equal(m.graph.n_view, 6);
  check_rows(&m, "blk.0.attn_q.weight", 64, 128, 0, 0);
  assert_int_equal(m.graph.n_view, 6);
  assert_string_equal(m.graph.view[0]->tensor.name, "blk.0.attn_q.weight[part]");
  model_close(&m);
}

static void test_whole_tensors(void **state) {
  (void)state;
  struct model m;
  model_open(&m);
  const struct gguf_tensor *t = gguf_find_tensor(m.gguf, "blk.0.ffn_down_exps.weight");
  uint64_t row_bytes = t->dim[0] / t->format->elements * t->format->bytes, rows = t->dim[1];
  assert_ptr_equal(gguf_row(t, 2 * rows + 5), t->data + (2 * rows + 5) * row_bytes);
  assert_int_equal(gguf_row_run(t, 2 * rows + 5), rows - 5);
  model_close(&m);
}

static void test_vectors(void **state) {
  (void)state;
  struct model m;
  struct moe_error err = {0};
  const struct gguf_tensor *v;
  model_open(&m);
  const struct gguf_tensor *norm = gguf_find_tensor(m.gguf, "blk.0.attn_norm.weight");
  assert_int_equal(ir_add_vector_view(&m.graph, norm, 32, 64, "k", &v, &err), MOE_OK);
  assert_ptr_equal(gguf_row(v, 0), norm->data + 32 * sizeof(float));
  assert_int_equal(v->dim[0], 64);
  const struct { uint64_t first, n; } outside[] = {{0, 257}, {256, 1}, {UINT64_MAX, 2}, {200, 57}, {0, 0}};
  for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
    assert_int_equal(ir_add_vector_view(&m.graph, norm, outside[i].first, outside[i].n, "k", &v, &err), MOE_FAILED);
  assert_non_null(strstr(err.message, "blk.0.attn_norm.weight: F32, 256 elements"));
  model_close(&m);
}

static void test_rows_outside(void **state) {
  (void)state;
  struct model m;
  model_open(&m);
  const struct gguf_tensor *q = gguf_find_tensor(m.gguf, "blk.0.attn_q.weight"), *v;
  const struct {
    uint64_t first, n_out, run, period;
  } cases[] = {{0, 513, 0, 0},    {512, 1, 0, 0},    {1, 512, 0, 0},        {0, 0, 0, 0},
               {0, 8, 4, 3},      {0, 256, 64, 150}, {UINT64_MAX, 4, 0, 0}, {0, UINT64_MAX, 1, UINT64_MAX},
               {65, 256, 64, 128}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct moe_error err = {0};
    enum moe_code code =
        ir_add_view(&m.graph, q, cases[i].first, cases[i].n_out, cases[i].run, cases[i].period, "x", &v, &err);
    if (code != MOE_FAILED || !strstr(err.message, "blk.0.attn_q.weight has 512 rows"))
      fail_msg("case %zu: %d %s", i, code, err.message);
  }
  assert_int_equal(m.graph.n_view, 0);
  model_close(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_whole_tensors),
                                     cmocka_unit_test(test_vectors), cmocka_unit_test(test_rows_outside)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
