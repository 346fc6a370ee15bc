#include "vk_warm.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct vk_warm {
  struct vk_device *device;
  VkPipelineLayout layout;
  VkCommandPool pool;
  VkCommandBuffer commands;
  VkFence fence;
  uint32_t push_bytes;
};

static bool vk_warm_init(struct vk_warm *w) {
  const struct vk_api *api = &w->device->api;
  VkDevice device = w->device->handle;
  const VkPushConstantRange range = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = w->push_bytes};
  const VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                             .pushConstantRangeCount = 1,
                                             .pPushConstantRanges = &range};
  const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                        .queueFamilyIndex = w->device->queue_family};
  const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  if (api->CreatePipelineLayout(device, &layout, NULL, &w->layout) != VK_SUCCESS ||
      api->CreateCommandPool(device, &pool, NULL, &w->pool) != VK_SUCCESS ||
      api->CreateFence(device, &fence, NULL, &w->fence) != VK_SUCCESS)
    return false;
  const VkCommandBufferAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                                .commandPool = w->pool,
                                                .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                                .commandBufferCount = 1};
  return api->AllocateCommandBuffers(device, &allocate, &w->commands) == VK_SUCCESS;
}

/* Whether the driver hands generated code from one device to another (Mesa: unless its cache on disk is switched off).
 */
static bool vk_warm_shared(void) {
  static const char *const switches[] = {"MESA_SHADER_CACHE_DISABLE", "MESA_GLSL_CACHE_DISABLE"};
  for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
    const char *value = getenv(switches[i]);
    if (value && (!strcmp(value, "1") || !strcasecmp(value, "true"))) return false;
  }
  return true;
}

struct vk_warm *vk_warm_create(struct vk_device *device, uint32_t push_bytes) {
  if (device->gpu->type != VK_GPU_CPU || !vk_warm_shared()) return NULL;
  struct vk_warm *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  w->push_bytes = push_bytes;
  if (vk_device_create(device->instance, device->gpu, &w->device, NULL) || !vk_warm_init(w)) {
    vk_warm_destroy(w);
    return NULL;
  }
  return w;
}

void vk_warm_destroy(struct vk_warm *w) {
  if (!w) return;
  if (w->device) {
    const struct vk_api *api = &w->device->api;
    if (w->fence) api->DestroyFence(w->device->handle, w->fence, NULL);
    if (w->pool) api->DestroyCommandPool(w->device->handle, w->pool, NULL);
    if (w->layout) api->DestroyPipelineLayout(w->device->handle, w->layout, NULL);
    vk_device_destroy(w->device);
  }
  free(w);
}

/* Records a dispatch over no workgroups and waits for it: nothing of the kernel runs, but the driver prepares it. */
static VkResult vk_warm_dispatch(struct vk_warm *w, VkPipeline pipeline) {
  static const uint8_t zeros[256];
  const struct vk_api *api = &w->device->api;
  const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                          .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  VkResult result = api->BeginCommandBuffer(w->commands, &begin);
  if (result != VK_SUCCESS) return result;
  api->CmdBindPipeline(w->commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  api->CmdPushConstants(w->commands, w->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, w->push_bytes, zeros);
  api->CmdDispatch(w->commands, 0, 1, 1);
  result = api->EndCommandBuffer(w->commands);
  const VkSubmitInfo submit = {
      .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &w->commands};
  if (result == VK_SUCCESS) result = api->QueueSubmit(w->device->queue, 1, &submit, w->fence);
  if (result == VK_SUCCESS) result = api->WaitForFences(w->device->handle, 1, &w->fence, VK_TRUE, UINT64_MAX);
  if (result == VK_SUCCESS) result = api->ResetFences(w->device->handle, 1, &w->fence);
  return result;
}

void vk_warm_run(struct vk_warm *w, vk_warm_make_fn *make, void *user) {
  VkPipeline pipeline;
  if (!w || make(user, w->device, w->layout, &pipeline) != VK_SUCCESS) return;
  vk_warm_dispatch(w, pipeline);
  w->device->api.DestroyPipeline(w->device->handle, pipeline, NULL);
}
