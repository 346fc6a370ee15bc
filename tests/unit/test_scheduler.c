/* The scheduler against a scripted device: a model whose next token is a hash of the whole history, read through the
 * page table as a GPU would, at the last possible moment, so that a wrong page, a step block written too early or a
 * dropped result changes what comes out. */
#include "scheduler_make.h"
#include "states.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
  N_SLOT = 4,
  N_QUEUE = 8,
  N_CTX = 200,
  PAGE = 16,
  STRIDE = (N_CTX + PAGE - 1) / PAGE,
  N_VOCAB = 1000,
  MAX_ROW = 128
};
enum { N_PAGE = N_SLOT * STRIDE + 1, STOP_ID = 7, MAX_LIVE = 64 };

static const struct step_template templates[] = {{.index = 3, .n_row = 1, .n_select = 1},
                                                 {.index = 1, .n_row = 2, .n_select = 2},
                                                 {.index = 0, .n_row = 4, .n_select = 4},
                                                 {.index = 2, .n_row = 16, .n_select = 4},
                                                 {.index = 4, .n_row = MAX_ROW, .n_select = 4}};

struct device {
  uint32_t *block[2], *result[2];
  int32_t kv[N_PAGE][PAGE];
  int32_t slot_token[N_SLOT];
  bool slot_done[N_SLOT];
  uint32_t recurrent[N_SLOT]; /* a hash of the positions so far, kept from step to step */
  uint32_t queue[2], queue_template[2], n_queued, max_queued;    /* submitted, not executed */
  uint32_t n_step, n_row, unready, hurried, rows_of_template[5]; /* unready, hurried: bits by template index */
  uint64_t now_us, step_us[5];                                   /* a step takes its template's */
  bool fail_submit, fail_wait;
};

static uint32_t mix(uint32_t h, uint32_t v) {
  h = (h ^ v) * 0x9E3779B1u;
  return h ^ h >> 15;
}

/* The model: the token after a history. */
static int32_t next_token(const int32_t *history, uint32_t n, uint64_t seed) {
  uint32_t h = (uint32_t)seed;
  for (uint32_t i = 0; i < n; i++) h = mix(h, (uint32_t)history[i] + i);
  return (int32_t)(mix(h, n) % N_VOCAB);
}

/* The runs are as FORMAT.md says; each moves its slot's recurrent state on, row after row. */
static void execute_runs(struct device *d, const uint32_t *b) {
  const uint32_t *run = b + img_step_run(MAX_ROW), *pos = b + img_step_row_pos(MAX_ROW);
  const uint32_t *slot = b + img_step_row_slot(MAX_ROW), *tokens = b + img_step_row_token();
  uint32_t row = 0, seen = 0;
  assert_true(b[IMG_STEP_N_RUN] <= IMG_MAX_RUN);
  assert_int_equal(b[IMG_STEP_N_SUPPRESS], 2);
  assert_int_equal(b[IMG_STEP_SUPPRESS], STOP_ID + 1);
  assert_int_equal(b[IMG_STEP_SUPPRESS + 1], STOP_ID + 5);
  for (uint32_t i = 0; i < b[IMG_STEP_N_RUN]; i++, run += IMG_RUN_WORDS) {
    assert_int_equal(run[IMG_RUN_ROW], row);
    assert_true(run[IMG_RUN_COUNT] > 0 && run[IMG_RUN_COUNT] <= b[IMG_STEP_N_ROW] - row);
    uint32_t s = slot[row];
    assert_false(seen >> s & 1);
    seen |= 1u << s;
    for (uint32_t k = 0; k < run[IMG_RUN_COUNT]; k++, row++) {
      assert_true(slot[row] == s && (k == 0 || pos[row] == pos[row - 1] + 1));
      int32_t token = (int32_t)tokens[row] == IMG_TOKEN_FROM_SLOT ? d->slot_token[s] : (int32_t)tokens[row];
      d->recurrent[s] = mix(pos[row] ? d->recurrent[s] : 0, (uint32_t)token + pos[row]);
    }
  }
  assert_int_equal(row, b[IMG_STEP_N_ROW]);
}

