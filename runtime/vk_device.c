#include "vk_device.h"

#include "img_print.h"
#include "vk_internal.h"
#include "vk_probe.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char vk_install_hint[] =
    "install one: the GPU vendor's driver package, or for AMD, Intel and CPU Debian's "
    "mesa-vulkan-drivers (and look whether VK_ICD_FILENAMES or VK_DRIVER_FILES is set)";

const char *vk_gpu_type_name(enum vk_gpu_type type) {
  static const char *const names[] = {"discrete", "integrated", "virtual", "cpu", "other"};
  return names[type];
}

/* Fills gpus and physical with the devices of Vulkan 1.2 and later, best first. */
static enum moe_code vk_instance_list(struct vk_instance *instance, struct moe_error *err) {
  const struct vk_api *api = &instance->api;
  uint32_t n = 0;
  VkResult result = api->EnumeratePhysicalDevices(instance->handle, &n, NULL);
  if (result != VK_SUCCESS || !n)
    return moe_fail(err, MOE_DECLINED, "no Vulkan driver on this box shows a device; %s", vk_install_hint);
  VkPhysicalDevice *found = calloc(n, sizeof *found);
  instance->gpus = calloc(n, sizeof *instance->gpus);
  instance->physical = calloc(n, sizeof *instance->physical);
  if (!found || !instance->gpus || !instance->physical) {
    free(found);
    return moe_fail(err, MOE_FAILED, "out of memory listing %u devices", n);
  }
  result = api->EnumeratePhysicalDevices(instance->handle, &n, found);
  char old_name[256] = "";
  for (uint32_t i = 0; result >= VK_SUCCESS && i < n; i++) {
    VkPhysicalDeviceProperties basic;
    api->GetPhysicalDeviceProperties(found[i], &basic);
    if (basic.apiVersion < VK_API_VERSION_1_2) {
      snprintf(old_name, sizeof old_name, "%s", basic.deviceName);
      continue;
    }
    struct vk_gpu gpu = {.index = i};
    vk_probe_gpu(api, found[i], &gpu);
    uint32_t at = instance->n_gpu++;
    for (; at > 0 && instance->gpus[at - 1].type > gpu.type; at--) {
      instance->gpus[at] = instance->gpus[at - 1];
      instance->physical[at] = instance->physical[at - 1];
    }
    instance->gpus[at] = gpu;
    instance->physical[at] = found[i];
  }
  free(found);
  if (result < VK_SUCCESS) return vk_fail(err, result, "listing the Vulkan devices");
  if (!instance->n_gpu)
    return moe_fail(err, MOE_DECLINED, "%s: its driver offers less than Vulkan 1.2; install a newer driver", old_name);
  return MOE_OK;
}

enum moe_code vk_instance_create(struct vk_instance **out, struct moe_error *err) {
  *out = NULL;
  struct vk_instance *instance = calloc(1, sizeof *instance);
  if (!instance) return moe_fail(err, MOE_FAILED, "out of memory");
  enum moe_code code = vk_api_open(&instance->api, err);
  if (code) {
    free(instance);
    return code;
  }
  uint32_t version = VK_API_VERSION_1_0;
  instance->api.EnumerateInstanceVersion(&version);
  if (version < VK_API_VERSION_1_2)
    code = moe_fail(err, MOE_DECLINED, "the Vulkan loader offers less than Vulkan 1.2; install a newer libvulkan1");
  const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                         .pApplicationName = "moert",
                                         .pEngineName = "moert",
                                         .apiVersion = version < VK_API_VERSION_1_3 ? version : VK_API_VERSION_1_3};
  const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
  if (!code) {
    VkResult result = instance->api.CreateInstance(&info, NULL, &instance->handle);
    if (result == VK_ERROR_INCOMPATIBLE_DRIVER)
      code = moe_fail(err, MOE_DECLINED, "no Vulkan driver on this box; %s", vk_install_hint);
    else if (result != VK_SUCCESS)
      code = vk_fail(err, result, "vkCreateInstance");
  }
  if (!code) code = vk_api_load_instance(&instance->api, instance->handle, err);
  if (!code) code = vk_instance_list(instance, err);
  if (code) {
    vk_instance_destroy(instance);
    return code;
  }
  *out = instance;
  return MOE_OK;
}

/* The VkInstance itself lasts until the process ends: destroying it would unload the drivers, which keep threads and
 * allocations of their own, and a process opens Vulkan once. */
