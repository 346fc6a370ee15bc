#include "vk_memory.h"

#include "vk_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

/* Property flags in order of preference for a use; 0 ends a list. */
#define LOCAL VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
#define VISIBLE VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT
#define COHERENT VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
#define CACHED VK_MEMORY_PROPERTY_HOST_CACHED_BIT
static const VkMemoryPropertyFlags vk_memory_wishes[3][4] = {
    [VK_BUFFER_DEVICE] = {LOCAL | VISIBLE | COHERENT, LOCAL, 0},
    [VK_BUFFER_STEP] = {LOCAL | VISIBLE | COHERENT, VISIBLE | COHERENT, VISIBLE, 0},
    [VK_BUFFER_RESULT] = {VISIBLE | COHERENT | CACHED, VISIBLE | CACHED, VISIBLE, 0},
};

/* Whether memory type i is one that only serves what we never ask for. */
static bool vk_memory_odd(VkMemoryPropertyFlags flags) {
  return flags & (VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT | VK_MEMORY_PROPERTY_PROTECTED_BIT |
                  VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD | VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD);
}

/* The first memory type that grants the most wished-for flags; UINT32_MAX when none does. Large device buffers do not
 * take a small window of host-visible device memory (256 MiB on boards without a resizable BAR). */
static uint32_t vk_memory_type(const struct vk_device *device, uint32_t allowed, enum vk_buffer_use use) {
  const VkPhysicalDeviceMemoryProperties *m = &device->memory;
  for (int wish = 0; wish < 4 && vk_memory_wishes[use][wish]; wish++)
    for (uint32_t i = 0; i < m->memoryTypeCount; i++) {
      VkMemoryPropertyFlags flags = m->memoryTypes[i].propertyFlags, wanted = vk_memory_wishes[use][wish];
      if (!(allowed >> i & 1) || (flags & wanted) != wanted || vk_memory_odd(flags)) continue;
      bool small = m->memoryHeaps[m->memoryTypes[i].heapIndex].size < device->gpu->heap_bytes;
      if (use == VK_BUFFER_DEVICE && small) continue;
      return i;
    }
  return UINT32_MAX;
}

static VkResult vk_memory_allocate(struct vk_device *device, uint64_t bytes, uint32_t type, VkDeviceMemory *out) {
  const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                           .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
  const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                     .pNext = &flags,
                                     .allocationSize = bytes,
                                     .memoryTypeIndex = type};
  return device->api.AllocateMemory(device->handle, &info, NULL, out);
}

/* Binds a sparse buffer to as many allocations as it takes, and waits for the binding. */
static VkResult vk_memory_bind_sparse(struct vk_buffer *buffer, const VkMemoryRequirements *needs, uint32_t type) {
  struct vk_device *device = buffer->device;
  const struct vk_api *api = &device->api;
  VkSparseMemoryBind binds[VK_BUFFER_MAX_CHUNK];
  uint64_t chunk = device->gpu->max_allocation / needs->alignment * needs->alignment;
  uint64_t total = (needs->size + needs->alignment - 1) / needs->alignment * needs->alignment;
  for (uint64_t at = 0; at < total; at += chunk) {
    if (buffer->n_chunk == VK_BUFFER_MAX_CHUNK) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    uint64_t bytes = total - at < chunk ? total - at : chunk;
    VkResult result = vk_memory_allocate(device, bytes, type, &buffer->chunk[buffer->n_chunk]);
    if (result != VK_SUCCESS) return result;
    binds[buffer->n_chunk] =
        (VkSparseMemoryBind){.resourceOffset = at, .size = bytes, .memory = buffer->chunk[buffer->n_chunk]};
    buffer->n_chunk++;
  }
  const VkSparseBufferMemoryBindInfo bind = {.buffer = buffer->handle, .bindCount = buffer->n_chunk, .pBinds = binds};
  const VkBindSparseInfo info = {
      .sType = VK_STRUCTURE_TYPE_BIND_SPARSE_INFO, .bufferBindCount = 1, .pBufferBinds = &bind};
  const VkFenceCreateInfo fence_info = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  VkFence fence;
  VkResult result = api->CreateFence(device->handle, &fence_info, NULL, &fence);
  if (result != VK_SUCCESS) return result;
  result = api->QueueBindSparse(device->queue, 1, &info, fence);
  if (result == VK_SUCCESS) result = api->WaitForFences(device->handle, 1, &fence, VK_TRUE, UINT64_MAX);
  api->DestroyFence(device->handle, fence, NULL);
  return result;
}

/* Binds a buffer to one allocation, of the best memory type that has room: a small window of host-visible device memory
 * may be full, of which the driver's own books say nothing before. */
static VkResult vk_memory_bind(struct vk_buffer *buffer, const VkMemoryRequirements *needs, enum vk_buffer_use use) {
  struct vk_device *device = buffer->device;
  uint32_t allowed = needs->memoryTypeBits, type = vk_memory_type(device, allowed, use);
  VkResult result = vk_memory_allocate(device, needs->size, type, &buffer->chunk[0]);
  while (result == VK_ERROR_OUT_OF_DEVICE_MEMORY) {
    allowed &= ~(1u << type);
    uint32_t next = vk_memory_type(device, allowed, use);
    if (next == UINT32_MAX) break;
    type = next;
    result = vk_memory_allocate(device, needs->size, type, &buffer->chunk[0]);
  }
  if (result != VK_SUCCESS) return result;
  buffer->n_chunk = 1;
  result = device->api.BindBufferMemory(device->handle, buffer->handle, buffer->chunk[0], 0);
  VkMemoryPropertyFlags flags = device->memory.memoryTypes[type].propertyFlags;
  buffer->coherent = flags & COHERENT;
  if (result == VK_SUCCESS && (flags & VISIBLE))
    result = device->api.MapMemory(device->handle, buffer->chunk[0], 0, VK_WHOLE_SIZE, 0, &buffer->mapped);
  return result;
}

