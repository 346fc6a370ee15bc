/* The memory plan and the cutting of planes into slabs: pure functions of the image's and the device's figures. */
#include "arenas.h"
#include "img_step.h"
#include "memory_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1ull << 20)

static const struct img_manifest manifest = {.model_n_ctx = 4096,
                                             .state_page_tok = 64,
                                             .state_page_bytes = MIB,
                                             .memory_act_bytes = 10 * MIB,
                                             .memory_max_row = 512};

static struct memory_plan_input input(uint64_t available, uint32_t n_ctx, uint32_t n_slot) {
  return (struct memory_plan_input){.manifest = &manifest,
                                    .image = "m.img",
                                    .device = "a device",
                                    .planes_bytes = 100 * MIB,
                                    .tables_bytes = MIB,
                                    .available_bytes = available,
                                    .max_state_bytes = UINT64_MAX,
                                    .n_ctx = n_ctx,
                                    .n_slot = n_slot};
}

static void test_default_is_all_of_it(void **state) {
  (void)state;
  struct memory_plan p;
  struct memory_plan_input in = input(4096 * MIB, 0, 0);
  assert_int_equal(memory_plan_make(&in, &p, NULL), MOE_OK);
  assert_int_equal(p.n_ctx, 4096);
  assert_int_equal(p.n_slot, MEMORY_PLAN_SLOT);
  assert_int_equal(p.page_stride, 64);
  assert_int_equal(p.n_page, 4 * 64 + 1);
  assert_int_equal(p.state_bytes, 257 * MIB);
  assert_int_equal(p.step_bytes, img_step_bytes(512, 4, 64));
  assert_int_equal(p.total_bytes, 100 * MIB + MIB + 257 * MIB + 10 * MIB + 2 * p.step_bytes + 2 * p.result_bytes +
                                      p.slot_bytes + p.headroom_bytes);
  in.resident_bytes = 3 * MIB;
  struct memory_plan resident;
  assert_int_equal(memory_plan_make(&in, &resident, NULL), MOE_OK);
  assert_int_equal(resident.total_bytes, p.total_bytes + 3 * MIB);
  in.resident_bytes = 0;
  in.staged = true;
  struct memory_plan staged;
  assert_int_equal(memory_plan_make(&in, &staged, NULL), MOE_OK);
  assert_true(staged.total_bytes > p.total_bytes);
}

static void expect_declined(struct memory_plan_input in, const char *const *parts) {
  struct memory_plan p;
  struct moe_error err = {0};
  assert_int_equal(memory_plan_make(&in, &p, &err), MOE_DECLINED);
  for (; *parts; parts++)
    if (!strstr(err.message, *parts)) fail_msg("'%s' lacks '%s'", err.message, *parts);
}

/* A block a slot, whatever the context. */
static void test_recurrent_blocks(void **state) {
  (void)state;
  struct memory_plan p, without;
  struct img_manifest m = manifest;
  m.state_block_bytes = 63 * MIB;
  struct memory_plan_input in = input(4096 * MIB, 1024, 3);
  assert_int_equal(memory_plan_make(&in, &without, NULL), MOE_OK);
  assert_int_equal(without.recurrent_bytes, 0);
  in.manifest = &m;
  assert_int_equal(memory_plan_make(&in, &p, NULL), MOE_OK);
  assert_int_equal(p.recurrent_bytes, 3 * 63 * MIB);
  assert_int_equal(p.total_bytes, without.total_bytes + 3 * 63 * MIB);
  in.max_state_bytes = 2 * 63 * MIB; /* one buffer must hold the blocks */
  expect_declined(in, (const char *const[]){"states 238.0 MiB", "--slots 2 fits", NULL});
}

static void test_context_shrinks_to_what_fits(void **state) {
  (void)state;
  struct memory_plan p;
  for (uint64_t available = 200 * MIB; available < 500 * MIB; available += 3 * MIB) {
    struct memory_plan_input in = input(available, 0, 2);
    struct moe_error err = {0};
    if (memory_plan_make(&in, &p, &err)) { /* less than 512 positions would fit */
      assert_int_equal(err.code, MOE_DECLINED);
      in.n_ctx = 512;
      assert_int_equal(memory_plan_make(&in, &p, NULL), MOE_DECLINED);
      continue;
    }
    assert_true(p.total_bytes <= available && p.n_ctx >= 512);
    if (p.n_ctx == 4096) continue;
    assert_int_equal(p.n_ctx % 64, 0);
    in.n_ctx = p.n_ctx + 64; /* and it is the largest that does */
    assert_int_equal(memory_plan_make(&in, &p, NULL), MOE_DECLINED);
  }
}