static void execute(struct device *d, uint32_t copy) {
  const uint32_t *b = d->block[copy];
  uint32_t *out = d->result[copy];
  memset(out, 0xa5, img_result_bytes());
  out[IMG_RESULT_NUMBER] = b[IMG_STEP_NUMBER];
  const uint32_t *tokens = b + img_step_row_token(), *pos = b + img_step_row_pos(MAX_ROW),
                 *slot = b + img_step_row_slot(MAX_ROW), *table = b + img_step_page_table(MAX_ROW);
  assert_int_equal(b[IMG_STEP_PAGE_STRIDE], STRIDE);
  assert_true(b[IMG_STEP_N_ROW] >= 1 && b[IMG_STEP_N_ROW] <= templates[4].n_row);
  execute_runs(d, b);
  for (uint32_t r = 0; r < b[IMG_STEP_N_ROW]; r++) {
    assert_true(slot[r] < N_SLOT && pos[r] < N_CTX);
    int32_t token = (int32_t)tokens[r] == IMG_TOKEN_FROM_SLOT ? d->slot_token[slot[r]] : (int32_t)tokens[r];
    uint32_t page = table[slot[r] * STRIDE + pos[r] / PAGE];
    assert_true(page > 0 && page < N_PAGE);
    d->kv[page][pos[r] % PAGE] = token;
  }
  for (uint32_t i = 0; i < b[IMG_STEP_N_SELECT]; i++) {
    const uint32_t *s = b + img_step_select(MAX_ROW) + i * IMG_SELECT_WORDS;
    uint32_t row = s[IMG_SELECT_ROW], q = s[IMG_SELECT_SLOT];
    assert_true(row < b[IMG_STEP_N_ROW] && slot[row] == q && s[IMG_SELECT_POS] == pos[row] + 1);
    uint32_t *record = out + IMG_RESULT_HEAD_WORDS + i * IMG_RESULT_WORDS;
    if ((int32_t)tokens[row] != IMG_TOKEN_FROM_SLOT) d->slot_done[q] = false;
    if (d->slot_done[q]) {
      record[IMG_RESULT_TOKEN] = (uint32_t)-1;
      continue;
    }
    int32_t history[N_CTX];
    for (uint32_t p = 0; p <= pos[row]; p++) history[p] = d->kv[table[q * STRIDE + p / PAGE]][p % PAGE];
    uint32_t all = 0; /* a sequence's recurrent state is of its positions, all of them, and nobody else's */
    for (uint32_t p = 0; p <= pos[row]; p++) all = mix(all, (uint32_t)history[p] + p);
    assert_int_equal(d->recurrent[q], all);
    int32_t token = next_token(history, pos[row] + 1, s[IMG_SELECT_SEED_LO]);
    bool stop = false;
    for (uint32_t k = 0; k < b[IMG_STEP_N_STOP]; k++) stop |= token % 40 == (int32_t)b[IMG_STEP_STOP + k];
    d->slot_token[q] = token;
    d->slot_done[q] = stop && !(s[IMG_SELECT_FLAGS] & IMG_SELECT_FLAG_IGNORE_STOP);
    record[IMG_RESULT_TOKEN] = (uint32_t)token;
    record[IMG_RESULT_DONE] = d->slot_done[q];
    float logprob = -0.5f;
    memcpy(&record[IMG_RESULT_LOGPROB], &logprob, 4);
    for (uint32_t k = 0; k < s[IMG_SELECT_N_TOP]; k++) {
      record[IMG_RESULT_TOP_ID + k] = (uint32_t)token + k;
      memcpy(&record[IMG_RESULT_TOP_LOGPROB + k], &logprob, 4);
    }
  }
}

static bool device_ready(void *user, uint32_t index) {
  return !(((struct device *)user)->unready >> index & 1);
}

static void device_hurry(void *user, uint32_t index) {
  ((struct device *)user)->hurried |= 1u << index;
}

