/* test_sample.c: the sampler's two kernels in turn against a C reference of the same algorithm: greedy, ties, top_k,
 * top_p, min_p, noise, the done rule, the most likely ids, over logits of many kinds; that a record's sample does not
 * depend on the others; that samples follow the distribution. */
#include "kernel_case.h"
#include "kernel_oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_ROW 64
#define N_SLOT 64

struct record {
  uint32_t row, slot, pos, flags, top_k, n_top;
  uint64_t seed;
  float temperature, top_p, min_p;
};

/* ---- the reference ---- */

/* First word of Philox-4x32-10. */
static uint32_t philox(const uint32_t in[4], uint64_t seed) {
  uint32_t c[4] = {in[0], in[1], in[2], in[3]}, k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  for (int i = 0; i < 10; i++) {
    uint64_t a = 0xd2511f53ull * c[0], b = 0xcd9e8d57ull * c[2];
    uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k1, (uint32_t)a};
    memcpy(c, next, sizeof c);
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return c[0];
}

static double gumbel(uint64_t seed, uint32_t pos, uint32_t id) {
  float u = fminf(((float)philox((uint32_t[]){pos, id, 0, 0}, seed) + 0.5f) * 2.3283064365386963e-10f, 0.99999994f);
  return -log(-log1p(-(double)u));
}

static int by_value(const void *a, const void *b) {
  const float *x = *(const float *const *)a, *y = *(const float *const *)b;
  return *x > *y ? -1 : *x < *y ? 1 : x < y ? -1 : x > y;
}

/* The sampled id. order: ids' logits, most likely first. gap: distance of the winner from the second, for tests that
 * want no near-ties. */
static uint32_t reference(const struct record *r, const float *logits, uint32_t n, const float *const *order,
                          double *gap) {
  double top = *order[0], kept_mass = 0, mass = 0, best = -INFINITY, second = -INFINITY;
  uint32_t kept = r->top_k && r->top_k < n ? r->top_k : n, id = 0;
  *gap = INFINITY;
  if (!(r->temperature > 0)) return (uint32_t)(order[0] - logits);
  while (kept < n && *order[kept] == *order[kept - 1]) kept++;
  for (uint32_t i = 0; i < kept; i++) kept_mass += exp(*order[i] - top);
  if (r->top_p < 1) {
    uint32_t k = 0;
    while (k < kept && mass < r->top_p * kept_mass) mass += exp(*order[k++] - top);
    while (k < kept && *order[k] == *order[k - 1]) k++;
    kept = k;
  }
  for (uint32_t i = 0; i < kept; i++) {
    uint32_t candidate = (uint32_t)(order[i] - logits);
    if (exp(*order[i] - top) < r->min_p) continue;
    double v = *order[i] / (double)r->temperature + gumbel(r->seed, r->pos, candidate);
    if (v > best) {
      second = best;
      best = v;
      id = candidate;
    } else if (v > second) {
      second = v;
    }
  }
  *gap = best - second;
  return id;
}

/* ---- running ---- */

struct run {
  struct kernel_case scan, c; /* sample_scan, sample */
  uint32_t n_vocab, stride, n_suppress;
  uint64_t step_bytes;
  uint32_t *step, *slot;
  const uint32_t *result;
};

static void fill_record(uint32_t *s, const struct record *r) {
  s[IMG_SELECT_ROW] = r->row;
  s[IMG_SELECT_SLOT] = r->slot;
  s[IMG_SELECT_POS] = r->pos;
  s[IMG_SELECT_FLAGS] = r->flags;
  s[IMG_SELECT_SEED_LO] = (uint32_t)r->seed;
  s[IMG_SELECT_SEED_HI] = (uint32_t)(r->seed >> 32);
  memcpy(&s[IMG_SELECT_TEMPERATURE], &r->temperature, 4);
  s[IMG_SELECT_TOP_K] = r->top_k;
  memcpy(&s[IMG_SELECT_TOP_P], &r->top_p, 4);
  memcpy(&s[IMG_SELECT_MIN_P], &r->min_p, 4);
  s[IMG_SELECT_N_TOP] = r->n_top;
}

static void case_init(struct kernel_case *c, enum kernel_id kernel, const struct run *run, uint32_t n_select) {
  kernel_case_init(c, kernel);
  kernel_case_param(c, "N_VOCAB", run->n_vocab);
  kernel_case_param(c, "LOGIT_STRIDE", run->stride);
  kernel_case_param(c, "N_SELECT", n_select);
  kernel_case_param(c, "MAX_ROW", MAX_ROW);
}

