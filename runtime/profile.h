/* profile.h: where the time of a step goes: by role, against what the device's memory gives.
 *
 * Owns: struct profile, counting the bytes that dispatches read (profile_bytes.c), measuring (profile_measure.c), the
 * result as text, JSON and SVG (profile_text.c, profile_svg.c). Does not own: recordings with timestamps and how
 * fast memory is (vk_profile.h), options (verb_profile.c).
 *
 * The bytes of a dispatch are counted from the image alone, from the regions that it declares as read:
 * - WEIGHTS: the region; of a plane of experts (n_mat > 1, role gate/up or down) the share that the step's rows can
 *   touch, min(n_mat, n_row * n_expert_used) matrices; of their biases (an F32 plane of n_expert rows in these roles)
 *   the same share; of the embedding (role embed) n_row rows.
 * - STATE: read only (attention): what the layer keeps of every position that a sequence of the step sees, once a
 *   sequence; written (stores): n_row tokens. A layer's bytes a token are the distance from its offset in a page, which
 *   its address words name, to the next layer's, over page_tok. A sliding window is not in the image's data: such a
 *   layer counts as if it saw everything.
 * - RECURRENT: the region in the block of every sequence of the step.
 * - ACT: of the region, which is declared for as many rows as the template takes, the share that the step has (roles
 *   head and sample: of the selects). Of attention only what is not written too: its partial sums are declared for
 *   all the splits that a long context would have.
 * - TABLES: the region.
 * - STEP, SLOT, RESULT: nothing; some kilobytes.
 * - A dispatch with a table in device memory: instead of the whole arenas that it declares, the planes that the table
 *   names (of experts the share as above) and what the layers that it names keep; no activations.
 *
 * So a role's floor, bytes over the ceiling, is what a step of this shape costs when every expert that can be chosen is
 * chosen once and nothing is found in a cache; what is found there may read faster than the ceiling.
 *
 * Thread rules: one thread. */
#ifndef RUNTIME_PROFILE_H
#define RUNTIME_PROFILE_H

#include "img_enums.h"
#include "scheduler.h"
#include "vk_profile.h"

#include <jansson.h>
#include <stdio.h>

/* A step to measure: n_sequence sequences that have depth positions already take n_row / n_sequence more each. */
struct profile_step {
  uint32_t n_row, n_sequence, depth;
};

/* Bytes that are read. */
struct profile_bytes {
  uint64_t weights, state, other; /* state: STATE and RECURRENT; other: ACT and TABLES */
};

struct profile_dispatch {
  uint16_t role;
  struct profile_bytes bytes;
};

struct profile_role {
  uint32_t role, n_dispatch;
  struct profile_bytes bytes;
  struct spread us;       /* of the role's dispatches together, each run alone */
  struct spread empty_us; /* the same of a step without rows: launching them */
};

struct profile {
  struct profile_step step;
  uint32_t repeat;
  const char *model, *quantization, *template,
      *tier; /* of the image, which outlives the profile; tier: the template's */
  uint32_t n_layer, n_dispatch, n_barrier;
  char device[800];                         /* device and driver */
  uint32_t n_role;                          /* those that the template has */
  struct profile_role role[IMG_N_ROLE + 1]; /* in order of first use; roles that no table names count as one */
  struct profile_bytes bytes;               /* all roles' */
  struct spread whole_us;                   /* the step between two timestamps, recorded as it runs */
  struct spread host_us;                    /* the same from submitting to knowing that it is done */
  struct spread each_us;                    /* all dispatches, each alone */
  struct spread empty_us;      /* the recording of whole_us over a step without rows: launches and barriers */
  struct spread empty_each_us; /* each_us of such a step */
  struct vk_ceiling ceiling;
};

/* Rows and sequences to measure with, as the user says them. */
struct profile_options {
  uint32_t batch;  /* decoding rows, one a sequence; 0: none */
  uint32_t window; /* else rows of one prompt */
  uint32_t depth;
  uint32_t repeat;
};

/* What each dispatch of template `index` reads, calls unrolled, in order: out[n], as many as vk_profile_n_dispatch
 * counts. Errors: MOE_FAILED (memory). */
enum moe_code profile_count_bytes(const struct img_view *view, uint32_t index, const struct profile_step *step,
                                  struct profile_dispatch *out, struct moe_error *err);
uint64_t profile_sum(const struct profile_bytes *bytes);

/* Fills the sequences to their depth with random tokens through an open, idle engine, which afterwards serves no
 * request, measures its memory, then runs the smallest template that holds the step: unmeasured for a while, then
 * `repeat` times in every form, new random tokens each time.
 * Errors: MOE_USAGE (no template holds it; out of the context), MOE_DECLINED (vk_profile.h), MOE_FAILED. */
enum moe_code profile_measure(struct scheduler *engine, const struct profile_options *options, struct profile *out,
                              struct moe_error *err);

/* The time that `bytes` take at the ceiling, in microseconds; the speed when they took `us`, in 10^9 bytes a second. */
double profile_floor_us(const struct profile *profile, uint64_t bytes);
double profile_gb_s(uint64_t bytes, double us);
/* a / b; 0 when b is: nothing was read, or a clock was too coarse. */
double profile_ratio(double a, double b);
/* "token(8): 8 rows at depth 128"; "window(512): 512 rows of a prompt". */
void profile_describe(const struct profile *profile, char out[128]);

/* Prints how the ceiling was measured: "reading 1024 MiB (copying them, read and written: 3900.0)". */
void profile_describe_ceiling(const struct profile *profile, FILE *out);

/* Two tables as aligned text. */
void profile_print(const struct profile *profile, FILE *out);
/* One object; NULL when memory or UTF-8 fails. The caller owns it. */
json_t *profile_json(const struct profile *profile);
/* A bar a role, as SVG. Errors of writing: ferror(out). */
void profile_svg(const struct profile *profile, FILE *out);

#endif
