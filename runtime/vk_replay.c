#include "vk_replay.h"

#include "vk_internal.h"
#include "vk_pipeline_internal.h"
#include "vk_replay_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define VK_SECOND_NS (1000ull * 1000 * 1000)
#define VK_STEP_TIMEOUT_NS (600 * VK_SECOND_NS)

void vk_walk_template(const struct vk_walk *walk, uint32_t index) {
  const struct img_templates_view *t = walk->templates;
  const struct img_template *template = &t->template[index];
  for (uint32_t i = 0; i < template->n_inst; i++) {
    const struct img_inst *inst = &t->inst[template->first_inst + i];
    if (inst->op != IMG_OP_CALL) {
      walk->visit(walk->user, inst, 0, 0);
      continue;
    }
    const struct img_body *body = &t->body[inst->body];
    for (uint32_t row = 0; row < inst->count; row++)
      for (uint32_t k = 0; k < body->n_inst; k++)
        walk->visit(walk->user, &t->inst[body->first_inst + k], inst->table, inst->first_row + row);
  }
}

struct vk_module_list {
  uint32_t *list, n;
};

static void vk_list_module(void *user, const struct img_inst *inst, uint32_t table, uint32_t row) {
  (void)table, (void)row;
  struct vk_module_list *l = user;
  if (inst->op != IMG_OP_DISPATCH) return;
  for (uint32_t i = 0; i < l->n; i++)
    if (l->list[i] == inst->module) return;
  l->list[l->n++] = inst->module;
}

uint32_t vk_template_modules(const struct img_templates_view *templates, uint32_t index, uint32_t *list) {
  struct vk_module_list l = {.list = list};
  const struct vk_walk walk = {.templates = templates, .visit = vk_list_module, .user = &l};
  vk_walk_template(&walk, index);
  return l.n;
}

void vk_record_barrier(struct vk_recorder *r, VkPipelineStageFlags from, VkPipelineStageFlags to, VkAccessFlags writes,
                       VkAccessFlags uses) {
  const VkMemoryBarrier barrier = {
      .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = writes, .dstAccessMask = uses};
  r->replay->device->api.CmdPipelineBarrier(r->commands, from, to, 0, 1, &barrier, 0, NULL, 0, NULL);
}

/* The push block of a dispatch; returns its bytes. */
static uint32_t vk_record_words(struct vk_recorder *r, const struct img_inst *inst, uint32_t table, uint32_t row,
                                uint8_t push[256]) {
  const struct img_templates_view *t = r->replay->templates;
  uint32_t at = 0;
  for (uint32_t i = 0; i < inst->n_word; i++) {
    const struct img_word *word = &t->word[inst->first_word + i];
    uint64_t value = word->value;
    if (word->kind == IMG_WORD_LAYER_ADDRESS) value += img_table_value(t, table, row, word->column);
    if (word->kind == IMG_WORD_LAYER_IMM) value = img_table_value(t, table, row, word->column);
    uint32_t bytes = 4;
    if (word->kind == IMG_WORD_ADDRESS || word->kind == IMG_WORD_LAYER_ADDRESS || word->kind == IMG_WORD_TABLE) {
      uint32_t arena = word->kind == IMG_WORD_TABLE ? VK_RESIDENT_TABLE : word->arena;
      value = r->replay->resolve(r->replay->user, r->copy, arena, value);
      bytes = 8;
    }
    memcpy(push + at, &value, bytes); /* little-endian: the low half comes first */
    at += bytes;
  }
  return at;
}

