#include "vk_profile.h"

#include "vk_pipeline_internal.h"
#include "vk_replay_internal.h"
#include "vk_timer.h"

#include <stdlib.h>

enum { VK_PROFILE_N_FORM = 2 };

struct vk_profile {
  struct vk_replay *replay;
  struct vk_timer timer; /* n_dispatch + 1 timestamps */
  VkCommandBuffer commands[VK_PROFILE_N_FORM];
  uint32_t n_dispatch;
};

static void vk_profile_count(void *user, const struct img_inst *inst, uint32_t table, uint32_t row) {
  (void)table, (void)row;
  if (inst->op == IMG_OP_DISPATCH) ++*(uint32_t *)user;
}

/* What the recording of EACH is at. */
struct vk_profile_recorder {
  struct vk_recorder r;
  struct vk_profile *profile;
  uint32_t n_stamp;
};

static void vk_profile_stamp(struct vk_profile_recorder *p) {
  vk_timer_stamp(&p->profile->timer, p->r.commands, p->n_stamp++);
}

/* A template's own barriers are left out: there is one after every dispatch. */
static void vk_profile_visit(void *user, const struct img_inst *inst, uint32_t table, uint32_t row) {
  struct vk_profile_recorder *p = user;
  if (inst->op != IMG_OP_DISPATCH) return;
  vk_record_inst(&p->r, inst, table, row);
  vk_record_barrier(&p->r, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                    VK_ACCESS_SHADER_WRITE_BIT, VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
  vk_profile_stamp(p);
}

static VkResult vk_profile_record(struct vk_profile *profile, uint32_t index, enum vk_profile_form form) {
  struct vk_replay *replay = profile->replay;
  VkResult result = vk_timer_begin(&profile->timer, &profile->commands[form]);
  if (result != VK_SUCCESS) return result;
  struct vk_profile_recorder p = {.profile = profile,
                                  .r = {.replay = replay,
                                        .commands = profile->commands[form],
                                        .bound = UINT32_MAX,
                                        .layout = vk_pipelines_get_layout(replay->pipelines)}};
  vk_record_begin(&p.r);
  vk_profile_stamp(&p);
  const struct vk_walk walk = {.templates = replay->templates,
                               .visit = form == VK_PROFILE_EACH ? vk_profile_visit : vk_record_inst,
                               .user = form == VK_PROFILE_EACH ? (void *)&p : (void *)&p.r};
  vk_walk_template(&walk, index);
  if (form == VK_PROFILE_WHOLE) vk_profile_stamp(&p);
  vk_record_end(&p.r);
  return replay->device->api.EndCommandBuffer(p.r.commands);
}

enum moe_code vk_profile_create(struct vk_replay *replay, uint32_t index, struct vk_profile **out,
                                struct moe_error *err) {
  *out = NULL;
  enum moe_code code = vk_replay_prepare(replay, index, err);
  if (code) return code;
  struct vk_profile *p = calloc(1, sizeof *p);
  if (!p) return moe_fail(err, MOE_FAILED, "out of memory");
  p->replay = replay;
  const struct vk_walk walk = {.templates = replay->templates, .visit = vk_profile_count, .user = &p->n_dispatch};
  vk_walk_template(&walk, index);
  code = vk_timer_init(&p->timer, replay->device, p->n_dispatch + 2, err);
  for (int form = 0; form < VK_PROFILE_N_FORM && !code; form++) {
    VkResult result = vk_profile_record(p, index, (enum vk_profile_form)form);
    if (result != VK_SUCCESS) code = vk_fail(err, result, "recording a template with timestamps");
  }
  if (code) {
    vk_profile_destroy(p);
    return code;
  }
  *out = p;
  return MOE_OK;
}

void vk_profile_destroy(struct vk_profile *p) {
  if (!p) return;
  vk_timer_deinit(&p->timer);
  free(p);
}

uint32_t vk_profile_n_dispatch(const struct vk_profile *p) {
  return p->n_dispatch;
}

enum moe_code vk_profile_run(struct vk_profile *p, enum vk_profile_form form, double *ns, struct moe_error *err) {
  uint32_t n = form == VK_PROFILE_WHOLE ? 1 : p->n_dispatch;
  VkResult result = vk_timer_submit(&p->timer, p->commands[form]);
  if (result == VK_SUCCESS) result = vk_replay_wait_fence(p->replay, p->timer.fence);
  if (result == VK_SUCCESS) result = vk_timer_read(&p->timer, n, ns);
  return result == VK_SUCCESS ? MOE_OK : vk_fail(err, result, "running a template with timestamps");
}
