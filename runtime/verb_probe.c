/* verb_probe.c: `moert probe`: the Vulkan devices of this box as a table, or one of them as a JSON profile.
 *
 * The profile is one object: name, driver, type, vendor_id, device_id, vulkan ("1.3.280"), features (names of
 * img_features.def), subgroup {size, min, max, control, full}, limits {push_bytes, shared_bytes, workgroup, grid,
 * resident (workgroups that all run at once; 0: not known), max_allocation, max_buffer, sparse}, memory {heap_bytes,
 * available_bytes, budget, host_visible}. */
#include "img_print.h"
#include "verbs.h"
#include "vk_device.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct probe_options {
#define OPTION OPTION_FIELD
#include "verb_probe_options.def"
#undef OPTION
};

static const struct option_row probe_rows[] = {
#define OPTION(...) OPTION_ROW(struct probe_options, __VA_ARGS__)
#include "verb_probe_options.def"
#undef OPTION
};

static void probe_version(const struct vk_gpu *gpu, char out[32]) {
  snprintf(out, 32, "%u.%u.%u", gpu->api_version >> 22 & 0x7f, gpu->api_version >> 12 & 0x3ff,
           gpu->api_version & 0xfff);
}

static void probe_print(const struct vk_gpu *gpu) {
  char version[32];
  probe_version(gpu, version);
  printf("%u: %s\n", gpu->index, gpu->name);
  printf("   %s, Vulkan %s, %s\n", vk_gpu_type_name(gpu->type), version, gpu->driver);
  printf("   memory %.1f GiB, %.1f GiB free%s; subgroup %u (%u to %u); shared %u bytes\n",
         (double)gpu->heap_bytes / (1 << 30), (double)gpu->available_bytes / (1 << 30),
         gpu->has_budget ? " by the driver's budget" : "", gpu->subgroup_size, gpu->min_subgroup, gpu->max_subgroup,
         gpu->shared_bytes);
  if (gpu->resident)
    printf("   workgroups that all run at once: %u\n", gpu->resident);
  else
    printf("   workgroups that all run at once: not known\n");
  printf("   lacks:");
  bool lacks = false;
  for (uint32_t bit = 0; bit < 64; bit++)
    if (img_feature_name(bit) && !(gpu->features >> bit & 1)) {
      printf("%s %s", lacks ? "," : "", img_feature_name(bit));
      lacks = true;
    }
  printf("%s\n", lacks ? "" : " nothing that an image can need");
}

static json_t *probe_json(const struct vk_gpu *gpu) {
  char version[32];
  probe_version(gpu, version);
  json_t *features = json_array();
  for (uint32_t bit = 0; bit < 64; bit++)
    if (gpu->features >> bit & 1) json_array_append_new(features, json_string(img_feature_name(bit)));
  return json_pack("{s:s,s:s,s:s,s:I,s:I,s:s,s:o,s:{s:I,s:I,s:I,s:b,s:b},s:{s:I,s:I,s:I,s:[I,I,I],s:I,s:I,s:I,s:b},s:{"
                   "s:I,s:I,s:b,s:b}}",
                   "name", gpu->name, "driver", gpu->driver, "type", vk_gpu_type_name(gpu->type), "vendor_id",
                   (json_int_t)gpu->vendor_id, "device_id", (json_int_t)gpu->device_id, "vulkan", version, "features",
                   features, "subgroup", "size", (json_int_t)gpu->subgroup_size, "min", (json_int_t)gpu->min_subgroup,
                   "max", (json_int_t)gpu->max_subgroup, "control", gpu->subgroup_control, "full", gpu->full_subgroups,
                   "limits", "push_bytes", (json_int_t)gpu->push_bytes, "shared_bytes", (json_int_t)gpu->shared_bytes,
                   "workgroup", (json_int_t)gpu->workgroup_size, "grid", (json_int_t)gpu->grid[0],
                   (json_int_t)gpu->grid[1], (json_int_t)gpu->grid[2], "resident", (json_int_t)gpu->resident,
                   "max_allocation", (json_int_t)gpu->max_allocation, "max_buffer", (json_int_t)gpu->max_buffer,
                   "sparse", gpu->sparse, "memory", "heap_bytes", (json_int_t)gpu->heap_bytes, "available_bytes",
                   (json_int_t)gpu->available_bytes, "budget", gpu->has_budget, "host_visible", gpu->host_visible);
}

/* Writes the profile by a temporary file and a rename; "-": standard output. */
static enum moe_code probe_write(const struct vk_gpu *gpu, const char *path, struct moe_error *err) {
  json_t *profile = probe_json(gpu);
  if (!profile) return moe_fail(err, MOE_FAILED, "device %s: its names are not UTF-8, or out of memory", gpu->name);
  enum moe_code code = MOE_OK;
  if (!strcmp(path, "-")) {
    json_dumpf(profile, stdout, JSON_INDENT(2));
    putchar('\n');
  } else {
    char *temporary = NULL;
    int file = asprintf(&temporary, "%s.XXXXXX", path) > 0 ? mkstemp(temporary) : -1;
    bool ok = file >= 0 && !json_dumpfd(profile, file, JSON_INDENT(2)) && write(file, "\n", 1) == 1 && !fsync(file);
    if (file >= 0) ok = !close(file) && ok;
    if (!ok || rename(temporary, path)) {
      code = moe_fail(err, MOE_FAILED, "%s: cannot write: %s", path, strerror(errno));
      if (file >= 0) unlink(temporary);
    }
    free(temporary);
  }
  json_decref(profile);
  return code;
}

enum moe_code verb_probe(int argc, char *const *argv, struct moe_error *err) {
  static const struct option_table table = {.command = "moert probe",
                                            .summary = "Lists the Vulkan devices; -o writes one as a profile.",
                                            .positionals = "",
                                            .rows = probe_rows,
                                            .n_row = sizeof probe_rows / sizeof *probe_rows};
  struct probe_options o;
  struct option_result r;
  enum moe_code code = options_command(&table, argc, argv, &o, &r, err);
  if (code || r.help) return code;
  struct vk_instance *instance;
  code = vk_instance_create(&instance, err);
  if (code) return code;
  const struct vk_needs nothing = {.vulkan_major = 1, .vulkan_minor = 2};
  const struct vk_gpu *gpu;
  uint32_t n;
  const struct vk_gpu *all = vk_instance_gpus(instance, &n);
  if (o.device || o.output) {
    code = vk_instance_choose(instance, o.device, &nothing, &gpu, err);
    if (!code && o.output)
      code = probe_write(gpu, o.output, err);
    else if (!code)
      probe_print(gpu);
  } else {
    for (uint32_t i = 0; i < n; i++) probe_print(&all[i]);
  }
  vk_instance_destroy(instance);
  return code;
}