static void test_what_does_not_fit_says_what_would(void **state) {
  (void)state;
  struct memory_plan p;
  struct memory_plan_input in = input(300 * MIB, 4096, 4);
  expect_declined(in, (const char *const[]){"m.img on a device", "has 300.0 MiB", "--ctx 4096 --slots 4",
                                            "or --slots 2 fits", NULL});
  struct moe_error err = {0};
  memory_plan_make(&in, &p, &err);
  in.n_ctx = (uint32_t)strtoul(strstr(err.message, "free: --ctx ") + strlen("free: --ctx "), NULL, 10);
  assert_true(in.n_ctx >= 64);
  assert_int_equal(memory_plan_make(&in, &p, NULL), MOE_OK); /* the advice is true */
  in.n_ctx += 64;
  assert_int_equal(memory_plan_make(&in, &p, NULL), MOE_DECLINED); /* and not timid */
  expect_declined(input(100 * MIB, 0, 0), (const char *const[]){"no context fits", "smaller model", NULL});
  in = input(8192 * MIB, 4096, 4);
  in.max_state_bytes = 100 * MIB; /* one buffer must hold the states */
  expect_declined(in, (const char *const[]){"--ctx 1536 or --slots 1 fits", NULL});
}

static void test_bounds(void **state) {
  (void)state;
  struct memory_plan p;
  struct memory_plan_input in = input(4096 * MIB, 100000, 1);
  assert_int_equal(memory_plan_make(&in, &p, NULL), MOE_OK);
  assert_int_equal(p.n_ctx, 4096); /* beyond the training the model's context */
  in = input(4096 * MIB, 1, 1);    /* no room for a prompt */
  assert_int_equal(memory_plan_make(&in, &p, NULL), MOE_USAGE);
  in = input(4096 * MIB, 2, 1);
  assert_int_equal(memory_plan_make(&in, &p, NULL), MOE_OK);
  assert_int_equal(p.n_page, 2);
  in = input(4096 * MIB, 0, 65);
  assert_int_equal(memory_plan_make(&in, &p, NULL), MOE_USAGE);
  struct img_manifest huge = manifest; /* sums over 64 bits decline, they do not wrap */
  huge.state_page_bytes = UINT64_MAX / 2;
  in = input(UINT64_MAX, 4096, 4);
  in.manifest = &huge;
  expect_declined(in, (const char *const[]){"more than 2^64 bytes", NULL});
}

/* A driver that computes right only up to some position: the default stays below, a wish above is declined by name. */
static void test_driver_limit(void **state) {
  (void)state;
  struct memory_plan p;
  struct memory_plan_input in = input(4096 * MIB, 0, 1);
  in.max_ctx = 1000;
  assert_int_equal(memory_plan_make(&in, &p, NULL), MOE_OK);
  assert_int_equal(p.n_ctx, 1000);
  in.n_ctx = 1000;
  assert_int_equal(memory_plan_make(&in, &p, NULL), MOE_OK);
  in.n_ctx = 1001;
  expect_declined(in, (const char *const[]){"device a device: --ctx 1001", "up to 1000 positions", NULL});
}

/* Where resolve_cell has an arena: far apart, and cut inside WEIGHTS. */
static uint64_t resolve_cell(void *user, uint32_t copy, uint32_t arena, uint64_t offset) {
  assert_int_equal(copy, 0);
  if (arena == IMG_ARENA_WEIGHTS) return arenas_address(user, copy, arena, offset);
  return (arena + 1) * 0x1000000000ull + offset;
}

/* Tables of taken templates are placed once and filled: addresses where each arena, and each slab, is; numbers as they
 * are. */
