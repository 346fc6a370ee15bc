/* profile_text.c: a profile as tables for people and as JSON for programs. */
#include "img_print.h"
#include "profile.h"

#include <string.h>

double profile_floor_us(const struct profile *p, uint64_t bytes) {
  return (double)bytes / p->ceiling.gb_s.median / 1e3; /* bytes / (10^9 bytes a second) = ns */
}

void profile_describe_ceiling(const struct profile *p, FILE *out) {
  const struct vk_ceiling *c = &p->ceiling;
  unsigned long long mib = c->bytes >> 20;
  if (c->copies)
    fprintf(out, "copying %llu MiB, read and written (only reading them: %.1f)", mib, c->read.median);
  else
    fprintf(out, "reading %llu MiB (copying them, read and written: %.1f)", mib, c->copy.median);
}

double profile_gb_s(uint64_t bytes, double us) {
  return profile_ratio((double)bytes, us) / 1e3;
}

double profile_ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

void profile_describe(const struct profile *p, char out[128]) {
  int at = p->step.n_sequence == p->step.n_row
               ? snprintf(out, 128, "%.60s: %u %s", p->template, p->step.n_row, p->step.n_row == 1 ? "row" : "rows")
               : snprintf(out, 128, "%.60s: %u rows of a prompt", p->template, p->step.n_row);
  snprintf(out + at, 128 - (size_t)at, " at depth %u", p->step.depth);
}

/* ---- text ---- */

static const char *profile_range(const struct spread *s, char out[40]) {
  snprintf(out, 40, "%.1f..%.1f", s->low, s->high);
  return out;
}

static void profile_print_head(const struct profile *p, FILE *out) {
  char what[128];
  profile_describe(p, what);
  fprintf(out, "%s %s, %u layers, on %s, tier %s\n", p->model, p->quantization, p->n_layer, p->device, p->tier);
  fprintf(out, "%s; medians of %u and smallest..largest\n", what, p->repeat);
  fprintf(out, "ceiling %.1f GB/s (%.1f..%.1f): ", p->ceiling.gb_s.median, p->ceiling.gb_s.low, p->ceiling.gb_s.high);
  profile_describe_ceiling(p, out);
  fprintf(out, "; median of %u\n", p->ceiling.n);
}

static void profile_print_row(const struct profile *p, const char *name, uint32_t n, const struct spread *us,
                              double empty_us, const struct profile_bytes *bytes, FILE *out) {
  char range[40];
  uint64_t sum = profile_sum(bytes);
  double floor_us = profile_floor_us(p, sum);
  fprintf(out, "%-20s %5u %10.1f %21s %6.1f %9.1f %9.3f %9.3f %9.3f %8.1f %10.2f %8.1f\n", name, n, us->median,
          profile_range(us, range), 100 * profile_ratio(us->median, p->each_us.median), empty_us,
          (double)bytes->weights / 1e6, (double)bytes->state / 1e6, (double)bytes->other / 1e6,
          profile_gb_s(sum, us->median), floor_us, profile_ratio(us->median, floor_us));
}

static void profile_print_gap(const struct profile *p, FILE *out) {
  char range[40];
  double step = p->whole_us.median, floor_us = profile_floor_us(p, profile_sum(&p->bytes));
  double alone_us = profile_floor_us(p, p->bytes.weights + p->bytes.state);
  fprintf(out, "\n%-46s %10s %21s %9s\n", "gap", "us", "smallest..largest", "of step");
#define GAP(WHAT, US, RANGE)                                                                                           \
  fprintf(out, "%-46s %10.1f %21s %8.1f%%\n", WHAT, (double)(US), RANGE, 100 * profile_ratio(US, step))
  GAP("step, recorded as it runs", step, profile_range(&p->whole_us, range));
  GAP("floor: all bytes at the ceiling", floor_us, "");
  GAP("  of it weights and states", alone_us, "");
  GAP("step without rows: launches and barriers", p->empty_us.median, profile_range(&p->empty_us, range));
  GAP("every dispatch alone: the roles' sum", p->each_us.median, profile_range(&p->each_us, range));
  GAP("  more than the step", p->each_us.median - step, "");
  GAP("step by the host's clock, submit to done", p->host_us.median, profile_range(&p->host_us, range));
#undef GAP
  fprintf(out, "the step takes %.1f times its floor; %u dispatches, %u barriers\n", profile_ratio(step, floor_us),
          p->n_dispatch, p->n_barrier);
}

