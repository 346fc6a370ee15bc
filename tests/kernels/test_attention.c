/* test_attention.c: rope_store and attention over shuffled pages, against references in double. */
#include "kernel_case.h"
#include "kernel_oracle.h"
#include "kv_page.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_ROW 16

struct heads {
  uint32_t n_head, n_kv_head, d_head, n_rot;
  bool f32, neox;
  uint32_t qk_norm; /* 1 before the rotation, 2 after it */
  uint32_t d_value; /* 0: d_head */
  uint32_t window;
  bool sinks, latent, v_norm, q8;
  double softcap, mul; /* mul 0: 1 */
};

static uint32_t d_value(const struct heads *h) {
  return h->d_value ? h->d_value : h->d_head;
}
static double rope_mul(const struct heads *h) {
  return h->mul > 0 ? (double)(float)h->mul : 1;
}

static struct kv_page page_of(const struct heads *h) {
  return (struct kv_page){.kind = h->q8    ? KV_PAGE_Q8_0
                                  : h->f32 ? KV_PAGE_F32
                                           : KV_PAGE_F16,
                          .n_kv_head = h->n_kv_head,
                          .d_key = h->d_head,
                          .d_value = h->latent ? 0 : d_value(h)};
}
/* Bytes of a page that holds two layers, of which the tests use the second. */
static uint64_t page_bytes(const struct heads *h) {
  const struct kv_page p = page_of(h);
  return 2 * kv_page_bytes(&p);
}

/* x in place: divided by its root mean square, times weight. */
static void norm_reference(double *x, uint32_t n, const float *weight) {
  double squares = 0;
  for (uint32_t i = 0; i < n; i++) squares += x[i] * x[i];
  for (uint32_t i = 0; i < n; i++) x[i] *= (weight ? (double)weight[i] : 1) / sqrt(squares / n + (double)1e-6f);
}

/* Reference of norm and rotation of one head: in -> out. */
static void rope_reference(const struct heads *h, const float *in, const float *norm, const double *inv_freq,
                           uint32_t pos, double *out) {
  for (uint32_t i = 0; i < h->d_head; i++) out[i] = in[i];
  if (h->qk_norm == 1) norm_reference(out, h->d_head, norm);
  for (uint32_t i = 0; i < h->n_rot / 2; i++) {
    double *a = &out[h->neox ? i : 2 * i], *b = &out[h->neox ? i + h->n_rot / 2 : 2 * i + 1];
    double c = rope_mul(h) * cos(pos * inv_freq[i]), s = rope_mul(h) * sin(pos * inv_freq[i]), x = *a, y = *b;
    *a = x * c - y * s;
    *b = x * s + y * c;
  }
  if (h->qk_norm == 2) norm_reference(out, h->d_head, norm);
}

static void set_heads(struct kernel_case *c, const struct heads *h, uint32_t n_row) {
  kernel_case_param(c, "N_HEAD", h->n_head);
  kernel_case_param(c, "N_KV_HEAD", h->n_kv_head);
  kernel_case_param(c, "D_HEAD", h->d_head);
  kernel_case_param(c, "D_HEAD_V", d_value(h));
  kernel_case_param(c, "N_ROW", n_row);
  kernel_case_param(c, "MAX_ROW", MAX_ROW);
  kernel_case_param(c, "Q_STRIDE", h->n_head * h->d_head);
  kernel_case_param(c, "PAGE_BYTES", (double)page_bytes(h));
  kernel_case_param(c, "KV", page_of(h).kind);
}

