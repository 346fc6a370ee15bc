/* shadergen_params.c: checks a request against kernels.def and evaluates the table's expressions (GRID, BYTES, TUNE).
 *
 * Owns: the list of formats that have a GLSL decoder (glsl/formats.glsl has the same numbers; tests/kernels compiles
 * each). */
#include "shadergen_params.h"

#include <string.h>

#define SHADERGEN_MAX_INT 2147483647.0 /* GLSL int literals */

static const struct {
  uint32_t number;
  const char *name;
  bool dot;
} formats[] = {
#define SHADERGEN_FORMAT(NUMBER, NAME, DOT) {NUMBER, #NAME, DOT},
#include "shadergen_formats.def"
#undef SHADERGEN_FORMAT
};

const char *shadergen_format_name(uint32_t format) {
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (formats[i].number == format) return formats[i].name;
  return NULL;
}

bool shadergen_has_dot(uint32_t format) {
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (formats[i].number == format) return formats[i].dot;
  return false;
}

static enum moe_code check_value(const struct kernel_info *info, const struct kernel_param_info *param, double value,
                                 struct moe_error *err) {
  if (param->kind == KERNEL_PARAM_FLOAT) {
    if (!isfinite(value) || fabs(value) > 3.4e38)
      return moe_fail(err, MOE_USAGE, "kernel %s: parameter %s is not a finite binary32", info->name, param->name);
    return MOE_OK;
  }
  if (!(value >= 0 && value <= SHADERGEN_MAX_INT) || value != floor(value))
    return moe_fail(err, MOE_USAGE, "kernel %s: parameter %s is %g, allowed are integers from 0 to %.0f", info->name,
                    param->name, value, SHADERGEN_MAX_INT);
  if (param->kind == KERNEL_PARAM_FORMAT && !shadergen_format_name((uint32_t)value))
    return moe_fail(err, MOE_DECLINED, "kernel %s: parameter %s: no decoder for format number %.0f", info->name,
                    param->name, value);
  return MOE_OK;
}

enum moe_code shadergen_values_init(struct shadergen_values *v, const struct shadergen_request *request,
                                    struct moe_error *err) {
  const struct kernel_info *info = kernel_get(request->kernel);
  if (!info) return moe_fail(err, MOE_USAGE, "no kernel has number %d", (int)request->kernel);
  if (request->n_param > KERNEL_MAX_PARAM)
    return moe_fail(err, MOE_USAGE, "kernel %s: %u parameters, at most %d", info->name, request->n_param,
                    KERNEL_MAX_PARAM);
  *v = (struct shadergen_values){.info = info, .kernel = request->kernel};
  bool given[KERNEL_MAX_PARAM] = {false};
  for (uint32_t i = 0; i < request->n_param; i++) {
    int index = kernel_param_index(info, request->param[i].name);
    if (index < 0) return moe_fail(err, MOE_USAGE, "kernel %s has no parameter %s", info->name, request->param[i].name);
    if (given[index])
      return moe_fail(err, MOE_USAGE, "kernel %s: parameter %s is given twice", info->name, request->param[i].name);
    enum moe_code code = check_value(info, &info->param[index], request->param[i].value, err);
    if (code) return code;
    given[index] = true;
    v->value[index] = request->param[i].value;
  }
  for (uint32_t i = 0; i < info->n_param; i++) {
    if (given[i]) continue;
    if (info->param[i].required)
      return moe_fail(err, MOE_USAGE, "kernel %s: parameter %s (%s) is missing", info->name, info->param[i].name,
                      info->param[i].what);
    v->value[i] = info->param[i].value;
  }
  return MOE_OK;
}

bool shadergen_same_request(const struct shadergen_request *a, const struct shadergen_request *b) {
  if (a->kernel != b->kernel || a->n_param != b->n_param || a->instrument != b->instrument) return false;
  for (uint32_t i = 0; i < a->n_param; i++)
    if (strcmp(a->param[i].name, b->param[i].name) || a->param[i].value != b->param[i].value) return false;
  return true;
}

/* ---- codebooks.def ---- */

/* Bit i: codebook i, in the table's order. */
enum codebook_index {
#define CODEBOOK(NAME, FIRST, COUNT) CODEBOOK_##NAME,
#define CODEBOOK_FORMAT(NUMBER, NAME)
#include "codebooks.def"
  N_CODEBOOK
};

static const uint32_t codebook_count[N_CODEBOOK] = {
#define CODEBOOK(NAME, FIRST, COUNT) COUNT,
#define CODEBOOK_FORMAT(NUMBER, NAME)
#include "codebooks.def"
};

uint32_t shadergen_codebooks_bytes(void) {
  uint32_t count = 0;
  for (int i = 0; i < N_CODEBOOK; i++) count += codebook_count[i];
  return 2 * count;
}

/* Whether the kernel has weights of a format: as the value of a FORMAT parameter, or a bit of FORMATS_0 and _1. */
static bool format_used(const struct shadergen_values *v, uint32_t number) {
  for (uint32_t i = 0; i < v->info->n_param; i++)
    if (v->info->param[i].kind == KERNEL_PARAM_FORMAT && (uint32_t)v->value[i] == number) return true;
  int bits = kernel_param_index(v->info, number < 24 ? "FORMATS_0" : "FORMATS_1");
  return bits >= 0 && ((uint32_t)v->value[bits] >> number % 24 & 1);
}

/* The codebooks that the kernel's formats read. */
static uint32_t codebooks_of(const struct shadergen_values *v) {
  uint32_t set = 0;
#define CODEBOOK(NAME, FIRST, COUNT)
#define CODEBOOK_FORMAT(NUMBER, NAME)                                                                                  \
  if (format_used(v, NUMBER)) set |= 1u << CODEBOOK_##NAME;
#include "codebooks.def"
  return set;
}

