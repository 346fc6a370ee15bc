#include "memory_plan.h"

#include "img_step.h"

#include <stdio.h>
#include <string.h>

#define MIB (1ull << 20)

/* Room for what the driver itself takes: a share of the device's memory and a floor. */
static uint64_t memory_plan_headroom(uint64_t available) {
  return available / 32 + 32 * MIB;
}

/* The plan for a context and slot count, fitting or not. False: over 64 bits. */
static bool memory_plan_sum(const struct memory_plan_input *in, uint32_t n_ctx, uint32_t n_slot,
                            struct memory_plan *p) {
  const struct img_manifest *m = in->manifest;
  memset(p, 0, sizeof *p);
  p->n_ctx = n_ctx;
  p->n_slot = n_slot;
  p->page_stride = (n_ctx - 1) / m->state_page_tok + 1;
  uint64_t n_page = (uint64_t)p->page_stride * n_slot + 1;
  if (n_page > UINT32_MAX || !moe_mul(n_page, m->state_page_bytes, &p->state_bytes)) return false;
  if (!moe_mul(n_slot, m->state_block_bytes, &p->recurrent_bytes)) return false;
  p->n_page = (uint32_t)n_page;
  p->planes_bytes = in->planes_bytes;
  p->tables_bytes = in->tables_bytes;
  p->resident_bytes = in->resident_bytes;
  p->act_bytes = m->memory_act_bytes;
  p->step_bytes = img_step_bytes(m->memory_max_row, n_slot, p->page_stride);
  p->result_bytes = img_result_bytes();
  p->slot_bytes = img_slot_bytes(n_slot);
  p->staging_bytes = in->staged ? 64 * MIB : 0;
  p->available_bytes = in->available_bytes;
  p->headroom_bytes = memory_plan_headroom(in->available_bytes);
  const uint64_t parts[] = {p->planes_bytes,    p->tables_bytes,  p->resident_bytes, p->state_bytes,
                            p->recurrent_bytes, p->act_bytes,     2 * p->step_bytes, 2 * p->result_bytes,
                            p->slot_bytes,      p->staging_bytes, p->headroom_bytes};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (!moe_add(p->total_bytes, parts[i], &p->total_bytes)) return false;
  return true;
}

static bool memory_plan_fits(const struct memory_plan_input *in, uint32_t n_ctx, uint32_t n_slot,
                             struct memory_plan *p) {
  return memory_plan_sum(in, n_ctx, n_slot, p) && p->total_bytes <= in->available_bytes &&
         p->state_bytes <= in->max_state_bytes && p->recurrent_bytes <= in->max_state_bytes;
}

/* The largest context of whole pages up to `most` that fits with n_slot slots; 0: none. */
static uint32_t memory_plan_ctx(const struct memory_plan_input *in, uint32_t most, uint32_t n_slot) {
  struct memory_plan p;
  if (memory_plan_fits(in, most, n_slot, &p)) return most;
  uint32_t tok = in->manifest->state_page_tok;
  uint32_t low = 0, high = (most - 1) / tok + 1; /* low pages fit, high pages do not */
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (memory_plan_fits(in, middle * tok, n_slot, &p))
      low = middle;
    else
      high = middle;
  }
  return low * tok;
}

static void memory_plan_mib(char *out, size_t size, uint64_t bytes) {
  snprintf(out, size, "%.1f MiB", (double)bytes / (double)MIB);
}

static enum moe_code memory_plan_decline(const struct memory_plan_input *in, uint32_t n_ctx, uint32_t n_slot,
                                         struct moe_error *err) {
  struct memory_plan p;
  char needs[32] = "more than 2^64 bytes", planes[32], state[32], scratch[32], head[32], has[32], way[128];
  if (memory_plan_sum(in, n_ctx, n_slot, &p)) memory_plan_mib(needs, sizeof needs, p.total_bytes);
  memory_plan_mib(planes, sizeof planes, p.planes_bytes + p.tables_bytes + p.resident_bytes);
  memory_plan_mib(state, sizeof state, p.state_bytes + p.recurrent_bytes);
  memory_plan_mib(scratch, sizeof scratch, p.act_bytes + p.staging_bytes + 2 * (p.step_bytes + p.result_bytes));
  memory_plan_mib(head, sizeof head, p.headroom_bytes);
  memory_plan_mib(has, sizeof has, in->available_bytes);
  uint32_t ctx_fits = memory_plan_ctx(in, n_ctx, n_slot), slot_fits = n_slot;
  while (slot_fits && !memory_plan_fits(in, n_ctx, slot_fits, &p)) slot_fits--;
  uint32_t single = memory_plan_ctx(in, n_ctx, 1);
  if (ctx_fits && slot_fits)
    snprintf(way, sizeof way, "--ctx %u or --slots %u fits", ctx_fits, slot_fits);
  else if (ctx_fits)
    snprintf(way, sizeof way, "--ctx %u fits", ctx_fits);
  else if (slot_fits)
    snprintf(way, sizeof way, "--slots %u fits", slot_fits);
  else if (single)
    snprintf(way, sizeof way, "--slots 1 --ctx %u fits", single);
  else
    snprintf(way, sizeof way, "no context fits; choose another device or a smaller model");
  return moe_fail(err, MOE_DECLINED,
                  "%s on %s: needs %s (weights %s, states %s for --ctx %u --slots %u, scratch %s, "
                  "headroom %s), the device has %s free: %s",
                  in->image, in->device, needs, planes, state, n_ctx, n_slot, scratch, head, has, way);
}

enum moe_code memory_plan_make(const struct memory_plan_input *in, struct memory_plan *plan, struct moe_error *err) {
  uint32_t n_slot = in->n_slot ? in->n_slot : MEMORY_PLAN_SLOT;
  uint32_t trained = in->manifest->model_n_ctx;
  if (n_slot > MEMORY_PLAN_MAX_SLOT)
    return moe_fail(err, MOE_USAGE, "--slots %u: allowed 1 to %d", n_slot, MEMORY_PLAN_MAX_SLOT);
  if (in->n_ctx == 1)
    return moe_fail(err, MOE_USAGE,
                    "--ctx 1: allowed at least 2 (a token of prompt, one of answer), or 0 for the default");
  uint32_t n_ctx = in->n_ctx < trained ? in->n_ctx : trained;
  if (in->max_ctx && n_ctx > in->max_ctx)
    return moe_fail(
        err, MOE_DECLINED,
        "device %s: --ctx %u: this driver computes right up to %u positions; ask for at most that, or use a GPU",
        in->device, n_ctx, in->max_ctx);
  if (!n_ctx) {
    if (in->max_ctx && trained > in->max_ctx) trained = in->max_ctx;
    uint32_t wish = trained < MEMORY_PLAN_MAX_CTX ? trained : MEMORY_PLAN_MAX_CTX;
    uint32_t least = wish < 512 ? wish : 512; /* less is of no use as a default: say what is missing */
    n_ctx = memory_plan_ctx(in, wish, n_slot);
    if (n_ctx < least) n_ctx = least;
  }
  if (memory_plan_fits(in, n_ctx, n_slot, plan)) return MOE_OK;
  return memory_plan_decline(in, n_ctx, n_slot, err);
}
