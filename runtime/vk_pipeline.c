#include "vk_pipeline.h"

#include "img_enums.h"
#include "vk_internal.h"
#include "vk_pipeline_internal.h"
#include "vk_warm.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

enum { VK_MAX_WORKER = 8 };
/* Ranks of wanted modules: somebody waits, somebody goes on with less meanwhile, later (counting up). */
enum { VK_RANK_WAIT, VK_RANK_HURRY, VK_RANK_WANT };
#define VK_SPIRV_MAGIC 0x07230203u
#define VK_CACHE_MAX_BYTES (256l << 20)

enum vk_pipeline_state { VK_UNWANTED, VK_WANTED, VK_MAKING, VK_MADE, VK_BROKEN };

struct vk_pipeline_slot {
  enum vk_pipeline_state state;
  uint32_t rank; /* among the wanted: lowest first */
  VkPipeline handle;
  struct moe_error error; /* when broken */
};

struct vk_pipelines {
  struct vk_device *device;
  const struct img_modules_view *modules;
  VkPipelineLayout layout; /* one for all: push_bytes of push constants */
  uint32_t push_bytes;
  VkPipelineCache cache;
  char *cache_path;
  pthread_t worker[VK_MAX_WORKER];
  uint32_t n_worker;
  pthread_mutex_t mutex; /* guards all below */
  pthread_cond_t work, made;
  bool stop;
  uint32_t n_asked, n_wanted, n_making, n_unsaved;
  struct vk_pipeline_slot *slot; /* [n_module] */
};

const struct img_tuning *vk_tuning(const struct img_module *module, uint32_t subgroup_size) {
  const struct img_tuning *row = &module->tuning[0];
  for (uint32_t i = 1; i < module->n_tuning; i++)
    if (module->tuning[i].min_subgroup <= subgroup_size) row = &module->tuning[i];
  return row;
}

uint64_t vk_groups(const struct img_module *module, const struct vk_gpu *gpu, uint32_t grid_x) {
  if (module->features & IMG_FEATURE_RESIDENT) return gpu->resident;
  uint32_t items = vk_tuning(module, gpu->subgroup_size)->group_items;
  return ((uint64_t)grid_x + items - 1) / items;
}

static const char *vk_module_name(const struct vk_pipelines *p, uint32_t index) {
  return p->modules->name + p->modules->module[index].name_offset;
}

/* The module's SPIR-V words (give to free); NULL with err. */
static uint32_t *vk_module_code(const struct vk_pipelines *p, uint32_t index, struct moe_error *err) {
  const struct img_module *module = &p->modules->module[index];
  uint32_t *code = malloc(module->code_bytes);
  if (!code) {
    moe_fail(err, MOE_FAILED, "module %s: out of memory for %u bytes", vk_module_name(p, index), module->code_bytes);
    return NULL;
  }
  size_t n = ZSTD_decompress(code, module->code_bytes, p->modules->section + module->code_offset, module->code_zbytes);
  if (ZSTD_isError(n) || n != module->code_bytes || n < 20 || n % 4 || code[0] != VK_SPIRV_MAGIC) {
    moe_fail(err, MOE_FAILED, "module %s: %s; the image is damaged (moert verify)", vk_module_name(p, index),
             ZSTD_isError(n) ? ZSTD_getErrorName(n) : "not SPIR-V of the stated size");
    free(code);
    return NULL;
  }
  return code;
}

/* A module on its way to a pipeline. */
struct vk_making {
  const struct vk_pipelines *p;
  const struct img_module *module;
  const uint32_t *code;
};

/* Makes a pipeline from SPIR-V: the tuning row's specialization constants, the number of resident workgroups for who
 * needs it, and the device's subgroup size fixed where the driver could choose another. A vk_warm_make_fn. */
