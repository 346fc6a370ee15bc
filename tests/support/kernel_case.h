/* kernel_case.h: runs one kernel of kernels.def on the test device, with everything checked that does not depend on
 * what the kernel computes.
 *
 * Owns: compilation, the instrumented run, guard zones, extents against buffer sizes, poisoning of outputs. Does not
 * own: oracles (kernel_oracle.h and the tests). Invariants: a failed check fails the cmocka test; one case at a time;
 * buffers belong to the case and end with it. */
#ifndef TESTS_KERNEL_CASE_H
#define TESTS_KERNEL_CASE_H

#include "vk_harness.h"

struct kernel_case {
  struct vkh_device *device;
  const struct kernel_info *info;
  struct shadergen_request request;
  struct vkh_buffer buffer[KERNEL_MAX_PUSH];
  bool bound[KERNEL_MAX_PUSH];
  uint32_t n_resident;
};

/* The process's device, opened on first use; fails the test when there is none. */
struct vkh_device *kernel_case_device(void);

void kernel_case_init(struct kernel_case *c, enum kernel_id kernel);
void kernel_case_deinit(struct kernel_case *c);
/* Sets a parameter. */
void kernel_case_param(struct kernel_case *c, const char *name, double value);
/* Runs it on n workgroups, all of which the device must run at once: for kernels that need IMG_FEATURE_RESIDENT (EXTRA
 * is n). Until it is called: 1, which a CPU driver takes at most. */
void kernel_case_resident(struct kernel_case *c, uint32_t n);
/* Gives a push field its buffer: `bytes` bytes copied from data, or poison when data is NULL. bytes 0: what
 * shadergen_extent says; then all parameters must be set. Returns the buffer's contents. */
void *kernel_case_bind(struct kernel_case *c, const char *field, const void *data, uint64_t bytes);
void *kernel_case_data(struct kernel_case *c, const char *field);

/* Runs the kernel, instrumented first (no violation may be reported; then the buffers are as before), then as it ships.
 * Checks guard zones and that fields declared R are unchanged. Fields that were not bound get a small readable buffer.
 */
void kernel_case_run(struct kernel_case *c);
/* Only as it ships. */
void kernel_case_run_plain(struct kernel_case *c);
/* Runs instrumented with field's extent cut to `bytes`; returns the number of violations, all of that field. */
uint32_t kernel_case_violations(struct kernel_case *c, const char *field, uint64_t bytes);

#endif