static void test_tables_in_device_memory(void **state) {
  (void)state;
#define CELL(TAG, LOW) ((uint64_t)(TAG) << IMG_CELL_SHIFT | (LOW))
  const uint64_t value[] = {CELL(IMG_CELL_IMM, 1),
                            CELL(IMG_ARENA_WEIGHTS, 0),
                            CELL(IMG_ARENA_WEIGHTS, 512),
                            CELL(IMG_ARENA_ACT, 256),
                            CELL(IMG_ARENA_STATE, 64),
                            CELL(IMG_ARENA_TABLES, 8),
                            CELL(IMG_CELL_IMM, (1ull << 56) - 1)};
  const struct img_table table[] = {{40, 1, 0}, {2, 3, 1}, {1, 1, 0}, {1, 1, 3}};
  const struct img_word word[] = {{.kind = IMG_WORD_IMM, .value = 2},
                                  {.kind = IMG_WORD_TABLE, .value = 1},
                                  {.kind = IMG_WORD_TABLE, .value = 3},
                                  {.kind = IMG_WORD_TABLE, .value = 2}};
  struct img_inst inst[4] = {{.op = IMG_OP_DISPATCH, .first_word = 0, .n_word = 2},
                             {.op = IMG_OP_BARRIER},
                             {.op = IMG_OP_DISPATCH, .first_word = 2, .n_word = 1},
                             {.op = IMG_OP_DISPATCH, .first_word = 3, .n_word = 1}};
  const struct img_template template[] = {{.n_inst = 3}, {.first_inst = 3, .n_inst = 1}, {.n_inst = 1}};
  const struct img_templates_view view = {
      .template = template, .inst = inst, .word = word, .table = table, .value = value, .n_table = 4};
  const struct step_template taken[] = {{.index = 0}, {.index = 2}};
  struct resident r;
  assert_int_equal(resident_place(&view, taken, 2, &r, NULL), MOE_OK);
  assert_int_equal(r.bytes, 512); /* template 1, which has table 2, is not taken */
  assert_int_equal(r.offset[0], RESIDENT_NOWHERE);
  assert_int_equal(r.offset[1], 0);
  assert_int_equal(r.offset[2], RESIDENT_NOWHERE);
  assert_int_equal(r.offset[3], 256);
  struct arena_slab slab[2] = {{.first = 0, .bytes = 512, .address = 0x7000},
                               {.first = 512, .bytes = 512, .address = 0x9000}};
  struct arenas arenas = {.slab = slab, .n_slab = 2};
  uint64_t out[64];
  memset(out, 0xaa, sizeof out);
  resident_fill(&r, &view, resolve_cell, &arenas, (uint8_t *)out);
  static const uint64_t expected[] = {0x7000, 0x9000, 0x4000000100, 0x3000000040, 0x2000000008, (1ull << 56) - 1};
  assert_memory_equal(out, expected, sizeof expected);
  for (uint32_t i = 6; i < 32; i++) assert_int_equal(out[i], 0);
  assert_int_equal(out[32], 0x4000000100);
  resident_deinit(&r);
  assert_int_equal(resident_place(&view, taken, 0, &r, NULL), MOE_OK);
  assert_int_equal(r.bytes, 0);
  resident_deinit(&r);
}

static void test_slabs_are_cut_at_planes(void **state) {
  (void)state;
  struct img_plane plane[5] = {{.offset = 0, .bytes = 250},
                               {.offset = 256, .bytes = 1000},
                               {.offset = 1280, .bytes = 256},
                               {.offset = 1536, .bytes = 10},
                               {.offset = 1792, .bytes = 1024}};
  const struct img_planes_view view = {.plane = plane, .name = "weights", .n_plane = 5};
  struct arena_slab slab[6];
  uint32_t n;
  assert_int_equal(arenas_cut(&view, 2816, 1ull << 40, slab, &n, NULL), MOE_OK);
  assert_int_equal(n, 1);
  assert_int_equal(slab[0].bytes, 2816);
  assert_int_equal(arenas_cut(&view, 2816, 1300, slab, &n, NULL), MOE_OK);
  assert_int_equal(n, 3);
  static const uint64_t first[] = {0, 1280, 1792}, bytes[] = {1280, 512, 1024};
  for (uint32_t i = 0; i < 3; i++) {
    assert_int_equal(slab[i].first, first[i]);
    assert_int_equal(slab[i].bytes, bytes[i]);
    slab[i].address = (i + 1) * 0x100000000ull;
  }
  const struct arenas arenas = {.slab = slab, .n_slab = 3};
  assert_int_equal(arenas_address(&arenas, 0, IMG_ARENA_WEIGHTS, 0), 0x100000000ull);
  assert_int_equal(arenas_address(&arenas, 0, IMG_ARENA_WEIGHTS, 1279), 0x100000000ull + 1279);
  assert_int_equal(arenas_address(&arenas, 1, IMG_ARENA_WEIGHTS, 1280), 0x200000000ull);
  assert_int_equal(arenas_address(&arenas, 1, IMG_ARENA_WEIGHTS, 2815), 0x300000000ull + 1023);
  struct moe_error err = {0};
  assert_int_equal(arenas_cut(&view, 2816, 1000, slab, &n, &err), MOE_DECLINED);
  assert_non_null(strstr(err.message, "plane[1] weights: 1024 bytes; the device allocates at most 1000"));
  const struct img_planes_view carried = {.plane = plane, .name = "weights", .n_plane = 5, .n_carried = 2};
  assert_int_equal(arenas_cut(&carried, 1536, 1300, slab, &n, NULL), MOE_OK);
  assert_int_equal(n, 2);
  assert_int_equal(slab[1].bytes, 256);
  const struct img_planes_view none = {.n_plane = 0};
  assert_int_equal(arenas_cut(&none, 0, 1000, slab, &n, NULL), MOE_OK);
  assert_int_equal(n, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_default_is_all_of_it),
      cmocka_unit_test(test_recurrent_blocks),
      cmocka_unit_test(test_context_shrinks_to_what_fits),
      cmocka_unit_test(test_what_does_not_fit_says_what_would),
      cmocka_unit_test(test_bounds),
      cmocka_unit_test(test_driver_limit),
      cmocka_unit_test(test_slabs_are_cut_at_planes),
      cmocka_unit_test(test_tables_in_device_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
