/* engine_parts.h: what an open engine is made of, for engine.c and for `moert profile`, which runs a template without
 * requests.
 *
 * Owns: struct engine. Does not own: opening and closing it (engine.h). */
#ifndef RUNTIME_ENGINE_PARTS_H
#define RUNTIME_ENGINE_PARTS_H

#include "arenas.h"
#include "engine.h"
#include "load.h"
#include "vk_pipeline.h"
#include "vk_replay.h"

/* Everything behind a scheduler; scheduler_owner gives it. */
struct engine {
  struct load load;
  struct vk_device *device;
  struct vk_pipelines *pipelines;
  struct arenas arenas;
  struct vk_replay *replay;
  char description[800];
  engine_progress_fn *progress;
  void *user;
};

/* After a step over copy `copy` is done: MOE_FAILED when a wait of a resident kernel ran out in it (IMG_RESULT_LOST).
 */
enum moe_code engine_check_lost(const struct engine *engine, uint32_t copy, struct moe_error *err);

#endif
