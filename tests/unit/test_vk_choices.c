/* Choices that depend on hardware which a test machine rarely has: queue families that
 * compute but cannot bind sparse buffers. */
#include "vk_probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* ---- queue families ---- */

static void expect_family(const VkQueueFlags *flags, uint32_t n, bool feature, uint32_t family, bool sparse) {
  VkQueueFamilyProperties families[4] = {0};
  for (uint32_t i = 0; i < n; i++) families[i].queueFlags = flags[i];
  struct vk_gpu gpu = {.sparse = feature};
  vk_probe_family(families, n, &gpu);
  assert_int_equal(gpu.queue_family, family);
  assert_int_equal(gpu.sparse, sparse);
}

static void test_families(void **state) {
  (void)state;
  const VkQueueFlags graphics = VK_QUEUE_GRAPHICS_BIT, compute = VK_QUEUE_COMPUTE_BIT,
                     bind = VK_QUEUE_SPARSE_BINDING_BIT;
  expect_family((VkQueueFlags[]){graphics | bind, compute, compute | bind}, 3, true, 2, true);
  expect_family((VkQueueFlags[]){graphics | bind, compute, compute | bind}, 3, false, 1, false);
  expect_family((VkQueueFlags[]){graphics | bind, compute}, 2, true, 1, false); /* binds, but not where it computes */
  expect_family((VkQueueFlags[]){graphics | bind}, 1, true, VK_GPU_NO_QUEUE, false);
  expect_family(NULL, 0, true, VK_GPU_NO_QUEUE, false);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_families)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