/* logits: n rows of n_vocab, `pad` floats between them. Row i's token is 0 (its own) unless from_slot has bit i. */
static void run_init_padded(struct run *run, const float *logits, uint32_t n_vocab, uint32_t pad,
                            const struct record *records, uint32_t n, uint32_t n_select, uint64_t from_slot) {
  struct oracle_rng rng = {1};
  run->n_vocab = n_vocab;
  run->n_suppress = 0;
  run->stride = n_vocab + pad;
  case_init(&run->scan, KERNEL_SAMPLE_SCAN, run, n_select);
  case_init(&run->c, KERNEL_SAMPLE, run, n_select);
  uint32_t *step = oracle_step(&rng, MAX_ROW, MAX_ROW, 1, 1, NULL, NULL, &run->step_bytes);
  step[IMG_STEP_N_SELECT] = n;
  step[IMG_STEP_NUMBER] = 77;
  step[IMG_STEP_N_STOP] = 2;
  step[IMG_STEP_STOP] = 5;
  step[IMG_STEP_STOP + 1] = 9;
  for (uint32_t i = 0; i < MAX_ROW; i++)
    step[img_step_row_token() + i] = from_slot >> i & 1 ? (uint32_t)IMG_TOKEN_FROM_SLOT : 0;
  for (uint32_t i = 0; i < n; i++) fill_record(step + img_step_select(MAX_ROW) + i * IMG_SELECT_WORDS, &records[i]);
  float *all = kernel_case_bind(&run->c, "logits", NULL, 0);
  for (uint32_t i = 0; i < n; i++) memcpy(all + i * run->stride, logits + i * n_vocab, 4 * n_vocab);
  kernel_case_bind(&run->scan, "logits", all, 4ull * n_select * run->stride);
  kernel_case_bind(&run->scan, "step", step, run->step_bytes);
  kernel_case_bind(&run->scan, "cells", NULL, 0);
  kernel_case_bind(&run->c, "cells", NULL, 0);
  run->step = kernel_case_bind(&run->c, "step", step, run->step_bytes);
  run->slot = kernel_case_bind(&run->c, "slot", NULL, img_slot_bytes(N_SLOT));
  memset(run->slot, 0, img_slot_bytes(N_SLOT));
  run->result = kernel_case_bind(&run->c, "result", NULL, 0);
  free(step);
}
/* Rows that no vector of four is aligned in. */
static void run_init(struct run *run, const float *logits, uint32_t n_vocab, const struct record *records, uint32_t n,
                     uint32_t n_select, uint64_t from_slot) {
  run_init_padded(run, logits, n_vocab, n_vocab % 4 ? 5 : 7, records, n, n_select, from_slot);
}
static void run_deinit(struct run *run) {
  kernel_case_deinit(&run->scan);
  kernel_case_deinit(&run->c);
}
/* Both kernels; what the first leaves is what the second finds. */
static void run_kernels(struct run *run, void (*how)(struct kernel_case *c)) {
  memcpy(kernel_case_data(&run->scan, "step"), run->step, run->step_bytes);
  how(&run->scan);
  const struct vkh_buffer *cells = &run->scan.buffer[kernel_push_index(run->scan.info, "cells")];
  memcpy(kernel_case_data(&run->c, "cells"), cells->data, cells->bytes);
  how(&run->c);
}
static const uint32_t *result_of(const struct run *run, uint32_t i) {
  return run->result + IMG_RESULT_HEAD_WORDS + i * IMG_RESULT_WORDS;
}
static float as_float(uint32_t word) {
  float f;
  memcpy(&f, &word, 4);
  return f;
}

static void run_suppress(struct run *run, const uint32_t *ids, uint32_t n) {
  run->step[IMG_STEP_N_SUPPRESS] = run->n_suppress = n;
  memcpy(&run->step[IMG_STEP_SUPPRESS], ids, n * sizeof *ids);
}

