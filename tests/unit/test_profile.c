/* `moert profile` without a device: the bytes that dispatches are counted with, medians, wrapping counters, the
 * picture's text. What it measures is tested by tests/golden/test_moert_profile.py. */
#include "profile.h"
#include "spread.h"
#include "vk_timer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- bytes ---- */

enum { N_EXPERT = 16, USED = 4, PAGE_TOK = 64, K0 = 3 * PAGE_TOK * 8, K1 = PAGE_TOK * 4 };

/* Planes: an embedding of 100 rows, experts, their biases, a dense matrix. */
static const struct img_plane planes[] = {
    {.offset = 0, .bytes = 6400, .format = 12, .n_in = 64, .n_out = 100, .n_mat = 1},
    {.offset = 6400, .bytes = 16000, .format = 12, .n_in = 32, .n_out = 32, .n_mat = N_EXPERT},
    {.offset = 22528, .bytes = 1600, .format = 0, .n_in = 25, .n_out = N_EXPERT, .n_mat = 1},
    {.offset = 24320, .bytes = 700, .format = 12, .n_in = 32, .n_out = N_EXPERT, .n_mat = 1},
};
static const uint64_t value[] = {0, K0}; /* offsets in a page of two layers, which differ in size */
static const struct img_table table[] = {{.n_row = 2, .n_column = 1, .first_value = 0}};
static const struct img_word word[] = {
    {.kind = IMG_WORD_LAYER_ADDRESS, .arena = IMG_ARENA_STATE, .column = 0},
    {.kind = IMG_WORD_ADDRESS, .arena = IMG_ARENA_ACT, .value = 0},
};
#define REGION(ACCESS, ARENA, OFFSET, BYTES)                                                                           \
  { .access = (ACCESS), .arena = IMG_ARENA_##ARENA, .column = IMG_NO_COLUMN, .offset = (OFFSET), .bytes = (BYTES) }
static const struct img_region region[] = {
    REGION(1, WEIGHTS, 0, 6400),          /* 0: embed */
    REGION(2, ACT, 0, 4096),              /* 1: written only */
    REGION(1, WEIGHTS, 6400, 16000),      /* 2: experts */
    REGION(1, WEIGHTS, 22528, 1600),      /* 3: their biases */
    REGION(1, WEIGHTS, 24320, 700),       /* 4: of as many rows as experts, but no biases */
    REGION(1, ACT, 0, 8000),              /* 5 */
    REGION(1, STATE, 0, IMG_WHOLE_ARENA), /* 6 */
    REGION(3, STATE, 0, IMG_WHOLE_ARENA), /* 7: store */
    REGION(3, RECURRENT, 128, 512),       /* 8 */
    REGION(3, ACT, 0, 6400),              /* 9: logits of 8 selects */
    REGION(1, TABLES, 0, 256),            /* 10 */
    REGION(1, STEP, 0, IMG_WHOLE_ARENA),  /* 11 */
    REGION(1, STATE, 0, IMG_WHOLE_ARENA), /* 12: attention with its rows, and partial sums, which do not count */
    REGION(1, ACT, 0, 800),
    REGION(3, ACT, 4096, 80000),
};
#define DISPATCH(ROLE, FIRST, N)                                                                                       \
  {                                                                                                                    \
    .op = IMG_OP_DISPATCH, .role = IMG_ROLE_##ROLE, .first_word = 0, .n_word = 2, .first_region = (FIRST),             \
    .n_region = (N)                                                                                                    \
  }
static const struct img_inst inst[] = {
    {.op = IMG_OP_DISPATCH, .role = IMG_ROLE_EMBED, .n_region = 2},
    {.op = IMG_OP_CALL, .body = 0, .table = 0, .count = 2},
    {.op = IMG_OP_DISPATCH, .role = IMG_ROLE_GATE_UP, .first_region = 2, .n_region = 4},
    {.op = IMG_OP_DISPATCH, .role = IMG_ROLE_ROUTER, .first_region = 2, .n_region = 1},
    {.op = IMG_OP_DISPATCH, .role = IMG_ROLE_DELTA, .first_region = 8, .n_region = 1},
    {.op = IMG_OP_BARRIER},
    {.op = IMG_OP_DISPATCH, .role = IMG_ROLE_SAMPLE, .first_region = 9, .n_region = 3},
    DISPATCH(ROPE_STORE, 7, 1), /* 7: the body */
    DISPATCH(ATTENTION, 12, 3),
};
static const struct img_body body[] = {{.first_inst = 7, .n_inst = 2}};
static const struct img_template template[] = {
    {.kind = IMG_TEMPLATE_TOKEN, .n_row = 8, .n_select = 8, .first_inst = 0, .n_inst = 7}};

static void count(struct profile_step step, struct profile_dispatch out[9]) {
  const struct img_view view = {.manifest = {.model_n_expert = N_EXPERT,
                                             .model_n_expert_used = USED,
                                             .state_page_tok = PAGE_TOK,
                                             .state_page_bytes = K0 + K1},
                                .planes = {.plane = planes, .n_plane = 4},
                                .templates = {.template = template,
                                              .inst = inst,
                                              .body = body,
                                              .word = word,
                                              .region = region,
                                              .table = table,
                                              .value = value,
                                              .n_template = 1}};
  struct moe_error err = {0};
  memset(out, 0xff, 9 * sizeof *out);
  assert_int_equal(profile_count_bytes(&view, 0, &step, out, &err), MOE_OK);
}

static void expect(const struct profile_dispatch *d, uint32_t role, uint64_t weights, uint64_t state, uint64_t other) {
  assert_int_equal(d->role, role);
  assert_int_equal(d->bytes.weights, weights);
  assert_int_equal(d->bytes.state, state);
  assert_int_equal(d->bytes.other, other);
  assert_int_equal(profile_sum(&d->bytes), weights + state + other);
}

static void test_bytes_of_two_rows(void **state) {
  (void)state;
  struct profile_dispatch d[9];
  count((struct profile_step){.n_row = 2, .n_sequence = 2, .depth = 10}, d);
  expect(&d[0], IMG_ROLE_EMBED, 2 * 64, 0, 0);
  expect(&d[1], IMG_ROLE_ROPE_STORE, 0, 2 * 24, 0); /* layer 0: K0 / PAGE_TOK = 24 bytes a token */
  expect(&d[2], IMG_ROLE_ATTENTION, 0, 2 * 11 * 24, 800 / 4);
  expect(&d[3], IMG_ROLE_ROPE_STORE, 0, 2 * 4, 0);
  expect(&d[4], IMG_ROLE_ATTENTION, 0, 2 * 11 * 4, 800 / 4);
  expect(&d[5], IMG_ROLE_GATE_UP, 16000 / 2 + 1600 / 2 + 700, 0, 8000 / 4); /* 8 of 16 experts; 2 of 8 rows */
  expect(&d[6], IMG_ROLE_ROUTER, 16000, 0, 0);                              /* not a role of experts */
  expect(&d[7], IMG_ROLE_DELTA, 0, 2 * 512, 0);
  expect(&d[8], IMG_ROLE_SAMPLE, 0, 0, 6400 / 4 + 256);
}

static void test_bytes_of_a_prompt(void **state) {
  (void)state;
  struct profile_dispatch d[9];
  count((struct profile_step){.n_row = 8, .n_sequence = 1, .depth = 100}, d);
  expect(&d[0], IMG_ROLE_EMBED, 8 * 64, 0, 0);
  expect(&d[2], IMG_ROLE_ATTENTION, 0, 108 * 24, 800);          /* once for all rows */
  expect(&d[5], IMG_ROLE_GATE_UP, 16000 + 1600 + 700, 0, 8000); /* never more than all experts */
  expect(&d[7], IMG_ROLE_DELTA, 0, 512, 0);
  expect(&d[8], IMG_ROLE_SAMPLE, 0, 0, 6400 / 8 + 256); /* one select of eight */
}

/* A whole step in one dispatch: what its table names counts, not the arenas that it declares. */
static void test_bytes_of_a_table(void **state) {
  (void)state;
#define CELL(TAG, LOW) ((uint64_t)(TAG) << IMG_CELL_SHIFT | (LOW))
  static const uint64_t cell[] = {CELL(IMG_ARENA_WEIGHTS, 6400),  CELL(IMG_ARENA_STATE, 0),  CELL(IMG_CELL_IMM, 6400),
                                  CELL(IMG_ARENA_WEIGHTS, 22528), CELL(IMG_ARENA_STATE, K0), CELL(IMG_ARENA_ACT, 0)};
  static const struct img_table cells = {.n_row = 2, .n_column = 3};
  static const struct img_word words = {.kind = IMG_WORD_TABLE};
  static const struct img_region whole[] = {REGION(1, WEIGHTS, 0, IMG_WHOLE_ARENA),
                                            REGION(3, STATE, 0, IMG_WHOLE_ARENA),
                                            REGION(3, ACT, 0, IMG_WHOLE_ARENA),
                                            REGION(1, WEIGHTS, 24320, 700),
                                            REGION(1, TABLES, 0, 256),
                                            REGION(1, STEP, 0, IMG_WHOLE_ARENA)};
  static const struct img_inst step = {.op = IMG_OP_DISPATCH, .role = IMG_ROLE_STEP, .n_word = 1, .n_region = 6};
  static const struct img_template one = {
      .kind = IMG_TEMPLATE_TOKEN, .n_row = 1, .n_select = 1, .first_inst = 0, .n_inst = 1};
  const struct img_view view = {.manifest = {.model_n_expert = N_EXPERT,
                                             .model_n_expert_used = USED,
                                             .state_page_tok = PAGE_TOK,
                                             .state_page_bytes = K0 + K1,
                                             .memory_act_bytes = 1 << 20},
                                .planes_bytes = 1 << 20,
                                .planes = {.plane = planes, .n_plane = 4},
                                .templates = {.template = &one,
                                              .inst = &step,
                                              .word = &words,
                                              .region = whole,
                                              .table = &cells,
                                              .value = cell,
                                              .n_template = 1}};
  struct profile_dispatch d;
  const struct profile_step shape = {.n_row = 1, .n_sequence = 1, .depth = 10};
  struct moe_error err = {0};
  assert_int_equal(profile_count_bytes(&view, 0, &shape, &d, &err), MOE_OK);
  expect(&d, IMG_ROLE_STEP, 16000 / 4 + 1600 + 700, 11 * (24 + 4), 256);
}

/* ---- numbers ---- */

static void test_spread(void **state) {
  (void)state;
  double odd[] = {5, 1, 3}, even[] = {4, 1, 3, 2}, one[] = {7};
  struct spread s = spread_of(odd, 3);
  assert_true(s.median == 3 && s.low == 1 && s.high == 5 && s.mean == 3 && s.deviation == 2);
  s = spread_of(even, 4);
  assert_true(s.median == 2.5 && s.low == 1 && s.high == 4);
  s = spread_of(one, 1);
  assert_true(s.median == 7 && s.low == 7 && s.high == 7 && s.deviation == 0);
}

static void test_ticks(void **state) {
  (void)state;
  assert_true(vk_timer_ns(100, 150, 64, 1) == 50);
  assert_true(vk_timer_ns(0xfffffff0, 0x10, 32, 2) == 64);            /* went around */
  assert_true(vk_timer_ns((1ull << 36) - 1, 1ull << 40, 36, 1) == 1); /* bits above do not count */
}

/* ---- what is printed ---- */

static struct profile example(void) {
  return (struct profile){
      .step = {.n_row = 512, .n_sequence = 1, .depth = 7},
      .repeat = 5,
      .model = "a<b>&\"c\"\x01",
      .quantization = "Q4_K",
      .tier = "base",
      .template = "window(512)",
      .device = "x & y",
      .n_layer = 2,
      .n_dispatch = 3,
      .n_role = 1,
      .role = {{.role = IMG_ROLE_QKV,
                .n_dispatch = 3,
                .bytes = {.weights = 2000000},
                .us = {.median = 40, .low = 30, .high = 50}}},
      .bytes = {.weights = 2000000},
      .whole_us = {.median = 35, .low = 30, .high = 50},
      .each_us = {.median = 40, .low = 30, .high = 50},
      .ceiling = {.bytes = 1 << 30, .n = 9, .gb_s = {.median = 100, .low = 90, .high = 110}, .copy = {.median = 80}}};
}

static char *drawn(const struct profile *p) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *file = open_memstream(&text, &bytes);
  assert_non_null(file);
  profile_svg(p, file);
  assert_int_equal(fclose(file), 0);
  return text;
}