static enum moe_code device_submit(void *user, uint32_t index, uint32_t copy, struct moe_error *err) {
  struct device *d = user;
  if (d->fail_submit) return moe_fail(err, MOE_FAILED, "device lost");
  assert_true(d->n_queued < 2);
  assert_false(d->n_queued && d->queue[0] == copy); /* one submit of a copy at a time */
  const struct step_template *t = templates;
  while (t->index != index) t++;
  assert_true(d->block[copy][IMG_STEP_N_ROW] <= t->n_row && d->block[copy][IMG_STEP_N_SELECT] <= t->n_select);
  d->rows_of_template[index] += d->block[copy][IMG_STEP_N_ROW];
  d->n_row += d->block[copy][IMG_STEP_N_ROW];
  d->n_step++;
  d->queue_template[d->n_queued] = index;
  d->queue[d->n_queued++] = copy;
  if (d->n_queued > d->max_queued) d->max_queued = d->n_queued;
  return MOE_OK;
}

static enum moe_code device_wait(void *user, uint32_t copy, struct moe_error *err) {
  struct device *d = user;
  if (d->fail_wait) return moe_fail(err, MOE_FAILED, "device lost");
  assert_true(d->n_queued && d->queue[0] == copy);
  execute(d, copy);
  d->now_us += d->step_us[d->queue_template[0]];
  d->queue_template[0] = d->queue_template[1];
  d->queue[0] = d->queue[1];
  d->n_queued--;
  return MOE_OK;
}

static uint64_t device_clock(void *user) {
  return ((struct device *)user)->now_us;
}

/* What a request got. */
struct answer {
  int32_t ids[N_CTX];
  uint32_t n, last_step, longest_gap;
  bool ended, saw_end;
  enum finish_reason reason;
};

struct fixture {
  struct device device;
  struct scheduler *s;
  struct scheduler_sink sink;
  struct answer answers[MAX_LIVE];
  uint32_t n_call;
};

static void on_token(void *user, const struct token_event *e) {
  struct fixture *f = user;
  struct answer *a = &f->answers[e->id];
  assert_false(a->ended);
  assert_true(a->n < N_CTX);
  if (a->n && f->n_call - a->last_step > a->longest_gap) a->longest_gap = f->n_call - a->last_step;
  a->last_step = f->n_call;
  a->ids[a->n++] = e->token;
  a->saw_end = e->is_end;
  for (uint32_t k = 0; k < e->n_top; k++) assert_int_equal(e->top[k].token, e->token + (int32_t)k);
}

static void on_finish(void *user, uint64_t id, enum finish_reason reason, const char *message) {
  struct answer *a = &((struct fixture *)user)->answers[id];
  assert_false(a->ended);
  assert_true((message != NULL) == (reason == FINISH_ERROR));
  a->ended = true;
  a->reason = reason;
}

static struct fixture *open_fixture_with(uint32_t window, bool patient, uint32_t step_limit_ms) {
  struct fixture *f = calloc(1, sizeof *f);
  struct device *d = &f->device;
  for (int i = 0; i < 2; i++) {
    d->block[i] = malloc(img_step_bytes(MAX_ROW, N_SLOT, STRIDE));
    d->result[i] = malloc(img_result_bytes());
    memset(d->block[i], 0xee, img_step_bytes(MAX_ROW, N_SLOT, STRIDE));
  }
  const struct scheduler_config config = {
      .limits = {.n_ctx = N_CTX, .n_slot = N_SLOT, .n_queue = N_QUEUE, .n_vocab = N_VOCAB},
      .shape = {.max_row = MAX_ROW,
                .n_slot = N_SLOT,
                .page_stride = STRIDE,
                .n_stop = 1,
                .stop = {STOP_ID},
                .n_suppress = 2,
                .suppress = {STOP_ID + 1, STOP_ID + 5}},
      .page_tok = PAGE,
      .n_page = N_PAGE,
      .window = window,
      .patient = patient,
      .step_limit_ms = step_limit_ms};
  const struct step_device device = {.user = d,
                                     .ready = device_ready,
                                     .hurry = device_hurry,
                                     .submit = device_submit,
                                     .wait = device_wait,
                                     .clock = device_clock,
                                     .block = {d->block[0], d->block[1]},
                                     .result = {d->result[0], d->result[1]},
                                     .templates = templates,
                                     .n_template = 5};
  f->sink = (struct scheduler_sink){.user = f, .on_token = on_token, .on_finish = on_finish};
  assert_int_equal(scheduler_create(&config, &device, f, &f->s, NULL), MOE_OK);
  return f;
}

