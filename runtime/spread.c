#include "spread.h"

#include <math.h>
#include <stdlib.h>

static int spread_compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

struct spread spread_of(double *value, uint32_t n) {
  qsort(value, n, sizeof *value, spread_compare);
  double sum = 0, squares = 0;
  for (uint32_t i = 0; i < n; i++) sum += value[i];
  double mean = sum / n;
  for (uint32_t i = 0; i < n; i++) squares += (value[i] - mean) * (value[i] - mean);
  return (struct spread){.median = n % 2 ? value[n / 2] : (value[n / 2 - 1] + value[n / 2]) / 2,
                         .low = value[0],
                         .high = value[n - 1],
                         .mean = mean,
                         .deviation = n > 1 ? sqrt(squares / (n - 1)) : 0};
}
