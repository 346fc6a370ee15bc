/* A box that lacks something an image needs is told what, by name, before anything is created on a device. Skipped (77)
 * where there is no Vulkan device at all, after the test of just that. */
#include "engine.h"
#include "img_enums.h"
#include "img_print.h"
#include "load.h"
#include "run_jobs.h"
#include "small_image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[64];

/* Opens the image with these options and checks code and message (each part must be in it). */
static void expect(const struct small_image *image, struct engine_options o, enum moe_code expected,
                   const char *const *parts) {
  struct moe_error err = {0};
  assert_int_equal(small_image_write(image, path, &err), MOE_OK);
  o.image_path = path;
  struct load load;
  enum moe_code code = load_open(&o, &load, &err);
  load_close(&load);
  if (code != expected) fail_msg("code %d, expected %d: %s", code, expected, err.message);
  for (; parts && *parts; parts++)
    if (!strstr(err.message, *parts)) fail_msg("'%s' lacks '%s'", err.message, *parts);
}

#define PARTS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Runs first: the loader looks at the environment when the first instance is made. */
static void test_no_driver(void **state) {
  (void)state;
  struct small_image image;
  small_image_init(&image);
  setenv("VK_ICD_FILENAMES", "/nonexistent/driver.json", 1);
  setenv("VK_DRIVER_FILES", "/nonexistent/driver.json", 1);
  expect(&image, (struct engine_options){0}, MOE_DECLINED, PARTS("no Vulkan driver", "mesa-vulkan-drivers"));
  unsetenv("VK_ICD_FILENAMES");
  unsetenv("VK_DRIVER_FILES");
}

static void test_nothing_lacks(void **state) {
  (void)state;
  struct small_image image;
  small_image_init(&image);
  expect(&image, (struct engine_options){0}, MOE_OK, NULL);
  expect(&image, (struct engine_options){.device = "0", .tier = "base", .n_ctx = 100, .n_slot = 1}, MOE_OK, NULL);
}

static void test_every_feature_by_name(void **state) {
  (void)state;
  for (uint32_t bit = 0; bit < 64 && img_feature_name(bit); bit++) {
    struct small_image image;
    small_image_init(&image);
    image.module[1].features = 1ull << bit;
    setenv("MOERT_DENY_FEATURE", img_feature_name(bit), 1);
    expect(&image, (struct engine_options){0}, MOE_DECLINED, PARTS("device ", "lacks ", img_feature_name(bit)));
    image.module[1].features = 0; /* what nobody needs may be missing */
    expect(&image, (struct engine_options){0}, MOE_OK, NULL);
    unsetenv("MOERT_DENY_FEATURE");
  }
}

/* Of two tiers the higher one is taken when asked for, or when the device has hardware for what it needs; without its
 * feature it is declined, and the lower one goes on. */
static void test_tiers(void **state) {
  (void)state;
  struct small_image image;
  struct moe_error err = {0};
  small_image_init(&image);
  small_image_two_tiers(&image);
  assert_int_equal(small_image_write(&image, path, &err), MOE_OK);
  static const char *const asked[] = {"base", "dot", NULL};
  for (int i = 0; i < 3; i++) {
    struct load load;
    const struct engine_options o = {.image_path = path, .tier = asked[i]};
    if (load_open(&o, &load, &err)) fail_msg("%s", err.message);
    bool hardware = (load.gpu->features & ~load.gpu->emulated & IMG_FEATURE_DOT_PRODUCT) != 0;
    enum img_tier tier = asked[i] ? load_tier(asked[i]) : hardware ? IMG_TIER_DOT : IMG_TIER_BASE;
    assert_int_equal(load.tier, tier);
    assert_int_equal(load.n_template, 1);
    assert_int_equal(load.templates[0].index, tier == IMG_TIER_DOT);
    load_close(&load);
  }
  expect(&image, (struct engine_options){.tier = "khr"}, MOE_DECLINED, PARTS("no kernels of tier khr"));
  setenv("MOERT_DENY_FEATURE", "shaderIntegerDotProduct", 1);
  expect(&image, (struct engine_options){0}, MOE_OK, NULL);
  expect(&image, (struct engine_options){.tier = "dot"}, MOE_DECLINED, PARTS("lacks shaderIntegerDotProduct"));
  unsetenv("MOERT_DENY_FEATURE");
  image.module[1].features = 0;
  image.inst[4].grid[0] = UINT32_MAX; /* only the tier that is taken is held to the device's limits */
  image.module[1].tuning[0].group_items = 1;
  expect(&image, (struct engine_options){.tier = "base"}, MOE_OK, NULL);
  expect(&image, (struct engine_options){.tier = "dot"}, MOE_DECLINED, PARTS("module second"));
}

