/* test_image.c: the image of the embedded model, read back: every plane bit for bit against the GGUF, the structures by
 * the checkers that the loader has, layers shared, the self-test's answer. */
#include "dequant.h"
#include "emit.h"
#include "img_hazard.h"
#include "pack.h"
#include "src_gguf.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct made {
  char path[4096], model[4096];
  struct img img;
  struct img_view view;
};

static int make_image(void **state) {
  static struct made m;
  struct moe_error err = {0};
  snprintf(m.model, sizeof m.model, "%s/models/wordnet-moe.gguf", getenv("TESTS_DIR"));
  snprintf(m.path, sizeof m.path, "%s/test_image-%d.img", getenv("BUILD_DIR"), getpid());
  const struct emit_options options = {.output = m.path, .kv = "f16", .tier = "base", .compress = 3, .quiet = true};
  if (emit_image(m.model, &options, &err) || img_open(m.path, &m.img, &err) || img_check(&m.img, &m.view, &err)) {
    fprintf(stderr, "%s\n", err.message);
    return 1;
  }
  *state = &m;
  return 0;
}

static int drop_image(void **state) {
  struct made *m = *state;
  img_close(&m->img);
  return unlink(m->path);
}

static void test_every_plane_is_lossless(void **state) {
  const struct made *m = *state;
  struct moe_error err = {0};
  struct gguf *gguf;
  uint64_t bytes;
  const uint8_t *planes = img_section_data(&m->img, IMG_SECTION_PLANES, &bytes);
  float *mine = malloc(4 << 20), *theirs = malloc(4 << 20);
  assert_int_equal(gguf_open(m->model, &gguf, &err), MOE_OK);
  assert_int_equal(m->view.planes.n_plane, gguf_n_tensor(gguf));
  for (uint32_t i = 0; i < m->view.planes.n_plane; i++) {
    const struct img_plane *p = &m->view.planes.plane[i];
    const struct gguf_tensor *t = gguf_find_tensor(gguf, m->view.planes.name + p->name_offset);
    struct plane_layout layout;
    assert_non_null(t);
    assert_int_equal(pack_layout(format_find(p->format), p->n_in, p->n_out, p->n_mat, &layout, &err), MOE_OK);
    assert_true(layout.bytes == p->bytes && p->n_in == t->dim[0] && p->n_out == t->dim[1] && p->n_mat == t->dim[2]);
    for (uint64_t row = 0; row < p->n_mat * p->n_out; row++) {
      pack_read_row(&layout, planes + p->offset, row / p->n_out, row % p->n_out, mine);
      dequant_row(t->format, t->data + row * layout.src_row_bytes, theirs, p->n_in);
      if (memcmp(mine, theirs, p->n_in * sizeof *mine)) fail_msg("%s: row %llu", t->name, (unsigned long long)row);
    }
  }
  free(mine);
  free(theirs);
  gguf_close(gguf);
}

static void test_hashes_and_hazards_hold(void **state) {
  const struct made *m = *state;
  struct moe_error err = {0};
  if (img_reader_verify(&m->img, 2, NULL, &err)) fail_msg("%s", err.message);
  if (img_hazard_check(&m->view.templates, &m->view.modules, &err)) fail_msg("%s", err.message);
}

static void test_templates_share_layers_and_modules(void **state) {
  const struct made *m = *state;
  const struct img_templates_view *t = &m->view.templates;
  static const struct {
    const char *name;
    uint32_t n_row, n_select;
  } wanted[] = {{"token(1)", 1, 1},    {"token(2)", 2, 2},       {"token(4)", 4, 4},
                {"token(8)", 8, 8},    {"token(16)", 16, 16},    {"token(32)", 32, 32},
                {"token(64)", 64, 64}, {"window(128)", 128, 64}, {"window(512)", 512, 64}};
  assert_int_equal(t->n_template, sizeof wanted / sizeof *wanted);
  for (uint32_t i = 0; i < t->n_template; i++) {
    assert_string_equal(t->name + t->template[i].name_offset, wanted[i].name);
    assert_int_equal(t->template[i].n_row, wanted[i].n_row);
    assert_int_equal(t->template[i].n_select, wanted[i].n_select);
  }
  /* The four layers come in two kinds (Q4_K, or Q6_K in v and down): two bodies a template, not four. */
  assert_int_equal(t->n_body, 2 * t->n_template);
  assert_true(m->view.modules.n_module < 70);
}

static void test_the_self_test_says_what_the_oracle_says(void **state) {
  const struct made *m = *state;
  uint64_t bytes;
  const uint8_t *text = img_section_data(&m->img, IMG_SECTION_SELFTEST, &bytes);
  json_t *root = json_loadb((const char *)text, bytes, 0, NULL);
  assert_non_null(root);
  size_t n = json_array_size(json_object_get(root, "ids"));
  assert_int_equal(json_array_size(json_object_get(root, "prompt_ids")), 17);
  assert_int_equal(n, 8);
  assert_int_equal(json_array_size(json_object_get(root, "logprobs")), n);
  for (size_t i = 0; i < n; i++) {
    json_t *top = json_array_get(json_object_get(root, "logprobs"), i), *best = json_array_get(top, 0);
    assert_int_equal(json_array_size(top), 8);
    assert_int_equal(json_integer_value(json_array_get(best, 0)),
                     json_integer_value(json_array_get(json_object_get(root, "ids"), i)));
    assert_true(json_number_value(json_array_get(best, 1)) <= 0);
  }
  json_decref(root);
}

static void test_the_manifest_describes_the_model(void **state) {
  const struct img_manifest *m = &((struct made *)*state)->view.manifest;
  assert_string_equal(m->model_architecture, "qwen3moe");
  assert_string_equal(m->model_name, "wordnet-qwen3moe");
  assert_string_equal(m->model_quantization, "Q4_K+Q6_K");
  assert_string_equal(m->compiler_options, "--kv f16 --tier base --compress 3");
  assert_int_equal(m->model_n_expert, 16);
  assert_int_equal(m->model_n_expert_used, 4);
  assert_int_equal(m->model_d_ff, 256);
  assert_int_equal(m->state_page_bytes, 4 * 2 * 2 * 64 * 64 * 2);
  assert_int_equal(m->memory_max_row, 512);
  assert_true(m->requires_plane_bytes >= 4096 * 256 * 210 / 256);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_plane_is_lossless),
      cmocka_unit_test(test_hashes_and_hazards_hold),
      cmocka_unit_test(test_templates_share_layers_and_modules),
      cmocka_unit_test(test_the_self_test_says_what_the_oracle_says),
      cmocka_unit_test(test_the_manifest_describes_the_model),
  };
  return cmocka_run_group_tests(tests, make_image, drop_image);
}