/* The reference over the logits without the suppressed ones. */
static uint32_t reference_of(const struct run *run, const struct record *r, const float *logits, double *gap) {
  const float **order = malloc(run->n_vocab * sizeof *order);
  float *masked = malloc(run->n_vocab * sizeof *masked);
  assert_true(order && masked);
  memcpy(masked, logits, run->n_vocab * sizeof *masked);
  for (uint32_t k = 0; k < run->n_suppress; k++) masked[run->step[IMG_STEP_SUPPRESS + k]] = -INFINITY;
  for (uint32_t k = 0; k < run->n_vocab; k++) order[k] = masked + k;
  qsort(order, run->n_vocab, sizeof *order, by_value);
  uint32_t id = reference(r, masked, run->n_vocab, order, gap);
  free(order);
  free(masked);
  return id;
}

static bool close_to(uint32_t word, double want) {
  double got = as_float(word);
  return got == want || fabs(got - want) < 1e-5 + 1e-6 * fabs(want);
}

/* Checks a record's result against the reference; returns whether it was decided by more than a hair. */
static bool check_record(const struct run *run, uint32_t i, const struct record *r, const float *logits) {
  const float **order = malloc(run->n_vocab * sizeof *order);
  double total = 0, gap;
  assert_non_null(order);
  for (uint32_t k = 0; k < run->n_vocab; k++) order[k] = logits + k;
  qsort(order, run->n_vocab, sizeof *order, by_value);
  for (uint32_t k = 0; k < run->n_vocab; k++) total += exp(logits[k] - (double)*order[0]);
  uint32_t want = reference_of(run, r, logits, &gap);
  const uint32_t *result = result_of(run, i);
  bool decided = gap > 1e-4;
  if (decided && result[IMG_RESULT_TOKEN] != want)
    fail_msg("record %u: token %u, not %u (gap %g)", i, result[IMG_RESULT_TOKEN], want, gap);
  assert_true(result[IMG_RESULT_TOKEN] < run->n_vocab);
  assert_true(close_to(result[IMG_RESULT_LOGPROB], logits[result[IMG_RESULT_TOKEN]] - (double)*order[0] - log(total)));
  for (uint32_t k = 0; k < r->n_top && k < run->n_vocab; k++) {
    assert_int_equal(result[IMG_RESULT_TOP_ID + k], order[k] - logits);
    assert_true(close_to(result[IMG_RESULT_TOP_LOGPROB + k], *order[k] - (double)*order[0] - log(total)));
  }
  free(order);
  return decided;
}

static float *random_logits(struct oracle_rng *rng, uint32_t n, float scale) {
  float *l = oracle_floats(rng, n);
  for (uint32_t i = 0; i < n; i++) l[i] *= scale;
  return l;
}

/* ---- tests ---- */

static void test_greedy(void **state) {
  (void)state;
  enum { N = 4, VOCAB = 1001 };
  struct oracle_rng rng = {2};
  float *logits = random_logits(&rng, N * VOCAB, 10);
  logits[17] = logits[900] = 11;                              /* a tie */
  for (int i = 0; i < VOCAB; i++) logits[VOCAB + i] = -3.25f; /* nothing but ties */
  logits[2 * VOCAB + 1000] = 200;                             /* the last id, far ahead */
  const struct record records[N] = {{.n_top = 32, .top_p = 1},
                                    {.row = 1, .slot = 1, .n_top = 5, .top_p = 1},
                                    {.row = 2, .slot = 2, .n_top = 1, .top_p = 1},
                                    {.row = 3, .slot = 3, .top_k = 3, .top_p = 0.5}};
  struct run run;
  run_init(&run, logits, VOCAB, records, N, N, 0);
  run_kernels(&run, kernel_case_run);
  for (uint32_t i = 0; i < N; i++) assert_true(check_record(&run, i, &records[i], logits + i * VOCAB));
  assert_int_equal(result_of(&run, 0)[IMG_RESULT_TOKEN], 17);
  assert_int_equal(result_of(&run, 1)[IMG_RESULT_TOKEN], 0);
  assert_int_equal(result_of(&run, 2)[IMG_RESULT_TOKEN], 1000);
  assert_int_equal(run.result[IMG_RESULT_NUMBER], 77);
  assert_int_equal(run.slot[2 * IMG_SLOT_WORDS + IMG_SLOT_TOKEN], 1000);
  run_deinit(&run);
  free(logits);
}

