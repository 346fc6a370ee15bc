/* vk_api.h: the Vulkan functions that the runtime calls, loaded at run time. Included by vk_*.c only.
 *
 * Owns: the one inclusion of vulkan.h, the list of functions (VK_GLOBAL, VK_INSTANCE, VK_DEVICE) and the loading of
 * libvulkan. Does not own: devices (vk_device.c).
 * Invariants: moert is not linked with libvulkan, so that it starts, and says what to install, on a box that has none.
 * Thread rules: the table is filled once per struct and read only from then on. */
#ifndef RUNTIME_VK_API_H
#define RUNTIME_VK_API_H

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include "moe_error.h"

#define VK_GLOBAL(F) F(CreateInstance) F(EnumerateInstanceVersion)

#define VK_INSTANCE(F)                                                                                                 \
  F(EnumeratePhysicalDevices)                                                                                          \
  F(GetPhysicalDeviceProperties)                                                                                       \
  F(GetPhysicalDeviceProperties2)                                                                                      \
  F(GetPhysicalDeviceFeatures2)                                                                                        \
  F(GetPhysicalDeviceMemoryProperties2)                                                                                \
  F(GetPhysicalDeviceQueueFamilyProperties)                                                                            \
  F(EnumerateDeviceExtensionProperties)                                                                                \
  F(CreateDevice)                                                                                                      \
  F(GetDeviceProcAddr)

#define VK_DEVICE(F)                                                                                                   \
  F(DestroyDevice)                                                                                                     \
  F(GetDeviceQueue)                                                                                                    \
  F(DeviceWaitIdle)                                                                                                    \
  F(CreateBuffer)                                                                                                      \
  F(DestroyBuffer)                                                                                                     \
  F(GetBufferMemoryRequirements)                                                                                       \
  F(GetBufferDeviceAddress)                                                                                            \
  F(AllocateMemory)                                                                                                    \
  F(FreeMemory)                                                                                                        \
  F(BindBufferMemory)                                                                                                  \
  F(QueueBindSparse)                                                                                                   \
  F(MapMemory)                                                                                                         \
  F(FlushMappedMemoryRanges)                                                                                           \
  F(InvalidateMappedMemoryRanges)                                                                                      \
  F(CreateShaderModule)                                                                                                \
  F(DestroyShaderModule)                                                                                               \
  F(CreatePipelineLayout)                                                                                              \
  F(DestroyPipelineLayout)                                                                                             \
  F(CreatePipelineCache)                                                                                               \
  F(DestroyPipelineCache)                                                                                              \
  F(GetPipelineCacheData)                                                                                              \
  F(CreateComputePipelines)                                                                                            \
  F(DestroyPipeline)                                                                                                   \
  F(CreateCommandPool)                                                                                                 \
  F(DestroyCommandPool)                                                                                                \
  F(AllocateCommandBuffers)                                                                                            \
  F(BeginCommandBuffer)                                                                                                \
  F(EndCommandBuffer)                                                                                                  \
  F(CmdBindPipeline)                                                                                                   \
  F(CmdPushConstants)                                                                                                  \
  F(CmdDispatch)                                                                                                       \
  F(CmdPipelineBarrier)                                                                                                \
  F(CmdCopyBuffer)                                                                                                     \
  F(CmdFillBuffer)                                                                                                     \
  F(CreateFence)                                                                                                       \
  F(DestroyFence)                                                                                                      \
  F(WaitForFences)                                                                                                     \
  F(ResetFences)                                                                                                       \
  F(QueueSubmit)                                                                                                       \
  F(CreateQueryPool)                                                                                                   \
  F(DestroyQueryPool)                                                                                                  \
  F(GetQueryPoolResults)                                                                                               \
  F(CmdResetQueryPool)                                                                                                 \
  F(CmdWriteTimestamp)

/* What an instance has only with a driver that has the extension; NULL otherwise. */
#define VK_INSTANCE_OPTIONAL(F) F(GetPhysicalDeviceCooperativeMatrixPropertiesKHR)

struct vk_api {
  void *library;
#define F(NAME) PFN_vk##NAME NAME;
  VK_GLOBAL(F)
  VK_INSTANCE(F)
  VK_INSTANCE_OPTIONAL(F)
  VK_DEVICE(F)
#undef F
  PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
};

/* Loads libvulkan and the global functions.
 * Errors: MOE_DECLINED when there is no library, with what to install. vk_api_close forgets them. */
enum moe_code vk_api_open(struct vk_api *api, struct moe_error *err);
/* Fill the instance's and the device's functions. Errors: MOE_DECLINED, the missing function named. */
enum moe_code vk_api_load_instance(struct vk_api *api, VkInstance instance, struct moe_error *err);
enum moe_code vk_api_load_device(struct vk_api *api, VkDevice device, struct moe_error *err);
void vk_api_close(struct vk_api *api);

/* A VkResult's name, for messages. */
const char *vk_result_name(VkResult result);

/* Records that a Vulkan call failed (MOE_FAILED). what: what was being done, "vkCreateDevice on llvmpipe". */
enum moe_code vk_fail(struct moe_error *err, VkResult result, const char *what);

#endif
