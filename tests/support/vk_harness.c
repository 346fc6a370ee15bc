/* vk_harness.c: see vk_harness.h. A Vulkan call that fails ends the program: in a test nothing can be done about it. */
#include "vk_harness.h"

#include "img_enums.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define VKH_CHECK(CALL)                                                                                                \
  do {                                                                                                                 \
    VkResult result_ = (CALL);                                                                                         \
    if (result_ != VK_SUCCESS) {                                                                                       \
      fprintf(stderr, "%s:%d: %s: VkResult %d\n", __FILE__, __LINE__, #CALL, (int)result_);                            \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

static enum moe_code create_instance(struct vkh_device *d, struct moe_error *err) {
  const VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_3};
  const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app};
  uint32_t n = 0, wanted = 0;
  if (vkCreateInstance(&info, NULL, &d->instance) != VK_SUCCESS ||
      vkEnumeratePhysicalDevices(d->instance, &n, NULL) != VK_SUCCESS || n == 0)
    return moe_fail(err, MOE_FAILED,
                    "no Vulkan device: install a driver (on Debian, mesa-vulkan-drivers has one for the CPU)");
  const char *number = getenv("MOE_TEST_DEVICE");
  if (number) wanted = (uint32_t)strtoul(number, NULL, 10);
  if (wanted >= n) return moe_fail(err, MOE_FAILED, "MOE_TEST_DEVICE is %s, there are %u devices", number, n);
  VkPhysicalDevice *all = calloc(n, sizeof *all);
  if (!all) return moe_fail(err, MOE_FAILED, "no memory for %u devices", n);
  VKH_CHECK(vkEnumeratePhysicalDevices(d->instance, &n, all));
  d->physical = all[wanted];
  free(all);
  return MOE_OK;
}

static void find_limits(struct vkh_device *d) {
  VkPhysicalDeviceSubgroupProperties subgroup = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES};
  VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                            .pNext = &subgroup};
  vkGetPhysicalDeviceProperties2(d->physical, &properties);
  snprintf(d->name, sizeof d->name, "%s", properties.properties.deviceName);
  d->subgroup = subgroup.subgroupSize;
}

static enum moe_code find_family_and_memory(struct vkh_device *d, struct moe_error *err) {
  VkQueueFamilyProperties families[32];
  uint32_t n = 32;
  vkGetPhysicalDeviceQueueFamilyProperties(d->physical, &n, families);
  d->family = UINT32_MAX;
  for (uint32_t i = 0; i < n && d->family == UINT32_MAX; i++)
    if (families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) d->family = i;
  VkPhysicalDeviceMemoryProperties memory;
  vkGetPhysicalDeviceMemoryProperties(d->physical, &memory);
  const VkMemoryPropertyFlags host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  d->memory_type = UINT32_MAX;
  for (uint32_t i = 0; i < memory.memoryTypeCount; i++) {
    VkMemoryPropertyFlags flags = memory.memoryTypes[i].propertyFlags;
    if ((flags & host) != host) continue;
    /* Device-local memory that the host sees is best: benchmarks here then mean something on a GPU. */
    if (d->memory_type == UINT32_MAX || (flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT)) d->memory_type = i;
    if (flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) break;
  }
  if (d->family == UINT32_MAX || d->memory_type == UINT32_MAX)
    return moe_fail(err, MOE_FAILED, "%s has no compute queue or no host-visible memory", d->name);
  return MOE_OK;
}

static bool has_extension(struct vkh_device *d, const char *name) {
  uint32_t n = 0;
  VKH_CHECK(vkEnumerateDeviceExtensionProperties(d->physical, NULL, &n, NULL));
  VkExtensionProperties *list = calloc(n + 1, sizeof *list);
  bool found = false;
  if (list && vkEnumerateDeviceExtensionProperties(d->physical, NULL, &n, list) == VK_SUCCESS)
    for (uint32_t i = 0; i < n && !found; i++) found = !strcmp(list[i].extensionName, name);
  free(list);
  return found;
}