static struct fixture *open_fixture(uint32_t window) {
  return open_fixture_with(window, false, 0);
}

static void close_fixture(struct fixture *f) {
  scheduler_destroy(f->s);
  for (int i = 0; i < 2; i++) {
    free(f->device.block[i]);
    free(f->device.result[i]);
  }
  free(f);
}

/* A prompt by its number: its tokens depend on nothing else. */
static void make_prompt(uint32_t number, int32_t *prompt, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) prompt[i] = (int32_t)(mix(number + 1, i) % N_VOCAB);
}

static enum moe_code submit(struct fixture *f, uint32_t id, uint32_t n_prompt, uint32_t n_predict, bool ignore,
                            struct moe_error *err) {
  int32_t prompt[N_CTX + 8];
  make_prompt(id, prompt, n_prompt);
  const struct request r = {.id = id,
                            .prompt = prompt,
                            .n_prompt = n_prompt,
                            .n_predict = n_predict,
                            .sampling = {.seed = id},
                            .n_logprob = id % 3,
                            .ignore_eos = ignore};
  return scheduler_submit(f->s, &r, err);
}

/* What the model says alone: the ids, and how it ends. */
static enum finish_reason expect(uint32_t id, uint32_t n_prompt, uint32_t n_predict, bool ignore, int32_t *ids,
                                 uint32_t *n) {
  int32_t history[2 * N_CTX];
  make_prompt(id, history, n_prompt);
  for (*n = 0;;) {
    int32_t token = next_token(history, n_prompt + *n, id);
    history[n_prompt + *n] = ids[*n] = token;
    ++*n;
    if (!ignore && token % 40 == STOP_ID) return FINISH_STOP;
    if (*n == n_predict || n_prompt + *n == N_CTX) return FINISH_LENGTH;
  }
}

static void check_answer(const struct fixture *f, uint32_t id, uint32_t n_prompt, uint32_t n_predict, bool ignore) {
  int32_t ids[N_CTX];
  uint32_t n;
  const struct answer *a = &f->answers[id];
  enum finish_reason reason = expect(id, n_prompt, n_predict, ignore, ids, &n);
  assert_true(a->ended);
  assert_int_equal(a->reason, reason);
  assert_int_equal(a->n, n);
  assert_memory_equal(a->ids, ids, n * sizeof *ids);
  assert_int_equal(a->saw_end, reason == FINISH_STOP);
}

static void step(struct fixture *f) {
  f->n_call++;
  assert_int_equal(scheduler_step(f->s, &f->sink, NULL), MOE_OK);
}

static void run_dry(struct fixture *f) {
  for (uint32_t i = 0; !scheduler_idle(f->s); i++) {
    assert_true(i < 5000);
    step(f);
  }
  uint32_t n_page, n_slot;
  scheduler_free(f->s, &n_page, &n_slot);
  assert_int_equal(n_page, N_PAGE - 1);
  assert_int_equal(n_slot, N_SLOT);
}

static void test_one_request_any_window(void **state) {
  (void)state;
  static const uint32_t windows[] = {0, 1, 7, 16, 64};
  for (size_t w = 0; w < 5; w++)
    for (uint32_t n_prompt = 1; n_prompt < N_CTX; n_prompt += 22) {
      struct fixture *f = open_fixture(windows[w]);
      assert_int_equal(submit(f, n_prompt % 3, n_prompt, 30, true, NULL), MOE_OK);
      run_dry(f);
      check_answer(f, n_prompt % 3, n_prompt, 30, true);
      assert_true(f->device.max_queued == 2 || n_prompt == N_CTX - 1 || windows[w] == 0);
      close_fixture(f);
    }
}