static VkResult vk_pipeline_make(void *user, struct vk_device *device, VkPipelineLayout layout, VkPipeline *out) {
  const struct vk_making *making = user;
  const struct vk_api *api = &device->api;
  const struct vk_gpu *gpu = device->gpu;
  uint32_t spec[IMG_N_SPEC];
  memcpy(spec, vk_tuning(making->module, gpu->subgroup_size)->spec, sizeof spec);
  spec[IMG_SPEC_SUBGROUP] = gpu->subgroup_size;
  if (making->module->features & IMG_FEATURE_RESIDENT) spec[IMG_SPEC_EXTRA] = gpu->resident;
  VkSpecializationMapEntry entries[IMG_N_SPEC];
  for (uint32_t i = 0; i < IMG_N_SPEC; i++)
    entries[i] = (VkSpecializationMapEntry){.constantID = i, .offset = 4 * i, .size = 4};
  const VkSpecializationInfo specialization = {
      .mapEntryCount = IMG_N_SPEC, .pMapEntries = entries, .dataSize = sizeof spec, .pData = spec};
  const VkShaderModuleCreateInfo shader_info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                                .codeSize = making->module->code_bytes,
                                                .pCode = making->code};
  VkShaderModule shader;
  VkResult result = api->CreateShaderModule(device->handle, &shader_info, NULL, &shader);
  if (result != VK_SUCCESS) return result;
  const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo required = {
      .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
      .requiredSubgroupSize = gpu->subgroup_size};
  bool varies = gpu->min_subgroup != gpu->max_subgroup;
  bool require =
      gpu->subgroup_control && varies && spec[IMG_SPEC_WG] <= gpu->subgroup_size * gpu->max_workgroup_subgroups;
  bool full = gpu->full_subgroups && spec[IMG_SPEC_WG] % gpu->subgroup_size == 0;
  const VkComputePipelineCreateInfo info = {
      .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
      .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .pNext = require ? &required : NULL,
                .flags = full ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT : 0,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                .module = shader,
                .pName = "main",
                .pSpecializationInfo = &specialization},
      .layout = layout};
  VkPipelineCache cache = device == making->p->device ? making->p->cache : VK_NULL_HANDLE;
  result = api->CreateComputePipelines(device->handle, cache, 1, &info, NULL, out);
  api->DestroyShaderModule(device->handle, shader, NULL);
  return result;
}

static VkPipeline vk_pipeline_build(struct vk_pipelines *p, uint32_t index, struct vk_warm *warm,
                                    struct moe_error *err) {
  VkPipeline pipeline = VK_NULL_HANDLE;
  uint32_t *code = vk_module_code(p, index, err);
  if (!code) return pipeline;
  struct vk_making making = {.p = p, .module = &p->modules->module[index], .code = code};
  vk_warm_run(warm, vk_pipeline_make, &making);
  VkResult result = vk_pipeline_make(&making, p->device, p->layout, &pipeline);
  free(code);
  if (result != VK_SUCCESS) {
    pipeline = VK_NULL_HANDLE;
    moe_fail(err, MOE_FAILED, "module %s: the driver of %s refuses it: %s", vk_module_name(p, index),
             p->device->gpu->name, vk_result_name(result));
  }
  return pipeline;
}

/* Writes the driver's cache beside its name and renames it. Failing costs the next start some time, nothing else. */
static void vk_cache_save(struct vk_pipelines *p) {
  size_t n = 0;
  const struct vk_api *api = &p->device->api;
  if (!p->cache_path || !p->cache || api->GetPipelineCacheData(p->device->handle, p->cache, &n, NULL) != VK_SUCCESS ||
      !n)
    return;
  void *data = malloc(n);
  char *temporary = NULL;
  int file = -1;
  if (data && api->GetPipelineCacheData(p->device->handle, p->cache, &n, data) == VK_SUCCESS &&
      asprintf(&temporary, "%s.XXXXXX", p->cache_path) > 0 && (file = mkostemp(temporary, O_CLOEXEC)) >= 0) {
    bool ok = write(file, data, n) == (ssize_t)n;
    ok = !close(file) && ok;
    if (!ok || rename(temporary, p->cache_path)) unlink(temporary);
  }
  free(temporary);
  free(data);
}

static void vk_cache_load(struct vk_pipelines *p) {
  VkPipelineCacheCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  void *data = NULL;
  FILE *file = p->cache_path ? fopen(p->cache_path, "rbe") : NULL;
  long n = 0;
  if (file && !fseek(file, 0, SEEK_END) && (n = ftell(file)) > 0 && n <= VK_CACHE_MAX_BYTES &&
      (data = malloc((size_t)n))) {
    rewind(file);
    if (fread(data, 1, (size_t)n, file) == (size_t)n) {
      info.initialDataSize = (size_t)n;
      info.pInitialData = data;
    }
  }
  if (file) fclose(file);
  if (p->device->api.CreatePipelineCache(p->device->handle, &info, NULL, &p->cache) != VK_SUCCESS) p->cache = NULL;
  free(data);
}

