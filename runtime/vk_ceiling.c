/* vk_ceiling.c: how fast a device's memory is (vk_profile.h, struct vk_ceiling): by a kernel that reads a large buffer,
 * and by copying it to another. Which is faster depends on the driver; neither depends on the image. */
#include "vk_profile.h"
#include "vk_timer.h"

#include <stdlib.h>

enum {
  VK_CEILING_WARM = 2,
  VK_CEILING_LEAST = 16 << 20,     /* smaller ones would measure launching */
  VK_CEILING_GROUPS = 1024,        /* of 256 invocations: several a multiprocessor on the largest devices */
  VK_CEILING_GROUP = 256 * 8 * 16, /* bytes that one has in flight */
  VK_CEILING_CPU_PART = 16,        /* a CPU driver takes lane after lane: it reads so much less */
};
#define VK_CEILING_TIMEOUT_NS (600ull * 1000 * 1000 * 1000)

extern const unsigned char vk_ceiling_read[], vk_ceiling_read_end[]; /* SPIR-V of vk_ceiling_read.comp */

struct vk_meter {
  struct vk_device *device;
  struct vk_timer timer;
  struct vk_buffer *from, *to;
  VkPipelineLayout layout;
  VkPipeline read;
};

/* The push block of vk_ceiling_read.comp. */
struct vk_meter_push {
  uint64_t from, to;
  uint32_t n;
};

/* Makes both buffers, of at most `bytes`, halved until they fit. */
static enum moe_code vk_meter_buffers(struct vk_meter *m, uint64_t bytes, struct moe_error *err) {
  const struct vk_gpu *gpu = m->device->gpu;
  if (bytes > gpu->max_allocation) bytes = gpu->max_allocation;
  if (bytes > gpu->max_buffer) bytes = gpu->max_buffer;
  for (; bytes >= VK_CEILING_LEAST; bytes /= 2) {
    struct moe_error full = {0};
    bytes &= ~0xfull;
    enum moe_code code = vk_buffer_create(m->device, bytes, VK_BUFFER_DEVICE, "what is read", &m->from, &full);
    if (!code) code = vk_buffer_create(m->device, bytes, VK_BUFFER_DEVICE, "a copy of it", &m->to, &full);
    if (!code) return MOE_OK;
    if (m->from) vk_buffer_destroy(m->from);
    m->from = NULL;
  }
  return moe_fail(err, MOE_DECLINED,
                  "device %s: no room for two buffers of %d MiB to measure its memory with; close other programs that "
                  "use the device",
                  gpu->name, VK_CEILING_LEAST >> 20);
}

static VkResult vk_meter_pipeline(struct vk_meter *m) {
  const struct vk_api *api = &m->device->api;
  const VkPushConstantRange range = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = sizeof(struct vk_meter_push)};
  const VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                             .pushConstantRangeCount = 1,
                                             .pPushConstantRanges = &range};
  VkResult result = api->CreatePipelineLayout(m->device->handle, &layout, NULL, &m->layout);
  if (result != VK_SUCCESS) return result;
  const VkShaderModuleCreateInfo code = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                         .codeSize = (size_t)(vk_ceiling_read_end - vk_ceiling_read),
                                         .pCode = (const uint32_t *)(const void *)vk_ceiling_read};
  VkShaderModule shader;
  result = api->CreateShaderModule(m->device->handle, &code, NULL, &shader);
  if (result != VK_SUCCESS) return result;
  const VkComputePipelineCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
                                            .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                                                      .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                                                      .module = shader,
                                                      .pName = "main"},
                                            .layout = m->layout};
  result = api->CreateComputePipelines(m->device->handle, VK_NULL_HANDLE, 1, &info, NULL, &m->read);
  api->DestroyShaderModule(m->device->handle, shader, NULL);
  return result;
}

/* How much the kernel reads, whole rounds of all its workgroups, and their number. */
static uint64_t vk_meter_read_bytes(const struct vk_meter *m, uint32_t *groups) {
  uint64_t bytes = m->from->bytes / (m->device->gpu->type == VK_GPU_CPU ? VK_CEILING_CPU_PART : 1);
  uint64_t most = bytes / (4 * VK_CEILING_GROUP);
  *groups = most > VK_CEILING_GROUPS ? VK_CEILING_GROUPS : (uint32_t)most;
  uint64_t round = (uint64_t)*groups * VK_CEILING_GROUP;
  return bytes / round * round;
}

