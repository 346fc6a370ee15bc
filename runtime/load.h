/* load.h: an image and the device that is to run it, checked against each other; nothing is created on the device yet.
 *
 * Owns: the order of the checks before an engine exists: bounds (img_check), hazards (img_hazard), device, limits,
 * which templates, memory plan. Does not own: the checks themselves, nor what comes after (engine.c). Invariants: after
 * load_open the image's structures are safe to follow and the device has all that the templates taken need, memory
 * included. Thread rules: one thread. */
#ifndef RUNTIME_LOAD_H
#define RUNTIME_LOAD_H

#include "engine.h"
#include "img_check.h"
#include "memory_plan.h"
#include "resident.h"
#include "step.h"
#include "vk_device.h"

struct load {
  struct img image;
  struct img_view view;
  enum img_tier tier;  /* the highest one of a template that is taken */
  enum img_tier below; /* the highest one but resident that the device runs */
  struct vk_instance *instance;
  const struct vk_gpu *gpu; /* of instance */
  struct memory_plan plan;
  struct step_shape shape;
  struct step_template *templates; /* those taken (FORMAT.md, Tiers), ascending by n_row, then n_select */
  uint32_t n_template;
  struct resident resident; /* their tables in device memory */
};

/* Opens an image alone, then checks it (for inspect and verify, which compares hashes in between). load: release with
 * load_close, also after an error. Errors: MOE_FAILED, the section, index and field named. */
enum moe_code load_map(const char *path, struct load *load, struct moe_error *err);
enum moe_code load_check(struct load *load, struct moe_error *err);
/* Both. */
enum moe_code load_image(const char *path, struct load *load, struct moe_error *err);

/* The same, and chooses device and templates, and plans. options: image_path, device, n_ctx, n_slot, tier are read.
 * Errors: MOE_USAGE (no such device, slots out of range), MOE_DECLINED (what is missing, on which device). */
enum moe_code load_open(const struct engine_options *options, struct load *load, struct moe_error *err);
void load_close(struct load *load);

/* The tier of a name, IMG_N_TIER for an unknown one. */
enum img_tier load_tier(const char *name);

#endif
