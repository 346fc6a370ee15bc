/* vk_replay.h: templates as recorded command buffers, submitted again and again.
 *
 * Owns: the two recordings of a template (one per copy of the step and result blocks), submitting, waiting. Does not
 * own: addresses (the resolver), pipelines (vk_pipeline.h), what a template means.
 * Invariants: a recording starts with a full barrier, so that steps in the queue follow one another whatever they
 * touch, and ends with the device's writes visible to the host. At most one submit per copy is in flight. Nothing is
 * allocated after a template's first use. Thread rules: one thread. */
#ifndef RUNTIME_VK_REPLAY_H
#define RUNTIME_VK_REPLAY_H

#include "img_check.h"
#include "vk_device.h"
#include "vk_pipeline.h"

/* The device address of (arena, offset) for recording `copy`. Arena VK_RESIDENT_TABLE: of table number `offset` in
 * device memory. */
enum { VK_RESIDENT_TABLE = IMG_N_ARENA };
typedef uint64_t vk_resolve_fn(void *user, uint32_t copy, uint32_t arena, uint64_t offset);

struct vk_replay;

/* templates, modules: checked, borrowed. Errors: MOE_FAILED. */
enum moe_code vk_replay_create(struct vk_device *device, struct vk_pipelines *pipelines,
                               const struct img_templates_view *templates, const struct img_modules_view *modules,
                               vk_resolve_fn *resolve, void *user, struct vk_replay **out, struct moe_error *err);
/* Who is told that a long wait inside the calls below goes on with reason (engine.h, engine_alive_fn). */
void vk_replay_watch(struct vk_replay *replay, void (*alive)(void *user), void *user);
/* Waits for the device, then frees. NULL is fine. */
void vk_replay_destroy(struct vk_replay *replay);

/* Visits every dispatch and barrier of a template in order, calls unrolled, with the table row they run for. */
struct vk_walk {
  const struct img_templates_view *templates;
  void (*visit)(void *user, const struct img_inst *inst, uint32_t table, uint32_t row);
  void *user;
};
void vk_walk_template(const struct vk_walk *walk, uint32_t index);

/* The modules of a template, each once, in order of first use: list (room for modules->n_module) and their number. */
uint32_t vk_template_modules(const struct img_templates_view *templates, uint32_t index, uint32_t *list);

/* Asks for a template's pipelines in the background, after what was asked for before, or before that. */
void vk_replay_want(struct vk_replay *replay, uint32_t index);
void vk_replay_hurry(struct vk_replay *replay, uint32_t index);

/* Whether a template's pipelines are made. */
bool vk_replay_ready(struct vk_replay *replay, uint32_t index);

/* Makes a template ready: waits for its pipelines and records both copies; nothing when it is. */
enum moe_code vk_replay_prepare(struct vk_replay *replay, uint32_t index, struct moe_error *err);

/* Submits a template's recording `copy` (prepared first when needed). Errors: MOE_FAILED (device lost). */
enum moe_code vk_replay_submit(struct vk_replay *replay, uint32_t index, uint32_t copy, struct moe_error *err);

/* Waits, asleep, until the submit of `copy` is done. Errors: MOE_FAILED (device lost, or not done in 10 minutes; on a
 * CPU driver: in 10 minutes in which this process did not compute). */
enum moe_code vk_replay_wait(struct vk_replay *replay, uint32_t copy, struct moe_error *err);

#endif
