/* vk_memory.h: buffers with device addresses, and filling them.
 *
 * Owns: the choice of memory types, allocations, mappings, uploads. Does not own: how many bytes of what
 * (memory_plan.h), what an arena is (arenas.h). Invariants: every buffer is a storage buffer with a device address; a
 * buffer larger than one allocation may be is bound to several (sparse binding) or refused, never silently short;
 * uploading never holds more than two chunks of VK_UPLOAD_CHUNK bytes besides the buffer. Thread rules: those of the
 * device's queue. */
#ifndef RUNTIME_VK_MEMORY_H
#define RUNTIME_VK_MEMORY_H

#include "moe_error.h"

struct vk_device;
struct vk_buffer;

enum { VK_UPLOAD_CHUNK = 32 << 20 };

enum vk_buffer_use {
  VK_BUFFER_DEVICE, /* device-local; mapped when the memory allows it (uploads then go without staging) */
  VK_BUFFER_STEP,   /* written by the host, read by the device: mapped, device-local when the device has such memory */
  VK_BUFFER_RESULT, /* written by the device, read by the host: mapped, cached when the device has such memory */
};

/* Creates a buffer of at least `bytes` (> 0) bytes. out: owned by the caller. name: for messages ("arena STATE").
 * Errors: MOE_DECLINED when the device's allocation limit is smaller, MOE_FAILED when the driver has no memory left:
 * both name the bytes. */
enum moe_code vk_buffer_create(struct vk_device *device, uint64_t bytes, enum vk_buffer_use use, const char *name,
                               struct vk_buffer **out, struct moe_error *err);
void vk_buffer_destroy(struct vk_buffer *buffer); /* NULL is fine */

/* The device address of its first byte; its mapping (NULL for a VK_BUFFER_DEVICE that is not host-visible). */
uint64_t vk_buffer_address(const struct vk_buffer *buffer);
void *vk_buffer_map(const struct vk_buffer *buffer);

/* Makes host writes visible to the next submit, and device writes of a finished submit visible to the host; nothing on
 * coherent memory. */
enum moe_code vk_buffer_flush(const struct vk_buffer *buffer, struct moe_error *err);
enum moe_code vk_buffer_invalidate(const struct vk_buffer *buffer, struct moe_error *err);

/* Sets all of a buffer to zero; waits. */
enum moe_code vk_buffer_zero(struct vk_buffer *buffer, struct moe_error *err);

/* Called after each chunk with the bytes that went since the last call. */
typedef void vk_upload_fn(void *user, const void *source, uint64_t bytes);

/* Copies bytes from host memory into a buffer at `offset`; waits. Goes through a staging buffer only when the buffer is
 * not mapped. done (may be NULL): told of every chunk that was read, so that its pages can be given back. */
enum moe_code vk_upload(struct vk_buffer *buffer, uint64_t offset, const void *source, uint64_t bytes,
                        vk_upload_fn *done, void *user, struct moe_error *err);

#endif
