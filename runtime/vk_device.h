/* vk_device.h: the Vulkan devices of this box, what they can do, and opening one.
 *
 * Owns: the list of devices (struct vk_gpu), the check of an image's needs against one, the choice, the logical device
 * and its one queue. Does not own: memory (vk_memory.h), pipelines (vk_pipeline.h), command buffers (vk_replay.h).
 * Invariants: nothing is created on a device before vk_gpu_check passed for it; only features that images/
 * img_features.def names are enabled, and of those only what the device has.
 * Test hook: MOERT_DENY_FEATURE=NAME[,NAME...] in the environment takes the features of these names (img_features.def;
 * timestampValidBits) from every device, so that the ways of declining can be tested on any box.
 * Thread rules: a struct vk_device's queue belongs to one thread at a time. */
#ifndef RUNTIME_VK_DEVICE_H
#define RUNTIME_VK_DEVICE_H

#include "moe_error.h"

enum vk_gpu_type { VK_GPU_DISCRETE, VK_GPU_INTEGRATED, VK_GPU_VIRTUAL, VK_GPU_CPU, VK_GPU_OTHER };

#define VK_GPU_NO_QUEUE UINT32_MAX

/* What a device is and can do. Sizes in bytes. */
struct vk_gpu {
  uint32_t index; /* of the Vulkan loader's enumeration */
  enum vk_gpu_type type;
  char name[256], driver[512]; /* "NVIDIA H200", "NVIDIA 580.159.4" */
  char uuid[33];               /* pipeline cache UUID, hexadecimal: driver build and device */
  uint32_t vendor_id, device_id, api_version;
  uint64_t features; /* bits of img_features.def */
  uint64_t emulated; /* of these: what the driver computes in many instructions, so that kernels that do without are
                        faster */
  uint32_t push_bytes, shared_bytes, workgroup_size, workgroup_x;
  uint32_t grid[3]; /* most workgroups of a dispatch */
  uint32_t
      resident; /* workgroups of any kernel that the device runs all at once, at most IMG_MAX_RESIDENT; 0: unknown */
  uint32_t subgroup_size, min_subgroup, max_subgroup, max_workgroup_subgroups;
  bool subgroup_control, full_subgroups; /* a pipeline can require its subgroup size; full ones */
  uint32_t queue_family;                 /* of the one queue; VK_GPU_NO_QUEUE: none of its families computes */
  uint32_t timestamp_bits;               /* that count, of a timestamp written on that queue; 0: it cannot write any */
  double timestamp_ns;                   /* nanoseconds of one tick */
  bool sparse;                           /* one buffer can have several allocations, bound on that queue */
  uint64_t max_allocation, max_buffer;
  uint64_t heap_bytes;      /* the largest device-local heap */
  uint64_t available_bytes; /* of it for this process, now: budget less usage when the driver says (has_budget), else
                               the heap; never more than the box's free memory when the device has none of its own */
  bool has_budget;
  bool host_visible; /* the device-local heap can be mapped whole */
};

/* What an image needs of a device, from its manifest and modules. */
struct vk_needs {
  uint32_t vulkan_major, vulkan_minor;
  uint64_t features;
  uint32_t push_bytes, shared_bytes;
};

const char *vk_gpu_type_name(enum vk_gpu_type type);

/* The Vulkan instance and the devices it shows. */
struct vk_instance;

/* Opens Vulkan and lists the devices.
 * Errors: MOE_DECLINED when there is no loader, no driver or no device of Vulkan 1.2, with what to install. */
enum moe_code vk_instance_create(struct vk_instance **out, struct moe_error *err);
void vk_instance_destroy(struct vk_instance *instance); /* NULL is fine; after its devices */

/* The devices, best first: discrete, integrated, virtual, CPU; then the loader's order. Borrowed. */
const struct vk_gpu *vk_instance_gpus(const struct vk_instance *instance, uint32_t *n);

/* Whether a device has all that is needed (its workgroup limits against the tuning rows: load.c).
 * Errors: MOE_DECLINED, naming the feature or limit, found, needed, and the device. */
enum moe_code vk_gpu_check(const struct vk_gpu *gpu, const struct vk_needs *needs, struct moe_error *err);

/* Chooses by `wanted` (an index as `moert probe` lists it, or a part of a name, any case; NULL: the best that passes
 * the check). Errors: MOE_USAGE no such device (lists them); MOE_DECLINED as vk_gpu_check (the best device's reason).
 */
enum moe_code vk_instance_choose(const struct vk_instance *instance, const char *wanted, const struct vk_needs *needs,
                                 const struct vk_gpu **out, struct moe_error *err);

/* A logical device with one compute queue. */
struct vk_device;

/* Creates it. out: owned by the caller, destroyed before the instance. Errors: MOE_FAILED. */
enum moe_code vk_device_create(struct vk_instance *instance, const struct vk_gpu *gpu, struct vk_device **out,
                               struct moe_error *err);
void vk_device_destroy(struct vk_device *device); /* NULL is fine */
const struct vk_gpu *vk_device_gpu(const struct vk_device *device);

#endif
