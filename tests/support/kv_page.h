/* kv_page.h: keys and values of a layer in a state page (images/FORMAT.md, "State pages"), written down once more for
 * the kernel tests.
 *
 * Owns: where an element is, and its value. Does not own: pages of several layers, page tables. Invariants: `layer` is
 * the layer's first byte in a page; which: 0 a key, 1 a value. */
#ifndef TESTS_KV_PAGE_H
#define TESTS_KV_PAGE_H

#include "kernel_oracle.h"

/* The kernels' parameter KV. */
enum kv_page_kind { KV_PAGE_F16 = 0, KV_PAGE_F32 = 1, KV_PAGE_Q8_0 = 2 };

struct kv_page {
  enum kv_page_kind kind;
  uint32_t n_kv_head, d_key, d_value; /* d_value 0: values are columns of the keys */
};

uint64_t kv_page_bytes(const struct kv_page *p);
/* The value of element e of position pos (of the sequence; its place in the page is pos % 64). */
double kv_page_get(const struct kv_page *p, const uint8_t *layer, int which, uint32_t kv, uint32_t pos, uint32_t e);
/* Random elements of a position. */
void kv_page_fill(const struct kv_page *p, struct oracle_rng *rng, uint8_t *layer, int which, uint32_t kv,
                  uint32_t pos);
/* Fails the test unless a position holds the n elements of want, rounded as the kind rounds: f32 to 4e-6, f16 to 1e-3,
 * Q8_0 to the nearest of 127 steps of a scale that is the block's largest magnitude / 127, to 1e-3. Returns the number
 * of 32-bit words that it takes. */
uint32_t kv_page_check(const struct kv_page *p, const char *what, const uint8_t *layer, int which, uint32_t kv,
                       uint32_t pos, const double *want, uint32_t n);

#endif