/* Shared memory for them (codebook.glsl). */
static uint32_t codebooks_shared(const struct shadergen_values *v) {
  uint32_t set = codebooks_of(v), bytes = 0;
  for (int i = 0; i < N_CODEBOOK; i++) bytes += (set >> i) & 1 ? 2 * codebook_count[i] : 0;
  return bytes;
}

bool shadergen_needs_codebooks(const struct shadergen_request *request) {
  struct shadergen_values v;
  return !shadergen_values_init(&v, request, NULL) && codebooks_of(&v) != 0;
}

/* ---- the table's expressions ---- */

/* BYTES of a push field `codebook`. */
#define CODEBOOK_BYTES (codebooks_of(v) ? shadergen_codebooks_bytes() : 4)

/* P(NAME). */
static uint64_t value_of(const struct shadergen_values *v, const char *name) {
  return (uint64_t)v->value[kernel_param_index(v->info, name)];
}
#define P(NAME) value_of(v, #NAME)

enum moe_code shadergen_grid(const struct shadergen_request *request, uint32_t grid[3], struct moe_error *err) {
  struct shadergen_values values, *v = &values;
  enum moe_code code = shadergen_values_init(v, request, err);
  if (code) return code;
  uint64_t g[3] = {0, 0, 0};
  switch (request->kernel) {
#define KERNEL(ENUM, NAME, WHAT) case KERNEL_##ENUM:
#define PARAM(KIND, NEED, NAME, DEFAULT, WHAT)
#define PUSH(INDEX, KIND, NAME, ACCESS, BYTES, WHAT)
#define GRID(X, Y, Z) g[0] = (X), g[1] = (Y), g[2] = (Z);
#define TUNE(MIN_SUBGROUP, WG, LANES, EXTRA, ITEMS, SHARED)
#define NEEDS(FEATURES)
#define KERNEL_END(ENUM, NAME) break;
#include "kernels.def"
  case N_KERNEL:
    break;
  }
  for (int i = 0; i < 3; i++) {
    if (g[i] == 0 || g[i] > UINT32_MAX || (i > 0 && g[i] > 65535))
      return moe_fail(err, MOE_USAGE, "kernel %s: grid[%d] is %llu, allowed are 1 to %u", v->info->name, i,
                      (unsigned long long)g[i], i ? 65535u : UINT32_MAX);
    grid[i] = (uint32_t)g[i];
  }
  return MOE_OK;
}

enum moe_code shadergen_extent(const struct shadergen_request *request, uint32_t field, uint64_t *bytes,
                               struct moe_error *err) {
  struct shadergen_values values, *v = &values;
  enum moe_code code = shadergen_values_init(v, request, err);
  if (code) return code;
  if (field >= v->info->n_push)
    return moe_fail(err, MOE_USAGE, "kernel %s has %u push fields, not a field %u", v->info->name, v->info->n_push,
                    field);
  uint64_t all[KERNEL_MAX_PUSH] = {0};
  switch (request->kernel) {
#define KERNEL(ENUM, NAME, WHAT) case KERNEL_##ENUM:
#define PARAM(KIND, NEED, NAME, DEFAULT, WHAT)
#define PUSH(INDEX, KIND, NAME, ACCESS, BYTES, WHAT) all[INDEX] = (BYTES);
#define GRID(X, Y, Z)
#define TUNE(MIN_SUBGROUP, WG, LANES, EXTRA, ITEMS, SHARED)
#define NEEDS(FEATURES)
#define KERNEL_END(ENUM, NAME) break;
#include "kernels.def"
  case N_KERNEL:
    break;
  }
  *bytes = all[field];
  return MOE_OK;
}

static void add_tuning(struct img_tuning tuning[], uint32_t *n, uint64_t min_subgroup, uint64_t wg, uint64_t lanes,
                       uint64_t extra, uint64_t items) {
  tuning[(*n)++] = (struct img_tuning){
      .min_subgroup = (uint32_t)min_subgroup,
      .spec = {[IMG_SPEC_WG] = (uint32_t)wg, [IMG_SPEC_LANES] = (uint32_t)lanes, [IMG_SPEC_EXTRA] = (uint32_t)extra},
      .group_items = (uint32_t)items};
}

uint32_t shadergen_values_tuning(const struct shadergen_values *v, struct img_tuning tuning[IMG_MAX_TUNING],
                                 uint32_t *shared) {
  uint32_t n = 0;
  *shared = 0;
  memset(tuning, 0, IMG_MAX_TUNING * sizeof *tuning);
  switch (v->kernel) {
#define KERNEL(ENUM, NAME, WHAT) case KERNEL_##ENUM:
#define PARAM(KIND, NEED, NAME, DEFAULT, WHAT)
#define PUSH(INDEX, KIND, NAME, ACCESS, BYTES, WHAT)
#define GRID(X, Y, Z)
#define TUNE(MIN_SUBGROUP, WG, LANES, EXTRA, ITEMS, SHARED)                                                            \
  {                                                                                                                    \
    uint64_t wg = (WG), lanes = (LANES), extra = (EXTRA), bytes = (SHARED);                                            \
    (void)lanes, (void)extra;                                                                                          \
    add_tuning(tuning, &n, (MIN_SUBGROUP), wg, lanes, extra, (ITEMS));                                                 \
    if (bytes > *shared) *shared = (uint32_t)bytes;                                                                    \
  }
#define NEEDS(FEATURES)
#define KERNEL_END(ENUM, NAME) break;
#include "kernels.def"
  case N_KERNEL:
    break;
  }
  *shared += codebooks_shared(v);
  return n;
}