void vk_record_inst(void *user, const struct img_inst *inst, uint32_t table, uint32_t row) {
  struct vk_recorder *r = user;
  const struct vk_api *api = &r->replay->device->api;
  if (inst->op == IMG_OP_BARRIER) {
    vk_record_barrier(r, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                      VK_ACCESS_SHADER_WRITE_BIT, VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
    return;
  }
  if (r->bound != inst->module) {
    api->CmdBindPipeline(r->commands, VK_PIPELINE_BIND_POINT_COMPUTE,
                         vk_pipelines_get(r->replay->pipelines, inst->module));
    r->bound = inst->module;
  }
  uint8_t push[256];
  uint32_t bytes = vk_record_words(r, inst, table, row, push);
  if (bytes) api->CmdPushConstants(r->commands, r->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, bytes, push);
  uint64_t groups = vk_groups(&r->replay->modules->module[inst->module], r->replay->device->gpu, inst->grid[0]);
  api->CmdDispatch(r->commands, (uint32_t)groups, inst->grid[1], inst->grid[2]);
}

void vk_record_begin(struct vk_recorder *r) {
  vk_record_barrier(r, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_HOST_BIT,
                    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_HOST_WRITE_BIT,
                    VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
}

void vk_record_end(struct vk_recorder *r) {
  vk_record_barrier(r, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_SHADER_WRITE_BIT,
                    VK_ACCESS_HOST_READ_BIT);
}

static enum moe_code vk_record(struct vk_replay *replay, uint32_t index, uint32_t copy, struct moe_error *err) {
  const struct vk_api *api = &replay->device->api;
  struct vk_recorder r = {.replay = replay,
                          .commands = replay->recording[index].commands[copy],
                          .copy = copy,
                          .bound = UINT32_MAX,
                          .layout = vk_pipelines_get_layout(replay->pipelines)};
  const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  VkResult result = api->BeginCommandBuffer(r.commands, &begin);
  if (result != VK_SUCCESS) return vk_fail(err, result, "recording a template");
  vk_record_begin(&r);
  const struct vk_walk walk = {.templates = replay->templates, .visit = vk_record_inst, .user = &r};
  vk_walk_template(&walk, index);
  vk_record_end(&r);
  result = api->EndCommandBuffer(r.commands);
  return result == VK_SUCCESS ? MOE_OK : vk_fail(err, result, "recording a template");
}

enum moe_code vk_replay_create(struct vk_device *device, struct vk_pipelines *pipelines,
                               const struct img_templates_view *templates, const struct img_modules_view *modules,
                               vk_resolve_fn *resolve, void *user, struct vk_replay **out, struct moe_error *err) {
  *out = NULL;
  struct vk_replay *replay = calloc(1, sizeof *replay);
  if (!replay) return moe_fail(err, MOE_FAILED, "out of memory");
  *replay = (struct vk_replay){.device = device,
                               .pipelines = pipelines,
                               .templates = templates,
                               .modules = modules,
                               .resolve = resolve,
                               .user = user};
  replay->recording = calloc((size_t)templates->n_template + 1, sizeof *replay->recording);
  replay->list = calloc((size_t)modules->n_module + 1, sizeof *replay->list);
  const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                        .queueFamilyIndex = device->queue_family};
  const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  VkResult result = VK_ERROR_OUT_OF_HOST_MEMORY;
  if (replay->recording && replay->list)
    result = device->api.CreateCommandPool(device->handle, &pool, NULL, &replay->pool);
  for (int i = 0; i < 2 && result == VK_SUCCESS; i++)
    result = device->api.CreateFence(device->handle, &fence, NULL, &replay->fence[i]);
  if (result != VK_SUCCESS) {
    vk_replay_destroy(replay);
    return vk_fail(err, result, "preparing to record");
  }
  *out = replay;
  return MOE_OK;
}

void vk_replay_watch(struct vk_replay *replay, void (*alive)(void *user), void *user) {
  replay->alive = alive;
  replay->alive_user = user;
}

void vk_replay_destroy(struct vk_replay *replay) {
  if (!replay) return;
  const struct vk_api *api = &replay->device->api;
  for (uint32_t i = 0; i < 2; i++)
    if (replay->pending[i]) vk_replay_wait(replay, i, NULL);
  for (int i = 0; i < 2; i++)
    if (replay->fence[i]) api->DestroyFence(replay->device->handle, replay->fence[i], NULL);
  if (replay->pool) api->DestroyCommandPool(replay->device->handle, replay->pool, NULL);
  free(replay->recording);
  free(replay->list);
  free(replay);
}

void vk_replay_want(struct vk_replay *replay, uint32_t index) {
  if (replay->recording[index].ready) return;
  uint32_t n = vk_template_modules(replay->templates, index, replay->list);
  vk_pipelines_want(replay->pipelines, replay->list, n);
}

void vk_replay_hurry(struct vk_replay *replay, uint32_t index) {
  if (replay->recording[index].ready) return;
  uint32_t n = vk_template_modules(replay->templates, index, replay->list);
  vk_pipelines_hurry(replay->pipelines, replay->list, n);
}

bool vk_replay_ready(struct vk_replay *replay, uint32_t index) {
  if (replay->recording[index].ready) return true;
  uint32_t n = vk_template_modules(replay->templates, index, replay->list);
  return vk_pipelines_ready(replay->pipelines, replay->list, n);
}

enum moe_code vk_replay_prepare(struct vk_replay *replay, uint32_t index, struct moe_error *err) {
  struct vk_recording *recording = &replay->recording[index];
  if (recording->ready) return MOE_OK;
  uint32_t n = vk_template_modules(replay->templates, index, replay->list);
  enum moe_code code = vk_pipelines_wait(replay->pipelines, replay->list, n, replay->alive, replay->alive_user, err);
  if (code) return code;
  const VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                            .commandPool = replay->pool,
                                            .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                            .commandBufferCount = 2};
  VkResult result = replay->device->api.AllocateCommandBuffers(replay->device->handle, &info, recording->commands);
  if (result != VK_SUCCESS) return vk_fail(err, result, "recording a template");
  for (uint32_t copy = 0; copy < 2 && !code; copy++) code = vk_record(replay, index, copy, err);
  recording->ready = !code;
  return code;
}