static void test_stop_drops_the_step_ahead(void **state) {
  (void)state;
  struct fixture *f = open_fixture(0);
  uint32_t id = 0, n;
  int32_t ids[N_CTX];
  while (expect(id, 20, 100, false, ids, &n) != FINISH_STOP || n < 3) id++; /* one that stops in mid-answer */
  assert_true(id < MAX_LIVE);
  assert_int_equal(submit(f, id, 20, 100, false, NULL), MOE_OK);
  run_dry(f);
  check_answer(f, id, 20, 100, false);
  assert_int_equal(f->device.n_step, n + 1); /* the last one ran ahead for nothing */
  assert_int_equal(submit(f, (id + 1) % MAX_LIVE, 50, 9, true, NULL), MOE_OK);
  run_dry(f);
  check_answer(f, (id + 1) % MAX_LIVE, 50, 9, true);
  close_fixture(f);
}

/* Requests of all lengths come, wait, and are cancelled at random; the others get what they would have got alone. */
static void test_many_requests_and_cancels(void **state) {
  (void)state;
  for (uint32_t seed = 0; seed < 20; seed++) {
    struct fixture *f = open_fixture(seed % 4 == 3 ? 7 : 0);
    uint32_t random = seed, n_prompt[MAX_LIVE], n_predict[MAX_LIVE], next = 0;
    bool cancelled[MAX_LIVE] = {0};
    while (next < MAX_LIVE || !scheduler_idle(f->s)) {
      random = mix(random, 17);
      if (next < MAX_LIVE && random % 3 == 0) {
        n_prompt[next] = 1 + mix(random, 1) % (N_CTX - 1);
        n_predict[next] = 1 + mix(random, 2) % 60;
        if (submit(f, next, n_prompt[next], n_predict[next], next % 2, NULL) == MOE_OK) next++;
      }
      if (next && random % 11 == 0) {
        uint32_t id = mix(random, 3) % next;
        cancelled[id] |= !f->answers[id].ended;
        scheduler_cancel(f->s, id, &f->sink);
        assert_true(f->answers[id].ended);
      }
      step(f);
    }
    run_dry(f);
    for (uint32_t id = 0; id < MAX_LIVE; id++) {
      if (!cancelled[id]) check_answer(f, id, n_prompt[id], n_predict[id], id % 2);
      assert_int_equal(f->answers[id].reason == FINISH_CANCELLED, cancelled[id]);
    }
    close_fixture(f);
  }
}

static void test_decoding_goes_along_with_prompts(void **state) {
  (void)state;
  struct fixture *f = open_fixture(8);
  assert_int_equal(submit(f, 0, 4, 60, true, NULL), MOE_OK);
  for (int i = 0; i < 4; i++) step(f);
  for (uint32_t id = 1; id < N_SLOT; id++) assert_int_equal(submit(f, id, N_CTX - 50, 20, true, NULL), MOE_OK);
  run_dry(f);
  for (uint32_t id = 1; id < N_SLOT; id++) check_answer(f, id, N_CTX - 50, 20, true);
  check_answer(f, 0, 4, 60, true);
  assert_int_equal(f->answers[0].longest_gap, 1); /* a token every step, whoever waits with a prompt */
  close_fixture(f);
}

static void test_smallest_template(void **state) {
  (void)state;
  struct fixture *f = open_fixture(0);
  for (uint32_t id = 0; id < 2; id++) assert_int_equal(submit(f, id, 8, 10, true, NULL), MOE_OK);
  run_dry(f);
  assert_int_equal(f->device.rows_of_template[2], 16); /* both prompts in one step of 16 rows */
  assert_int_equal(f->device.rows_of_template[1], 18); /* then pairs of rows */
  assert_int_equal(f->device.n_row, 34);
  close_fixture(f);
}

