#include "arenas.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef unsigned long long ull;

enum moe_code arenas_cut(const struct img_planes_view *planes, uint64_t planes_bytes, uint64_t max_bytes,
                         struct arena_slab *slab, uint32_t *n_slab, struct moe_error *err) {
  uint32_t n = 0;
  memset(&slab[0], 0, sizeof slab[0]);
  uint32_t n_plane = planes->n_plane - planes->n_carried;
  for (uint32_t i = 0; i < n_plane; i++) {
    uint64_t start = planes->plane[i].offset;
    /* what follows a plane up to the next one (its padding) stays with it */
    uint64_t end = i + 1 < n_plane ? planes->plane[i + 1].offset : planes_bytes;
    if (end - start > max_bytes)
      return moe_fail(err, MOE_DECLINED, "plane[%u] %s: %llu bytes; the device allocates at most %llu at once", i,
                      planes->name + planes->plane[i].name_offset, (ull)(end - start), (ull)max_bytes);
    if (end - slab[n].first > max_bytes) {
      if (slab[n].bytes) n++; /* the first slab is empty before a plane far into the section */
      slab[n] = (struct arena_slab){.first = start};
    }
    slab[n].bytes = end - slab[n].first;
  }
  *n_slab = slab[n].bytes ? n + 1 : n;
  return MOE_OK;
}

/* Where an upload reports to. */
struct arenas_upload {
  arenas_progress_fn *progress;
  void *user;
  uint64_t done, total;
};

/* Gives the mapped file's pages back behind the upload: a large image does not push other files out of memory. */
static void arenas_uploaded(void *user, const void *source, uint64_t bytes) {
  struct arenas_upload *u = user;
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  uintptr_t start = ((uintptr_t)source + page - 1) / page * page, end = ((uintptr_t)source + bytes) / page * page;
  if (end > start) madvise((void *)start, end - start, MADV_DONTNEED);
  u->done += bytes;
  if (u->progress) u->progress(u->user, u->done, u->total);
}

static enum moe_code arenas_weights(struct arenas *a, struct vk_device *device, const struct img *image,
                                    const struct img_view *view, struct arenas_upload *upload, struct moe_error *err) {
  const struct vk_gpu *gpu = vk_device_gpu(device);
  uint64_t max = gpu->max_allocation < gpu->max_buffer ? gpu->max_allocation : gpu->max_buffer;
  a->slab = calloc((size_t)view->planes.n_plane + 1, sizeof *a->slab);
  if (!a->slab) return moe_fail(err, MOE_FAILED, "out of memory");
  enum moe_code code = arenas_cut(&view->planes, view->planes_bytes, max, a->slab, &a->n_slab, err);
  uint64_t bytes;
  const uint8_t *data = img_section_data(image, IMG_SECTION_PLANES, &bytes);
  for (uint32_t i = 0; i < a->n_slab && !code; i++) {
    struct arena_slab *slab = &a->slab[i];
    code = vk_buffer_create(device, slab->bytes, VK_BUFFER_DEVICE, "a slab of weights", &slab->buffer, err);
    if (code) break;
    slab->address = vk_buffer_address(slab->buffer);
    code = vk_upload(slab->buffer, 0, data + slab->first, slab->bytes, arenas_uploaded, upload, err);
  }
  return code;
}

static enum moe_code arenas_make(struct arenas *a, struct vk_device *device, enum img_arena arena, uint32_t copy,
                                 uint64_t bytes, enum vk_buffer_use use, const char *name, bool zero,
                                 struct moe_error *err) {
  if (!bytes) return MOE_OK;
  enum moe_code code = vk_buffer_create(device, bytes, use, name, &a->buffer[arena][copy], err);
  if (!code && zero) code = vk_buffer_zero(a->buffer[arena][copy], err);
  return code;
}

static uint64_t arenas_resolve(void *user, uint32_t copy, uint32_t arena, uint64_t offset) {
  return arenas_address(user, copy, arena, offset);
}

/* The tables in device memory, whose cells are addresses of the arenas made before. */
static enum moe_code arenas_tables(struct arenas *a, struct vk_device *device, const struct img_view *view,
                                   struct moe_error *err) {
  uint64_t bytes = a->tables->bytes;
  if (!bytes) return MOE_OK;
  enum moe_code code = vk_buffer_create(device, bytes, VK_BUFFER_DEVICE, "tables of addresses", &a->resident, err);
  if (code) return code;
  uint8_t *cells = malloc(bytes);
  if (!cells) return moe_fail(err, MOE_FAILED, "out of memory");
  resident_fill(a->tables, &view->templates, arenas_resolve, a, cells);
  code = vk_upload(a->resident, 0, cells, bytes, NULL, NULL, err);
  free(cells);
  return code;
}