static void run_rope(struct oracle_rng *rng, const struct heads *h) {
  enum { ROWS = 5, LIVE = 4, SLOTS = 2, STRIDE = 3 };
  static const uint32_t pos[LIVE] = {0, 63, 64, 130}, slot[LIVE] = {0, 1, 1, 0};
  /* The last row's angle at a far position: same page as 130. */
  uint64_t step_bytes;
  uint32_t *step = oracle_step(rng, MAX_ROW, LIVE, SLOTS, STRIDE, pos, slot, &step_bytes);
  uint32_t nq = h->n_head * h->d_head, nk = h->n_kv_head * h->d_head, nv = h->n_kv_head * d_value(h);
  float *q = oracle_floats(rng, ROWS * nq), *k = oracle_floats(rng, ROWS * nk), *v = oracle_floats(rng, ROWS * nv);
  float *q_norm = oracle_floats(rng, h->d_head), *k_norm = oracle_floats(rng, h->d_head);
  double inv_freq[256];
  uint64_t turns[256];
  for (uint32_t i = 0; i < h->n_rot / 2; i++) {
    inv_freq[i] = pow(1e6, -2.0 * i / h->n_rot);
    turns[i] = shadergen_rope_turns(inv_freq[i]);
  }
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_ROPE_STORE);
  set_heads(&c, h, ROWS);
  kernel_case_param(&c, "N_ROT", h->n_rot);
  kernel_case_param(&c, "K_STRIDE", nk);
  kernel_case_param(&c, "V_STRIDE", nv);
  kernel_case_param(&c, "NEOX", h->neox);
  kernel_case_param(&c, "QK_NORM", h->qk_norm);
  kernel_case_param(&c, "V_NORM", h->v_norm);
  kernel_case_param(&c, "ROPE_MUL", rope_mul(h));
  float *got = kernel_case_bind(&c, "q", q, 0);
  kernel_case_bind(&c, "k", k, 0);
  kernel_case_bind(&c, "v", v, 0);
  if (h->qk_norm) kernel_case_bind(&c, "q_norm", q_norm, 0);
  if (h->qk_norm) kernel_case_bind(&c, "k_norm", k_norm, 0);
  if (h->n_rot) kernel_case_bind(&c, "rope", turns, 0);
  uint8_t *state = kernel_case_bind(&c, "state", NULL, (SLOTS * STRIDE + 1) * page_bytes(h));
  kernel_case_bind(&c, "step", step, step_bytes);
  kernel_case_run(&c);

  double *want = malloc(LIVE * nq * sizeof *want), key[512], value[512];
  uint32_t written = 0;
  const struct kv_page kv = page_of(h);
  assert_non_null(want);
  for (uint32_t r = 0; r < LIVE; r++) {
    uint32_t page = step[img_step_page_table(MAX_ROW) + slot[r] * STRIDE + pos[r] / 64];
    for (uint32_t i = 0; i < h->n_head; i++)
      rope_reference(h, q + r * nq + i * h->d_head, q_norm, inv_freq, pos[r], want + r * nq + i * h->d_head);
    for (uint32_t i = 0; i < h->n_kv_head; i++) {
      rope_reference(h, k + r * nk + i * h->d_head, k_norm, inv_freq, pos[r], key);
      for (uint32_t e = 0; e < d_value(h); e++) value[e] = v[r * nv + i * d_value(h) + e];
      if (h->v_norm) norm_reference(value, d_value(h), NULL);
      written += kv_page_check(&kv, "key", state + page * page_bytes(h), 0, i, pos[r], key, h->d_head);
      written += kv_page_check(&kv, "value", state + page * page_bytes(h), 1, i, pos[r], value, d_value(h));
    }
  }
  oracle_check("rope_store q", got, want, NULL, LIVE * nq);
  assert_memory_equal(got + LIVE * nq, q + LIVE * nq, (ROWS - LIVE) * nq * 4);
  uint32_t touched = 0; /* words of the arena that are no longer poison: exactly the rows' */
  for (uint64_t i = 0; i < (SLOTS * STRIDE + 1) * page_bytes(h) / 4; i++)
    touched += ((uint32_t *)state)[i] != VKH_POISON;
  assert_int_equal(touched, written);
  kernel_case_deinit(&c);
  free(want), free(q), free(k), free(v), free(q_norm), free(k_norm), free(step);
}

static void test_rope_store(void **state) {
  (void)state;
  struct oracle_rng rng = {1};
  run_rope(&rng, &(struct heads){8, 2, 64, 64, false, true, 1, .mul = 1});
  run_rope(&rng, &(struct heads){4, 4, 128, 128, true, true, 0, .mul = 1});
  run_rope(&rng, &(struct heads){3, 1, 96, 32, true, false, 1, .mul = 1});
  run_rope(&rng, &(struct heads){2, 1, 128, 64, false, true, 1, .mul = 1});
  run_rope(&rng, &(struct heads){3, 1, 64, 32, true, true, 2, .mul = 1.25});
  run_rope(&rng, &(struct heads){2, 2, 96, 96, true, false, 2, .d_value = 48});
  run_rope(&rng, &(struct heads){2, 1, 512, 512, true, true, 1, .v_norm = true, .mul = 0.75});
  run_rope(&rng, &(struct heads){4, 2, 64, 0, false, true, 0, .v_norm = true, .d_value = 96});
  run_rope(&rng, &(struct heads){8, 2, 128, 128, false, true, 1, .mul = 1, .q8 = true});
  run_rope(&rng, &(struct heads){3, 1, 96, 32, false, false, 0, .d_value = 32, .mul = 1, .q8 = true});
  run_rope(&rng, &(struct heads){3, 3, 64, 48, false, true, 2, .v_norm = true, .mul = 1, .q8 = true});
}