/* Whether there are subgroup matrices of f16 with f32 sums: 16x16x16, or 8x8x8 where the subgroup size is 8. */
static bool has_matrix(struct vkh_device *d) {
  if (!has_extension(d, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME)) return false;
  PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR get =
      (PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)vkGetInstanceProcAddr(
          d->instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
  VkCooperativeMatrixPropertiesKHR list[64];
  uint32_t n = 64, side = d->subgroup == 8 ? 8 : 16;
  for (uint32_t i = 0; i < n; i++)
    list[i] = (VkCooperativeMatrixPropertiesKHR){.sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR};
  if (!get || get(d->physical, &n, list) < VK_SUCCESS) return false;
  for (uint32_t i = 0; i < n; i++)
    if (list[i].MSize == side && list[i].NSize == side && list[i].KSize == side &&
        list[i].scope == VK_SCOPE_SUBGROUP_KHR && list[i].AType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
        list[i].BType == VK_COMPONENT_TYPE_FLOAT16_KHR && list[i].ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR)
      return true;
  return false;
}

static enum moe_code create_device(struct vkh_device *d, struct moe_error *err) {
  VkPhysicalDeviceProperties properties;
  vkGetPhysicalDeviceProperties(d->physical, &properties);
  VkPhysicalDeviceVulkan13Features have13 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES};
  VkPhysicalDeviceVulkan12Features have12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                             .pNext = properties.apiVersion >= VK_API_VERSION_1_3 ? &have13 : NULL};
  VkPhysicalDeviceFeatures2 have = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &have12};
  vkGetPhysicalDeviceFeatures2(d->physical, &have);
  if (!have12.bufferDeviceAddress || !have12.vulkanMemoryModel || !have12.vulkanMemoryModelDeviceScope ||
      !have.features.shaderInt64)
    return moe_fail(err, MOE_FAILED,
                    "%s lacks buffer device addresses, the device-scope memory model or 64-bit integers", d->name);
  static const char *const extension[] = {VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME};
  d->dot_product = have13.shaderIntegerDotProduct;
  VkPhysicalDeviceVulkan13Features want13 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES,
                                             .shaderIntegerDotProduct = have13.shaderIntegerDotProduct};
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
      .pNext = d->dot_product ? &want13 : NULL,
      .cooperativeMatrix = VK_TRUE};
  d->matrix = have12.shaderFloat16 && has_matrix(d);
  VkPhysicalDeviceVulkan12Features want12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                             .pNext = d->matrix ? &matrix : matrix.pNext,
                                             .shaderFloat16 = d->matrix,
                                             .bufferDeviceAddress = VK_TRUE,
                                             .vulkanMemoryModel = VK_TRUE,
                                             .vulkanMemoryModelDeviceScope = VK_TRUE};
  VkPhysicalDeviceFeatures2 want = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &want12, .features = {.shaderInt64 = VK_TRUE}};
  const float priority = 1;
  const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                         .queueFamilyIndex = d->family,
                                         .queueCount = 1,
                                         .pQueuePriorities = &priority};
  const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                   .pNext = &want,
                                   .queueCreateInfoCount = 1,
                                   .pQueueCreateInfos = &queue,
                                   .enabledExtensionCount = d->matrix,
                                   .ppEnabledExtensionNames = extension};
  VKH_CHECK(vkCreateDevice(d->physical, &info, NULL, &d->device));
  vkGetDeviceQueue(d->device, d->family, 0, &d->queue);
  const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                        .queueFamilyIndex = d->family};
  VKH_CHECK(vkCreateCommandPool(d->device, &pool, NULL, &d->pool));
  const VkCommandBufferAllocateInfo commands = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                                .commandPool = d->pool,
                                                .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                                .commandBufferCount = 1};
  VKH_CHECK(vkAllocateCommandBuffers(d->device, &commands, &d->commands));
  const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  VKH_CHECK(vkCreateFence(d->device, &fence, NULL, &d->fence));
  return MOE_OK;
}