static void test_picture(void **state) {
  (void)state;
  struct profile p = example();
  char *text = drawn(&p);
  assert_non_null(strstr(text, "a&lt;b&gt;&amp;&quot;c&quot; Q4_K"));
  assert_non_null(strstr(text, "x &amp; y"));
  assert_null(strchr(text, 1));
  assert_non_null(strstr(text, "40.0 us, 100.0%; 50 GB/s; 2.0 x floor")); /* 2 MB at 100 GB/s: 20 us */
  assert_non_null(strstr(text, "100 GB/s: reading 1024 MiB (copying them, read and written: 80.0)"));
  assert_non_null(strstr(text, "window(512): 512 rows of a prompt at depth 7"));
  free(text);
  p.role[0].us = (struct spread){0}; /* a clock too coarse for it: no division by zero */
  p.each_us = p.whole_us = p.role[0].us;
  p.role[0].bytes = p.bytes = (struct profile_bytes){0};
  text = drawn(&p);
  assert_null(strstr(text, "inf"));
  assert_null(strstr(text, "nan"));
  free(text);
}

static void test_floor(void **state) {
  (void)state;
  struct profile p = example();
  assert_true(profile_floor_us(&p, 2000000) == 20);
  json_t *object = profile_json(&p), *role = json_array_get(json_object_get(object, "roles"), 0);
  assert_non_null(object);
  assert_true(json_real_value(json_object_get(role, "floor_us")) == 20);
  assert_true(json_real_value(json_object_get(role, "gb_s")) == 50);
  assert_true(json_real_value(json_object_get(json_object_get(object, "gap"), "times_floor")) == 1.75);
  json_decref(object);
  p.model = "\xff"; /* not UTF-8 */
  assert_null(profile_json(&p));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bytes_of_two_rows),
      cmocka_unit_test(test_bytes_of_a_prompt),
      cmocka_unit_test(test_bytes_of_a_table),
      cmocka_unit_test(test_spread),
      cmocka_unit_test(test_ticks),
      cmocka_unit_test(test_picture),
      cmocka_unit_test(test_floor),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