enum moe_code vk_replay_submit(struct vk_replay *replay, uint32_t index, uint32_t copy, struct moe_error *err) {
  enum moe_code code = vk_replay_prepare(replay, index, err);
  if (code) return code;
  const VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                               .commandBufferCount = 1,
                               .pCommandBuffers = &replay->recording[index].commands[copy]};
  VkResult result = replay->device->api.QueueSubmit(replay->device->queue, 1, &submit, replay->fence[copy]);
  if (result != VK_SUCCESS) return vk_fail(err, result, "submitting a step");
  replay->pending[copy] = true;
  return MOE_OK;
}

/* Processor time of this process. */
static uint64_t vk_replay_computed_ns(void) {
  struct timespec used = {0};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return (uint64_t)used.tv_sec * VK_SECOND_NS + (uint64_t)used.tv_nsec;
}

/* A second at a time. The step of a CPU driver runs in this process: while that uses processor time the step goes on,
 * however long a large model makes it; when it hangs, in a lock, time stands still. */
VkResult vk_replay_wait_fence(struct vk_replay *replay, VkFence fence) {
  const struct vk_device *device = replay->device;
  const bool here = device->gpu->type == VK_GPU_CPU;
  uint64_t computed = here ? vk_replay_computed_ns() : 0;
  for (uint64_t waited = 0; waited < VK_STEP_TIMEOUT_NS; waited += VK_SECOND_NS) {
    VkResult result = device->api.WaitForFences(device->handle, 1, &fence, VK_TRUE, VK_SECOND_NS);
    if (result != VK_TIMEOUT) return result;
    if (!here || vk_replay_computed_ns() - computed < VK_SECOND_NS / 100) continue;
    computed = vk_replay_computed_ns();
    waited = 0;
    if (replay->alive) replay->alive(replay->alive_user);
  }
  return VK_TIMEOUT;
}

enum moe_code vk_replay_wait(struct vk_replay *replay, uint32_t copy, struct moe_error *err) {
  const struct vk_api *api = &replay->device->api;
  if (!replay->pending[copy]) return MOE_OK;
  replay->pending[copy] = false;
  VkResult result = vk_replay_wait_fence(replay, replay->fence[copy]);
  if (result == VK_TIMEOUT)
    return moe_fail(err, MOE_FAILED, "device %s: a step did not end in 10 minutes", replay->device->gpu->name);
  if (result == VK_SUCCESS) result = api->ResetFences(replay->device->handle, 1, &replay->fence[copy]);
  return result == VK_SUCCESS ? MOE_OK : vk_fail(err, result, "waiting for a step");
}
