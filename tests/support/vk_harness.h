/* vk_harness.h: a small Vulkan compute harness for the kernel tests: one device, guarded buffers, one dispatch at a
 * time.
 *
 * Owns: instance, device, buffers, pipelines of a test program. Does not own: modules (shadergen), what is checked.
 * Invariants: single-threaded; every buffer lies between two guard zones and starts poisoned, all of it; the first
 * Vulkan device is taken, or number MOE_TEST_DEVICE. Everything here is host-visible memory: small, and slow on a GPU.
 */
#ifndef TESTS_VK_HARNESS_H
#define TESTS_VK_HARNESS_H

#include "shadergen.h"

#include <stdbool.h>

#include <vulkan/vulkan.h>

#define VKH_GUARD 4096u        /* bytes before and after a buffer */
#define VKH_POISON 0x7fdeadbeu /* every word of a fresh buffer and its guards; a NaN */

struct vkh_device {
  VkInstance instance;
  VkPhysicalDevice physical;
  VkDevice device;
  VkQueue queue;
  VkCommandPool pool;
  VkCommandBuffer commands;
  VkFence fence;
  uint32_t family, memory_type, subgroup;
  uint32_t n_resident; /* workgroups of kernels that need IMG_FEATURE_RESIDENT; 1 at first, a test sets it */
  bool matrix;         /* f16 and what IMG_FEATURE_KHR_MATRIX says are there, and enabled */
  bool dot_product;    /* it has shaderIntegerDotProduct, which kernels of tier dot need */
  char name[256];
};

struct vkh_buffer {
  VkBuffer buffer;
  VkDeviceMemory memory;
  uint8_t *data;    /* bytes of them, mapped */
  uint64_t address; /* of data, on the device; a multiple of 256 */
  uint64_t bytes;
};

struct vkh_kernel {
  VkShaderModule module;
  VkPipelineLayout layout;
  VkPipeline pipeline;
  uint32_t push_bytes, group_items;
  uint32_t n_group; /* workgroups, whatever the grid; 0: as the grid says */
};

/* Opens the device. Errors: MOE_FAILED with a message that says what to install or what the device lacks. */
enum moe_code vkh_open(struct vkh_device *d, struct moe_error *err);
void vkh_close(struct vkh_device *d);

/* A buffer of `bytes` (at least one) bytes, poisoned. Fails the program when memory runs out. */
void vkh_buffer_init(struct vkh_device *d, uint64_t bytes, struct vkh_buffer *b);
void vkh_buffer_deinit(struct vkh_device *d, struct vkh_buffer *b);
/* Poisons contents and guards again. */
void vkh_buffer_poison(struct vkh_buffer *b);
/* Whether both guard zones are untouched. */
bool vkh_buffer_intact(const struct vkh_buffer *b);

/* The module's pipeline with the tuning row of this device, and for d->n_resident workgroups when it asks for resident
 * ones. */
void vkh_kernel_init(struct vkh_device *d, const struct shadergen_module *module, struct vkh_kernel *k);
void vkh_kernel_deinit(struct vkh_device *d, struct vkh_kernel *k);

/* One dispatch of a sequence. grid: as shadergen_grid gives it. push: push_bytes bytes. */
struct vkh_dispatch {
  const struct vkh_kernel *kernel;
  const void *push;
  uint32_t grid[3];
};
/* Runs the dispatches in order with a full barrier after each, `repeat` times in one submit; waits. Returns the seconds
 * from submit to completion. A lost device or a dispatch that takes longer than a minute fails the program. */
double vkh_run(struct vkh_device *d, const struct vkh_dispatch *dispatch, uint32_t n, uint32_t repeat);

#endif
