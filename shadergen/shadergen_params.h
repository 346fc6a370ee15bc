/* shadergen_params.h: a request's parameters, checked and completed, and kernels.def's expressions over them. Internal
 * to shadergen. */
#ifndef SHADERGEN_SHADERGEN_PARAMS_H
#define SHADERGEN_SHADERGEN_PARAMS_H

#include "shadergen.h"

/* A checked request: one value for every parameter of the kernel, in the table's order. */
struct shadergen_values {
  const struct kernel_info *info;
  enum kernel_id kernel;
  double value[KERNEL_MAX_PARAM];
};

/* Errors: MOE_USAGE (unknown kernel or parameter, missing, not an integer, out of range), MOE_DECLINED (format without
 * a decoder). */
enum moe_code shadergen_values_init(struct shadergen_values *v, const struct shadergen_request *request,
                                    struct moe_error *err);

/* The kernel's TUNE rows. *shared: the largest SHARED. Returns how many rows. */
uint32_t shadergen_values_tuning(const struct shadergen_values *v, struct img_tuning tuning[IMG_MAX_TUNING],
                                 uint32_t *shared);

#endif