static void test_patience(void **state) {
  (void)state;
  struct fixture *f = open_fixture_with(0, true, 0);
  f->device.unready = 1u << 3; /* token(1) is still being compiled */
  assert_int_equal(submit(f, 0, 10, 5, true, NULL), MOE_OK);
  step(f);
  assert_int_equal(f->answers[0].n, 1); /* the first token came without it */
  assert_int_equal(f->device.n_step, 1);
  run_dry(f);
  assert_int_equal(f->device.max_queued, 1);
  assert_int_equal(f->device.rows_of_template[3], 4); /* and the others waited for it */
  check_answer(f, 0, 10, 5, true);
  close_fixture(f);
}

/* While the best template is compiled, a step goes through what there is: a larger one, else less of it at a time. */
static void test_substitutes(void **state) {
  (void)state;
  struct fixture *f = open_fixture(0);
  f->device.unready = ~(1u << 3); /* token(1) alone is ready */
  assert_int_equal(submit(f, 0, 50, 20, true, NULL), MOE_OK);
  for (int i = 0; i < 9; i++) step(f);
  assert_int_equal(f->device.rows_of_template[3], 10); /* one of them ahead */
  assert_int_equal(f->device.hurried, 1u << 4);
  f->device.unready = 1u << 3; /* now all but token(1) */
  run_dry(f);
  check_answer(f, 0, 50, 20, true);
  assert_int_equal(f->device.rows_of_template[4], 40);
  assert_int_equal(f->device.rows_of_template[1], 19); /* token(2) does for token(1) */

  f->device.unready = ~(1u << 3);
  f->device.hurried = 0;
  for (uint32_t id = 1; id < 4; id++) assert_int_equal(submit(f, id, 1, 30, true, NULL), MOE_OK);
  run_dry(f);
  for (uint32_t id = 1; id < 4; id++) {
    check_answer(f, id, 1, 30, true);
    assert_true(f->answers[id].longest_gap <= 4); /* they take turns */
  }
  assert_int_equal(f->device.hurried & 1u << 0, 1u << 0); /* token(4) is wanted for the three of them */

  f->device.hurried = 0; /* a prompt that comes while another sequence decodes is not left behind */
  assert_int_equal(submit(f, 7, 2, 100, true, NULL), MOE_OK);
  for (int i = 0; i < 20; i++) step(f);
  assert_int_equal(submit(f, 8, 10, 10, true, NULL), MOE_OK);
  run_dry(f);
  check_answer(f, 7, 2, 100, true);
  check_answer(f, 8, 10, 10, true);
  assert_true(f->answers[7].longest_gap <= 3 && f->answers[8].last_step < f->answers[7].last_step);
  assert_int_equal(f->device.hurried & 1u << 2, 1u << 2); /* and its template is wanted */

  f->device.hurried = 0;
  assert_int_equal(submit(f, 5, 30, 1, true, NULL), MOE_OK);
  run_dry(f);
  assert_int_equal(f->device.hurried, 0); /* a short prompt is not worth compiling for */
  f->device.unready = ~0u;                /* nothing at all: the smallest is waited for */
  assert_int_equal(submit(f, 6, 3, 3, true, NULL), MOE_OK);
  run_dry(f);
  check_answer(f, 6, 3, 3, true);
  close_fixture(f);
}

