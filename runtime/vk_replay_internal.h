/* vk_replay_internal.h: recording a template, for the normal recordings (vk_replay.c) and the measured ones
 * (vk_profile.c). Included by them only.
 *
 * Owns: the layout of struct vk_replay, what is known while one command buffer is recorded. Does not own: vk_replay.h's
 * calls. */
#ifndef RUNTIME_VK_REPLAY_INTERNAL_H
#define RUNTIME_VK_REPLAY_INTERNAL_H

#include "vk_internal.h"
#include "vk_replay.h"

struct vk_recording {
  VkCommandBuffer commands[2];
  bool ready;
};

struct vk_replay {
  struct vk_device *device;
  struct vk_pipelines *pipelines;
  const struct img_templates_view *templates;
  const struct img_modules_view *modules;
  vk_resolve_fn *resolve;
  void *user;
  void (*alive)(void *user); /* NULL: nobody asks */
  void *alive_user;
  VkCommandPool pool;
  VkFence fence[2];
  bool pending[2];
  struct vk_recording *recording; /* [n_template] */
  uint32_t *list;                 /* [n_module] of scratch */
};

/* One command buffer being recorded. */
struct vk_recorder {
  struct vk_replay *replay;
  VkCommandBuffer commands;
  uint32_t copy;
  uint32_t bound; /* module bound last; UINT32_MAX: none */
  VkPipelineLayout layout;
};

void vk_record_barrier(struct vk_recorder *r, VkPipelineStageFlags from, VkPipelineStageFlags to, VkAccessFlags writes,
                       VkAccessFlags uses);

/* Records a dispatch or a barrier: the visit of a struct vk_walk, user: the struct vk_recorder. */
void vk_record_inst(void *user, const struct img_inst *inst, uint32_t table, uint32_t row);

/* The barriers before and after a template's instructions (vk_replay.h, invariants). */
void vk_record_begin(struct vk_recorder *r);
void vk_record_end(struct vk_recorder *r);

/* Waits for a step's fence. VK_TIMEOUT: not done in 10 minutes, of a CPU driver in 10 minutes without computing. */
VkResult vk_replay_wait_fence(struct vk_replay *replay, VkFence fence);

#endif