enum moe_code vkh_open(struct vkh_device *d, struct moe_error *err) {
  memset(d, 0, sizeof *d);
  d->n_resident = 1;
  enum moe_code code = create_instance(d, err);
  if (code) return code;
  find_limits(d);
  code = find_family_and_memory(d, err);
  if (!code) code = create_device(d, err);
  if (!code) fprintf(stderr, "device: %s, subgroup size %u\n", d->name, d->subgroup);
  return code;
}

void vkh_close(struct vkh_device *d) {
  if (d->device) {
    vkDestroyFence(d->device, d->fence, NULL);
    vkDestroyCommandPool(d->device, d->pool, NULL);
    vkDestroyDevice(d->device, NULL);
  }
  if (d->instance) vkDestroyInstance(d->instance, NULL);
  memset(d, 0, sizeof *d);
}

/* Bytes between the guards: whole words. */
static uint64_t padded(uint64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

void vkh_buffer_init(struct vkh_device *d, uint64_t bytes, struct vkh_buffer *b) {
  memset(b, 0, sizeof *b);
  b->bytes = bytes;
  const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                   .size = padded(bytes) + 2 * VKH_GUARD,
                                   .usage =
                                       VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT};
  VKH_CHECK(vkCreateBuffer(d->device, &info, NULL, &b->buffer));
  VkMemoryRequirements need;
  vkGetBufferMemoryRequirements(d->device, b->buffer, &need);
  const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                           .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
  const VkMemoryAllocateInfo memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = &flags,
                                       .allocationSize = need.size,
                                       .memoryTypeIndex = d->memory_type};
  VKH_CHECK(vkAllocateMemory(d->device, &memory, NULL, &b->memory));
  VKH_CHECK(vkBindBufferMemory(d->device, b->buffer, b->memory, 0));
  void *map;
  VKH_CHECK(vkMapMemory(d->device, b->memory, 0, VK_WHOLE_SIZE, 0, &map));
  b->data = (uint8_t *)map + VKH_GUARD;
  const VkBufferDeviceAddressInfo address = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                             .buffer = b->buffer};
  b->address = vkGetBufferDeviceAddress(d->device, &address) + VKH_GUARD;
  vkh_buffer_poison(b);
}

void vkh_buffer_deinit(struct vkh_device *d, struct vkh_buffer *b) {
  vkDestroyBuffer(d->device, b->buffer, NULL);
  vkFreeMemory(d->device, b->memory, NULL);
  memset(b, 0, sizeof *b);
}

void vkh_buffer_poison(struct vkh_buffer *b) {
  uint32_t *words = (uint32_t *)(b->data - VKH_GUARD);
  for (uint64_t i = 0; i < (padded(b->bytes) + 2 * VKH_GUARD) / 4; i++) words[i] = VKH_POISON;
}

static bool poisoned(const uint8_t *from, const uint8_t *to, const uint8_t *origin) {
  static const uint8_t pattern[4] = {VKH_POISON & 255, VKH_POISON >> 8 & 255, VKH_POISON >> 16 & 255, VKH_POISON >> 24};
  for (const uint8_t *p = from; p < to; p++)
    if (*p != pattern[(p - origin) & 3]) return false;
  return true;
}

bool vkh_buffer_intact(const struct vkh_buffer *b) {
  const uint8_t *origin = b->data - VKH_GUARD;
  return poisoned(origin, b->data, origin) &&
         poisoned(b->data + b->bytes, b->data + padded(b->bytes) + VKH_GUARD, origin);
}

