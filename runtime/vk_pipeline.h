/* vk_pipeline.h: the image's modules as compute pipelines, made in the background.
 *
 * Owns: decompression, specialization by tuning row, the pipelines, the worker threads, the driver's pipeline cache on
 * disk. Does not own: which modules a template uses (the caller lists them), recording (vk_replay.h).
 * Invariants: a module becomes a pipeline at most once, when somebody wants it; modules waited for go before modules
 * merely wanted. A broken or foreign cache file costs time, never correctness (the driver checks its header; the file's
 * name holds the driver's UUID).
 * Thread rules: one thread calls; the workers are internal. */
#ifndef RUNTIME_VK_PIPELINE_H
#define RUNTIME_VK_PIPELINE_H

#include "img_check.h"
#include "vk_device.h"

struct vk_pipelines;

/* The tuning row of a module for a subgroup size (img_format.h, struct img_tuning). */
const struct img_tuning *vk_tuning(const struct img_module *module, uint32_t subgroup_size);

/* Workgroups along x of a dispatch of grid_x items on a device: as many as it runs at once when the module needs
 * IMG_FEATURE_RESIDENT. May exceed 32 bits before the device's limits are checked. */
uint64_t vk_groups(const struct img_module *module, const struct vk_gpu *gpu, uint32_t grid_x);

/* Starts the workers. modules: borrowed, checked (img_check). cache_path: file of the driver's cache; NULL: none.
 * Errors: MOE_FAILED. */
enum moe_code vk_pipelines_create(struct vk_device *device, const struct img_modules_view *modules,
                                  const char *cache_path, struct vk_pipelines **out, struct moe_error *err);
/* Waits for the pipelines being made, drops the others. NULL is fine. */
void vk_pipelines_destroy(struct vk_pipelines *pipelines);

/* Asks for modules [0, n) of `list` in the background: after all that was asked for before, or before it. */
void vk_pipelines_want(struct vk_pipelines *pipelines, const uint32_t *list, uint32_t n);
void vk_pipelines_hurry(struct vk_pipelines *pipelines, const uint32_t *list, uint32_t n);

/* Whether all of `list` are made. */
bool vk_pipelines_ready(struct vk_pipelines *pipelines, const uint32_t *list, uint32_t n);

/* Waits until all of `list` are made, before anything merely wanted. alive (may be NULL): called with user whenever a
 * pipeline was made; must not call back.
 * Errors: MOE_FAILED naming the module (broken zstd frame, the driver refused it). */
enum moe_code vk_pipelines_wait(struct vk_pipelines *pipelines, const uint32_t *list, uint32_t n,
                                void (*alive)(void *user), void *user, struct moe_error *err);

#endif
