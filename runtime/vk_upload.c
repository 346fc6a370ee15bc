/* vk_upload.c: moves bytes from the host into buffers: straight into mapped ones, else through two staging buffers that
 * take turns, one being filled while the other is copied. */
#include "vk_internal.h"

#include <string.h>

/* One of the two staging buffers with its command buffer; pending: its copy was submitted. */
struct vk_stage {
  struct vk_buffer *buffer;
  VkCommandBuffer commands;
  VkFence fence;
  bool pending;
};

struct vk_stager {
  struct vk_device *device;
  VkCommandPool pool;
  struct vk_stage stage[2];
};

static VkResult vk_stager_init(struct vk_stager *s, struct vk_device *device) {
  *s = (struct vk_stager){.device = device};
  const VkCommandPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                        .queueFamilyIndex = device->queue_family};
  VkResult result = device->api.CreateCommandPool(device->handle, &info, NULL, &s->pool);
  for (int i = 0; i < 2 && result == VK_SUCCESS; i++) {
    const VkCommandBufferAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                                  .commandPool = s->pool,
                                                  .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                                  .commandBufferCount = 1};
    const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    result = device->api.AllocateCommandBuffers(device->handle, &allocate, &s->stage[i].commands);
    if (result == VK_SUCCESS) result = device->api.CreateFence(device->handle, &fence, NULL, &s->stage[i].fence);
  }
  return result;
}

/* Waits until the stage's copy is done. */
static VkResult vk_stage_wait(struct vk_stager *s, struct vk_stage *stage) {
  if (!stage->pending) return VK_SUCCESS;
  stage->pending = false;
  VkResult result = s->device->api.WaitForFences(s->device->handle, 1, &stage->fence, VK_TRUE, UINT64_MAX);
  if (result == VK_SUCCESS) result = s->device->api.ResetFences(s->device->handle, 1, &stage->fence);
  return result;
}

static void vk_stager_deinit(struct vk_stager *s) {
  const struct vk_api *api = &s->device->api;
  for (int i = 0; i < 2; i++) {
    vk_stage_wait(s, &s->stage[i]);
    if (s->stage[i].fence) api->DestroyFence(s->device->handle, s->stage[i].fence, NULL);
    vk_buffer_destroy(s->stage[i].buffer);
  }
  if (s->pool) api->DestroyCommandPool(s->device->handle, s->pool, NULL);
}

/* Starts recording into a stage that is free. */
static VkResult vk_stage_begin(struct vk_stager *s, struct vk_stage *stage) {
  const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                          .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  return s->device->api.BeginCommandBuffer(stage->commands, &begin);
}

static VkResult vk_stage_submit(struct vk_stager *s, struct vk_stage *stage) {
  const struct vk_api *api = &s->device->api;
  const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                   .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                   .dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT};
  /* the host too: it writes step blocks after they were cleared here */
  api->CmdPipelineBarrier(stage->commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
                          VK_PIPELINE_STAGE_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0, NULL, 0,
                          NULL);
  VkResult result = api->EndCommandBuffer(stage->commands);
  const VkSubmitInfo submit = {
      .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &stage->commands};
  if (result == VK_SUCCESS) result = api->QueueSubmit(s->device->queue, 1, &submit, stage->fence);
  stage->pending = result == VK_SUCCESS;
  return result;
}

/* Copies [source, source + bytes) through one stage. */
static VkResult vk_stage_copy(struct vk_stager *s, struct vk_stage *stage, struct vk_buffer *to, uint64_t offset,
                              const void *source, uint64_t bytes) {
  VkResult result = vk_stage_wait(s, stage);
  if (result != VK_SUCCESS) return result;
  memcpy(stage->buffer->mapped, source, bytes);
  if (vk_buffer_flush(stage->buffer, NULL)) return VK_ERROR_MEMORY_MAP_FAILED;
  result = vk_stage_begin(s, stage);
  if (result != VK_SUCCESS) return result;
  const VkBufferCopy region = {.dstOffset = offset, .size = bytes};
  s->device->api.CmdCopyBuffer(stage->commands, stage->buffer->handle, to->handle, 1, &region);
  return vk_stage_submit(s, stage);
}

static enum moe_code vk_upload_staged(struct vk_buffer *buffer, uint64_t offset, const uint8_t *source, uint64_t bytes,
                                      vk_upload_fn *done, void *user, struct moe_error *err) {
  struct vk_stager s;
  VkResult result = vk_stager_init(&s, buffer->device);
  enum moe_code code = result == VK_SUCCESS ? MOE_OK : vk_fail(err, result, "preparing the upload");
  uint64_t stage_bytes = bytes < VK_UPLOAD_CHUNK ? bytes : VK_UPLOAD_CHUNK;
  for (int i = 0; i < 2 && !code; i++)
    code = vk_buffer_create(buffer->device, stage_bytes, VK_BUFFER_RESULT, "staging", &s.stage[i].buffer, err);
  for (uint64_t at = 0, turn = 0; at < bytes && !code; at += VK_UPLOAD_CHUNK, turn ^= 1) {
    uint64_t n = bytes - at < VK_UPLOAD_CHUNK ? bytes - at : VK_UPLOAD_CHUNK;
    result = vk_stage_copy(&s, &s.stage[turn], buffer, offset + at, source + at, n);
    if (result != VK_SUCCESS)
      code = vk_fail(err, result, "uploading");
    else if (done)
      done(user, source + at, n);
  }
  for (int i = 0; i < 2; i++) {
    result = vk_stage_wait(&s, &s.stage[i]);
    if (result != VK_SUCCESS && !code) code = vk_fail(err, result, "uploading");
  }
  vk_stager_deinit(&s);
  return code;
}

enum moe_code vk_upload(struct vk_buffer *buffer, uint64_t offset, const void *source, uint64_t bytes,
                        vk_upload_fn *done, void *user, struct moe_error *err) {
  if (!buffer->mapped) return vk_upload_staged(buffer, offset, source, bytes, done, user, err);
  const uint8_t *from = source;
  for (uint64_t at = 0; at < bytes; at += VK_UPLOAD_CHUNK) {
    uint64_t n = bytes - at < VK_UPLOAD_CHUNK ? bytes - at : VK_UPLOAD_CHUNK;
    memcpy((uint8_t *)buffer->mapped + offset + at, from + at, n);
    if (done) done(user, from + at, n);
  }
  return vk_buffer_flush(buffer, err);
}

enum moe_code vk_buffer_zero(struct vk_buffer *buffer, struct moe_error *err) {
  if (buffer->mapped && buffer->device->gpu->type == VK_GPU_CPU) {
    memset(buffer->mapped, 0, buffer->bytes);
    return vk_buffer_flush(buffer, err);
  }
  struct vk_stager s;
  VkResult result = vk_stager_init(&s, buffer->device);
  struct vk_stage *stage = &s.stage[0];
  if (result == VK_SUCCESS) result = vk_stage_begin(&s, stage);
  if (result == VK_SUCCESS) {
    buffer->device->api.CmdFillBuffer(stage->commands, buffer->handle, 0, VK_WHOLE_SIZE, 0);
    result = vk_stage_submit(&s, stage);
  }
  if (result == VK_SUCCESS) result = vk_stage_wait(&s, stage);
  vk_stager_deinit(&s);
  return result == VK_SUCCESS ? MOE_OK : vk_fail(err, result, "clearing a buffer");
}
