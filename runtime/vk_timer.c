#include "vk_timer.h"

#include <stdlib.h>

enum moe_code vk_timer_init(struct vk_timer *t, struct vk_device *device, uint32_t n_stamp, struct moe_error *err) {
  *t = (struct vk_timer){.device = device, .n_stamp = n_stamp};
  const struct vk_gpu *gpu = device->gpu;
  if (!gpu->timestamp_bits)
    return moe_fail(
        err, MOE_DECLINED,
        "device %s: its compute queue writes no timestamps (timestampValidBits 0), without which nothing on "
        "it can be timed; moert bench measures whole steps by the host's clock",
        gpu->name);
  t->ticks = calloc(n_stamp, sizeof *t->ticks);
  if (!t->ticks) return moe_fail(err, MOE_FAILED, "out of memory for %u timestamps", n_stamp);
  const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                        .queueFamilyIndex = device->queue_family};
  const VkQueryPoolCreateInfo queries = {
      .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO, .queryType = VK_QUERY_TYPE_TIMESTAMP, .queryCount = n_stamp};
  const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  VkResult result = device->api.CreateCommandPool(device->handle, &pool, NULL, &t->commands);
  if (result == VK_SUCCESS) result = device->api.CreateQueryPool(device->handle, &queries, NULL, &t->queries);
  if (result == VK_SUCCESS) result = device->api.CreateFence(device->handle, &fence, NULL, &t->fence);
  return result == VK_SUCCESS ? MOE_OK : vk_fail(err, result, "preparing timestamps");
}

void vk_timer_deinit(struct vk_timer *t) {
  if (!t->device) return;
  const struct vk_api *api = &t->device->api;
  if (t->fence) api->DestroyFence(t->device->handle, t->fence, NULL);
  if (t->queries) api->DestroyQueryPool(t->device->handle, t->queries, NULL);
  if (t->commands) api->DestroyCommandPool(t->device->handle, t->commands, NULL);
  free(t->ticks);
}

VkResult vk_timer_begin(struct vk_timer *t, VkCommandBuffer *commands) {
  const struct vk_api *api = &t->device->api;
  const VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                            .commandPool = t->commands,
                                            .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                            .commandBufferCount = 1};
  const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  VkResult result = api->AllocateCommandBuffers(t->device->handle, &info, commands);
  if (result == VK_SUCCESS) result = api->BeginCommandBuffer(*commands, &begin);
  if (result == VK_SUCCESS) api->CmdResetQueryPool(*commands, t->queries, 0, t->n_stamp);
  return result;
}

void vk_timer_stamp(const struct vk_timer *t, VkCommandBuffer commands, uint32_t i) {
  t->device->api.CmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, t->queries, i);
}

VkResult vk_timer_submit(struct vk_timer *t, VkCommandBuffer commands) {
  const VkSubmitInfo submit = {
      .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &commands};
  return t->device->api.QueueSubmit(t->device->queue, 1, &submit, t->fence);
}

double vk_timer_ns(uint64_t from, uint64_t to, uint32_t bits, double tick_ns) {
  uint64_t mask = bits < 64 ? (1ull << bits) - 1 : UINT64_MAX;
  return (double)((to - from) & mask) * tick_ns;
}

VkResult vk_timer_read(struct vk_timer *t, uint32_t n, double *ns) {
  const struct vk_api *api = &t->device->api;
  VkResult result = api->ResetFences(t->device->handle, 1, &t->fence);
  if (result == VK_SUCCESS)
    result = api->GetQueryPoolResults(t->device->handle, t->queries, 0, n + 1, (n + 1) * sizeof *t->ticks, t->ticks,
                                      sizeof *t->ticks, VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
  for (uint32_t i = 0; i < n && result == VK_SUCCESS; i++)
    ns[i] = vk_timer_ns(t->ticks[i], t->ticks[i + 1], t->device->gpu->timestamp_bits, t->device->gpu->timestamp_ns);
  return result;
}
