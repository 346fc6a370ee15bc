#include "vk_api.h"

#include <dlfcn.h>
#include <string.h>

enum moe_code vk_api_open(struct vk_api *api, struct moe_error *err) {
  memset(api, 0, sizeof *api);
  api->library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!api->library)
    return moe_fail(err, MOE_DECLINED,
                    "no Vulkan loader on this box (libvulkan.so.1 does not load); install it and a driver: the GPU "
                    "vendor's driver package, or for AMD, Intel and CPU Debian's libvulkan1 and mesa-vulkan-drivers");
  *(void **)&api->GetInstanceProcAddr = dlsym(api->library, "vkGetInstanceProcAddr");
#define F(NAME)                                                                                                        \
  if (api->GetInstanceProcAddr) api->NAME = (PFN_vk##NAME)api->GetInstanceProcAddr(NULL, "vk" #NAME);                  \
  if (!api->NAME) {                                                                                                    \
    vk_api_close(api);                                                                                                 \
    return moe_fail(err, MOE_DECLINED, "the Vulkan loader has no vk" #NAME "; Vulkan 1.2 or later is needed");         \
  }
  VK_GLOBAL(F)
#undef F
  return MOE_OK;
}

enum moe_code vk_api_load_instance(struct vk_api *api, VkInstance instance, struct moe_error *err) {
#define F(NAME)                                                                                                        \
  api->NAME = (PFN_vk##NAME)api->GetInstanceProcAddr(instance, "vk" #NAME);                                            \
  if (!api->NAME) return moe_fail(err, MOE_DECLINED, "the Vulkan loader has no vk" #NAME);
  VK_INSTANCE(F)
#undef F
#define F(NAME) api->NAME = (PFN_vk##NAME)api->GetInstanceProcAddr(instance, "vk" #NAME);
  VK_INSTANCE_OPTIONAL(F)
#undef F
  return MOE_OK;
}

enum moe_code vk_api_load_device(struct vk_api *api, VkDevice device, struct moe_error *err) {
#define F(NAME)                                                                                                        \
  api->NAME = (PFN_vk##NAME)api->GetDeviceProcAddr(device, "vk" #NAME);                                                \
  if (!api->NAME) return moe_fail(err, MOE_DECLINED, "the Vulkan driver has no vk" #NAME);
  VK_DEVICE(F)
#undef F
  return MOE_OK;
}

/* The library stays loaded: drivers start threads and keep allocations that outlive an instance. */
void vk_api_close(struct vk_api *api) {
  memset(api, 0, sizeof *api);
}

const char *vk_result_name(VkResult result) {
  switch (result) {
  case VK_SUCCESS:
    return "VK_SUCCESS";
  case VK_TIMEOUT:
    return "VK_TIMEOUT";
  case VK_ERROR_OUT_OF_HOST_MEMORY:
    return "VK_ERROR_OUT_OF_HOST_MEMORY";
  case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    return "VK_ERROR_OUT_OF_DEVICE_MEMORY";
  case VK_ERROR_INITIALIZATION_FAILED:
    return "VK_ERROR_INITIALIZATION_FAILED";
  case VK_ERROR_DEVICE_LOST:
    return "VK_ERROR_DEVICE_LOST";
  case VK_ERROR_MEMORY_MAP_FAILED:
    return "VK_ERROR_MEMORY_MAP_FAILED";
  case VK_ERROR_EXTENSION_NOT_PRESENT:
    return "VK_ERROR_EXTENSION_NOT_PRESENT";
  case VK_ERROR_FEATURE_NOT_PRESENT:
    return "VK_ERROR_FEATURE_NOT_PRESENT";
  case VK_ERROR_INCOMPATIBLE_DRIVER:
    return "VK_ERROR_INCOMPATIBLE_DRIVER";
  case VK_ERROR_TOO_MANY_OBJECTS:
    return "VK_ERROR_TOO_MANY_OBJECTS";
  case VK_ERROR_INVALID_SHADER_NV:
    return "VK_ERROR_INVALID_SHADER_NV";
  default:
    return "an unnamed VkResult";
  }
}

enum moe_code vk_fail(struct moe_error *err, VkResult result, const char *what) {
  return moe_fail(err, MOE_FAILED, "%s: the Vulkan driver answered %s (%d)", what, vk_result_name(result), (int)result);
}