void vk_instance_destroy(struct vk_instance *instance) {
  if (!instance) return;
  vk_api_close(&instance->api);
  free(instance->gpus);
  free(instance->physical);
  free(instance);
}

const struct vk_gpu *vk_instance_gpus(const struct vk_instance *instance, uint32_t *n) {
  *n = instance->n_gpu;
  return instance->gpus;
}

/* Declines when the device's figure for a limit is below what is needed. */
static enum moe_code vk_gpu_limit(const struct vk_gpu *gpu, const char *name, uint64_t found, uint64_t needed,
                                  struct moe_error *err) {
  if (found >= needed) return MOE_OK;
  return moe_fail(err, MOE_DECLINED, "device %s: %s is %llu, the image needs %llu; choose another device (moert probe)",
                  gpu->name, name, (unsigned long long)found, (unsigned long long)needed);
}

enum moe_code vk_gpu_check(const struct vk_gpu *gpu, const struct vk_needs *needs, struct moe_error *err) {
  if (gpu->api_version < VK_MAKE_API_VERSION(0, needs->vulkan_major, needs->vulkan_minor, 0))
    return moe_fail(err, MOE_DECLINED,
                    "device %s: its driver offers Vulkan %u.%u, the image needs %u.%u; install a newer driver",
                    gpu->name, VK_API_VERSION_MAJOR(gpu->api_version), VK_API_VERSION_MINOR(gpu->api_version),
                    needs->vulkan_major, needs->vulkan_minor);
  uint64_t missing = needs->features & ~gpu->features;
  for (uint32_t bit = 0; bit < 64; bit++) {
    if (!(missing >> bit & 1)) continue;
    const char *name = img_feature_name(bit);
    if (!name)
      return moe_fail(err, MOE_DECLINED,
                      "device %s: the image needs feature bit %u, which this moert does not know; "
                      "use a newer moert",
                      gpu->name, bit);
    return moe_fail(err, MOE_DECLINED,
                    "device %s: lacks %s, which the image needs; a newer driver may have it, or choose another device "
                    "(moert probe)",
                    gpu->name, name);
  }
  enum moe_code code = vk_gpu_limit(gpu, "maxPushConstantsSize", gpu->push_bytes, needs->push_bytes, err);
  if (!code) code = vk_gpu_limit(gpu, "maxComputeSharedMemorySize", gpu->shared_bytes, needs->shared_bytes, err);
  return code;
}

/* Whether `part` is in `text`, any case. */
static bool vk_contains(const char *text, const char *part) {
  size_t n = strlen(part);
  for (; *text; text++) {
    size_t i = 0;
    while (i < n && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i])) i++;
    if (i == n) return true;
  }
  return n == 0;
}

static enum moe_code vk_instance_none(const struct vk_instance *instance, const char *wanted, struct moe_error *err) {
  char list[512] = "";
  size_t at = 0;
  for (uint32_t i = 0; i < instance->n_gpu && at < sizeof list; i++)
    at += (size_t)snprintf(list + at, sizeof list - at, "%s%u: %s", i ? ", " : "", instance->gpus[i].index,
                           instance->gpus[i].name);
  return moe_fail(err, MOE_USAGE, "--device %s: no such device; this box has %s", wanted, list);
}

enum moe_code vk_instance_choose(const struct vk_instance *instance, const char *wanted, const struct vk_needs *needs,
                                 const struct vk_gpu **out, struct moe_error *err) {
  char *end = NULL;
  unsigned long index = wanted ? strtoul(wanted, &end, 10) : 0;
  bool by_index = wanted && *wanted && isdigit((unsigned char)*wanted) && !*end;
  struct moe_error first = {0};
  bool any = false;
  for (uint32_t i = 0; i < instance->n_gpu; i++) {
    const struct vk_gpu *gpu = &instance->gpus[i];
    if (by_index ? gpu->index != index : wanted && !vk_contains(gpu->name, wanted)) continue;
    any = true;
    struct moe_error why = {0};
    if (!vk_gpu_check(gpu, needs, &why)) {
      *out = gpu;
      return MOE_OK;
    }
    if (!first.code) first = why;
  }
  if (!any) return vk_instance_none(instance, wanted, err);
  return moe_fail(err, first.code, "%s", first.message);
}