/* The tier and template that are taken of `image`. */
static void expect_taken(const struct small_image *image, const char *asked, enum img_tier tier, uint32_t index) {
  struct moe_error err = {0};
  assert_int_equal(small_image_write(image, path, &err), MOE_OK);
  struct load load;
  const struct engine_options o = {.image_path = path, .tier = asked};
  if (load_open(&o, &load, &err)) fail_msg("--tier %s: %s", asked ? asked : "(none)", err.message);
  assert_int_equal(load.tier, tier);
  assert_int_equal(load.n_template, 1);
  assert_int_equal(load.templates[0].index, index);
  assert_int_equal(load.below, tier == IMG_TIER_RESIDENT ? load.below : tier);
  assert_int_equal(load.plan.resident_bytes, tier == IMG_TIER_RESIDENT ? IMG_PLANE_ALIGN : 0);
  load_close(&load);
}

/* Every size falls back by itself: to the next tier that the device has, or whose limits it keeps. */
static void test_fallback(void **state) {
  (void)state;
  struct small_image image;
  small_image_init(&image);
  small_image_resident(&image);
  image.template[2] = image.template[0];
  image.template[2].tier = IMG_TIER_DOT; /* with a module of tier base: any device runs it */
  image.templates.n_template = 3;
  struct load load;
  struct moe_error err = {0};
  const struct engine_options o = {.image_path = path};
  assert_int_equal(small_image_write(&image, path, &err), MOE_OK);
  if (load_open(&o, &load, &err)) fail_msg("%s", err.message);
  bool hardware = (load.gpu->features & ~load.gpu->emulated & IMG_FEATURE_RESIDENT) != 0;
  bool has = (load.gpu->features & IMG_FEATURE_RESIDENT) != 0;
  assert_int_equal(has, load.gpu->resident != 0);
  load_close(&load);
  expect_taken(&image, NULL, hardware ? IMG_TIER_RESIDENT : IMG_TIER_DOT, hardware ? 1 : 2);
  expect_taken(&image, "dot", IMG_TIER_DOT, 2);
  expect_taken(&image, "base", IMG_TIER_BASE, 0);
  if (has) expect_taken(&image, "resident", IMG_TIER_RESIDENT, 1);
  expect(&image, (struct engine_options){.tier = "khr"}, MOE_DECLINED, PARTS("no kernels of tier khr"));
  setenv("MOERT_DENY_FEATURE", "a known number of workgroups that all run at once", 1);
  expect_taken(&image, NULL, IMG_TIER_DOT, 2);
  expect(&image, (struct engine_options){.tier = "resident"}, MOE_DECLINED,
         PARTS("lacks a known number of workgroups that all run at once"));
  unsetenv("MOERT_DENY_FEATURE");
  image.template[2].first_inst = 6; /* now dot is what the device cannot run, and base stands in */
  image.module[1].tier = IMG_TIER_DOT;
  image.module[1].features = 0;
  image.module[1].shared_bytes = 1 << 24;
  image.templates.n_template = 3;
  image.template[1] = image.template[0];
  image.template[1].kind = IMG_TEMPLATE_WINDOW;
  assert_int_equal(small_image_write(&image, path, &err), MOE_OK);
  if (load_open(&o, &load, &err)) fail_msg("%s", err.message);
  assert_int_equal(load.n_template, 2);
  assert_int_equal(load.tier, IMG_TIER_BASE);
  load_close(&load);
  image.module[1].shared_bytes = 0;
  image.inst[6].grid[0] = UINT32_MAX;
  image.module[1].tuning[0].group_items = 1;
  assert_int_equal(small_image_write(&image, path, &err), MOE_OK);
  if (load_open(&o, &load, &err)) fail_msg("%s", err.message);
  assert_int_equal(load.tier, IMG_TIER_BASE);
  load_close(&load);
}

