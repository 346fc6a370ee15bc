/* memory_plan.h: what an image will take of a device, decided before anything is allocated.
 *
 * Owns: the sum, the default context and slot count, the message of a plan that does not fit. Does not own: allocations
 * (arenas.h) or what the device has (vk_device.h).
 * Invariants: a plan that was made fits the figures it was made for, all of it resident; n_page = n_slot *
 * ceil(n_ctx / page_tok) + 1, so that a sequence in a slot never lacks a page. Pure: no device is touched. */
#ifndef RUNTIME_MEMORY_PLAN_H
#define RUNTIME_MEMORY_PLAN_H

#include "img_manifest.h"

enum {
  MEMORY_PLAN_MAX_SLOT = 64,   /* IMG_MAX_SELECT: every decoding row is in every step */
  MEMORY_PLAN_SLOT = 4,        /* default slots */
  MEMORY_PLAN_MAX_CTX = 32768, /* largest default context */
  /* Mesa's CPU driver ends all loops of an invocation after 65,535 iterations without a word; attention takes two a
     position. */
  MEMORY_PLAN_CPU_CTX = 24576,
};

/* What the plan is made from. */
struct memory_plan_input {
  const struct img_manifest *manifest;
  const char *image, *device;                          /* names for messages */
  uint64_t planes_bytes, tables_bytes, resident_bytes; /* resident: of tables in device memory (resident.h) */
  uint64_t available_bytes;                            /* of the device for this process */
  uint64_t max_state_bytes; /* largest buffer the device makes: pages are one, recurrent blocks are one */
  uint32_t max_ctx;         /* positions up to which the device computes attention right; 0: no limit */
  bool staged;              /* uploads need staging buffers */
  uint32_t n_ctx, n_slot;   /* wanted; 0: default */
};

struct memory_plan {
  uint32_t n_ctx, n_slot;
  uint32_t page_stride; /* pages of one sequence: ceil(n_ctx / page_tok) */
  uint32_t n_page;      /* page 0 is nobody's */
  uint64_t planes_bytes, tables_bytes, resident_bytes, act_bytes;
  uint64_t state_bytes, recurrent_bytes; /* all pages; the recurrent blocks of all slots */
  uint64_t step_bytes, result_bytes;     /* of one copy; there are two */
  uint64_t slot_bytes, staging_bytes;
  uint64_t headroom_bytes; /* left for the driver: pipelines, queues, its own books */
  uint64_t total_bytes, available_bytes;
};

/* Makes the plan. A wanted context above the model's is taken as the model's (beyond it answers are noise); without a
 * wanted one: the model's, at most MEMORY_PLAN_MAX_CTX, less when that does not fit.
 * Errors: MOE_DECLINED: needs, has, and the --ctx or --slots that would fit. MOE_USAGE: n_slot above
 * MEMORY_PLAN_MAX_SLOT. */
enum moe_code memory_plan_make(const struct memory_plan_input *input, struct memory_plan *plan, struct moe_error *err);

#endif