/* Creates the VkDevice with the features of the table that it has. */
static VkResult vk_device_make(struct vk_device *device) {
  const uint64_t has = device->gpu->features;
#define HAS(ENUM) ((has >> VK_BIT_##ENUM & 1) ? VK_TRUE : VK_FALSE)
  enum {
#define IMG_FEATURE(BIT, ENUM, NAME) VK_BIT_##ENUM = BIT,
#include "img_features.def"
#undef IMG_FEATURE
  };
  static const char *const matrix_extension[] = {VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME};
  VkPhysicalDeviceVulkan13Features f13 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES,
                                          .subgroupSizeControl =
                                              device->gpu->subgroup_control || device->gpu->full_subgroups,
                                          .computeFullSubgroups = device->gpu->full_subgroups,
                                          .shaderIntegerDotProduct = HAS(DOT_PRODUCT)};
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
      .pNext = device->gpu->api_version >= VK_API_VERSION_1_3 ? &f13 : NULL,
      .cooperativeMatrix = VK_TRUE};
  VkPhysicalDeviceVulkan12Features f12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                          .pNext = HAS(KHR_MATRIX) ? &matrix : matrix.pNext,
                                          .bufferDeviceAddress = HAS(BDA),
                                          .shaderInt8 = HAS(INT8),
                                          .shaderFloat16 = HAS(FLOAT16),
                                          .storageBuffer8BitAccess = HAS(STORAGE8),
                                          .vulkanMemoryModel = HAS(MEMORY_MODEL),
                                          .vulkanMemoryModelDeviceScope = HAS(MEMORY_MODEL_DEVICE),
                                          .shaderSubgroupExtendedTypes = HAS(SUBGROUP_EXTENDED)};
  VkPhysicalDeviceVulkan11Features f11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
                                          .pNext = &f12,
                                          .storageBuffer16BitAccess = HAS(STORAGE16)};
  const VkPhysicalDeviceFeatures2 features = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
      .pNext = &f11,
      .features = {.shaderInt64 = HAS(INT64), .shaderInt16 = HAS(INT16), .sparseBinding = device->gpu->sparse}};
#undef HAS
  const float priority = 1;
  const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                         .queueFamilyIndex = device->queue_family,
                                         .queueCount = 1,
                                         .pQueuePriorities = &priority};
  const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                   .pNext = &features,
                                   .queueCreateInfoCount = 1,
                                   .pQueueCreateInfos = &queue,
                                   .enabledExtensionCount = (uint32_t)(has >> VK_BIT_KHR_MATRIX & 1),
                                   .ppEnabledExtensionNames = matrix_extension};
  return device->api.CreateDevice(device->physical, &info, NULL, &device->handle);
}

enum moe_code vk_device_create(struct vk_instance *instance, const struct vk_gpu *gpu, struct vk_device **out,
                               struct moe_error *err) {
  *out = NULL;
  struct vk_device *device = calloc(1, sizeof *device);
  if (!device) return moe_fail(err, MOE_FAILED, "out of memory");
  device->api = instance->api;
  device->instance = instance;
  device->gpu = gpu;
  device->physical = instance->physical[gpu - instance->gpus];
  VkPhysicalDeviceMemoryProperties2 memory = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  device->api.GetPhysicalDeviceMemoryProperties2(device->physical, &memory);
  device->memory = memory.memoryProperties;
  device->queue_family = gpu->queue_family;
  enum moe_code code = MOE_OK;
  if (gpu->queue_family == VK_GPU_NO_QUEUE)
    code =
        moe_fail(err, MOE_DECLINED, "device %s: has no compute queue; choose another device (moert probe)", gpu->name);
  if (!code) {
    VkResult result = vk_device_make(device);
    if (result != VK_SUCCESS) code = vk_fail(err, result, "vkCreateDevice");
  }
  if (!code) code = vk_api_load_device(&device->api, device->handle, err);
  if (code) {
    vk_device_destroy(device);
    return code;
  }
  device->api.GetDeviceQueue(device->handle, device->queue_family, 0, &device->queue);
  *out = device;
  return MOE_OK;
}

void vk_device_destroy(struct vk_device *device) {
  if (!device) return;
  if (device->handle && device->api.DestroyDevice) device->api.DestroyDevice(device->handle, NULL);
  free(device);
}

const struct vk_gpu *vk_device_gpu(const struct vk_device *device) {
  return device->gpu;
}
