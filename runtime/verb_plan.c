/* verb_plan.c: `moert plan`: the memory plan of an image on a device, without creating anything. */
#include "img_print.h"
#include "load.h"
#include "verbs.h"

struct plan_options {
#define OPTION OPTION_FIELD
#include "engine_rows.def"
#undef OPTION
};

static const struct option_row plan_rows[] = {
#define OPTION(...) OPTION_ROW(struct plan_options, __VA_ARGS__)
#include "engine_rows.def"
#undef OPTION
};

static void plan_line(const char *what, uint64_t bytes) {
  printf("  %-28s %16llu  %10.1f MiB\n", what, (unsigned long long)bytes, (double)bytes / (1 << 20));
}

static void plan_print(const struct load *load) {
  const struct memory_plan *p = &load->plan;
  printf("%s: %s, %u positions in %u slots, %u pages of %u, tier %s\n", load->image.path, load->gpu->name, p->n_ctx,
         p->n_slot, p->n_page, load->view.manifest.state_page_tok, img_tier_name(load->tier));
  plan_line("weights", p->planes_bytes);
  plan_line("tables", p->tables_bytes + p->resident_bytes);
  plan_line("states: pages", p->state_bytes);
  if (p->recurrent_bytes) plan_line("states: recurrent blocks", p->recurrent_bytes);
  plan_line("activations and scratch", p->act_bytes);
  plan_line("step and result blocks, slots", 2 * (p->step_bytes + p->result_bytes) + p->slot_bytes);
  plan_line("staging during the upload", p->staging_bytes);
  plan_line("headroom", p->headroom_bytes);
  plan_line("in all", p->total_bytes);
  plan_line(load->gpu->has_budget ? "free (driver's budget)" : "free (heap)", p->available_bytes);
}

enum moe_code verb_plan(int argc, char *const *argv, struct moe_error *err) {
  static const struct option_table table = {.command = "moert plan",
                                            .summary =
                                                "What the image will take of the device's memory, and whether it fits.",
                                            .positionals = "MODEL.img",
                                            .min_positional = 1,
                                            .max_positional = 1,
                                            .rows = plan_rows,
                                            .n_row = sizeof plan_rows / sizeof *plan_rows};
  struct plan_options o;
  struct option_result r;
  enum moe_code code = options_command(&table, argc, argv, &o, &r, err);
  if (code || r.help) return code;
  const struct engine_options engine = {.image_path = r.positional[0],
                                        .device = o.device,
                                        .n_ctx = (uint32_t)o.n_ctx,
                                        .n_slot = (uint32_t)o.n_slot,
                                        .tier = o.tier};
  struct load load;
  code = load_open(&engine, &load, err);
  if (!code) plan_print(&load);
  load_close(&load);
  return code;
}
