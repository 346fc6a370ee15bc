/* vk_probe.c: fills struct vk_gpu from what a physical device reports.
 *
 * Owns: the check behind every row of img_features.def, and reading limits and budgets. Does not own: choosing and
 * creating (vk_device.c). Invariants: asks, creates nothing. */
#include "vk_probe.h"

#include "img_enums.h"
#include "img_format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Everything that features come from. */
struct vk_probe_answers {
  VkPhysicalDeviceFeatures f10;
  VkPhysicalDeviceVulkan11Features f11;
  VkPhysicalDeviceVulkan12Features f12;
  VkPhysicalDeviceVulkan13Features f13;
  VkPhysicalDeviceVulkan11Properties p11;
  uint32_t resident; /* struct vk_gpu */
  bool khr_matrix;
};

static bool vk_probe_subgroup(const struct vk_probe_answers *a, VkSubgroupFeatureFlags operations) {
  return (a->p11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) &&
         (a->p11.subgroupSupportedOperations & operations) == operations;
}

/* One check per row of img_features.def, by the row's ENUM. */
#define VK_HAS_BDA(a) (a)->f12.bufferDeviceAddress
#define VK_HAS_INT64(a) (a)->f10.shaderInt64
#define VK_HAS_INT16(a) (a)->f10.shaderInt16
#define VK_HAS_INT8(a) (a)->f12.shaderInt8
#define VK_HAS_FLOAT16(a) (a)->f12.shaderFloat16
#define VK_HAS_STORAGE8(a) (a)->f12.storageBuffer8BitAccess
#define VK_HAS_STORAGE16(a) (a)->f11.storageBuffer16BitAccess
#define VK_HAS_MEMORY_MODEL(a) (a)->f12.vulkanMemoryModel
#define VK_HAS_MEMORY_MODEL_DEVICE(a) (a)->f12.vulkanMemoryModelDeviceScope
#define VK_HAS_SUBGROUP_ARITHMETIC(a) vk_probe_subgroup(a, VK_SUBGROUP_FEATURE_ARITHMETIC_BIT)
#define VK_HAS_SUBGROUP_SHUFFLE(a)                                                                                     \
  vk_probe_subgroup(a, VK_SUBGROUP_FEATURE_SHUFFLE_BIT | VK_SUBGROUP_FEATURE_SHUFFLE_RELATIVE_BIT)
#define VK_HAS_SUBGROUP_BALLOT(a) vk_probe_subgroup(a, VK_SUBGROUP_FEATURE_BALLOT_BIT)
#define VK_HAS_SUBGROUP_EXTENDED(a) (a)->f12.shaderSubgroupExtendedTypes
#define VK_HAS_DOT_PRODUCT(a) (a)->f13.shaderIntegerDotProduct
#define VK_HAS_RESIDENT(a) (a)->resident
#define VK_HAS_KHR_MATRIX(a) (a)->khr_matrix

/* Whether MOERT_DENY_FEATURE names this feature. */
static bool vk_probe_denied(const char *name) {
  const char *denied = getenv("MOERT_DENY_FEATURE");
  size_t length = strlen(name);
  for (const char *at = denied; at && *at;) {
    size_t n = strcspn(at, ",");
    if (n == length && !memcmp(at, name, n)) return true;
    at += n + (at[n] == ',');
  }
  return false;
}

static uint64_t vk_probe_features(const struct vk_probe_answers *a) {
  uint64_t bits = 0;
#define IMG_FEATURE(BIT, ENUM, NAME)                                                                                   \
  if (VK_HAS_##ENUM(a) && !vk_probe_denied(NAME)) bits |= 1ull << BIT;
#include "img_features.def"
#undef IMG_FEATURE
  return bits;
}

bool vk_probe_extension(const struct vk_api *api, VkPhysicalDevice physical, const char *name) {
  uint32_t n = 0;
  if (api->EnumerateDeviceExtensionProperties(physical, NULL, &n, NULL) != VK_SUCCESS || !n) return false;
  VkExtensionProperties *list = calloc(n, sizeof *list);
  bool found = false;
  if (list && api->EnumerateDeviceExtensionProperties(physical, NULL, &n, list) >= VK_SUCCESS)
    for (uint32_t i = 0; i < n && !found; i++) found = !strcmp(list[i].extensionName, name);
  free(list);
  return found;
}

/* Whether the device has the matrices of VK_KHR_cooperative_matrix that kernels take at this subgroup size. */
static bool vk_probe_matrix(const struct vk_api *api, VkPhysicalDevice physical, uint32_t subgroup_size) {
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};
  VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &matrix};
  if (!api->GetPhysicalDeviceCooperativeMatrixPropertiesKHR ||
      !vk_probe_extension(api, physical, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME))
    return false;
  api->GetPhysicalDeviceFeatures2(physical, &features);
  uint32_t n = 0, side = subgroup_size == 8 ? 8 : 16;
  if (!matrix.cooperativeMatrix || subgroup_size < 8 ||
      api->GetPhysicalDeviceCooperativeMatrixPropertiesKHR(physical, &n, NULL) != VK_SUCCESS || !n)
    return false;
  VkCooperativeMatrixPropertiesKHR *list = calloc(n, sizeof *list);
  for (uint32_t i = 0; list && i < n; i++) list[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
  bool found = false;
  if (list && api->GetPhysicalDeviceCooperativeMatrixPropertiesKHR(physical, &n, list) >= VK_SUCCESS)
    for (uint32_t i = 0; i < n && !found; i++) {
      const VkCooperativeMatrixPropertiesKHR *m = &list[i];
      found = m->MSize == side && m->NSize == side && m->KSize == side && m->scope == VK_SCOPE_SUBGROUP_KHR &&
              m->AType == VK_COMPONENT_TYPE_FLOAT16_KHR && m->BType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
              m->CType == VK_COMPONENT_TYPE_FLOAT32_KHR && m->ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR;
    }
  free(list);
  return found;
}