/* Angles stay exact far out. */
static void test_rope_far(void **state) {
  (void)state;
  const struct heads h = {1, 1, 64, 64, true, true, 0, .mul = 1};
  struct oracle_rng rng = {2};
  uint64_t step_bytes, turns[32];
  double inv_freq[32], want[64];
  for (uint32_t pos = 1000; pos <= 1000000; pos = pos * 10 + 7) {
    uint32_t *step = oracle_step(&rng, MAX_ROW, 1, 1, pos / 64 + 1, &pos, NULL, &step_bytes);
    step[img_step_page_table(MAX_ROW) + pos / 64] = 0;
    float *q = oracle_floats(&rng, 64), *k = oracle_floats(&rng, 64), *v = oracle_floats(&rng, 64);
    for (uint32_t i = 0; i < 32; i++) {
      inv_freq[i] = pow(1e4, -2.0 * i / 64);
      turns[i] = shadergen_rope_turns(inv_freq[i]);
    }
    struct kernel_case c;
    kernel_case_init(&c, KERNEL_ROPE_STORE);
    set_heads(&c, &h, 1);
    kernel_case_param(&c, "N_ROT", 64);
    kernel_case_param(&c, "K_STRIDE", 64);
    kernel_case_param(&c, "V_STRIDE", 64);
    float *got = kernel_case_bind(&c, "q", q, 0);
    kernel_case_bind(&c, "k", k, 0);
    kernel_case_bind(&c, "v", v, 0);
    kernel_case_bind(&c, "rope", turns, 0);
    kernel_case_bind(&c, "state", NULL, page_bytes(&h));
    kernel_case_bind(&c, "step", step, step_bytes);
    kernel_case_run_plain(&c);
    rope_reference(&h, q, NULL, inv_freq, pos, want);
    oracle_check("rope far out", got, want, NULL, 64);
    kernel_case_deinit(&c);
    free(step), free(q), free(k), free(v);
  }
}

/* A row at n_pos - 1 attends the positions up to its own, of its slot. */
static void attention_reference(const struct heads *h, const float *q, const uint8_t *state, const uint32_t *pages,
                                uint32_t n_pos, double scale, const float *sinks, double *out) {
  double *w = malloc(n_pos * sizeof *w);
  const struct kv_page p = page_of(h);
  uint32_t begin = h->window && n_pos > h->window ? n_pos - h->window : 0;
  assert_non_null(w);
  for (uint32_t head = 0; head < h->n_head; head++) {
    uint32_t kv = head / (h->n_head / h->n_kv_head);
    double top = h->sinks ? (double)sinks[head] : -1e300, total = 0;
    for (uint32_t t = begin; t < n_pos; t++) {
      w[t] = 0;
      for (uint32_t e = 0; e < h->d_head; e++)
        w[t] += q[head * h->d_head + e] * kv_page_get(&p, state + pages[t / 64] * page_bytes(h), 0, kv, t, e);
      w[t] *= scale;
      if (h->softcap > 0) w[t] = h->softcap * tanh(w[t] / h->softcap);
      top = fmax(top, w[t]);
    }
    for (uint32_t t = begin; t < n_pos; t++) total += w[t] = exp(w[t] - top);
    if (h->sinks) total += exp((double)sinks[head] - top);
    for (uint32_t e = 0; e < d_value(h); e++) {
      double sum = 0;
      for (uint32_t t = begin; t < n_pos; t++)
        sum += w[t] * kv_page_get(&p, state + pages[t / 64] * page_bytes(h), 1, kv, t, e);
      out[head * d_value(h) + e] = sum / total;
    }
  }
  free(w);
}

/* Fills the slots' positions with random keys and values; the rest of the arena stays NaN. */
static void fill_state(struct oracle_rng *rng, const struct heads *h, const uint32_t *table, uint32_t n_slot,
                       uint32_t stride, const uint32_t *length, uint8_t *state) {
  const struct kv_page p = page_of(h);
  for (uint32_t s = 0; s < n_slot; s++)
    for (uint32_t t = 0; t < length[s]; t++)
      for (uint32_t kv = 0; kv < h->n_kv_head; kv++) {
        uint8_t *layer = state + table[s * stride + t / 64] * page_bytes(h);
        kv_page_fill(&p, rng, layer, 0, kv, t);
        if (!h->latent) kv_page_fill(&p, rng, layer, 1, kv, t);
      }
}