/* Prompts go on in small pieces where the largest template takes too long, unless somebody measures. */
static void test_step_limit(void **state) {
  (void)state;
  struct fixture *f = open_fixture_with(0, false, 100);
  for (uint32_t i = 0; i < 4; i++) f->device.step_us[i] = 30000;
  f->device.step_us[4] = 101000;
  assert_int_equal(submit(f, 0, 190, 3, true, NULL), MOE_OK);
  run_dry(f);
  check_answer(f, 0, 190, 3, true);
  assert_int_equal(f->device.rows_of_template[4], 190); /* both steps were on their way before the first was measured */
  assert_int_equal(submit(f, 1, 190, 3, true, NULL), MOE_OK);
  run_dry(f);
  check_answer(f, 1, 190, 3, true);
  assert_int_equal(f->device.rows_of_template[4], 190);
  assert_int_equal(f->device.rows_of_template[2], 190);
  f->device.unready = 1u << 2 | 1u << 0 | 1u << 1; /* not even when it is one of two that are compiled */
  assert_int_equal(submit(f, 2, 20, 3, true, NULL), MOE_OK);
  run_dry(f);
  check_answer(f, 2, 20, 3, true);
  assert_int_equal(f->device.rows_of_template[4], 190);
  close_fixture(f);

  static const struct {
    uint32_t window, limit, us;
    bool patient;
  } whole[] = {{.limit = 100, .us = 100000},
               {.us = 101000},
               {.window = 128, .limit = 100, .us = 101000},
               {.patient = true, .limit = 100, .us = 101000}};
  for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
    f = open_fixture_with(whole[i].window, whole[i].patient, whole[i].limit);
    f->device.step_us[4] = whole[i].us;
    for (uint32_t id = 0; id < 3; id++) {
      assert_int_equal(submit(f, id, 190, 3, true, NULL), MOE_OK);
      run_dry(f);
    }
    assert_int_equal(f->device.rows_of_template[4], 3 * 190);
    close_fixture(f);
  }
}

static void test_refusals(void **state) {
  (void)state;
  struct fixture *f = open_fixture(0);
  static const struct {
    struct request r;
    const char *expected;
  } cases[] = {
      {{.n_prompt = 0, .n_predict = 1}, "prompt of 0 tokens; allowed 1 to 199"},
      {{.n_prompt = N_CTX, .n_predict = 1}, "prompt of 200 tokens"},
      {{.n_prompt = 1, .n_predict = 0}, "n_predict 0"},
      {{.n_prompt = 1, .n_predict = 1, .n_logprob = 21}, "n_logprob 21; allowed 0 to 20"},
      {{.n_prompt = 2, .n_predict = 1}, "prompt[1] is token 1000; allowed 0 to 999"},
  };
  int32_t prompt[N_CTX] = {0, N_VOCAB};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct request r = cases[i].r;
    r.prompt = prompt;
    struct moe_error err = {0};
    assert_int_equal(scheduler_submit(f->s, &r, &err), MOE_USAGE);
    if (!strstr(err.message, cases[i].expected)) fail_msg("'%s' lacks '%s'", err.message, cases[i].expected);
  }
  struct moe_error err = {0};
  for (uint32_t id = 0; id < N_SLOT + N_QUEUE; id++) assert_int_equal(submit(f, id, 3, 2, true, NULL), MOE_OK);
  assert_int_equal(submit(f, 3, 3, 2, true, &err), MOE_USAGE);
  assert_non_null(strstr(err.message, "already live"));
  err = (struct moe_error){0};
  assert_int_equal(submit(f, 60, 3, 2, true, &err), MOE_FAILED);
  assert_non_null(strstr(err.message, "queue full"));
  run_dry(f);
  assert_false(f->answers[60].ended);
  close_fixture(f);
}

static void test_lost_device(void **state) {
  (void)state;
  struct fixture *f = open_fixture(0);
  struct moe_error err = {0};
  assert_int_equal(submit(f, 0, 3, 20, true, NULL), MOE_OK);
  step(f);
  f->device.fail_wait = true;
  assert_int_equal(scheduler_step(f->s, &f->sink, &err), MOE_FAILED);
  assert_non_null(strstr(err.message, "device lost"));
  assert_false(f->answers[0].ended);
  f->device.fail_wait = false;
  close_fixture(f);
}

/* A request submitted again with its emitted tokens in the prompt goes on as the first would have. */
static void test_resume(void **state) {
  (void)state;
  struct fixture *f = open_fixture(0);
  int32_t history[N_CTX], ids[N_CTX];
  uint32_t n;
  expect(5, 30, 40, true, ids, &n);
  make_prompt(5, history, 30);
  memcpy(history + 30, ids, 17 * sizeof *ids);
  const struct request r = {
      .id = 5, .prompt = history, .n_prompt = 47, .n_predict = 23, .sampling = {.seed = 5}, .ignore_eos = true};
  assert_int_equal(scheduler_submit(f->s, &r, NULL), MOE_OK);
  run_dry(f);
  assert_int_equal(f->answers[5].n, 23);
  assert_memory_equal(f->answers[5].ids, ids + 17, 23 * sizeof *ids);
  close_fixture(f);
}

