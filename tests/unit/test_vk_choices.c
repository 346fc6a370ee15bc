/* Choices that depend on hardware which a test machine rarely has: memory types when the first choice is full, queue
 * families that compute but cannot bind sparse buffers. The driver is a few functions of this file. */
#include "img_enums.h"
#include "vk_internal.h"
#include "vk_pipeline.h"
#include "vk_probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---- queue families ---- */

static void expect_family(const VkQueueFlags *flags, uint32_t n, bool feature, uint32_t family, bool sparse) {
  VkQueueFamilyProperties families[4] = {0};
  for (uint32_t i = 0; i < n; i++) {
    families[i].queueFlags = flags[i];
    families[i].timestampValidBits = 36 + i;
  }
  struct vk_gpu gpu = {.sparse = feature};
  vk_probe_family(families, n, &gpu);
  assert_int_equal(gpu.queue_family, family);
  assert_int_equal(gpu.sparse, sparse);
  assert_int_equal(gpu.timestamp_bits, family == VK_GPU_NO_QUEUE ? 0 : 36 + family); /* that family's */
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

static void test_resident_workgroups(void **state) {
  (void)state;
  assert_int_equal(vk_probe_resident(VK_GPU_DISCRETE, 132), 132);
  assert_int_equal(vk_probe_resident(VK_GPU_DISCRETE, 0), 0); /* not said: nothing is promised */
  assert_int_equal(vk_probe_resident(VK_GPU_DISCRETE, 5000), IMG_MAX_RESIDENT);
  assert_int_equal(vk_probe_resident(VK_GPU_CPU, 0), 1);
  assert_int_equal(vk_probe_resident(VK_GPU_CPU, 132), 1);
}

/* A module that needs resident workgroups has the device's number of them, whatever its grid. */
static void test_groups(void **state) {
  (void)state;
  const struct vk_gpu gpu = {.subgroup_size = 32, .resident = 132};
  struct img_module module = {
      .n_tuning = 2, .tuning = {{.min_subgroup = 1, .group_items = 4}, {.min_subgroup = 32, .group_items = 10}}};
  assert_int_equal(vk_groups(&module, &gpu, 101), 11);
  assert_int_equal(vk_groups(&module, &gpu, UINT32_MAX), 429496730);
  module.features = IMG_FEATURE_RESIDENT | IMG_FEATURE_BDA;
  assert_int_equal(vk_groups(&module, &gpu, 101), 132);
}

/* ---- memory types ---- */

enum { LOCAL = 0, HOST = 1, WINDOW = 2, CACHED = 3, N_TYPE = 4 }; /* a board without a resizable BAR */

static struct {
  uint32_t full; /* types without room, by bit */
  uint32_t n_try, n_free, allocated, n_bind;
  uint32_t memory;
} driver;

static VkResult fake_create_buffer(VkDevice d, const VkBufferCreateInfo *i, const VkAllocationCallbacks *a,
                                   VkBuffer *out) {
  (void)d, (void)i, (void)a;
  *out = (VkBuffer)&driver;
  return VK_SUCCESS;
}
static void fake_destroy_buffer(VkDevice d, VkBuffer b, const VkAllocationCallbacks *a) {
  (void)d, (void)b, (void)a;
}
static void fake_requirements(VkDevice d, VkBuffer b, VkMemoryRequirements *out) {
  (void)d, (void)b;
  *out = (VkMemoryRequirements){.size = 4096, .alignment = 256, .memoryTypeBits = (1u << N_TYPE) - 1};
}
static VkDeviceAddress fake_address(VkDevice d, const VkBufferDeviceAddressInfo *i) {
  (void)d, (void)i;
  return 4096;
}
static VkResult fake_allocate(VkDevice d, const VkMemoryAllocateInfo *i, const VkAllocationCallbacks *a,
                              VkDeviceMemory *out) {
  (void)d, (void)a;
  driver.n_try++;
  if (driver.full >> i->memoryTypeIndex & 1) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  driver.allocated = i->memoryTypeIndex;
  *out = (VkDeviceMemory)&driver.memory;
  return VK_SUCCESS;
}
static void fake_free(VkDevice d, VkDeviceMemory m, const VkAllocationCallbacks *a) {
  (void)d, (void)a;
  driver.n_free += m != VK_NULL_HANDLE;
}
static VkResult fake_bind(VkDevice d, VkBuffer b, VkDeviceMemory m, VkDeviceSize o) {
  (void)d, (void)b, (void)m, (void)o;
  driver.n_bind++;
  return VK_SUCCESS;
}
static VkResult fake_map(VkDevice d, VkDeviceMemory m, VkDeviceSize o, VkDeviceSize s, VkMemoryMapFlags f, void **out) {
  (void)d, (void)m, (void)o, (void)s, (void)f;
  *out = &driver;
  return VK_SUCCESS;
}

/* Creates a buffer while the types of `full` have no room; the type it got after n_try attempts, or N_TYPE. */
static uint32_t allocated(enum vk_buffer_use use, uint32_t full, uint32_t n_try) {
  const VkMemoryPropertyFlags visible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  const struct vk_gpu gpu = {
      .name = "board", .heap_bytes = 8ull << 30, .max_allocation = 4ull << 30, .max_buffer = 4ull << 30};
  struct vk_device device = {
      .api = {.CreateBuffer = fake_create_buffer,
              .DestroyBuffer = fake_destroy_buffer,
              .GetBufferMemoryRequirements = fake_requirements,
              .GetBufferDeviceAddress = fake_address,
              .AllocateMemory = fake_allocate,
              .FreeMemory = fake_free,
              .BindBufferMemory = fake_bind,
              .MapMemory = fake_map},
      .gpu = &gpu,
      .memory = {.memoryTypeCount = N_TYPE,
                 .memoryTypes = {{VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0},
                                 {visible, 1},
                                 {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | visible, 2},
                                 {visible | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, 1}},
                 .memoryHeapCount = 3,
                 .memoryHeaps = {{.size = 8ull << 30}, {.size = 16ull << 30}, {.size = 256ull << 20}}}};
  driver.full = full;
  driver.n_try = driver.n_free = driver.n_bind = 0;
  struct vk_buffer *buffer;
  struct moe_error err = {0};
  enum moe_code code = vk_buffer_create(&device, 4096, use, "a step block", &buffer, &err);
  assert_int_equal(driver.n_try, n_try);
  if (code) {
    assert_non_null(strstr(err.message, "allocating 4096 bytes for a step block"));
    assert_int_equal(driver.n_free, 0);
    return N_TYPE;
  }
  assert_int_equal(driver.n_bind, 1);
  assert_true(use == VK_BUFFER_DEVICE || vk_buffer_map(buffer));
  vk_buffer_destroy(buffer);
  assert_int_equal(driver.n_free, 1);
  return driver.allocated;
}

static void test_full_window(void **state) {
  (void)state;
  assert_int_equal(allocated(VK_BUFFER_STEP, 0, 1), WINDOW);
  assert_int_equal(allocated(VK_BUFFER_STEP, 1u << WINDOW, 2), HOST);
  assert_int_equal(allocated(VK_BUFFER_STEP, 1u << WINDOW | 1u << HOST, 3), CACHED);
  assert_int_equal(allocated(VK_BUFFER_STEP, 1u << WINDOW | 1u << HOST | 1u << CACHED, 3), N_TYPE); /* never LOCAL */
  assert_int_equal(allocated(VK_BUFFER_RESULT, 0, 1), CACHED);
  assert_int_equal(allocated(VK_BUFFER_RESULT, 1u << CACHED, 2), HOST);
  assert_int_equal(allocated(VK_BUFFER_DEVICE, 0, 1), LOCAL);
  assert_int_equal(allocated(VK_BUFFER_DEVICE, 1u << LOCAL, 1), N_TYPE); /* weights do not move to the host */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_families), cmocka_unit_test(test_resident_workgroups),
                                     cmocka_unit_test(test_groups), cmocka_unit_test(test_full_window)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
