/* vk_probe.h: what a physical device reports, as struct vk_gpu. Included by vk_*.c only; see vk_probe.c. */
#ifndef RUNTIME_VK_PROBE_H
#define RUNTIME_VK_PROBE_H

#include "vk_api.h"
#include "vk_device.h"

/* Fills *gpu but for its index. The device must be of Vulkan 1.2 or later. */
void vk_probe_gpu(const struct vk_api *api, VkPhysicalDevice physical, struct vk_gpu *gpu);
/* Chooses among n queue families: fills queue_family and timestamp_bits, and clears gpu->sparse when no family both
 * computes and binds. */
void vk_probe_family(const VkQueueFamilyProperties *families, uint32_t n, struct vk_gpu *gpu);
/* How many workgroups run at once on a device of a type with n_multiprocessor of what runs a workgroup each (0: not
 * said). On a CPU driver one: no workgroup waits for another then, and no more is promised. */
uint32_t vk_probe_resident(enum vk_gpu_type type, uint32_t n_multiprocessor);
/* Whether the device has an extension of this name. */
bool vk_probe_extension(const struct vk_api *api, VkPhysicalDevice physical, const char *name);

#endif