enum moe_code arenas_init(struct arenas *a, struct vk_device *device, const struct img *image,
                          const struct img_view *view, const struct memory_plan *plan, const struct resident *tables,
                          arenas_progress_fn *progress, void *user, struct moe_error *err) {
  memset(a, 0, sizeof *a);
  a->tables = tables;
  struct arenas_upload upload = {.progress = progress, .user = user, .total = view->planes_bytes + view->tables_bytes};
  /* the small ones first: a device that is full says so before gigabytes were uploaded */
  enum moe_code code =
      arenas_make(a, device, IMG_ARENA_ACT, 0, plan->act_bytes, VK_BUFFER_DEVICE, "arena ACT", true, err);
  if (!code)
    code = arenas_make(a, device, IMG_ARENA_SLOT, 0, plan->slot_bytes, VK_BUFFER_DEVICE, "arena SLOT", true, err);
  /* clearing makes the pages resident now; a CPU driver's memory is clear already, and stays untouched until used */
  bool clear = vk_device_gpu(device)->type != VK_GPU_CPU;
  if (!code)
    code = arenas_make(a, device, IMG_ARENA_STATE, 0, plan->state_bytes, VK_BUFFER_DEVICE, "arena STATE", clear, err);
  if (!code)
    code = arenas_make(a, device, IMG_ARENA_RECURRENT, 0, plan->recurrent_bytes, VK_BUFFER_DEVICE, "arena RECURRENT",
                       true, err);
  for (uint32_t copy = 0; copy < 2; copy++) {
    if (!code)
      code = arenas_make(a, device, IMG_ARENA_STEP, copy, plan->step_bytes, VK_BUFFER_STEP, "a step block", true, err);
    if (!code)
      code = arenas_make(a, device, IMG_ARENA_RESULT, copy, plan->result_bytes, VK_BUFFER_RESULT, "a result block",
                         true, err);
  }
  if (!code)
    code =
        arenas_make(a, device, IMG_ARENA_TABLES, 0, view->tables_bytes, VK_BUFFER_DEVICE, "arena TABLES", false, err);
  if (!code && view->tables_bytes) {
    uint64_t bytes;
    const uint8_t *data = img_section_data(image, IMG_SECTION_TABLES, &bytes);
    code = vk_upload(a->buffer[IMG_ARENA_TABLES][0], 0, data, view->tables_bytes, arenas_uploaded, &upload, err);
  }
  if (!code) code = arenas_weights(a, device, image, view, &upload, err);
  if (!code) code = arenas_tables(a, device, view, err);
  return code;
}

void arenas_deinit(struct arenas *a) {
  for (uint32_t i = 0; i < a->n_slab; i++) vk_buffer_destroy(a->slab[i].buffer);
  free(a->slab);
  vk_buffer_destroy(a->resident);
  for (uint32_t i = 0; i < IMG_N_ARENA; i++)
    for (uint32_t copy = 0; copy < 2; copy++) vk_buffer_destroy(a->buffer[i][copy]);
  memset(a, 0, sizeof *a);
}

uint64_t arenas_address(const struct arenas *a, uint32_t copy, uint32_t arena, uint64_t offset) {
  if (arena == VK_RESIDENT_TABLE) return vk_buffer_address(a->resident) + a->tables->offset[offset];
  if (arena == IMG_ARENA_WEIGHTS) {
    uint32_t low = 0, high = a->n_slab; /* the last slab that starts at or before the offset */
    while (high - low > 1) {
      uint32_t middle = low + (high - low) / 2;
      if (a->slab[middle].first <= offset)
        low = middle;
      else
        high = middle;
    }
    return a->n_slab ? a->slab[low].address + (offset - a->slab[low].first) : 0;
  }
  bool twice = arena == IMG_ARENA_STEP || arena == IMG_ARENA_RESULT;
  const struct vk_buffer *buffer = a->buffer[arena][twice ? copy : 0];
  return buffer ? vk_buffer_address(buffer) + offset : 0;
}
