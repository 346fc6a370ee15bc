/* arenas.h: the buffers behind the image's arenas (enum img_arena) and its tables in device memory, and the addresses
 * in them.
 *
 * Owns: the weights' slabs, the other arenas' buffers, what is in them when the engine starts (planes and tables
 * uploaded, tables in device memory filled, ACT, SLOT and RECURRENT zero). Does not own: their sizes (memory_plan.h),
 * what is written into step blocks (step.h). Invariants: no plane lies in two slabs; every offset that img_check
 * accepted resolves to an address in its buffer. STEP and RESULT exist twice, once per recording ("copy" 0 and 1).
 * Thread rules: those of the device's queue.
 */
#ifndef RUNTIME_ARENAS_H
#define RUNTIME_ARENAS_H

#include "img_check.h"
#include "memory_plan.h"
#include "resident.h"
#include "vk_device.h"
#include "vk_memory.h"

/* A run of planes in one buffer: bytes [first, first + bytes) of the section PLANES. */
struct arena_slab {
  uint64_t first, bytes, address;
  struct vk_buffer *buffer;
};

struct arenas {
  struct arena_slab *slab;
  uint32_t n_slab;
  struct vk_buffer *buffer[IMG_N_ARENA][2]; /* [arena][copy]; copy 1 only for STEP and RESULT; none for WEIGHTS */
  struct vk_buffer *resident;               /* of the tables in device memory; NULL: there are none */
  const struct resident *tables;            /* where in it each is */
};

/* Cuts the planes into slabs of at most max_bytes. slab: room for planes->n_plane + 1; *n_slab: those used.
 * Errors: MOE_DECLINED naming the plane that alone is larger. */
enum moe_code arenas_cut(const struct img_planes_view *planes, uint64_t planes_bytes, uint64_t max_bytes,
                         struct arena_slab *slab, uint32_t *n_slab, struct moe_error *err);

/* Allocates everything of the plan and uploads. tables: of the plan's resident_bytes; borrowed. progress (may be NULL):
 * bytes uploaded so far and in all. arenas: filled, released with arenas_deinit (also after an error). Errors: as
 * vk_buffer_create, vk_upload. */
typedef void arenas_progress_fn(void *user, uint64_t done, uint64_t total);
enum moe_code arenas_init(struct arenas *arenas, struct vk_device *device, const struct img *image,
                          const struct img_view *view, const struct memory_plan *plan, const struct resident *tables,
                          arenas_progress_fn *progress, void *user, struct moe_error *err);
void arenas_deinit(struct arenas *arenas);

/* The device address of (arena, offset) for a recording; arena VK_RESIDENT_TABLE: of table number `offset`. */
uint64_t arenas_address(const struct arenas *arenas, uint32_t copy, uint32_t arena, uint64_t offset);

#endif