static void test_states(void **state) {
  (void)state;
  struct states *s;
  struct moe_error err = {0};
  assert_int_equal(states_create(2, 4, 8, 8, &s, &err), MOE_FAILED); /* 2 * 4 + 1 pages are needed */
  assert_int_equal(states_create(2, 4, 8, 9, &s, NULL), MOE_OK);
  uint32_t a = states_take(s), b = states_take(s), n;
  assert_true(a != b && states_take(s) == STATES_NO_SLOT);
  states_reach(s, a, 9);
  states_reach(s, b, 32);
  const uint32_t *pages = states_pages(s, a, &n);
  assert_int_equal(n, 2);
  bool seen[9] = {true}; /* page 0 is nobody's */
  for (uint32_t i = 0; i < n; i++) {
    assert_false(seen[pages[i]]);
    seen[pages[i]] = true;
  }
  pages = states_pages(s, b, &n);
  assert_int_equal(n, 4);
  for (uint32_t i = 0; i < n; i++) {
    assert_false(seen[pages[i]]);
    seen[pages[i]] = true;
  }
  assert_int_equal(states_free_pages(s), 2);
  states_give(s, b);
  assert_int_equal(states_free_pages(s), 6);
  assert_int_equal(states_take(s), b);
  states_destroy(s);
}

/* A block has room for one run a slot, and no more slots than that. */
static void test_no_more_slots_than_runs(void **state) {
  (void)state;
  const struct step_shape shape = {.max_row = MAX_ROW, .n_slot = IMG_MAX_RUN + 1, .page_stride = STRIDE};
  struct moe_error err = {0};
  struct step_writer w;
  assert_int_equal(step_writer_init(&w, &shape, NULL, &err), MOE_FAILED);
  assert_string_equal(err.message, "65 slots; allowed are 1 to 64");
}

/* A temperature that logit / temperature would overflow with is written as 0: greedy. */
static void test_tiny_temperature_is_greedy(void **state) {
  (void)state;
  static const float given[] = {0.5F, 1e-5F, 1e-20F, 1e-42F, 0}, expected[] = {0.5F, 1e-5F, 0, 0, 0};
  const struct step_shape shape = {.max_row = MAX_ROW, .n_slot = N_SLOT, .page_stride = STRIDE};
  uint32_t *block = calloc(1, img_step_bytes(MAX_ROW, N_SLOT, STRIDE));
  struct step_writer w;
  assert_int_equal(step_writer_init(&w, &shape, block, NULL), MOE_OK);
  step_begin(&w);
  for (uint32_t i = 0; i < 5; i++) {
    const struct sampling_params sampling = {.temperature = given[i], .top_p = 1};
    step_add_select(&w, 0, 0, 1, &sampling, 0, false);
    float found;
    memcpy(&found, block + img_step_select(MAX_ROW) + i * IMG_SELECT_WORDS + IMG_SELECT_TEMPERATURE, sizeof found);
    assert_true(found == expected[i]);
  }
  step_writer_deinit(&w);
  free(block);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tiny_temperature_is_greedy),
      cmocka_unit_test(test_no_more_slots_than_runs),
      cmocka_unit_test(test_one_request_any_window),
      cmocka_unit_test(test_stop_drops_the_step_ahead),
      cmocka_unit_test(test_many_requests_and_cancels),
      cmocka_unit_test(test_decoding_goes_along_with_prompts),
      cmocka_unit_test(test_smallest_template),
      cmocka_unit_test(test_patience),
      cmocka_unit_test(test_substitutes),
      cmocka_unit_test(test_step_limit),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_lost_device),
      cmocka_unit_test(test_resume),
      cmocka_unit_test(test_states),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
