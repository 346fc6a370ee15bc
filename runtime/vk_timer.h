/* vk_timer.h: command buffers between timestamps. Included by vk_*.c only.
 *
 * Owns: a pool of timestamp queries, a command pool and a fence; ticks into nanoseconds. Does not own: what is
 * recorded. Invariants: a device whose queue writes no timestamps is declined; a count that wraps around is taken as
 * one that went on. Thread rules: those of the device's queue. */
#ifndef RUNTIME_VK_TIMER_H
#define RUNTIME_VK_TIMER_H

#include "vk_internal.h"

struct vk_timer {
  struct vk_device *device;
  VkCommandPool commands;
  VkQueryPool queries;
  VkFence fence;
  uint32_t n_stamp;
  uint64_t *ticks; /* [n_stamp] */
};

/* Room for n_stamp timestamps. timer: vk_timer_deinit also after an error.
 * Errors: MOE_DECLINED (timestampValidBits 0), MOE_FAILED. */
enum moe_code vk_timer_init(struct vk_timer *timer, struct vk_device *device, uint32_t n_stamp, struct moe_error *err);
void vk_timer_deinit(struct vk_timer *timer);

/* A primary command buffer of the timer's pool, begun, with the queries reset. */
VkResult vk_timer_begin(struct vk_timer *timer, VkCommandBuffer *commands);
/* Records timestamp i: written when all commands before it are done. */
void vk_timer_stamp(const struct vk_timer *timer, VkCommandBuffer commands, uint32_t i);

/* Submits; timer->fence tells when it is done. */
VkResult vk_timer_submit(struct vk_timer *timer, VkCommandBuffer commands);
/* Of a submit that is done: ns[i] = from timestamp i to timestamp i + 1, i < n. Makes the fence ready again. */
VkResult vk_timer_read(struct vk_timer *timer, uint32_t n, double *ns);

/* Nanoseconds from one count to another of a counter of `bits` bits whose tick is tick_ns long. */
double vk_timer_ns(uint64_t from, uint64_t to, uint32_t bits, double tick_ns);

#endif