/* The wanted module of the lowest rank, or UINT32_MAX. Under the mutex. */
static uint32_t vk_pipelines_next(const struct vk_pipelines *p) {
  uint32_t best = UINT32_MAX;
  for (uint32_t i = 0; i < p->modules->n_module; i++)
    if (p->slot[i].state == VK_WANTED && (best == UINT32_MAX || p->slot[i].rank < p->slot[best].rank)) best = i;
  return best;
}

static void *vk_pipelines_work(void *user) {
  struct vk_pipelines *p = user;
  struct vk_warm *warm = vk_warm_create(p->device, p->push_bytes);
  pthread_mutex_lock(&p->mutex);
  while (!p->stop) {
    uint32_t index = vk_pipelines_next(p);
    if (index == UINT32_MAX) {
      pthread_cond_wait(&p->work, &p->mutex);
      continue;
    }
    struct vk_pipeline_slot *slot = &p->slot[index];
    slot->state = VK_MAKING;
    p->n_wanted--;
    p->n_making++;
    pthread_mutex_unlock(&p->mutex);
    struct moe_error error = {0};
    VkPipeline made = vk_pipeline_build(p, index, warm, &error);
    pthread_mutex_lock(&p->mutex);
    slot->handle = made;
    slot->error = error;
    slot->state = made ? VK_MADE : VK_BROKEN;
    p->n_making--;
    p->n_unsaved++;
    pthread_cond_broadcast(&p->made);
    if (!p->n_making && !p->n_wanted && !p->stop) {
      p->n_unsaved = 0;
      pthread_mutex_unlock(&p->mutex);
      vk_cache_save(p);
      pthread_mutex_lock(&p->mutex);
    }
  }
  pthread_mutex_unlock(&p->mutex);
  vk_warm_destroy(warm);
  return NULL;
}

static enum moe_code vk_pipelines_layout(struct vk_pipelines *p, struct moe_error *err) {
  uint32_t push = 4; /* all are multiples of 4 (img_check) */
  for (uint32_t i = 0; i < p->modules->n_module; i++) {
    uint32_t bytes = p->modules->module[i].push_bytes;
    if (bytes > push && bytes <= p->device->gpu->push_bytes) push = bytes;
  }
  p->push_bytes = push;
  const VkPushConstantRange range = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = push};
  const VkPipelineLayoutCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                           .pushConstantRangeCount = 1,
                                           .pPushConstantRanges = &range};
  VkResult result = p->device->api.CreatePipelineLayout(p->device->handle, &info, NULL, &p->layout);
  return result == VK_SUCCESS ? MOE_OK : vk_fail(err, result, "vkCreatePipelineLayout");
}

enum moe_code vk_pipelines_create(struct vk_device *device, const struct img_modules_view *modules,
                                  const char *cache_path, struct vk_pipelines **out, struct moe_error *err) {
  *out = NULL;
  struct vk_pipelines *p = calloc(1, sizeof *p);
  if (!p) return moe_fail(err, MOE_FAILED, "out of memory");
  p->device = device;
  p->modules = modules;
  pthread_mutex_init(&p->mutex, NULL);
  pthread_cond_init(&p->work, NULL);
  pthread_cond_init(&p->made, NULL);
  p->slot = calloc(modules->n_module ? modules->n_module : 1, sizeof *p->slot);
  p->cache_path = cache_path ? strdup(cache_path) : NULL;
  enum moe_code code = p->slot && (!cache_path || p->cache_path) ? MOE_OK : moe_fail(err, MOE_FAILED, "out of memory");
  if (!code) code = vk_pipelines_layout(p, err);
  if (!code) vk_cache_load(p);
  long n_cpu = sysconf(_SC_NPROCESSORS_ONLN);
  uint32_t wanted = n_cpu < 1 ? 1 : n_cpu > VK_MAX_WORKER ? VK_MAX_WORKER : (uint32_t)n_cpu;
  while (!code && p->n_worker < wanted) {
    if (pthread_create(&p->worker[p->n_worker], NULL, vk_pipelines_work, p)) break;
    p->n_worker++;
  }
  if (!code && !p->n_worker) code = moe_fail(err, MOE_FAILED, "no thread can be started for compiling pipelines");
  if (code) {
    vk_pipelines_destroy(p);
    return code;
  }
  *out = p;
  return MOE_OK;
}

