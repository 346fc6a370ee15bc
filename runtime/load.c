#include "load.h"

#include "arenas.h"
#include "img_hazard.h"
#include "img_print.h"
#include "img_tokenizer.h"
#include "vk_pipeline.h"
#include "vk_replay.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

enum img_tier load_tier(const char *name) {
  for (uint32_t tier = 0; tier < IMG_N_TIER; tier++)
    if (!strcmp(img_tier_name(tier), name)) return (enum img_tier)tier;
  return IMG_N_TIER;
}

enum moe_code load_map(const char *path, struct load *load, struct moe_error *err) {
  memset(load, 0, sizeof *load);
  enum moe_code code = img_open(path, &load->image, err);
  if (code) load->image.map = NULL;
  return code;
}

enum moe_code load_check(struct load *load, struct moe_error *err) {
  enum moe_code code = img_check(&load->image, &load->view, err);
  if (!code) code = img_hazard_check(&load->view.templates, &load->view.modules, err);
  return code;
}

enum moe_code load_image(const char *path, struct load *load, struct moe_error *err) {
  enum moe_code code = load_map(path, load, err);
  return code ? code : load_check(load, err);
}

void load_close(struct load *load) {
  vk_instance_destroy(load->instance);
  free(load->templates);
  resident_deinit(&load->resident);
  if (load->image.map) img_close(&load->image);
  memset(load, 0, sizeof *load);
}

/* ---- which templates (FORMAT.md, Tiers) ---- */

static bool load_same_size(const struct img_template *a, const struct img_template *b) {
  return a->kind == b->kind && a->n_row == b->n_row;
}

/* Whether nothing can stand in for template i: it is of the tier that was asked for, or of tier base without one of
 * that tier for its kind and rows. */
static bool load_must(const struct img_templates_view *v, uint32_t i, enum img_tier asked) {
  const struct img_template *t = &v->template[i];
  if (t->tier == asked) return true;
  bool stands_in = false;
  for (uint32_t k = 0; k < v->n_template && !stands_in; k++)
    stands_in = v->template[k].tier == asked && load_same_size(&v->template[k], t);
  return t->tier == IMG_TIER_BASE && !stands_in;
}

/* Adds what template i's modules need. list: scratch. */
static void load_add_needs(const struct load *load, uint32_t i, uint32_t *list, struct vk_needs *needs) {
  uint32_t n = vk_template_modules(&load->view.templates, i, list);
  for (uint32_t k = 0; k < n; k++) {
    const struct img_module *m = &load->view.modules.module[list[k]];
    needs->features |= m->features;
    if (m->push_bytes > needs->push_bytes) needs->push_bytes = m->push_bytes;
    if (m->shared_bytes > needs->shared_bytes) needs->shared_bytes = m->shared_bytes;
  }
}

static struct vk_needs load_no_needs(const struct load *load) {
  return (struct vk_needs){.vulkan_major = load->view.manifest.requires_vulkan_major,
                           .vulkan_minor = load->view.manifest.requires_vulkan_minor};
}

/* The device, by what the templates need for which nothing stands in. */
static enum moe_code load_choose(const struct engine_options *o, struct load *load, enum img_tier asked, uint32_t *list,
                                 struct moe_error *err) {
  const struct img_templates_view *v = &load->view.templates;
  struct vk_needs needs = load_no_needs(load);
  bool any = false;
  for (uint32_t i = 0; i < v->n_template; i++) {
    any |= v->template[i].tier == asked;
    if (load_must(v, i, asked)) load_add_needs(load, i, list, &needs);
  }
  if (!any && o->tier)
    return moe_fail(err, MOE_DECLINED,
                    "%s: has no kernels of tier %s; leave --tier out for the best that the image and the device have",
                    o->image_path, o->tier);
  if (!any) return moe_fail(err, MOE_FAILED, "%s: has no templates", o->image_path);
  enum moe_code code = vk_instance_choose(load->instance, o->device, &needs, &load->gpu, err);
  const struct vk_gpu *gpu = load->gpu;
  if (!code && gpu->min_subgroup != gpu->max_subgroup && !gpu->subgroup_control)
    code = moe_fail(err, MOE_DECLINED,
                    "device %s: runs subgroups of %u to %u invocations and lacks subgroupSizeControl in compute, which "
                    "kernels for it need; a newer driver may have it",
                    gpu->name, gpu->min_subgroup, gpu->max_subgroup);
  return code;
}

