/* vk_internal.h: the structures that the vk_*.c files share. Included by them only.
 *
 * Owns: the layouts of the opaque structures of vk_device.h and vk_memory.h. Does not own: any function. */
#ifndef RUNTIME_VK_INTERNAL_H
#define RUNTIME_VK_INTERNAL_H

#include "vk_api.h"
#include "vk_device.h"
#include "vk_memory.h"

struct vk_instance {
  struct vk_api api; /* global and instance functions; a device copies it and adds its own */
  VkInstance handle;
  uint32_t n_gpu;
  struct vk_gpu *gpus;        /* best first */
  VkPhysicalDevice *physical; /* in the order of gpus */
};

struct vk_device {
  struct vk_api api;
  struct vk_instance *instance;
  const struct vk_gpu *gpu;
  VkPhysicalDevice physical;
  VkDevice handle;
  VkQueue queue;
  uint32_t queue_family;
  VkPhysicalDeviceMemoryProperties memory;
};

enum { VK_BUFFER_MAX_CHUNK = 64 };

struct vk_buffer {
  struct vk_device *device;
  VkBuffer handle;
  VkDeviceMemory chunk[VK_BUFFER_MAX_CHUNK]; /* one, or several when bound sparsely */
  uint32_t n_chunk;
  uint64_t bytes, address;
  void *mapped; /* NULL: not mapped */
  bool coherent;
};

#endif
