/* kernel_oracle.c: see kernel_oracle.h. */
#include "kernel_oracle.h"

#include "dequant.h"
#include "formats.h"
#include "pack.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const uint32_t oracle_formats[] = {
#define FORMAT_COMPILED(number, ...) number,
#define FORMAT_NAMED(number, ...)
#include "formats.def"
};
const size_t oracle_n_format = sizeof oracle_formats / sizeof *oracle_formats;

/* SplitMix64. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014. */
uint32_t oracle_u32(struct oracle_rng *rng) {
  uint64_t z = rng->state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (uint32_t)((z ^ (z >> 31)) >> 32);
}

float oracle_float(struct oracle_rng *rng) {
  return (float)((double)oracle_u32(rng) / 2147483648.0 - 1.0);
}

float *oracle_floats(struct oracle_rng *rng, size_t n) {
  float *f = malloc(n * sizeof *f);
  assert_non_null(f);
  for (size_t i = 0; i < n; i++) f[i] = oracle_float(rng);
  return f;
}

/* Half-precision bits of 2^-5 .. 2^-4, positive or negative. */
static uint16_t random_f16(struct oracle_rng *rng) {
  uint32_t r = oracle_u32(rng);
  return (uint16_t)((r & 0x8000u) | (10u << 10) | (r & 0x3ffu));
}

/* Where a block of a format has its scales, which must be finite and of one size; the rest of a quantized block may be
 * any bytes. */
static void random_block(struct oracle_rng *rng, const struct format *f, uint8_t *block) {
  for (uint32_t i = 0; i < f->bytes; i++) block[i] = (uint8_t)oracle_u32(rng);
  uint16_t d[2] = {random_f16(rng), random_f16(rng)};
  float value = oracle_float(rng);
  switch (f->number) {
  case 0:
    memcpy(block, &value, 4);
    break;
  case 1:
    memcpy(block, d, 2);
    break;
  case 30:
    memcpy(block, (uint8_t *)&value + 2, 2);
    break;
  case 3:
  case 7:
  case 12:
  case 13:
    memcpy(block, d, 4);
    break;
  case 10:
    memcpy(block + 80, d, 4);
    break;
  case 11:
    memcpy(block + 108, d, 2);
    break;
  case 34:
    memcpy(block + 52, d, 2);
    break;
  case 35:
    memcpy(block + 64, d, 2);
    break;
  case 40: /* eight-bit floats of four exponents */
    for (int i = 0; i < 4; i++) block[i] = (uint8_t)((block[i] & 31) + 24);
    break;
  case 14:
    memcpy(block + 208, d, 2);
    break;
  case 2:
  case 6:
  case 8:
  case 20:
  case 23:
  case 16:
  case 17:
  case 18:
  case 19:
  case 21:
  case 22:
    memcpy(block, d, 2);
    break;
  case 29: /* in the top nibbles of four words */
    for (int j = 0; j < 4; j++) block[49 + 2 * j] = (uint8_t)((block[49 + 2 * j] & 15) | (d[0] >> (4 * j) & 15) << 4);
    break;
  case 39: /* a power of two, and no f16 */
    block[0] = (uint8_t)(122 + d[0] % 2);
    break;
  default:
    fail_msg("kernel_oracle.c: where are the scales of a %s block?", f->name);
  }
}

void oracle_weight_init(struct oracle_weight *w, struct oracle_rng *rng, uint32_t format, uint32_t n_in, uint32_t n_out,
                        uint32_t n_mat) {
  struct moe_error err = {0};
  struct plane_layout layout;
  const struct format *f = format_find(format);
  assert_non_null(f);
  if (pack_layout(f, n_in, n_out, n_mat, &layout, &err)) fail_msg("%s", err.message);
  uint64_t n_row = (uint64_t)n_out * n_mat;
  uint8_t *source = malloc(n_row * layout.src_row_bytes);
  *w = (struct oracle_weight){
      malloc(layout.bytes), malloc(n_row * n_in * sizeof(float)), layout.bytes, n_in, n_out, n_mat};
  assert_true(source && w->plane && w->value);
  for (uint64_t b = 0; b < n_row * layout.n_block; b++) random_block(rng, f, source + b * f->bytes);
  pack_plane(&layout, source, 0, n_row, w->plane);
  for (uint64_t r = 0; r < n_row; r++) dequant_row(f, source + r * layout.src_row_bytes, w->value + r * n_in, n_in);
  free(source);
}

