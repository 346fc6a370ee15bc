/* engine.h: opening an image on a device.
 *
 * Owns: the options that decide how an image is opened, and the open and close calls. Does not own: processes and
 * sockets (engine_process.h), requests (scheduler.h). Invariants: an engine that opened has everything it will ever
 * need resident (the plan is checked before the first allocation). Thread rules: as scheduler.h. */
#ifndef RUNTIME_ENGINE_H
#define RUNTIME_ENGINE_H

#include "moe_error.h"
#include "scheduler.h"

#include <stdint.h>

/* A sign of life during a call into the scheduler that takes long: a pipeline was compiled, or a CPU driver computes
 * (its steps on a large model may take minutes). None comes from a device or driver that hangs. On the caller's thread;
 * must not call back into the scheduler. */
typedef void engine_alive_fn(void *user);

struct engine_options {
  const char *image_path; /* required */
  const char *device;     /* index or part of a device's name; NULL: the best that can serve the image */
  uint32_t n_ctx;         /* positions of a sequence, from 2 to the model's (cut with a note); 0: that, or what fits */
  uint32_t n_slot;        /* sequences at once; 0: default */
  const char *cache_dir;  /* for the driver's pipeline cache; NULL: the default place */
  const char *tier;       /* base, dot, khr, nv, resident; NULL: the best the device has */
  uint32_t window;        /* most prompt rows of a step; 0: as many as the largest template takes */
  bool patient;           /* always the template that fits a step best, even when it must be compiled first (to measure
                             or test it); else a step may go through another one meanwhile */
  engine_alive_fn *alive; /* NULL: nobody asks */
  void *alive_user;
};

/* Maps and checks the image, opens the device, plans, uploads and builds the pipelines.
 * progress (may be NULL): called with a short phase name ("upload") and done/total in the unit of that phase, at most
 * some times a second; user comes back in it. out: *out is owned by the caller (engine_close), NULL on error.
 * Errors: MOE_FAILED (unreadable, broken image; the driver failed), MOE_DECLINED (this box cannot: names the feature or
 * the bytes and the device). */
typedef void engine_progress_fn(void *user, const char *phase, uint64_t done, uint64_t total);
enum moe_code engine_open(const struct engine_options *options, engine_progress_fn *progress, void *user,
                          struct scheduler **out, struct moe_error *err);

/* What was opened, for logs and /v1/models; strings borrowed until engine_close. */
struct engine_description {
  const char *device; /* device and driver, as the driver names them */
  const char *tier;
};
void engine_describe(const struct scheduler *s, struct engine_description *description);

/* Drops everything, live requests without events. NULL is fine. */
void engine_close(struct scheduler *s);

#endif
