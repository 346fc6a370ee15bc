/* shadergen_kernels.h: kernels.def as C: kernel numbers, push-constant structures, the table.
 *
 * Owns: enum kernel_id, struct push_<kernel>, enum push_<kernel>_field, struct kernel_info and lookups in it. Does not
 * own: compilation (shadergen.h). Invariants: a push structure has the bytes of the kernel's GLSL push block (offsets
 * are asserted); modules built with `instrument` take one more 8-byte word after it, the address of a struct
 * shadergen_extents. */
#ifndef SHADERGEN_SHADERGEN_KERNELS_H
#define SHADERGEN_SHADERGEN_KERNELS_H

#include "img_step.h"
#include "moe_error.h"

#include <stdint.h>

#define KERNEL_ALL

enum kernel_id {
#define KERNEL(ENUM, NAME, WHAT) KERNEL_##ENUM,
#define PARAM(KIND, NEED, NAME, DEFAULT, WHAT)
#define PUSH(INDEX, KIND, NAME, ACCESS, BYTES, WHAT)
#define GRID(X, Y, Z)
#define TUNE(MIN_SUBGROUP, WG, LANES, EXTRA, ITEMS, SHARED)
#define NEEDS(FEATURES)
#define KERNEL_END(ENUM, NAME)
#include "kernels.def"
  N_KERNEL
};

/* struct push_embed { uint64_t weight, step, slot, x; }; ... */
#define PUSH_TYPE_ADDRESS uint64_t
#define PUSH_TYPE_WORD uint32_t
#define KERNEL(ENUM, NAME, WHAT) struct push_##NAME {
#define PARAM(KIND, NEED, NAME, DEFAULT, WHAT)
#define PUSH(INDEX, KIND, NAME, ACCESS, BYTES, WHAT) PUSH_TYPE_##KIND NAME;
#define GRID(X, Y, Z)
#define TUNE(MIN_SUBGROUP, WG, LANES, EXTRA, ITEMS, SHARED)
#define NEEDS(FEATURES)
#define KERNEL_END(ENUM, NAME)                                                                                         \
  }                                                                                                                    \
  ;
#include "kernels.def"

enum kernel_param_kind { KERNEL_PARAM_INT, KERNEL_PARAM_FLOAT, KERNEL_PARAM_FORMAT };
enum kernel_push_kind { KERNEL_PUSH_ADDRESS, KERNEL_PUSH_WORD };
/* Bits as enum img_access: 1 read, 2 write. */
enum kernel_access { KERNEL_ACCESS_R = 1, KERNEL_ACCESS_W = 2, KERNEL_ACCESS_RW = 3 };

#define KERNEL_MAX_PARAM 56
#define KERNEL_MAX_PUSH 13

struct kernel_param_info {
  const char *name, *what;
  enum kernel_param_kind kind;
  bool required;
  double value; /* default */
};

struct kernel_push_info {
  const char *name, *what;
  enum kernel_push_kind kind;
  enum kernel_access access;
};

/* A kernel, as kernels.def declares it. */
struct kernel_info {
  const char *name, *what;
  uint32_t n_param, n_push, push_bytes;
  uint64_t features;                     /* bits of img_features.def */
  const struct kernel_param_info *param; /* n_param */
  const struct kernel_push_info *push;   /* n_push, in the order of the push structure */
};

/* Kernel `id`'s row; valid for the life of the process. NULL when id is not a kernel. Any thread. */
const struct kernel_info *kernel_get(enum kernel_id id);

/* Index of a push field or a parameter by name, or -1. Any thread. */
int kernel_push_index(const struct kernel_info *info, const char *name);
int kernel_param_index(const struct kernel_info *info, const char *name);

#endif
