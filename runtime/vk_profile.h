/* vk_profile.h: a template recorded with timestamps, to find out where the time of a step goes.
 *
 * Owns: two recordings of a template apart from those that serve (vk_replay.h), their query pool, turning ticks into
 * nanoseconds. Does not own: step blocks, what a dispatch is for (profile.h).
 * Invariants: both recordings run the same dispatches in the same order over copy 0 of the step and result blocks.
 * WHOLE is the normal recording between two timestamps. EACH has a full barrier and a timestamp after every dispatch,
 * so that a dispatch's time is from the end of the one before to its own end: launch, work and drain, with nothing
 * beside it. Thread rules: those of vk_replay.h; nothing else of copy 0 may be in flight. */
#ifndef RUNTIME_VK_PROFILE_H
#define RUNTIME_VK_PROFILE_H

#include "spread.h"
#include "vk_replay.h"

struct vk_profile;

enum vk_profile_form { VK_PROFILE_WHOLE, VK_PROFILE_EACH };

/* Waits for the pipelines of template `index` and records both forms. replay: borrowed, outlives the profile.
 * out: owned by the caller (vk_profile_destroy). Errors: MOE_DECLINED (the device's queue writes no timestamps),
 * MOE_FAILED. */
enum moe_code vk_profile_create(struct vk_replay *replay, uint32_t index, struct vk_profile **out,
                                struct moe_error *err);
void vk_profile_destroy(struct vk_profile *profile); /* NULL is fine */

/* Dispatches of the template, calls unrolled: as many as vk_walk_template visits. */
uint32_t vk_profile_n_dispatch(const struct vk_profile *profile);

/* Runs a form once and waits. ns: WHOLE: [1], from before the first to after the last dispatch; EACH: [n_dispatch].
 * Errors: MOE_FAILED (device lost). */
enum moe_code vk_profile_run(struct vk_profile *profile, enum vk_profile_form form, double *ns, struct moe_error *err);

/* What a device's memory gives, in 10^9 bytes a second: to a kernel that reads a large buffer, and to a copy of it,
 * where bytes read and bytes written both count. */
struct vk_ceiling {
  uint64_t bytes; /* of the buffer */
  uint32_t n;     /* times */
  struct spread read, copy;
  struct spread gb_s; /* the one with the larger median */
  bool copies;        /* which that is */
};

/* Reads, and copies, `most` bytes (fewer when memory is short) n times after two that do not count.
 * Errors: MOE_DECLINED (no timestamps; no room for two buffers of 16 MiB), MOE_FAILED. */
enum moe_code vk_ceiling_measure(struct vk_device *device, uint64_t most, uint32_t n, struct vk_ceiling *out,
                                 struct moe_error *err);

#endif