void vk_pipelines_destroy(struct vk_pipelines *p) {
  if (!p) return;
  pthread_mutex_lock(&p->mutex);
  p->stop = true;
  pthread_cond_broadcast(&p->work);
  pthread_mutex_unlock(&p->mutex);
  for (uint32_t i = 0; i < p->n_worker; i++) pthread_join(p->worker[i], NULL);
  const struct vk_api *api = &p->device->api;
  if (p->n_unsaved) vk_cache_save(p);
  for (uint32_t i = 0; p->slot && i < p->modules->n_module; i++)
    if (p->slot[i].handle) api->DestroyPipeline(p->device->handle, p->slot[i].handle, NULL);
  if (p->cache) api->DestroyPipelineCache(p->device->handle, p->cache, NULL);
  if (p->layout) api->DestroyPipelineLayout(p->device->handle, p->layout, NULL);
  pthread_cond_destroy(&p->made);
  pthread_cond_destroy(&p->work);
  pthread_mutex_destroy(&p->mutex);
  free(p->cache_path);
  free(p->slot);
  free(p);
}

/* Marks a module wanted with a rank. Under the mutex. */
static void vk_pipelines_mark(struct vk_pipelines *p, uint32_t index, uint32_t rank) {
  struct vk_pipeline_slot *slot = &p->slot[index];
  if (slot->state == VK_UNWANTED) {
    slot->state = VK_WANTED;
    slot->rank = rank;
    p->n_wanted++;
  } else if (slot->state == VK_WANTED && rank < slot->rank) {
    slot->rank = rank;
  }
}

void vk_pipelines_want(struct vk_pipelines *p, const uint32_t *list, uint32_t n) {
  pthread_mutex_lock(&p->mutex);
  for (uint32_t i = 0; i < n; i++) vk_pipelines_mark(p, list[i], VK_RANK_WANT + p->n_asked++);
  pthread_cond_broadcast(&p->work);
  pthread_mutex_unlock(&p->mutex);
}

void vk_pipelines_hurry(struct vk_pipelines *p, const uint32_t *list, uint32_t n) {
  pthread_mutex_lock(&p->mutex);
  for (uint32_t i = 0; i < n; i++) vk_pipelines_mark(p, list[i], VK_RANK_HURRY);
  pthread_cond_broadcast(&p->work);
  pthread_mutex_unlock(&p->mutex);
}

bool vk_pipelines_ready(struct vk_pipelines *p, const uint32_t *list, uint32_t n) {
  pthread_mutex_lock(&p->mutex);
  bool ready = true;
  for (uint32_t i = 0; i < n && ready; i++) ready = p->slot[list[i]].state == VK_MADE;
  pthread_mutex_unlock(&p->mutex);
  return ready;
}

enum moe_code vk_pipelines_wait(struct vk_pipelines *p, const uint32_t *list, uint32_t n, void (*alive)(void *user),
                                void *user, struct moe_error *err) {
  enum moe_code code = MOE_OK;
  pthread_mutex_lock(&p->mutex);
  for (uint32_t i = 0; i < n; i++) vk_pipelines_mark(p, list[i], VK_RANK_WAIT);
  pthread_cond_broadcast(&p->work);
  for (uint32_t i = 0; i < n && !code; i++) {
    const struct vk_pipeline_slot *slot = &p->slot[list[i]];
    while (slot->state != VK_MADE && slot->state != VK_BROKEN) {
      pthread_cond_wait(&p->made, &p->mutex);
      if (alive) alive(user);
    }
    if (slot->state == VK_BROKEN) code = moe_fail(err, slot->error.code, "%s", slot->error.message);
  }
  pthread_mutex_unlock(&p->mutex);
  return code;
}

VkPipeline vk_pipelines_get(const struct vk_pipelines *p, uint32_t index) {
  return p->slot[index].handle;
}
VkPipelineLayout vk_pipelines_get_layout(const struct vk_pipelines *p) {
  return p->layout;
}
