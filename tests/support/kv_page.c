/* kv_page.c: see kv_page.h. */
#include "kv_page.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const uint32_t element_bytes[] = {[KV_PAGE_F16] = 2, [KV_PAGE_F32] = 4, [KV_PAGE_Q8_0] = 1};

/* 32-bit words of a position's scales. */
static uint32_t scale_words(const struct kv_page *p, uint32_t d) {
  return p->kind == KV_PAGE_Q8_0 ? (d + 63) / 64 : 0;
}
static uint64_t head_bytes(const struct kv_page *p, uint32_t d) {
  return 64ull * (d * element_bytes[p->kind] + 4 * scale_words(p, d));
}
uint64_t kv_page_bytes(const struct kv_page *p) {
  return p->n_kv_head * (head_bytes(p, p->d_key) + head_bytes(p, p->d_value));
}

static uint32_t width(const struct kv_page *p, int which) {
  return which && p->d_value ? p->d_value : p->d_key;
}
static uint64_t head_at(const struct kv_page *p, int which, uint32_t kv) {
  if (which && p->d_value) return p->n_kv_head * head_bytes(p, p->d_key) + kv * head_bytes(p, p->d_value);
  return kv * head_bytes(p, p->d_key);
}
static uint64_t element_at(const struct kv_page *p, int which, uint32_t kv, uint32_t pos, uint32_t e) {
  return head_at(p, which, kv) + (uint64_t)(pos % 64 * width(p, which) + e) * element_bytes[p->kind];
}
static uint64_t scale_at(const struct kv_page *p, int which, uint32_t kv, uint32_t pos, uint32_t e) {
  uint32_t d = width(p, which);
  return head_at(p, which, kv) + 64ull * d + 4ull * (pos % 64) * scale_words(p, d) + 2 * (e / 32);
}

static double half_at(const uint8_t *at) {
  _Float16 h;
  memcpy(&h, at, 2);
  return (double)h;
}
static double scale_of(const struct kv_page *p, const uint8_t *layer, int which, uint32_t kv, uint32_t pos,
                       uint32_t e) {
  return half_at(layer + scale_at(p, which, kv, pos, e));
}

double kv_page_get(const struct kv_page *p, const uint8_t *layer, int which, uint32_t kv, uint32_t pos, uint32_t e) {
  const uint8_t *at = layer + element_at(p, which, kv, pos, e);
  if (p->kind == KV_PAGE_Q8_0) return (double)(int8_t)*at * scale_of(p, layer, which, kv, pos, e);
  if (p->kind == KV_PAGE_F16) return half_at(at);
  float f;
  memcpy(&f, at, 4);
  return (double)f;
}

void kv_page_fill(const struct kv_page *p, struct oracle_rng *rng, uint8_t *layer, int which, uint32_t kv,
                  uint32_t pos) {
  for (uint32_t e = 0; e < width(p, which); e++) {
    uint8_t *at = layer + element_at(p, which, kv, pos, e);
    float f = oracle_float(rng);
    _Float16 h = (_Float16)f;
    if (p->kind == KV_PAGE_Q8_0) {
      *at = (uint8_t)oracle_u32(rng);
      h = (_Float16)(0.004f * (2 + f));
      if (e % 32 == 0) memcpy(layer + scale_at(p, which, kv, pos, e), &h, 2);
    } else if (p->kind == KV_PAGE_F16) {
      memcpy(at, &h, 2);
    } else {
      memcpy(at, &f, 4);
    }
  }
}

uint32_t kv_page_check(const struct kv_page *p, const char *what, const uint8_t *layer, int which, uint32_t kv,
                       uint32_t pos, const double *want, uint32_t n) {
  for (uint32_t e = 0; e < n; e++) {
    double got = kv_page_get(p, layer, which, kv, pos, e), most = 0;
    double bar = (p->kind == KV_PAGE_F32 ? 4e-6 : 1e-3) * fmax(1, fabs(want[e]));
    if (p->kind == KV_PAGE_Q8_0) {
      for (uint32_t i = e / 32 * 32; i < e / 32 * 32 + 32; i++) most = fmax(most, fabs(want[i]));
      double scale = scale_of(p, layer, which, kv, pos, e);
      if (!(fabs(scale - most / 127) <= 1e-3 * most / 127 + 6e-8))
        fail_msg("%s at %u head %u: scale %g of block %u, whose largest element is %g", what, pos, kv, scale, e / 32,
                 most);
      bar = 0.501 * scale + 1e-3 * most; /* the second: the largest is cut at 127 of a scale that was rounded down */
    }
    if (!(fabs(got - want[e]) <= bar))
      fail_msg("%s at %u head %u element %u: %g, not %g", what, pos, kv, e, got, want[e]);
  }
  return n * element_bytes[p->kind] / 4 + scale_words(p, n);
}