static void test_chain(void **state) {
  (void)state;
  enum { N = 48, VOCAB = 777 };
  struct oracle_rng rng = {3};
  float *logits = random_logits(&rng, N * VOCAB, 6);
  struct record records[N];
  for (uint32_t i = 0; i < N; i++) {
    static const uint32_t top_k[] = {0, 1, 2, 40, 776, 777, 5000};
    static const float top_p[] = {1, 0.9f, 0.5f, 0.1f, 0.001f}, min_p[] = {0, 0.05f, 0.3f, 1};
    records[i] = (struct record){.row = i,
                                 .slot = i,
                                 .pos = 100 + 7 * i,
                                 .top_k = top_k[i % 7],
                                 .n_top = i % 4,
                                 .seed = ((uint64_t)oracle_u32(&rng) << 32) | oracle_u32(&rng),
                                 .temperature = 0.25f + 0.25f * (i % 5),
                                 .top_p = top_p[i % 5],
                                 .min_p = min_p[i % 3 ? 0 : i % 4]};
  }
  for (int i = 0; i < 20; i++) logits[3 * VOCAB + 10 + i] = 7; /* more ties at the top than top_k */
  struct run run;
  run_init(&run, logits, VOCAB, records, N, 64, 0);
  run_kernels(&run, kernel_case_run);
  uint32_t decided = 0;
  for (uint32_t i = 0; i < N; i++) decided += check_record(&run, i, &records[i], logits + i * VOCAB);
  assert_true(decided > N - 4);
  assert_int_equal(result_of(&run, N)[IMG_RESULT_TOKEN], VKH_POISON);
  assert_int_equal(result_of(&run, 1)[IMG_RESULT_DONE], 0);
  run_deinit(&run);
  free(logits);
}

/* A vocabulary of today's size, with every filter and the longest list. */
static void test_large_vocabulary(void **state) {
  (void)state;
  enum { N = 2, VOCAB = 151937 };
  struct oracle_rng rng = {6};
  float *logits = random_logits(&rng, N * VOCAB, 12);
  const struct record records[N] = {{.n_top = 32, .pos = 3, .seed = 5, .temperature = 2, .top_k = 1000, .top_p = 0.97f},
                                    {.row = 1, .slot = 1, .n_top = 2, .top_p = 1}};
  struct run run;
  run_init(&run, logits, VOCAB, records, N, N, 0);
  run_kernels(&run, kernel_case_run_plain);
  for (uint32_t i = 0; i < N; i++) assert_true(check_record(&run, i, &records[i], logits + i * VOCAB));
  run_deinit(&run);
  free(logits);
}

/* Logits of a kind: how they lie decides which way the sampler takes. */
enum kind { PEAKED, TYPICAL, FLAT, TIED, EQUAL, EXTREME, FEW, N_KIND };
static void fill_kind(struct oracle_rng *rng, enum kind kind, float *l, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    double u = (oracle_u32(rng) + 0.5) / 4294967296.0;
    double tail = -log(u); /* of the largest of many: as the logits of language models */
    l[i] = (float)(kind == PEAKED    ? 3 * tail - 10
                   : kind == TYPICAL ? 1.2 * tail
                   : kind == FLAT    ? 0.01 * tail
                   : kind == TIED    ? floor(2 * tail)
                   : kind == EXTREME ? (u - 0.5) * 2e30
                   : kind == FEW     ? (i % (n / 20) ? -INFINITY : tail)
                                     : -3.25);
  }
  if (kind == PEAKED) l[n - 1] = 50;
  if (kind == TIED) l[7] = -0.0f;
}