bool oracle_fits(uint32_t format, uint32_t n_in) {
  return n_in % format_find(format)->elements == 0;
}

uint32_t oracle_odd_length(uint32_t format) {
  return oracle_fits(format, 320) ? 320 : 256;
}

void oracle_weight_deinit(struct oracle_weight *w) {
  free(w->plane);
  free(w->value);
  *w = (struct oracle_weight){0};
}

double oracle_dot(const struct oracle_weight *w, uint32_t mat, uint32_t row, const double *x) {
  const float *v = w->value + ((uint64_t)mat * w->n_out + row) * w->n_in;
  double sum = 0;
  for (uint32_t k = 0; k < w->n_in; k++) sum += v[k] * x[k];
  return sum;
}

double oracle_error(const float *got, const double *want, size_t n) {
  double worst = 0, squares = 0;
  for (size_t i = 0; i < n; i++) {
    double e = fabs(got[i] - want[i]);
    if (!(e <= worst)) worst = isnan(e) ? INFINITY : e;
    squares += want[i] * want[i];
  }
  return worst / (sqrt(squares / (double)n) + 1e-30);
}

double oracle_bar = ORACLE_BAR;

void oracle_check(const char *what, const float *got, const double *want, const double *wrong, size_t n) {
  double e = oracle_error(got, want, n);
  if (!(e <= oracle_bar)) {
    size_t i = 0;
    while (i + 1 < n && fabs(got[i] - want[i]) <= oracle_bar * fabs(want[i]) + 1e-6) i++;
    fail_msg("%s: error %.3g exceeds %.1g; element %zu of %zu is %.9g, the reference %.9g", what, e, oracle_bar, i, n,
             got[i], want[i]);
  }
  if (wrong && !(oracle_error(got, wrong, n) > oracle_bar))
    fail_msg("%s: a perturbed input passes too: the bar is worthless here", what);
}

/* The run records of the rows, the first IMG_MAX_RUN of them. */
static void put_runs(uint32_t *step, uint32_t max_row, uint32_t n_row) {
  const uint32_t *pos = step + img_step_row_pos(max_row), *slot = step + img_step_row_slot(max_row);
  uint32_t *run = step + img_step_run(max_row), n_run = 0;
  for (uint32_t r = 0; r < n_row; r++) {
    if (r == 0 || slot[r] != slot[r - 1] || pos[r] != pos[r - 1] + 1) {
      if (n_run == IMG_MAX_RUN) break;
      run[IMG_RUN_WORDS * n_run++ + IMG_RUN_ROW] = r;
      run[IMG_RUN_WORDS * (n_run - 1) + IMG_RUN_COUNT] = 0;
    }
    run[IMG_RUN_WORDS * (n_run - 1) + IMG_RUN_COUNT]++;
  }
  step[IMG_STEP_N_RUN] = n_run;
}

uint32_t *oracle_step(struct oracle_rng *rng, uint32_t max_row, uint32_t n_row, uint32_t n_slot, uint32_t page_stride,
                      const uint32_t *pos, const uint32_t *slot, uint64_t *bytes) {
  *bytes = img_step_bytes(max_row, n_slot, page_stride);
  uint32_t *step = malloc(*bytes);
  assert_non_null(step);
  memset(step, 0, *bytes);
  step[IMG_STEP_N_ROW] = n_row;
  step[IMG_STEP_PAGE_STRIDE] = page_stride;
  for (uint32_t r = 0; r < n_row; r++) {
    step[img_step_row_token() + r] = r;
    step[img_step_row_pos(max_row) + r] = pos ? pos[r] : r;
    step[img_step_row_slot(max_row) + r] = slot ? slot[r] : 0;
  }
  put_runs(step, max_row, n_row);
  uint32_t *table = step + img_step_page_table(max_row), n = n_slot * page_stride;
  for (uint32_t i = 0; i < n; i++) table[i] = i + 1;
  for (uint32_t i = n; i > 1; i--) {
    uint32_t j = oracle_u32(rng) % i, swap = table[i - 1];
    table[i - 1] = table[j];
    table[j] = swap;
  }
  return step;
}