void profile_print(const struct profile *p, FILE *out) {
  profile_print_head(p, out);
  fprintf(out, "\n%-20s %5s %10s %21s %6s %9s %9s %9s %9s %8s %10s %8s\n", "role", "n", "us", "smallest..largest", "%",
          "empty us", "weight MB", "state MB", "other MB", "GB/s", "floor us", "x floor");
  for (uint32_t i = 0; i < p->n_role; i++) {
    const struct profile_role *r = &p->role[i];
    profile_print_row(p, img_role_name(r->role), r->n_dispatch, &r->us, r->empty_us.median, &r->bytes, out);
  }
  profile_print_row(p, "all", p->n_dispatch, &p->each_us, p->empty_each_us.median, &p->bytes, out);
  profile_print_gap(p, out);
}

/* ---- JSON ---- */

static json_t *profile_json_bytes(const struct profile_bytes *b) {
  return json_pack("{s:I,s:I,s:I,s:I}", "weights", (json_int_t)b->weights, "state", (json_int_t)b->state, "other",
                   (json_int_t)b->other, "all", (json_int_t)profile_sum(b));
}

static json_t *profile_json_spread(const struct spread *s) {
  return json_pack("{s:f,s:f,s:f}", "median", s->median, "min", s->low, "max", s->high);
}

static json_t *profile_json_role(const struct profile *p, const struct profile_role *r) {
  uint64_t bytes = profile_sum(&r->bytes);
  double floor_us = profile_floor_us(p, bytes);
  return json_pack("{s:s,s:I,s:o,s:o,s:o,s:f,s:f,s:f}", "role", img_role_name(r->role), "dispatches",
                   (json_int_t)r->n_dispatch, "us", profile_json_spread(&r->us), "empty_us",
                   profile_json_spread(&r->empty_us), "bytes", profile_json_bytes(&r->bytes), "gb_s",
                   profile_gb_s(bytes, r->us.median), "floor_us", floor_us, "times_floor",
                   profile_ratio(r->us.median, floor_us));
}

json_t *profile_json(const struct profile *p) {
  json_t *roles = json_array();
  double sum_us = 0, floor_us = profile_floor_us(p, profile_sum(&p->bytes));
  for (uint32_t i = 0; i < p->n_role; i++) {
    sum_us += p->role[i].us.median;
    json_array_append_new(roles, profile_json_role(p, &p->role[i]));
  }
  json_t *gap =
      json_pack("{s:o,s:o,s:o,s:o,s:o,s:f,s:f,s:f,s:f}", "step_us", profile_json_spread(&p->whole_us), "host_us",
                profile_json_spread(&p->host_us), "one_by_one_us", profile_json_spread(&p->each_us), "empty_step_us",
                profile_json_spread(&p->empty_us), "empty_one_by_one_us", profile_json_spread(&p->empty_each_us),
                "sum_of_roles_us", sum_us, "floor_us", floor_us, "floor_weights_state_us",
                profile_floor_us(p, p->bytes.weights + p->bytes.state), "times_floor",
                profile_ratio(p->whole_us.median, floor_us));
  return json_pack("{s:s,s:s,s:I,s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:{s:o,s:s,s:o,s:o,s:I,s:I},s:o,s:I,s:I,s:o,s:o}", "model",
                   p->model, "quantization", p->quantization, "n_layer", (json_int_t)p->n_layer, "device", p->device,
                   "tier", p->tier, "template", p->template, "n_row", (json_int_t)p->step.n_row, "n_sequence",
                   (json_int_t)p->step.n_sequence, "n_depth", (json_int_t)p->step.depth, "repetitions",
                   (json_int_t)p->repeat, "ceiling", "gb_s", profile_json_spread(&p->ceiling.gb_s), "by",
                   p->ceiling.copies ? "copy" : "read", "read", profile_json_spread(&p->ceiling.read), "copy",
                   profile_json_spread(&p->ceiling.copy), "bytes", (json_int_t)p->ceiling.bytes, "repetitions",
                   (json_int_t)p->ceiling.n, "roles", roles, "dispatches", (json_int_t)p->n_dispatch, "barriers",
                   (json_int_t)p->n_barrier, "bytes", profile_json_bytes(&p->bytes), "gap", gap);
}