/* MemAvailable of /proc/meminfo in bytes; UINT64_MAX when unknown. */
static uint64_t vk_probe_box_memory(void) {
  FILE *file = fopen("/proc/meminfo", "r");
  if (!file) return UINT64_MAX;
  char line[256];
  unsigned long long kib, found = 0;
  bool ok = false;
  while (!ok && fgets(line, sizeof line, file))
    if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) {
      found = kib;
      ok = true;
    }
  fclose(file);
  return ok ? found * 1024ull : UINT64_MAX;
}

static void vk_probe_memory(const struct vk_api *api, VkPhysicalDevice physical, struct vk_gpu *gpu) {
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
  VkPhysicalDeviceMemoryProperties2 memory = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  gpu->has_budget = vk_probe_extension(api, physical, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (gpu->has_budget) memory.pNext = &budget;
  api->GetPhysicalDeviceMemoryProperties2(physical, &memory);
  const VkPhysicalDeviceMemoryProperties *m = &memory.memoryProperties;
  uint32_t heap = 0;
  for (uint32_t i = 0; i < m->memoryHeapCount; i++)
    if ((m->memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) && m->memoryHeaps[i].size > gpu->heap_bytes) {
      gpu->heap_bytes = m->memoryHeaps[i].size;
      heap = i;
    }
  gpu->available_bytes = gpu->heap_bytes;
  if (gpu->has_budget) {
    uint64_t total = budget.heapBudget[heap], used = budget.heapUsage[heap];
    gpu->available_bytes = total > used ? total - used : 0;
  }
  uint64_t box = vk_probe_box_memory();
  if ((gpu->type == VK_GPU_CPU || gpu->type == VK_GPU_INTEGRATED) && gpu->available_bytes > box)
    gpu->available_bytes = box;
  const VkMemoryPropertyFlags both = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
  for (uint32_t i = 0; i < m->memoryTypeCount; i++)
    if (m->memoryTypes[i].heapIndex == heap && (m->memoryTypes[i].propertyFlags & both) == both)
      gpu->host_visible = true;
}

static enum vk_gpu_type vk_probe_type(VkPhysicalDeviceType type) {
  switch (type) {
  case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
    return VK_GPU_DISCRETE;
  case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
    return VK_GPU_INTEGRATED;
  case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
    return VK_GPU_VIRTUAL;
  case VK_PHYSICAL_DEVICE_TYPE_CPU:
    return VK_GPU_CPU;
  default:
    return VK_GPU_OTHER;
  }
}

static void vk_probe_limits(const VkPhysicalDeviceProperties *p, const VkPhysicalDeviceVulkan11Properties *p11,
                            struct vk_gpu *gpu) {
  gpu->type = vk_probe_type(p->deviceType);
  gpu->vendor_id = p->vendorID;
  gpu->device_id = p->deviceID;
  gpu->api_version = p->apiVersion;
  gpu->push_bytes = p->limits.maxPushConstantsSize;
  gpu->shared_bytes = p->limits.maxComputeSharedMemorySize;
  gpu->workgroup_size = p->limits.maxComputeWorkGroupInvocations;
  gpu->workgroup_x = p->limits.maxComputeWorkGroupSize[0];
  for (int i = 0; i < 3; i++) gpu->grid[i] = p->limits.maxComputeWorkGroupCount[i];
  gpu->subgroup_size = gpu->min_subgroup = gpu->max_subgroup = p11->subgroupSize;
  gpu->timestamp_ns = (double)p->limits.timestampPeriod;
  gpu->max_allocation = gpu->max_buffer = p11->maxMemoryAllocationSize;
  for (int i = 0; i < 16; i++) snprintf(gpu->uuid + 2 * i, 3, "%02x", p->pipelineCacheUUID[i]);
  snprintf(gpu->name, sizeof gpu->name, "%s", p->deviceName);
}

uint32_t vk_probe_resident(enum vk_gpu_type type, uint32_t n_multiprocessor) {
  if (type == VK_GPU_CPU) return 1;
  return n_multiprocessor < IMG_MAX_RESIDENT ? n_multiprocessor : IMG_MAX_RESIDENT;
}

/* The device's multiprocessors: each has room for a workgroup of any size that the device takes. 0: it does not say. */
static uint32_t vk_probe_multiprocessors(const struct vk_api *api, VkPhysicalDevice physical) {
  VkPhysicalDeviceShaderSMBuiltinsPropertiesNV builtins = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV};
  VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                            .pNext = &builtins};
  if (!vk_probe_extension(api, physical, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) return 0;
  api->GetPhysicalDeviceProperties2(physical, &properties);
  return builtins.shaderSMCount;
}

