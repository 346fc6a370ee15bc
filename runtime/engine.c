#include "engine.h"

#include "engine_parts.h"
#include "img_hash.h"
#include "img_print.h"
#include "scheduler_make.h"
#include "vk_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
  ENGINE_QUEUE = 256,   /* requests that may wait for a slot */
  ENGINE_STEP_MS = 100, /* a step is to keep the device no longer */
};

static uint64_t engine_resolve(void *user, uint32_t copy, uint32_t arena, uint64_t offset) {
  return arenas_address(&((struct engine *)user)->arenas, copy, arena, offset);
}

static bool engine_ready(void *user, uint32_t index) {
  return vk_replay_ready(((struct engine *)user)->replay, index);
}

static void engine_hurry(void *user, uint32_t index) {
  vk_replay_hurry(((struct engine *)user)->replay, index);
}

static uint64_t engine_clock(void *user) {
  (void)user;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static enum moe_code engine_submit(void *user, uint32_t index, uint32_t copy, struct moe_error *err) {
  struct engine *e = user;
  struct vk_buffer *result = e->arenas.buffer[IMG_ARENA_RESULT][copy];
  ((uint32_t *)vk_buffer_map(result))[IMG_RESULT_LOST] = 0;
  enum moe_code code = vk_buffer_flush(result, err);
  if (!code) code = vk_buffer_flush(e->arenas.buffer[IMG_ARENA_STEP][copy], err);
  return code ? code : vk_replay_submit(e->replay, index, copy, err);
}

/* A kernel whose workgroups wait for one another gives up when one does not come: this device is not to be used so. */
enum moe_code engine_check_lost(const struct engine *e, uint32_t copy, struct moe_error *err) {
  const struct vk_buffer *result = e->arenas.buffer[IMG_ARENA_RESULT][copy];
  enum moe_code code = vk_buffer_invalidate(result, err);
  uint32_t word = code ? 0 : ((const uint32_t *)vk_buffer_map(result))[IMG_RESULT_LOST];
  if (!word) return code;
  return moe_fail(
      err, MOE_FAILED,
      word == IMG_LOST_LOOP
          ? "device %s: its driver ended the loops of the resident kernel (%u workgroups; word %u of the result block "
            "is %u), as drivers for CPUs do in long contexts; start with --tier %s"
          : "device %s: the %u workgroups of the resident kernel did not all run at once: one waited in vain (word "
            "%u of the result block is %u); end other programs that use the device, or start with --tier %s",
      e->load.gpu->name, e->load.gpu->resident, IMG_RESULT_LOST, word, img_tier_name(e->load.below));
}

static enum moe_code engine_wait(void *user, uint32_t copy, struct moe_error *err) {
  struct engine *e = user;
  enum moe_code code = vk_replay_wait(e->replay, copy, err);
  return code ? code : engine_check_lost(e, copy, err);
}

static void engine_uploaded(void *user, uint64_t done, uint64_t total) {
  struct engine *e = user;
  if (e->progress) e->progress(e->user, "upload", done, total);
}

/* mkdir -p. */
static bool engine_make_folder(char *path) {
  for (char *at = path + 1; *at; at++) {
    if (*at != '/') continue;
    *at = 0;
    int failed = mkdir(path, 0700) && errno != EEXIST;
    *at = '/';
    if (failed) return false;
  }
  return !mkdir(path, 0700) || errno == EEXIST;
}

/* The file for the driver's compiled pipelines of this image on this device; NULL: none. A folder that was asked for
 * and cannot be made is an error, the default one is not. */
static enum moe_code engine_cache(const struct engine *e, const char *folder, char **out, struct moe_error *err) {
  *out = NULL;
  const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  char *path = NULL;
  int n = -1;
  if (folder)
    n = asprintf(&path, "%s", folder);
  else if (base && *base)
    n = asprintf(&path, "%s/moert", base);
  else if (home && *home)
    n = asprintf(&path, "%s/.cache/moert", home);
  else
    return MOE_OK;
  if (n < 0) return moe_fail(err, MOE_FAILED, "out of memory");
  bool made = engine_make_folder(path);
  char root[2 * IMG_HASH_BYTES + 1];
  img_hash_hex(e->load.image.prefix.root, root);
  enum moe_code code = MOE_OK;
  if (made && asprintf(out, "%s/%s-%.16s.pipelines", path, e->load.gpu->uuid, root) < 0)
    code = moe_fail(err, MOE_FAILED, "out of memory");
  if (!made && folder) code = moe_fail(err, MOE_FAILED, "--cache-dir %s: %s", folder, strerror(errno));
  free(path);
  return code;
}

/* Compiles pipelines in the background: the smallest template, which every answer needs, then the others. A CPU driver
 * compiles on the cores that then compute: there the others wait until they are needed. */
static void engine_want(struct engine *e) {
  uint32_t n = e->load.gpu->type == VK_GPU_CPU ? 1 : e->load.n_template;
  for (uint32_t i = 0; i < n; i++) vk_replay_want(e->replay, e->load.templates[i].index);
}

static enum moe_code engine_device(struct engine *e, const struct engine_options *o, struct moe_error *err) {
  enum moe_code code = vk_device_create(e->load.instance, e->load.gpu, &e->device, err);
  char *cache = NULL;
  if (!code) code = engine_cache(e, o->cache_dir, &cache, err);
  if (!code) code = vk_pipelines_create(e->device, &e->load.view.modules, cache, &e->pipelines, err);
  free(cache);
  if (!code)
    code = vk_replay_create(e->device, e->pipelines, &e->load.view.templates, &e->load.view.modules, engine_resolve, e,
                            &e->replay, err);
  if (!code) vk_replay_watch(e->replay, o->alive, o->alive_user);
  if (!code) engine_want(e); /* goes on during the upload */
  if (!code)
    code = arenas_init(&e->arenas, e->device, &e->load.image, &e->load.view, &e->load.plan, &e->load.resident,
                       engine_uploaded, e, err);
  return code;
}

static enum moe_code engine_scheduler(struct engine *e, const struct engine_options *o, struct scheduler **out,
                                      struct moe_error *err) {
  const struct memory_plan *plan = &e->load.plan;
  const struct scheduler_config config = {.limits = {.n_ctx = plan->n_ctx,
                                                     .n_slot = plan->n_slot,
                                                     .n_queue = ENGINE_QUEUE,
                                                     .n_vocab = e->load.view.manifest.model_n_vocab},
                                          .shape = e->load.shape,
                                          .page_tok = e->load.view.manifest.state_page_tok,
                                          .n_page = plan->n_page,
                                          .window = o->window,
                                          /* nobody waits for a CPU driver's device but its own process */
                                          .step_limit_ms = e->load.gpu->type == VK_GPU_CPU ? 0 : ENGINE_STEP_MS,
                                          .patient = o->patient};
  struct step_device device = {.user = e,
                               .ready = engine_ready,
                               .hurry = engine_hurry,
                               .submit = engine_submit,
                               .wait = engine_wait,
                               .clock = engine_clock,
                               .templates = e->load.templates,
                               .n_template = e->load.n_template};
  for (uint32_t copy = 0; copy < 2; copy++) {
    device.block[copy] = vk_buffer_map(e->arenas.buffer[IMG_ARENA_STEP][copy]);
    device.result[copy] = vk_buffer_map(e->arenas.buffer[IMG_ARENA_RESULT][copy]);
  }
  return scheduler_create(&config, &device, e, out, err);
}

static void engine_destroy(struct engine *e) {
  vk_replay_destroy(e->replay);
  vk_pipelines_destroy(e->pipelines);
  arenas_deinit(&e->arenas);
  vk_device_destroy(e->device);
  load_close(&e->load);
  free(e);
}

enum moe_code engine_open(const struct engine_options *options, engine_progress_fn *progress, void *user,
                          struct scheduler **out, struct moe_error *err) {
  *out = NULL;
  struct engine *e = calloc(1, sizeof *e);
  if (!e) return moe_fail(err, MOE_FAILED, "out of memory");
  e->progress = progress;
  e->user = user;
  enum moe_code code = load_open(options, &e->load, err);
  if (!code) {
    snprintf(e->description, sizeof e->description, "%s (%s)", e->load.gpu->name, e->load.gpu->driver);
    code = engine_device(e, options, err);
  }
  if (!code) code = engine_scheduler(e, options, out, err);
  if (code) engine_destroy(e);
  return code;
}

void engine_describe(const struct scheduler *s, struct engine_description *description) {
  const struct engine *e = scheduler_owner(s);
  description->device = e->description;
  description->tier = img_tier_name(e->load.tier);
}

void engine_close(struct scheduler *s) {
  if (!s) return;
  struct engine *e = scheduler_owner(s);
  scheduler_destroy(s);
  engine_destroy(e);
}