/* Every option over every kind of logits, n records a run, `pad` floats between rows. */
static void check_kinds(uint32_t n_vocab, uint32_t pad, uint32_t n, void (*how)(struct kernel_case *c)) {
  static const struct record options[] = {
      {.top_p = 1},
      {.top_p = 1, .n_top = 32},
      {.temperature = 1, .top_p = 1},
      {.temperature = 0.7f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f},
      {.temperature = 1, .top_k = 1, .top_p = 1, .n_top = 3},
      {.temperature = 1.5f, .top_k = 200, .top_p = 1},
      {.temperature = 1, .top_k = 600, .top_p = 0.9f, .n_top = 32},
      {.temperature = 1, .top_p = 0.9f},
      {.temperature = 2, .top_p = 0.5f, .min_p = 0.01f, .n_top = 10},
      {.temperature = 1, .top_p = 1, .min_p = 0.1f},
      {.temperature = 3, .top_p = 1, .min_p = 1e-7f, .n_top = 1},
  };
  enum { N_OPTION = sizeof options / sizeof *options };
  struct oracle_rng rng = {n_vocab};
  float *logits = malloc(sizeof *logits * n * n_vocab);
  struct record records[IMG_MAX_SELECT];
  assert_non_null(logits);
  uint32_t decided = 0;
  for (uint32_t first = 0; first < N_KIND * N_OPTION; first += n) {
    for (uint32_t i = 0; i < n; i++) {
      uint32_t at = (first + i) % (N_KIND * N_OPTION);
      fill_kind(&rng, at / N_OPTION, logits + i * n_vocab, n_vocab);
      records[i] = options[at % N_OPTION];
      records[i].row = records[i].slot = i;
      records[i].pos = at;
      records[i].seed = oracle_u32(&rng);
    }
    struct run run;
    run_init_padded(&run, logits, n_vocab, pad, records, n, n, 0);
    run_kernels(&run, how);
    for (uint32_t i = 0; i < n; i++) decided += check_record(&run, i, &records[i], logits + i * n_vocab);
    run_deinit(&run);
  }
  assert_true(decided > N_KIND * N_OPTION * 9 / 10);
  free(logits);
}

static void test_kinds(void **state) {
  (void)state;
  check_kinds(4096, 0, 16, kernel_case_run);
  check_kinds(257, 3, 16, kernel_case_run);
  check_kinds(5003, 1, 16, kernel_case_run_plain);
}

static void test_kinds_large(void **state) {
  (void)state;
  check_kinds(50257, 0, 16, kernel_case_run_plain);
  check_kinds(262208, 0, 11, kernel_case_run_plain);
}

/* The same record alone and among others gives the same. */
static void test_batch_independence(void **state) {
  (void)state;
  enum { N = 9, VOCAB = 500 };
  struct oracle_rng rng = {4};
  float *logits = random_logits(&rng, N * VOCAB, 2);
  struct record records[N];
  uint32_t together[N];
  for (uint32_t i = 0; i < N; i++)
    records[i] = (struct record){.row = i, .slot = i, .pos = 5, .seed = 1234, .temperature = 1, .top_p = 0.95f};
  struct run run;
  run_init(&run, logits, VOCAB, records, N, N, 0);
  run_kernels(&run, kernel_case_run_plain);
  for (uint32_t i = 0; i < N; i++) together[i] = result_of(&run, i)[IMG_RESULT_TOKEN];
  run_deinit(&run);
  for (uint32_t i = 0; i < N; i += 4) {
    run_init(&run, logits + i * VOCAB, VOCAB, &records[i], 1, 1, 0);
    run_kernels(&run, kernel_case_run_plain);
    assert_int_equal(result_of(&run, 0)[IMG_RESULT_TOKEN], together[i]);
    run_deinit(&run);
  }
  free(logits);
}

/* Frequencies over 64 * 32 samples of one distribution stay within four standard deviations. */
static void test_distribution(void **state) {
  (void)state;
  enum { N = 64, VOCAB = 8, ROUNDS = 32 };
  static const double p[VOCAB] = {0.4, 0.2, 0.15, 0.1, 0.08, 0.04, 0.02, 0.01};
  float logits[N * VOCAB];
  struct record records[N];
  uint32_t count[VOCAB] = {0};
  for (int i = 0; i < N * VOCAB; i++) logits[i] = (float)(2 * log(p[i % VOCAB])); /* temperature 2 halves it */
  for (uint32_t round = 0; round < ROUNDS; round++) {
    for (uint32_t i = 0; i < N; i++)
      records[i] = (struct record){.row = i, .slot = i, .pos = round * N + i, .seed = 99, .temperature = 2, .top_p = 1};
    struct run run;
    run_init(&run, logits, VOCAB, records, N, N, 0);
    run_kernels(&run, kernel_case_run_plain);
    for (uint32_t i = 0; i < N; i++) count[result_of(&run, i)[IMG_RESULT_TOKEN]]++;
    run_deinit(&run);
  }
  for (int k = 0; k < VOCAB; k++) {
    double mean = N * ROUNDS * p[k], deviation = sqrt(N * ROUNDS * p[k] * (1 - p[k]));
    if (fabs(count[k] - mean) > 4 * deviation) fail_msg("id %d was drawn %u times, expected %.0f", k, count[k], mean);
  }
}