static void test_version_and_limits(void **state) {
  (void)state;
  struct small_image image;
  small_image_init(&image);
  image.manifest.requires_vulkan_minor = 99;
  expect(&image, (struct engine_options){0}, MOE_DECLINED, PARTS("device ", "needs 1.99", "newer driver"));
  small_image_init(&image);
  image.module[0].shared_bytes = 1 << 24;
  expect(&image, (struct engine_options){0}, MOE_DECLINED, PARTS("maxComputeSharedMemorySize", "needs 16777216"));
  small_image_init(&image);
  image.inst[5].grid[0] = UINT32_MAX;
  image.module[0].tuning[0].group_items = 1;
  expect(&image, (struct engine_options){0}, MOE_DECLINED, PARTS("module first", "maxComputeWorkGroupCount[0]"));
}

static void test_memory(void **state) {
  (void)state;
  struct small_image image;
  small_image_init(&image);
  image.manifest.state_page_bytes = 1ull << 50;
  expect(&image, (struct engine_options){.n_ctx = 128}, MOE_DECLINED,
         PARTS(path, "needs", "MiB free", "no context fits"));
  small_image_init(&image);
  image.manifest.memory_act_bytes = 1ull << 60;
  expect(&image, (struct engine_options){0}, MOE_DECLINED, PARTS("scratch 1099511627776", "smaller model"));
}

static void test_choices_that_are_none(void **state) {
  (void)state;
  struct small_image image;
  small_image_init(&image);
  expect(&image, (struct engine_options){.device = "no such thing"}, MOE_USAGE,
         PARTS("no such device", "this box has"));
  expect(&image, (struct engine_options){.device = "77"}, MOE_USAGE, PARTS("--device 77"));
  expect(&image, (struct engine_options){.tier = "nv"}, MOE_DECLINED, PARTS("no kernels of tier nv"));
  expect(&image, (struct engine_options){.n_slot = 65}, MOE_USAGE, PARTS("--slots 65"));
}

/* A module that is no SPIR-V is found when it is first needed, and named. */
static void test_broken_module(void **state) {
  (void)state;
  struct small_image image;
  small_image_init(&image);
  struct moe_error err = {0};
  assert_int_equal(small_image_write(&image, path, &err), MOE_OK);
  const struct engine_options o = {.image_path = path, .n_slot = 1};
  struct scheduler *s;
  if (engine_open(&o, NULL, NULL, &s, &err)) fail_msg("%s", err.message);
  const int32_t prompt[] = {1};
  struct run_job job = {.request = {.prompt = prompt, .n_prompt = 1, .n_predict = 1}};
  assert_int_equal(run_jobs(s, &job, 1, NULL, NULL, NULL, &err), MOE_FAILED);
  if (!strstr(err.message, "module ") || !strstr(err.message, "damaged")) fail_msg("%s", err.message);
  engine_close(s);
  run_job_deinit(&job);
}

int main(void) {
  snprintf(path, sizeof path, "/tmp/test_declines.%ld.img", (long)getpid());
  const struct CMUnitTest without[] = {cmocka_unit_test(test_no_driver)};
  const struct CMUnitTest with[] = {
      cmocka_unit_test(test_nothing_lacks),
      cmocka_unit_test(test_every_feature_by_name),
      cmocka_unit_test(test_tiers),
      cmocka_unit_test(test_version_and_limits),
      cmocka_unit_test(test_fallback),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_choices_that_are_none),
      cmocka_unit_test(test_broken_module),
  };
  int failed = cmocka_run_group_tests(without, NULL, NULL);
  struct vk_instance *instance = NULL;
  struct moe_error err = {0};
  bool skip = vk_instance_create(&instance, &err) != MOE_OK;
  vk_instance_destroy(instance);
  if (skip) fprintf(stderr, "skipped: %s\n", err.message);
  if (!failed && !skip) failed = cmocka_run_group_tests(with, NULL, NULL);
  unlink(path);
  return !failed && skip ? 77 : failed;
}