void vkh_kernel_init(struct vkh_device *d, const struct shadergen_module *module, struct vkh_kernel *k) {
  memset(k, 0, sizeof *k);
  const struct img_tuning *tuning = &module->tuning[0];
  for (uint32_t i = 0; i < module->n_tuning; i++)
    if (module->tuning[i].min_subgroup <= d->subgroup) tuning = &module->tuning[i];
  k->push_bytes = module->push_bytes;
  k->group_items = tuning->group_items;
  const VkShaderModuleCreateInfo shader = {
      .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = module->bytes, .pCode = module->words};
  VKH_CHECK(vkCreateShaderModule(d->device, &shader, NULL, &k->module));
  const VkPushConstantRange range = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = module->push_bytes};
  const VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                             .pushConstantRangeCount = 1,
                                             .pPushConstantRanges = &range};
  VKH_CHECK(vkCreatePipelineLayout(d->device, &layout, NULL, &k->layout));
  uint32_t values[IMG_N_SPEC];
  VkSpecializationMapEntry entries[IMG_N_SPEC];
  for (uint32_t i = 0; i < IMG_N_SPEC; i++) {
    values[i] = i == IMG_SPEC_SUBGROUP ? d->subgroup : tuning->spec[i];
    entries[i] = (VkSpecializationMapEntry){.constantID = i, .offset = 4 * i, .size = 4};
  }
  if (module->features & IMG_FEATURE_RESIDENT) k->n_group = values[IMG_SPEC_EXTRA] = d->n_resident;
  const VkSpecializationInfo specialization = {
      .mapEntryCount = IMG_N_SPEC, .pMapEntries = entries, .dataSize = sizeof values, .pData = values};
  const VkComputePipelineCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
                                            .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                                                      .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                                                      .module = k->module,
                                                      .pName = "main",
                                                      .pSpecializationInfo = &specialization},
                                            .layout = k->layout};
  VKH_CHECK(vkCreateComputePipelines(d->device, VK_NULL_HANDLE, 1, &info, NULL, &k->pipeline));
}

void vkh_kernel_deinit(struct vkh_device *d, struct vkh_kernel *k) {
  vkDestroyPipeline(d->device, k->pipeline, NULL);
  vkDestroyPipelineLayout(d->device, k->layout, NULL);
  vkDestroyShaderModule(d->device, k->module, NULL);
  memset(k, 0, sizeof *k);
}

static void record(struct vkh_device *d, const struct vkh_dispatch *dispatch, uint32_t n, uint32_t repeat) {
  const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  const VkMemoryBarrier all = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                               .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_HOST_WRITE_BIT,
                               .dstAccessMask =
                                   VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_HOST_READ_BIT};
  VKH_CHECK(vkBeginCommandBuffer(d->commands, &begin));
  for (uint32_t i = 0; i < n * repeat; i++) {
    const struct vkh_dispatch *it = &dispatch[i % n];
    const struct vkh_kernel *k = it->kernel;
    vkCmdBindPipeline(d->commands, VK_PIPELINE_BIND_POINT_COMPUTE, k->pipeline);
    vkCmdPushConstants(d->commands, k->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, k->push_bytes, it->push);
    uint32_t n_group = k->n_group ? k->n_group : (it->grid[0] + k->group_items - 1) / k->group_items;
    vkCmdDispatch(d->commands, n_group, it->grid[1], it->grid[2]);
    vkCmdPipelineBarrier(d->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                         VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &all, 0, NULL, 0,
                         NULL);
  }
  VKH_CHECK(vkEndCommandBuffer(d->commands));
}

double vkh_run(struct vkh_device *d, const struct vkh_dispatch *dispatch, uint32_t n, uint32_t repeat) {
  record(d, dispatch, n, repeat);
  const VkSubmitInfo submit = {
      .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &d->commands};
  struct timespec from, to;
  clock_gettime(CLOCK_MONOTONIC, &from);
  VKH_CHECK(vkQueueSubmit(d->queue, 1, &submit, d->fence));
  VKH_CHECK(vkWaitForFences(d->device, 1, &d->fence, VK_TRUE, 60000000000ull));
  clock_gettime(CLOCK_MONOTONIC, &to);
  VKH_CHECK(vkResetFences(d->device, 1, &d->fence));
  return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}