/* Graphics does not matter. A device whose families that compute cannot bind sparse buffers counts as one without. */
void vk_probe_family(const VkQueueFamilyProperties *families, uint32_t n, struct vk_gpu *gpu) {
  const VkQueueFlags both = VK_QUEUE_COMPUTE_BIT | VK_QUEUE_SPARSE_BINDING_BIT;
  uint32_t any = VK_GPU_NO_QUEUE, sparse = VK_GPU_NO_QUEUE;
  for (uint32_t i = n; i-- > 0;) {
    if (families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) any = i;
    if ((families[i].queueFlags & both) == both) sparse = i;
  }
  gpu->sparse = gpu->sparse && sparse != VK_GPU_NO_QUEUE;
  gpu->queue_family = gpu->sparse ? sparse : any;
  if (gpu->queue_family != VK_GPU_NO_QUEUE && !vk_probe_denied("timestampValidBits"))
    gpu->timestamp_bits = families[gpu->queue_family].timestampValidBits;
}

void vk_probe_gpu(const struct vk_api *api, VkPhysicalDevice physical, struct vk_gpu *gpu) {
  VkPhysicalDeviceProperties basic;
  api->GetPhysicalDeviceProperties(physical, &basic);
  bool is_13 = basic.apiVersion >= VK_API_VERSION_1_3;

  struct vk_probe_answers a = {.f11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES},
                               .f12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES},
                               .f13 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES},
                               .p11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES}};
  VkPhysicalDeviceVulkan13Properties p13 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES};
  VkPhysicalDeviceVulkan12Properties p12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES,
                                            .pNext = is_13 ? &p13 : NULL};
  a.f11.pNext = &a.f12;
  a.f12.pNext = is_13 ? &a.f13 : NULL;
  a.p11.pNext = &p12;
  VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &a.f11};
  VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &a.p11};
  api->GetPhysicalDeviceFeatures2(physical, &features);
  api->GetPhysicalDeviceProperties2(physical, &properties);
  a.f10 = features.features;
  a.khr_matrix = vk_probe_matrix(api, physical, a.p11.subgroupSize);

  vk_probe_limits(&properties.properties, &a.p11, gpu);
  a.resident = gpu->resident = vk_probe_resident(gpu->type, vk_probe_multiprocessors(api, physical));
  gpu->features = vk_probe_features(&a);
  gpu->sparse = a.f10.sparseBinding;
  VkQueueFamilyProperties families[32];
  uint32_t n_family = 32;
  api->GetPhysicalDeviceQueueFamilyProperties(physical, &n_family, families);
  vk_probe_family(families, n_family, gpu);
  snprintf(gpu->driver, sizeof gpu->driver, "%s %s", p12.driverName, p12.driverInfo);
  if (gpu->type == VK_GPU_CPU) gpu->emulated |= gpu->features & IMG_FEATURE_RESIDENT; /* one at a time is no speed */
  if (gpu->type == VK_GPU_CPU) gpu->emulated |= gpu->features & IMG_FEATURE_KHR_MATRIX;
  if (is_13) {
    if (!p13.integerDotProduct4x8BitPackedSignedAccelerated) gpu->emulated |= gpu->features & IMG_FEATURE_DOT_PRODUCT;
    gpu->max_buffer = p13.maxBufferSize;
    gpu->min_subgroup = p13.minSubgroupSize;
    gpu->max_subgroup = p13.maxSubgroupSize;
    gpu->max_workgroup_subgroups = p13.maxComputeWorkgroupSubgroups;
    gpu->subgroup_control =
        a.f13.subgroupSizeControl && (p13.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
    gpu->full_subgroups = a.f13.subgroupSizeControl && a.f13.computeFullSubgroups;
  }
  vk_probe_memory(api, physical, gpu);
}