static void run_attention(struct oracle_rng *rng, const struct heads *h, uint32_t live, const uint32_t *pos,
                          const uint32_t *slot, uint32_t n_split, bool instrumented) {
  enum { SLOTS = 2 };
  uint32_t rows = live + 1, stride = 1, length[SLOTS] = {0};
  for (uint32_t r = 0; r < live; r++) {
    if (pos[r] / 64 + 1 > stride) stride = pos[r] / 64 + 1;
    if (pos[r] + 1 > length[slot[r]]) length[slot[r]] = pos[r] + 1;
  }
  uint64_t step_bytes;
  uint32_t *step = oracle_step(rng, MAX_ROW, live, SLOTS, stride, pos, slot, &step_bytes);
  uint32_t nq = h->n_head * h->d_head, ny = h->n_head * d_value(h);
  uint32_t *table = step + img_step_page_table(MAX_ROW);
  float *q = oracle_floats(rng, rows * nq), *sinks = oracle_floats(rng, h->n_head);
  double scale = 4 / sqrt(h->d_head); /* sharper than random vectors would be */
  struct kernel_case c;
  kernel_case_init(&c, KERNEL_ATTENTION);
  set_heads(&c, h, rows);
  kernel_case_param(&c, "Y_STRIDE", ny);
  kernel_case_param(&c, "N_SPLIT", n_split);
  kernel_case_param(&c, "SCALE", scale);
  kernel_case_param(&c, "LATENT", h->latent);
  kernel_case_param(&c, "WINDOW", h->window);
  kernel_case_param(&c, "SOFTCAP", h->softcap);
  kernel_case_param(&c, "SINKS", h->sinks);
  if (h->sinks) kernel_case_bind(&c, "sinks", sinks, 0);
  kernel_case_bind(&c, "q", q, 0);
  uint8_t *state = kernel_case_bind(&c, "state", NULL, (SLOTS * stride + 1) * page_bytes(h));
  fill_state(rng, h, table, SLOTS, stride, length, state);
  kernel_case_bind(&c, "step", step, step_bytes);
  float *y = kernel_case_bind(&c, "y", NULL, 0);
  uint32_t *counter = kernel_case_bind(&c, "counter", NULL, 0);
  if (n_split > 1) memset(counter, 0, rows * h->n_head * 4);
  if (instrumented)
    kernel_case_run(&c);
  else
    kernel_case_run_plain(&c);

  double *want = malloc(live * ny * sizeof *want), *wrong = malloc(live * ny * sizeof *wrong);
  assert_true(want && wrong);
  for (uint32_t r = 0; r < live; r++) {
    const uint32_t *pages = table + slot[r] * stride;
    attention_reference(h, q + r * nq, state, pages, pos[r] + 1, (double)(float)scale, sinks, want + r * ny);
    /* Wrong: the last position is left out, and a window is one position off (a row with a single position: nothing is
     * scaled). */
    if (pos[r]) attention_reference(h, q + r * nq, state, pages, pos[r], (double)(float)scale, sinks, wrong + r * ny);
    for (uint32_t i = 0; !pos[r] && i < ny; i++) wrong[r * ny + i] = 1.1 * want[r * ny + i];
  }
  char what[128];
  snprintf(what, sizeof what, "attention %u/%u heads of %u/%u, window %u, row 0 at %u, %u splits", h->n_head,
           h->n_kv_head, h->d_head, d_value(h), h->window, pos[0], n_split);
  oracle_check(what, y, want, wrong, live * ny);
  assert_true(isnan(y[live * ny]));
  for (uint32_t i = 0; n_split > 1 && i < rows * h->n_head; i++) assert_int_equal(counter[i], 0);
  kernel_case_deinit(&c);
  free(want), free(wrong), free(q), free(sinks), free(step);
}