/* Whether the buffer must be bound to several allocations, and can. */
static enum moe_code vk_memory_sparse(const struct vk_gpu *gpu, uint64_t bytes, enum vk_buffer_use use,
                                      const char *name, bool *sparse, struct moe_error *err) {
  *sparse = bytes > gpu->max_allocation;
  if (bytes > gpu->max_buffer)
    return moe_fail(err, MOE_DECLINED, "device %s: %s needs a buffer of %llu bytes; maxBufferSize is %llu", gpu->name,
                    name, (ull)bytes, (ull)gpu->max_buffer);
  if (*sparse && (!gpu->sparse || use != VK_BUFFER_DEVICE || bytes / gpu->max_allocation >= VK_BUFFER_MAX_CHUNK))
    return moe_fail(err, MOE_DECLINED,
                    "device %s: %s needs %llu bytes at one address; maxMemoryAllocationSize is %llu "
                    "and the device has no sparseBinding",
                    gpu->name, name, (ull)bytes, (ull)gpu->max_allocation);
  return MOE_OK;
}

enum moe_code vk_buffer_create(struct vk_device *device, uint64_t bytes, enum vk_buffer_use use, const char *name,
                               struct vk_buffer **out, struct moe_error *err) {
  *out = NULL;
  bool sparse;
  enum moe_code code = vk_memory_sparse(device->gpu, bytes, use, name, &sparse, err);
  if (code) return code;
  struct vk_buffer *buffer = calloc(1, sizeof *buffer);
  if (!buffer) return moe_fail(err, MOE_FAILED, "out of memory");
  buffer->device = device;
  buffer->bytes = bytes;
  const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                   .flags = sparse ? VK_BUFFER_CREATE_SPARSE_BINDING_BIT : 0,
                                   .size = (bytes + 3) & ~3ull,
                                   .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                            VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                                            VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
                                   .sharingMode = VK_SHARING_MODE_EXCLUSIVE};
  VkResult result = device->api.CreateBuffer(device->handle, &info, NULL, &buffer->handle);
  if (result == VK_SUCCESS) {
    VkMemoryRequirements needs;
    device->api.GetBufferMemoryRequirements(device->handle, buffer->handle, &needs);
    uint32_t type = vk_memory_type(device, needs.memoryTypeBits, use);
    if (type == UINT32_MAX)
      code = moe_fail(err, MOE_DECLINED, "device %s: no memory type for %s", device->gpu->name, name);
    else
      result = sparse ? vk_memory_bind_sparse(buffer, &needs, type) : vk_memory_bind(buffer, &needs, use);
  }
  if (!code && result != VK_SUCCESS)
    code = moe_fail(err, MOE_FAILED,
                    "device %s: allocating %llu bytes for %s: %s; close other programs that use the "
                    "device, or ask for less --ctx or --slots",
                    device->gpu->name, (ull)bytes, name, vk_result_name(result));
  if (code) {
    vk_buffer_destroy(buffer);
    return code;
  }
  const VkBufferDeviceAddressInfo address = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                             .buffer = buffer->handle};
  buffer->address = device->api.GetBufferDeviceAddress(device->handle, &address);
  *out = buffer;
  return MOE_OK;
}

void vk_buffer_destroy(struct vk_buffer *buffer) {
  if (!buffer) return;
  struct vk_device *device = buffer->device;
  if (buffer->handle) device->api.DestroyBuffer(device->handle, buffer->handle, NULL);
  for (uint32_t i = 0; i < buffer->n_chunk; i++) device->api.FreeMemory(device->handle, buffer->chunk[i], NULL);
  free(buffer);
}

uint64_t vk_buffer_address(const struct vk_buffer *buffer) {
  return buffer->address;
}
void *vk_buffer_map(const struct vk_buffer *buffer) {
  return buffer->mapped;
}

enum moe_code vk_buffer_flush(const struct vk_buffer *buffer, struct moe_error *err) {
  if (buffer->coherent) return MOE_OK;
  const VkMappedMemoryRange range = {
      .sType = VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE, .memory = buffer->chunk[0], .size = VK_WHOLE_SIZE};
  VkResult result = buffer->device->api.FlushMappedMemoryRanges(buffer->device->handle, 1, &range);
  return result == VK_SUCCESS ? MOE_OK : vk_fail(err, result, "flushing host writes");
}

enum moe_code vk_buffer_invalidate(const struct vk_buffer *buffer, struct moe_error *err) {
  if (buffer->coherent) return MOE_OK;
  const VkMappedMemoryRange range = {
      .sType = VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE, .memory = buffer->chunk[0], .size = VK_WHOLE_SIZE};
  VkResult result = buffer->device->api.InvalidateMappedMemoryRanges(buffer->device->handle, 1, &range);
  return result == VK_SUCCESS ? MOE_OK : vk_fail(err, result, "reading device writes");
}
