/* kernel_oracle.h: random inputs and plain C references for the kernel tests.
 *
 * Owns: the tests' random numbers, random weights as GGUF blocks, planes and floats, step blocks, the error measure and
 * its bar. Does not own: running kernels (kernel_case.h). Invariants: everything follows from the seeds given;
 * references compute in double; memory comes from malloc and is the caller's to free. */
#ifndef TESTS_KERNEL_ORACLE_H
#define TESTS_KERNEL_ORACLE_H

#include "img_step.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Largest difference over root mean square of the reference: the bar for kernels that compute in f32 what the reference
 * computes in double. f32 sums of some thousand terms stay below 1e-6; a few inputs wrong by a quarter exceed the bar.
 */
#define ORACLE_BAR 1e-5
/* The bar of kernels that round weights and activations to f16 first: some 3e-4 of a sum each, a few times that at the
 * worst of thousands. */
#define ORACLE_BAR_F16 3e-3
/* The bar that oracle_check applies; ORACLE_BAR until a test sets it. */
extern double oracle_bar;
/* For kernels of tier dot: activations rounded to a 65,024th of the range of their run of 16. Of some thousand outputs
 * the worst stays below 1e-4. */
#define ORACLE_BAR_DOT 2e-4

struct oracle_rng {
  uint64_t state;
};
uint32_t oracle_u32(struct oracle_rng *rng);
/* Uniform in [-1, 1). */
float oracle_float(struct oracle_rng *rng);
/* n random floats. */
float *oracle_floats(struct oracle_rng *rng, size_t n);

/* A random weight tensor of n_mat matrices [n_out][n_in]. */
struct oracle_weight {
  uint8_t *plane; /* bytes, as moec packs it */
  float *value;   /* [n_mat][n_out][n_in], from the format's definition */
  uint64_t bytes;
  uint32_t n_in, n_out, n_mat;
};
void oracle_weight_init(struct oracle_weight *w, struct oracle_rng *rng, uint32_t format, uint32_t n_in, uint32_t n_out,
                        uint32_t n_mat);
void oracle_weight_deinit(struct oracle_weight *w);
/* Whether rows of n_in weights come in a format; and an odd length that they do come in: 320 where blocks of 64 divide
 * it, else 256. */
bool oracle_fits(uint32_t format, uint32_t n_in);
uint32_t oracle_odd_length(uint32_t format);
/* Every compiled format, by number. */
extern const uint32_t oracle_formats[];
extern const size_t oracle_n_format;

/* sum_k w[mat][row][k] * x[k]. */
double oracle_dot(const struct oracle_weight *w, uint32_t mat, uint32_t row, const double *x);

/* max |got - want| / rms(want). NaN counts as infinite. */
double oracle_error(const float *got, const double *want, size_t n);
/* Fails the test when the error exceeds oracle_bar, and when `wrong`, a reference computed from a perturbed input, does
 * not. wrong may be NULL. */
void oracle_check(const char *what, const float *got, const double *want, const double *wrong, size_t n);

/* A step block of capacity max_row with n_row rows: row r is at position pos[r] of slot slot[r] with token r; the page
 * table of every slot is page_stride pages, shuffled over all slots, from page 1 on. */
uint32_t *oracle_step(struct oracle_rng *rng, uint32_t max_row, uint32_t n_row, uint32_t n_slot, uint32_t page_stride,
                      const uint32_t *pos, const uint32_t *slot, uint64_t *bytes);

#endif