static void test_attention(void **state) {
  (void)state;
  struct oracle_rng rng = {3};
  static const struct heads small = {8, 2, 64, 64, false, true, 0, .mul = 1};
  static const uint32_t context[] = {1, 63, 64, 65, 130, 1000}, slot1 = 1;
  for (size_t i = 0; i < sizeof context / sizeof *context; i++) {
    uint32_t pos = context[i] - 1;
    run_attention(&rng, &small, 1, &pos, &slot1, 4, i == 4);
    run_attention(&rng, &small, 1, &pos, &slot1, 1, false);
  }
  static const uint32_t pos[] = {0, 129, 64, 7, 63}, slot[] = {1, 0, 1, 0, 0};
  static const struct heads shapes[] = {{4, 4, 128, 0, true, 0, 0, .mul = 1},
                                        {6, 3, 96, 0, false, 0, 0, .mul = 1},
                                        {7, 1, 32, 0, false, 0, 0, .mul = 1},
                                        {16, 2, 128, 0, false, 0, 0, .mul = 1},
                                        {4, 1, 256, 0, true, 0, 0, .mul = 1}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    run_attention(&rng, &shapes[i], 5, pos, slot, i % 2 ? 1 : 3, true);
}

/* Lengths about every border: of rounds, pages, splits that begin to be used, splits that get a second page; Q8_0 too.
 */
static void test_lengths(void **state) {
  (void)state;
  struct oracle_rng rng = {6};
  static const uint32_t context[] = {1,   2,   31,  32,  33,  63,  64,   65,   127,  128, 129,
                                     192, 193, 256, 257, 512, 513, 1024, 1025, 2049, 5000},
                        slot = 0;
  static const struct heads shape[] = {{.n_head = 8, .n_kv_head = 1, .d_head = 32},
                                       {.n_head = 8, .n_kv_head = 2, .d_head = 64, .q8 = true}};
  for (size_t k = 0; k < 2; k++)
    for (size_t i = 0; i < sizeof context / sizeof *context; i++) {
      uint32_t pos = context[i] - 1;
      run_attention(&rng, &shape[k], 1, &pos, &slot, 8, false);
    }
}

/* Windows at every edge of a page and of the context, with and without splits and sinks. */
static void test_window(void **state) {
  (void)state;
  struct oracle_rng rng = {4};
  static const uint32_t window[] = {1, 63, 64, 65, 128, 4096}, slot[7] = {0, 1, 0, 1, 0, 1, 0};
  static const uint32_t pos[] = {0, 62, 63, 64, 65, 128, 299};
  for (size_t w = 0; w < sizeof window / sizeof *window; w++) {
    const struct heads h = {.n_head = 4, .n_kv_head = 2, .d_head = 32, .window = window[w], .sinks = w % 2};
    run_attention(&rng, &h, 7, pos, slot, w < 3 ? 3 : 1, w == 1);
    run_attention(&rng, &h, 1, pos + 6, slot, w < 3 ? 1 : 8, w == 4);
  }
}

/* Heads of other widths, values of their own width, latent states; softcaps and sinks beside them. */
static void test_kinds(void **state) {
  (void)state;
  struct oracle_rng rng = {5};
  static const uint32_t pos[] = {0, 129, 64, 7, 63}, slot[] = {1, 0, 1, 0, 0};
  static const struct heads kinds[] = {
      {.n_head = 4, .n_kv_head = 1, .d_head = 64, .softcap = 2},
      {.n_head = 4, .n_kv_head = 2, .d_head = 64, .d_value = 32, .sinks = true},
      {.n_head = 3, .n_kv_head = 3, .d_head = 192, .d_value = 128},
      {.n_head = 4, .n_kv_head = 1, .d_head = 96, .d_value = 64, .latent = true},
      {.n_head = 2, .n_kv_head = 1, .d_head = 576, .d_value = 512, .latent = true},
      {.n_head = 2, .n_kv_head = 1, .d_head = 512, .window = 65, .f32 = true},
      {.n_head = 2, .n_kv_head = 1, .d_head = 32, .d_value = 80, .softcap = 50, .sinks = true, .window = 60},
      {.n_head = 5, .n_kv_head = 1, .d_head = 128, .q8 = true},
      {.n_head = 6, .n_kv_head = 2, .d_head = 96, .d_value = 32, .q8 = true, .sinks = true},
      {.n_head = 4, .n_kv_head = 1, .d_head = 192, .d_value = 128, .q8 = true, .latent = true}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    run_attention(&rng, &kinds[i], 5, pos, slot, i % 2 ? 1 : 3, kinds[i].d_head < 256);
    if (kinds[i].sinks) run_attention(&rng, &kinds[i], 5, pos, slot, i % 2 ? 3 : 1, false);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rope_store), cmocka_unit_test(test_rope_far), cmocka_unit_test(test_attention),
      cmocka_unit_test(test_lengths),    cmocka_unit_test(test_window),   cmocka_unit_test(test_kinds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
