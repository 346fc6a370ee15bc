/* vk_warm.h: code generation ahead of time for drivers that leave it to the first dispatch. Included by vk_*.c only.
 *
 * Owns: a device and a queue of its own, on which a pipeline is dispatched over no workgroups. Does not own: the
 * pipelines that do the work (vk_pipeline.c). Why: Mesa's CPU driver generates a pipeline's machine code when it is
 * first dispatched, one after the other on the queue's only thread, about 0.1 s each; a second device generates it on
 * another core, and the driver's cache on disk hands it to the first one. Invariants: what happens here changes how
 * long things take, nothing else; errors are no errors. Thread rules: one thread each. */
#ifndef RUNTIME_VK_WARM_H
#define RUNTIME_VK_WARM_H

#include "vk_internal.h"

/* Makes a pipeline on a device (vk_pipeline.c). */
typedef VkResult vk_warm_make_fn(void *user, struct vk_device *device, VkPipelineLayout layout, VkPipeline *out);

struct vk_warm;

/* A warmer for a device whose driver needs it; NULL for the others, or when it cannot be made. push_bytes: of the
 * layout. */
struct vk_warm *vk_warm_create(struct vk_device *device, uint32_t push_bytes);
void vk_warm_destroy(struct vk_warm *warm); /* NULL is fine */

/* Has the pipeline's code generated. warm NULL: does nothing. */
void vk_warm_run(struct vk_warm *warm, vk_warm_make_fn *make, void *user);

#endif