static void vk_meter_record_read(const struct vk_meter *m, VkCommandBuffer commands) {
  const struct vk_api *api = &m->device->api;
  uint32_t groups;
  const struct vk_meter_push push = {
      .from = m->from->address, .to = m->to->address, .n = (uint32_t)(vk_meter_read_bytes(m, &groups) / 16)};
  api->CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, m->read);
  api->CmdPushConstants(commands, m->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof push, &push);
  api->CmdDispatch(commands, groups, 1, 1);
}

static VkResult vk_meter_record(struct vk_meter *m, bool copy, VkCommandBuffer *commands) {
  const VkPipelineStageFlags both = VK_PIPELINE_STAGE_TRANSFER_BIT | VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
  const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                   .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT | VK_ACCESS_SHADER_WRITE_BIT,
                                   .dstAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT | VK_ACCESS_SHADER_WRITE_BIT};
  VkResult result = vk_timer_begin(&m->timer, commands);
  if (result != VK_SUCCESS) return result;
  const struct vk_api *api = &m->device->api;
  api->CmdPipelineBarrier(*commands, both, both, 0, 1, &barrier, 0, NULL, 0, NULL);
  vk_timer_stamp(&m->timer, *commands, 0);
  const VkBufferCopy region = {.size = m->from->bytes};
  if (copy)
    api->CmdCopyBuffer(*commands, m->from->handle, m->to->handle, 1, &region);
  else
    vk_meter_record_read(m, *commands);
  vk_timer_stamp(&m->timer, *commands, 1);
  return api->EndCommandBuffer(*commands);
}

/* Times a recording n times; ns[n]. */
static VkResult vk_meter_run(struct vk_meter *m, bool copy, uint32_t n, double *ns) {
  VkCommandBuffer commands;
  VkResult result = vk_meter_record(m, copy, &commands);
  for (uint32_t i = 0; i < VK_CEILING_WARM + n && result == VK_SUCCESS; i++) {
    result = vk_timer_submit(&m->timer, commands);
    if (result == VK_SUCCESS)
      result = m->device->api.WaitForFences(m->device->handle, 1, &m->timer.fence, VK_TRUE, VK_CEILING_TIMEOUT_NS);
    if (result == VK_SUCCESS) result = vk_timer_read(&m->timer, 1, &ns[i < VK_CEILING_WARM ? 0 : i - VK_CEILING_WARM]);
  }
  return result;
}

static enum moe_code vk_meter_measure(struct vk_meter *m, uint32_t n, struct vk_ceiling *out, struct moe_error *err) {
  double *rate = calloc(n, sizeof *rate); /* nanoseconds first */
  if (!rate) return moe_fail(err, MOE_FAILED, "out of memory");
  struct spread *to[2] = {&out->read, &out->copy};
  VkResult result = vk_meter_pipeline(m);
  for (int copy = 0; copy < 2 && result == VK_SUCCESS; copy++) {
    result = vk_meter_run(m, copy, n, rate);
    uint32_t groups;
    double moved = copy ? 2 * (double)m->from->bytes : (double)vk_meter_read_bytes(m, &groups);
    for (uint32_t i = 0; i < n; i++) rate[i] = moved / rate[i]; /* bytes a nanosecond: 10^9 a second */
    *to[copy] = spread_of(rate, n);
  }
  out->bytes = m->from->bytes;
  out->n = n;
  out->copies = out->copy.median > out->read.median;
  out->gb_s = out->copies ? out->copy : out->read;
  free(rate);
  return result == VK_SUCCESS ? MOE_OK : vk_fail(err, result, "measuring the device's memory");
}

enum moe_code vk_ceiling_measure(struct vk_device *device, uint64_t most, uint32_t n, struct vk_ceiling *out,
                                 struct moe_error *err) {
  struct vk_meter m = {.device = device};
  enum moe_code code = vk_timer_init(&m.timer, device, 2, err);
  if (!code) code = vk_meter_buffers(&m, most, err);
  if (!code) code = vk_buffer_zero(m.from, err); /* pages that were never written are not read */
  if (!code) code = vk_buffer_zero(m.to, err);
  if (!code) code = vk_meter_measure(&m, n, out, err);
  if (m.read) device->api.DestroyPipeline(device->handle, m.read, NULL);
  if (m.layout) device->api.DestroyPipelineLayout(device->handle, m.layout, NULL);
  if (m.from) vk_buffer_destroy(m.from);
  if (m.to) vk_buffer_destroy(m.to);
  vk_timer_deinit(&m.timer);
  return code;
}
