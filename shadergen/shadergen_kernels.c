/* shadergen_kernels.c: the table of kernels.def as data, and lookups in it. Parameter checking and the table's
 * expressions are in shadergen_params.c. */
#include "shadergen_kernels.h"

#include <string.h>

/* The C structures agree with the GLSL blocks (std430: addresses first, then words), and the declared indices with the
 * order. */
#define KERNEL(ENUM, NAME, WHAT) _Static_assert(sizeof(struct push_##NAME) == ((0
#define PARAM(KIND, NEED, NAME, DEFAULT, WHAT)
#define PUSH(INDEX, KIND, NAME, ACCESS, BYTES, WHAT) +sizeof(PUSH_TYPE_##KIND)
#define GRID(X, Y, Z)
#define TUNE(MIN_SUBGROUP, WG, LANES, EXTRA, ITEMS, SHARED)
#define NEEDS(FEATURES)
#define KERNEL_END(ENUM, NAME) ) + 7) / 8 * 8, #NAME);
#include "kernels.def"

#define KERNEL(ENUM, NAME, WHAT) static const struct kernel_param_info param_##NAME[] = {
#define PARAM(KIND, NEED, NAME, DEFAULT, WHAT) {#NAME, WHAT, KERNEL_PARAM_##KIND, KERNEL_NEED_##NEED, DEFAULT},
#define PUSH(INDEX, KIND, NAME, ACCESS, BYTES, WHAT)
#define GRID(X, Y, Z)
#define TUNE(MIN_SUBGROUP, WG, LANES, EXTRA, ITEMS, SHARED)
#define NEEDS(FEATURES)
#define KERNEL_END(ENUM, NAME)                                                                                         \
  }                                                                                                                    \
  ;
#define KERNEL_NEED_REQUIRED true
#define KERNEL_NEED_OPTIONAL false
#include "kernels.def"

#define KERNEL(ENUM, NAME, WHAT) static const struct kernel_push_info fields_##NAME[] = {
#define PARAM(KIND, NEED, NAME, DEFAULT, WHAT)
#define PUSH(INDEX, KIND, NAME, ACCESS, BYTES, WHAT)                                                                   \
  [INDEX] = {#NAME, WHAT, KERNEL_PUSH_##KIND, KERNEL_ACCESS_##ACCESS},
#define GRID(X, Y, Z)
#define TUNE(MIN_SUBGROUP, WG, LANES, EXTRA, ITEMS, SHARED)
#define NEEDS(FEATURES)
#define KERNEL_END(ENUM, NAME)                                                                                         \
  }                                                                                                                    \
  ;
#include "kernels.def"

/* What the prelude needs of every device: addresses, 64-bit integers, device-scope memory model, subgroup shuffles. */
#define NEED(BIT) (1ull << NEED_##BIT)
enum need_bit {
#define IMG_FEATURE(BIT, ENUM, NAME) NEED_##ENUM = BIT,
#include "img_features.def"
#undef IMG_FEATURE
};
#define COMMON_FEATURES                                                                                                \
  (NEED(BDA) | NEED(INT64) | NEED(MEMORY_MODEL) | NEED(MEMORY_MODEL_DEVICE) | NEED(SUBGROUP_SHUFFLE))

static const struct kernel_info kernels[N_KERNEL] = {
#define KERNEL(ENUM, NAME, WHAT)                                                                                       \
  [KERNEL_##ENUM] = {.name = #NAME,                                                                                    \
                     .what = WHAT,                                                                                     \
                     .n_param = sizeof param_##NAME / sizeof *param_##NAME,                                            \
                     .n_push = sizeof fields_##NAME / sizeof *fields_##NAME,                                           \
                     .push_bytes = sizeof(struct push_##NAME),                                                         \
                     .param = param_##NAME,                                                                            \
                     .push = fields_##NAME,
#define PARAM(KIND, NEED, NAME, DEFAULT, WHAT)
#define PUSH(INDEX, KIND, NAME, ACCESS, BYTES, WHAT)
#define GRID(X, Y, Z)
#define TUNE(MIN_SUBGROUP, WG, LANES, EXTRA, ITEMS, SHARED)
#define NEEDS(FEATURES) .features = COMMON_FEATURES | (FEATURES)
#define KERNEL_END(ENUM, NAME)                                                                                         \
  }                                                                                                                    \
  ,
#include "kernels.def"
};

const struct kernel_info *kernel_get(enum kernel_id id) {
  return (unsigned)id < N_KERNEL ? &kernels[id] : NULL;
}

int kernel_push_index(const struct kernel_info *info, const char *name) {
  for (uint32_t i = 0; i < info->n_push; i++)
    if (!strcmp(info->push[i].name, name)) return (int)i;
  return -1;
}

int kernel_param_index(const struct kernel_info *info, const char *name) {
  for (uint32_t i = 0; i < info->n_param; i++)
    if (!strcmp(info->param[i].name, name)) return (int)i;
  return -1;
}
