/* vk_ceiling.c: how fast a device's memory is, by copying within it (vk_profile.h, struct vk_ceiling). A copy needs no
 * kernel, so that it measures the same on every device and whatever the image. */
#include "vk_profile.h"
#include "vk_timer.h"

#include <stdlib.h>

enum {
  VK_CEILING_WARM = 2,
  VK_CEILING_LEAST = 16 << 20, /* smaller ones would measure launching */
};
#define VK_CEILING_TIMEOUT_NS (600ull * 1000 * 1000 * 1000)

/* Makes both buffers, of at most `bytes`, halved until they fit. */
static enum moe_code vk_ceiling_buffers(struct vk_device *device, uint64_t bytes, struct vk_buffer *buffer[2],
                                        struct moe_error *err) {
  const struct vk_gpu *gpu = device->gpu;
  if (bytes > gpu->max_allocation) bytes = gpu->max_allocation;
  if (bytes > gpu->max_buffer) bytes = gpu->max_buffer;
  for (; bytes >= VK_CEILING_LEAST; bytes /= 2) {
    struct moe_error full = {0};
    enum moe_code code = MOE_OK;
    for (int i = 0; i < 2 && !code; i++)
      code = vk_buffer_create(device, bytes & ~3ull, VK_BUFFER_DEVICE, "measuring its memory", &buffer[i], &full);
    if (!code) return MOE_OK;
    for (int i = 0; i < 2; i++) {
      if (buffer[i]) vk_buffer_destroy(buffer[i]);
      buffer[i] = NULL;
    }
  }
  return moe_fail(err, MOE_DECLINED,
                  "device %s: no room for two buffers of %d MiB to measure its memory with; close other programs that "
                  "use the device",
                  gpu->name, VK_CEILING_LEAST >> 20);
}

static VkResult vk_ceiling_record(struct vk_timer *timer, struct vk_buffer *const buffer[2],
                                  VkCommandBuffer *commands) {
  VkResult result = vk_timer_begin(timer, commands);
  if (result != VK_SUCCESS) return result;
  const struct vk_api *api = &timer->device->api;
  const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                   .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                   .dstAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT};
  api->CmdPipelineBarrier(*commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1, &barrier, 0,
                          NULL, 0, NULL);
  const VkBufferCopy region = {.size = buffer[0]->bytes};
  vk_timer_stamp(timer, *commands, 0);
  api->CmdCopyBuffer(*commands, buffer[0]->handle, buffer[1]->handle, 1, &region);
  vk_timer_stamp(timer, *commands, 1);
  return api->EndCommandBuffer(*commands);
}

static VkResult vk_ceiling_once(struct vk_timer *timer, VkCommandBuffer commands, double *ns) {
  struct vk_device *device = timer->device;
  VkResult result = vk_timer_submit(timer, commands);
  if (result == VK_SUCCESS)
    result = device->api.WaitForFences(device->handle, 1, &timer->fence, VK_TRUE, VK_CEILING_TIMEOUT_NS);
  return result == VK_SUCCESS ? vk_timer_read(timer, 1, ns) : result;
}

enum moe_code vk_ceiling_measure(struct vk_device *device, uint64_t most, uint32_t n, struct vk_ceiling *out,
                                 struct moe_error *err) {
  struct vk_timer timer;
  struct vk_buffer *buffer[2] = {NULL, NULL};
  double *rate = calloc(n, sizeof *rate); /* nanoseconds first */
  enum moe_code code = vk_timer_init(&timer, device, 2, err);
  if (!code && !rate) code = moe_fail(err, MOE_FAILED, "out of memory");
  if (!code) code = vk_ceiling_buffers(device, most, buffer, err);
  for (int i = 0; i < 2 && !code; i++)
    code = vk_buffer_zero(buffer[i], err); /* pages that were never written are not read */
  VkCommandBuffer commands = NULL;
  VkResult result = code ? VK_SUCCESS : vk_ceiling_record(&timer, buffer, &commands);
  for (uint32_t i = 0; i < VK_CEILING_WARM + n && !code && result == VK_SUCCESS; i++)
    result = vk_ceiling_once(&timer, commands, &rate[i < VK_CEILING_WARM ? 0 : i - VK_CEILING_WARM]);
  if (!code && result != VK_SUCCESS) code = vk_fail(err, result, "measuring the device's memory");
  if (!code) {
    for (uint32_t i = 0; i < n; i++) rate[i] = 2 * (double)buffer[0]->bytes / rate[i]; /* bytes a ns: 10^9 a second */
    *out = (struct vk_ceiling){.bytes = buffer[0]->bytes, .n = n, .gb_s = spread_of(rate, n)};
  }
  for (int i = 0; i < 2; i++)
    if (buffer[i]) vk_buffer_destroy(buffer[i]);
  vk_timer_deinit(&timer);
  free(rate);
  return code;
}