static void test_done_rule(void **state) {
  (void)state;
  enum { N = 5, VOCAB = 64 };
  struct oracle_rng rng = {5};
  float *logits = random_logits(&rng, N * VOCAB, 1);
  for (int i = 0; i < N; i++) logits[i * VOCAB + (i == 3 ? 10 : 9)] = 5; /* 9 is a stop id */
  struct record records[N];
  for (uint32_t i = 0; i < N; i++) records[i] = (struct record){.row = i, .slot = i, .top_p = 1};
  records[2].flags = IMG_SELECT_FLAG_IGNORE_STOP;
  struct run run;
  run_init(&run, logits, VOCAB, records, N, N, 0x1b); /* rows 0, 1, 3, 4 take the slot's token, row 2 brings its own */
  run.slot[0 * IMG_SLOT_WORDS + IMG_SLOT_DONE] = 1;
  run.slot[0 * IMG_SLOT_WORDS + IMG_SLOT_TOKEN] = 42;
  run.slot[2 * IMG_SLOT_WORDS + IMG_SLOT_DONE] = 1; /* is cleared */
  run_kernels(&run, kernel_case_run);
  assert_int_equal(result_of(&run, 0)[IMG_RESULT_TOKEN], UINT32_MAX);
  assert_int_equal(result_of(&run, 0)[IMG_RESULT_DONE], 1);
  assert_int_equal(run.slot[0 * IMG_SLOT_WORDS + IMG_SLOT_TOKEN], 42);
  static const uint32_t token[N] = {0, 9, 9, 10, 9}, done[N] = {0, 1, 0, 0, 1};
  for (uint32_t i = 1; i < N; i++) {
    assert_int_equal(result_of(&run, i)[IMG_RESULT_TOKEN], token[i]);
    assert_int_equal(result_of(&run, i)[IMG_RESULT_DONE], done[i]);
    assert_int_equal(run.slot[i * IMG_SLOT_WORDS + IMG_SLOT_TOKEN], token[i]);
    assert_int_equal(run.slot[i * IMG_SLOT_WORDS + IMG_SLOT_DONE], done[i]);
  }
  run_deinit(&run);
  free(logits);
}

/* Suppressed ids among the best, at the ends, under every filter: the sampler never takes one; the list of the most
 * likely ids and the log-probabilities stay as they are. */
static void test_suppressed(void **state) {
  (void)state;
  enum { N = 24, VOCAB = 1001 };
  static const uint32_t suppress[IMG_MAX_SUPPRESS] = {0, 1, 5, 258, 259, 777, 999, 1000};
  struct oracle_rng rng = {8};
  float *logits = random_logits(&rng, N * VOCAB, 4);
  struct record records[N];
  for (uint32_t i = 0; i < N; i++) {
    for (uint32_t k = 0; k < IMG_MAX_SUPPRESS; k++) logits[i * VOCAB + suppress[k]] = 20 + (float)((i + k) % 3);
    records[i] = (struct record){.row = i,
                                 .slot = i,
                                 .pos = 9 + i,
                                 .top_k = (uint32_t[]){0, 3, 40, 1000}[i % 4],
                                 .n_top = i % 4 * 8,
                                 .seed = oracle_u32(&rng),
                                 .temperature = i % 3 * 0.75f,
                                 .top_p = i % 2 ? 0.9f : 1,
                                 .min_p = i % 5 ? 0 : 0.1f};
  }
  struct run run;
  run_init(&run, logits, VOCAB, records, N, N, 0);
  run_suppress(&run, suppress, IMG_MAX_SUPPRESS);
  run_kernels(&run, kernel_case_run);
  uint32_t decided = 0;
  for (uint32_t i = 0; i < N; i++) {
    for (uint32_t k = 0; k < IMG_MAX_SUPPRESS; k++)
      assert_int_not_equal(result_of(&run, i)[IMG_RESULT_TOKEN], suppress[k]);
    decided += check_record(&run, i, &records[i], logits + i * VOCAB);
  }
  assert_true(decided > N - 4);
  run_deinit(&run);
  free(logits);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_greedy),       cmocka_unit_test(test_chain),     cmocka_unit_test(test_batch_independence),
      cmocka_unit_test(test_distribution), cmocka_unit_test(test_done_rule), cmocka_unit_test(test_large_vocabulary),
      cmocka_unit_test(test_suppressed),   cmocka_unit_test(test_kinds),     cmocka_unit_test(test_kinds_large),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