/* A dispatch's tuning row and grid against the device's limits. */
static enum moe_code load_check_inst(const struct load *load, const struct img_inst *inst, struct moe_error *err) {
  const struct img_view *v = &load->view;
  const struct vk_gpu *gpu = load->gpu;
  const struct img_module *m = &v->modules.module[inst->module];
  const struct img_tuning *t = vk_tuning(m, gpu->subgroup_size);
  const char *name = v->modules.name + m->name_offset;
  uint32_t workgroup = t->spec[IMG_SPEC_WG];
  if (workgroup > gpu->workgroup_size || workgroup > gpu->workgroup_x)
    return moe_fail(err, MOE_DECLINED,
                    "device %s: module %s has workgroups of %u; maxComputeWorkGroupInvocations is %u, "
                    "maxComputeWorkGroupSize[0] is %u",
                    gpu->name, name, workgroup, gpu->workgroup_size, gpu->workgroup_x);
  const uint64_t groups[3] = {vk_groups(m, gpu, inst->grid[0]), inst->grid[1], inst->grid[2]};
  for (int k = 0; k < 3; k++)
    if (groups[k] > gpu->grid[k])
      return moe_fail(err, MOE_DECLINED,
                      "device %s: module %s is dispatched over %llu workgroups; "
                      "maxComputeWorkGroupCount[%d] is %u",
                      gpu->name, name, (ull)groups[k], k, gpu->grid[k]);
  return MOE_OK;
}

/* The dispatches among instructions [first, + n), and those of the bodies that they call. */
static enum moe_code load_check_insts(const struct load *load, uint32_t first, uint32_t n, struct moe_error *err) {
  const struct img_templates_view *t = &load->view.templates;
  enum moe_code code = MOE_OK;
  for (uint32_t i = first; i < first + n && !code; i++) {
    const struct img_inst *inst = &t->inst[i];
    if (inst->op == IMG_OP_DISPATCH) code = load_check_inst(load, inst, err);
    for (uint32_t k = 0; inst->op == IMG_OP_CALL && k < t->body[inst->body].n_inst && !code; k++) {
      const struct img_inst *inner = &t->inst[t->body[inst->body].first_inst + k];
      if (inner->op == IMG_OP_DISPATCH) code = load_check_inst(load, inner, err);
    }
  }
  return code;
}

/* Whether the device runs template i, and not only by emulation unless that was asked for. */
static bool load_fits(const struct load *load, uint32_t i, bool emulate, uint32_t *list) {
  const struct img_template *t = &load->view.templates.template[i];
  struct vk_needs needs = load_no_needs(load);
  load_add_needs(load, i, list, &needs);
  return (emulate || !(needs.features & load->gpu->emulated)) && !vk_gpu_check(load->gpu, &needs, NULL) &&
         !load_check_insts(load, t->first_inst, t->n_inst, NULL);
}

static void load_take(struct load *load, uint32_t i) {
  const struct img_template *t = &load->view.templates.template[i];
  load->templates[load->n_template++] = (struct step_template){.index = i, .n_row = t->n_row, .n_select = t->n_select};
  if (t->tier > load->tier) load->tier = (enum img_tier)t->tier;
}

/* Takes of every kind and rows the template of the highest tier, up to the one asked for, that fits. */
static enum moe_code load_take_all(struct load *load, const char *tier, uint32_t *list, struct moe_error *err) {
  const struct img_templates_view *v = &load->view.templates;
  enum img_tier asked = tier ? load_tier(tier) : IMG_TIER_BASE, most = tier ? asked : IMG_N_TIER - 1;
  bool fits[IMG_MAX_TEMPLATE];
  for (uint32_t i = 0; i < v->n_template; i++) {
    const struct img_template *t = &v->template[i];
    bool must = load_must(v, i, asked);
    enum moe_code code = must ? load_check_insts(load, t->first_inst, t->n_inst, err) : MOE_OK;
    if (code) return code;
    fits[i] = must || (t->tier <= most && load_fits(load, i, tier != NULL, list));
    if (fits[i] && t->tier < IMG_TIER_RESIDENT && t->tier > load->below) load->below = (enum img_tier)t->tier;
  }
  for (uint32_t i = 0; i < v->n_template; i++) {
    bool best = fits[i];
    for (uint32_t k = 0; k < v->n_template && best; k++)
      best =
          !fits[k] || !load_same_size(&v->template[k], &v -> template[i]) || v->template[k].tier <= v->template[i].tier;
    if (best) load_take(load, i);
  }
  return MOE_OK;
}

/* The device and the templates for it. */
static enum moe_code load_select(const struct engine_options *o, struct load *load, struct moe_error *err) {
  if (o->tier && load_tier(o->tier) == IMG_N_TIER)
    return moe_fail(err, MOE_USAGE, "--tier %s: allowed base, dot, khr, nv, resident", o->tier);
  uint32_t *list = calloc((size_t)load->view.modules.n_module + 1, sizeof *list);
  load->templates = calloc((size_t)load->view.templates.n_template + 1, sizeof *load->templates);
  enum moe_code code = list && load->templates ? MOE_OK : moe_fail(err, MOE_FAILED, "out of memory");
  if (!code) code = load_choose(o, load, o->tier ? load_tier(o->tier) : IMG_TIER_BASE, list, err);
  if (!code) code = load_take_all(load, o->tier, list, err);
  free(list);
  if (!code) code = resident_place(&load->view.templates, load->templates, load->n_template, &load->resident, err);
  return code;
}

