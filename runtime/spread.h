/* spread.h: what several measurements of one thing say.
 *
 * Owns: median, spread, mean, deviation. Does not own: measuring. Invariants: low <= median <= high. Thread rules:
 * none, no state. */
#ifndef RUNTIME_SPREAD_H
#define RUNTIME_SPREAD_H

#include <stdint.h>

struct spread {
  double median;          /* of an even number: the mean of the middle two */
  double low, high;       /* the smallest and the largest */
  double mean, deviation; /* deviation: of the sample (divided by n - 1); 0 when n is 1 */
};

/* Of value[0, n), n >= 1; sorts them. */
struct spread spread_of(double *value, uint32_t n);

#endif