static enum moe_code load_plan(const struct engine_options *o, struct load *load, struct moe_error *err) {
  const struct vk_gpu *gpu = load->gpu;
  uint64_t slab = gpu->max_allocation < gpu->max_buffer ? gpu->max_allocation : gpu->max_buffer;
  const struct memory_plan_input input = {.manifest = &load->view.manifest,
                                          .image = o->image_path,
                                          .device = gpu->name,
                                          .planes_bytes = load->view.planes_bytes,
                                          .tables_bytes = load->view.tables_bytes,
                                          .resident_bytes = load->resident.bytes,
                                          .available_bytes = gpu->available_bytes,
                                          .max_state_bytes = gpu->sparse ? gpu->max_buffer : slab,
                                          .max_ctx = gpu->type == VK_GPU_CPU ? MEMORY_PLAN_CPU_CTX : 0,
                                          .staged = !gpu->host_visible,
                                          .n_ctx = o->n_ctx,
                                          .n_slot = o->n_slot};
  enum moe_code code = memory_plan_make(&input, &load->plan, err);
  if (code) return code;
  if (o->n_ctx > load->plan.n_ctx)
    fprintf(stderr, "moert: note: --ctx %u is more than the model was trained for; the context is %u\n", o->n_ctx,
            load->plan.n_ctx);
  struct arena_slab *slabs = calloc((size_t)load->view.planes.n_plane + 1, sizeof *slabs);
  if (!slabs) return moe_fail(err, MOE_FAILED, "out of memory");
  uint32_t n_slab;
  code = arenas_cut(&load->view.planes, load->view.planes_bytes, slab, slabs, &n_slab, err);
  free(slabs);
  return code;
}

/* The bounds once more, now that the sizes of the arenas are known that img_check leaves open. */
static enum moe_code load_check_bounds(const struct load *load, struct moe_error *err) {
  const struct memory_plan *p = &load->plan;
  const uint64_t limits[IMG_N_ARENA] = {
      [IMG_ARENA_WEIGHTS] = p->planes_bytes, [IMG_ARENA_TABLES] = p->tables_bytes,
      [IMG_ARENA_STATE] = p->state_bytes,    [IMG_ARENA_ACT] = p->act_bytes,
      [IMG_ARENA_STEP] = p->step_bytes,      [IMG_ARENA_RESULT] = p->result_bytes,
      [IMG_ARENA_SLOT] = p->slot_bytes,      [IMG_ARENA_RECURRENT] = load->view.manifest.state_block_bytes};
  uint64_t bytes;
  const uint8_t *section = img_section_data(&load->image, IMG_SECTION_TEMPLATES, &bytes);
  struct img_templates_view checked;
  return img_check_templates(section, bytes, &load->view.modules, limits, &load->view.planes, &checked, err);
}

static int load_compare_templates(const void *a, const void *b) {
  const struct step_template *x = a, *y = b;
  if (x->n_row != y->n_row) return x->n_row < y->n_row ? -1 : 1;
  if (x->n_select != y->n_select) return x->n_select < y->n_select ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

_Static_assert(IMG_MAX_SUPPRESS == IMG_TOKENIZER_MAX_SUPPRESS, "what a payload may have fits a step block");

/* The templates in the scheduler's order, and the step blocks' shape with the model's end tokens and suppressed ones.
 */
static enum moe_code load_steps(struct load *load, struct moe_error *err) {
  const struct img_view *v = &load->view;
  qsort(load->templates, load->n_template, sizeof *load->templates, load_compare_templates);
  load->shape = (struct step_shape){
      .max_row = v->manifest.memory_max_row, .n_slot = load->plan.n_slot, .page_stride = load->plan.page_stride};
  uint64_t bytes;
  const uint8_t *section = img_section_data(&load->image, IMG_SECTION_TOKENIZER, &bytes);
  if (!section) return MOE_OK;
  struct img_tokenizer tokenizer;
  enum moe_code code = img_tokenizer_open(section, bytes, &tokenizer, err);
  if (code) return code;
  if (tokenizer.n_eog > IMG_MAX_STOP)
    return moe_fail(err, MOE_FAILED, "TOKENIZER: %u end tokens; allowed at most %d", tokenizer.n_eog, IMG_MAX_STOP);
  load->shape.n_stop = tokenizer.n_eog;
  for (uint32_t i = 0; i < tokenizer.n_eog; i++) load->shape.stop[i] = (int32_t)tokenizer.eog[i];
  load->shape.n_suppress = tokenizer.n_suppress;
  for (uint32_t i = 0; i < tokenizer.n_suppress; i++) load->shape.suppress[i] = (int32_t)tokenizer.suppress[i];
  return MOE_OK;
}

enum moe_code load_open(const struct engine_options *o, struct load *load, struct moe_error *err) {
  enum moe_code code = load_image(o->image_path, load, err);
  if (!code) code = vk_instance_create(&load->instance, err);
  if (!code) code = load_select(o, load, err);
  if (!code) code = load_plan(o, load, err);
  if (!code) code = load_check_bounds(load, err);
  if (!code) code = load_steps(load, err);
  return code;
}
