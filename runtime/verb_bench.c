/* verb_bench.c: `moert bench`: speed of prompts (ppN) and of generation (tgN), in rows comparable with llama-bench's.
 *
 * Owns: what a row measures. ppN: N prompt tokens after D others, from the step that ended at D to the first token.
 * tgN: N tokens of each of B sequences after D, from the step after which all have begun to the one after which the
 * first has ended. Prompts are random tokens (a router sends equal tokens to equal experts). Two runs of each row are
 * not measured: drivers warm up twice. The table shows a row's median and its smallest and largest rate; the JSON has
 * llama-bench's mean and deviation too. Does not own: running (run_jobs.h). */
#include "img_manifest.h"
#include "img_reader.h"
#include "run_jobs.h"
#include "scheduler_make.h"
#include "spread.h"
#include "verbs.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BENCH_MAX_LIST = 16, BENCH_WARM = 2, BENCH_MAX_BATCH = 64, BENCH_MAX_REPEAT = 1000 };

struct bench_options {
#define OPTION OPTION_FIELD
#include "verb_bench_options.def"
#undef OPTION
};

static const struct option_row bench_rows[] = {
#define OPTION(...) OPTION_ROW(struct bench_options, __VA_ARGS__)
#include "verb_bench_options.def"
#undef OPTION
};

struct bench_list {
  uint32_t n, value[BENCH_MAX_LIST];
};

/* One row of the table. n_prompt or n_gen is 0. */
struct bench_row {
  uint32_t n_prompt, n_gen, depth, batch;
  char time[32];                 /* when its first measured repetition began, in UTC */
  double rate[BENCH_MAX_REPEAT]; /* tokens a second of each repetition */
  struct spread rates;
};

struct bench {
  struct bench_options o;
  const char *path;
  struct img_manifest manifest;
  struct scheduler *scheduler;
  struct scheduler_limits limits;
  uint64_t random;
  /* the run being measured */
  struct run_job jobs[BENCH_MAX_BATCH];
  const struct bench_row *row;
  uint32_t n_token, n_from; /* emitted so far; at from_ms */
  double from_ms, to_ms;    /* -1: not yet */
};

static enum moe_code bench_parse_list(const char *name, const char *text, uint32_t max, struct bench_list *list,
                                      struct moe_error *err) {
  list->n = 0;
  for (const char *at = text; *at;) {
    char *end;
    unsigned long value = strtoul(at, &end, 10);
    if (end == at || (*end && *end != ',') || value > max || list->n == BENCH_MAX_LIST)
      return moe_fail(err, MOE_USAGE, "%s %s: needs up to %d numbers of at most %u with commas between", name, text,
                      BENCH_MAX_LIST, max);
    list->value[list->n++] = (uint32_t)value;
    at = *end ? end + 1 : end;
  }
  return MOE_OK;
}

static int32_t bench_token(struct bench *b) {
  return (int32_t)(verbs_random(&b->random) % b->limits.n_vocab);
}

static enum moe_code bench_on_token(void *user, struct run_job *job, const struct token_event *event,
                                    struct moe_error *err) {
  (void)job, (void)event, (void)err;
  ((struct bench *)user)->n_token++;
  return MOE_OK;
}

/* Marks the two ends of what is measured, at the ends of steps. */
static void bench_on_step(void *user, struct scheduler *s) {
  struct bench *b = user;
  const struct bench_row *row = b->row;
  double now = verbs_now_ms();
  if (row->n_prompt) {
    uint32_t position = scheduler_position(s, 0);
    if (b->from_ms < 0 && position != UINT32_MAX && position >= row->depth) {
      b->from_ms = now;
      b->n_from = position;
    }
    return;
  }
  uint32_t n_begun = 0, n_ended = 0;
  for (uint32_t i = 0; i < row->batch; i++) {
    n_begun += b->jobs[i].n_id > 0;
    n_ended += b->jobs[i].ended;
  }
  if (b->from_ms < 0 && n_begun == row->batch) {
    b->from_ms = now;
    b->n_from = b->n_token;
  } else if (b->to_ms < 0 && n_ended) {
    b->to_ms = now;
    b->n_token -= b->n_from;
  }
}

/* Runs a row once; *rate: tokens a second. */
static enum moe_code bench_once(struct bench *b, const struct bench_row *row, double *rate, struct moe_error *err) {
  uint32_t n_prompt = row->depth + row->n_prompt, n_predict = row->n_prompt ? 1 : row->n_gen + 1;
  if (!n_prompt) n_prompt = 1;
  int32_t *prompt = calloc((size_t)n_prompt * row->batch, sizeof *prompt);
  if (!prompt) return moe_fail(err, MOE_FAILED, "out of memory");
  for (size_t i = 0; i < (size_t)n_prompt * row->batch; i++) prompt[i] = bench_token(b);
  for (uint32_t i = 0; i < row->batch; i++)
    b->jobs[i] = (struct run_job){.request = {.prompt = prompt + (size_t)i * n_prompt,
                                              .n_prompt = n_prompt,
                                              .n_predict = n_predict,
                                              .sampling = {.top_p = 1},
                                              .ignore_eos = true}};
  b->row = row;
  b->n_token = b->n_from = 0;
  b->from_ms = row->n_prompt && !row->depth ? 0 : -1;
  b->to_ms = -1;
  enum moe_code code = run_jobs(b->scheduler, b->jobs, row->batch, bench_on_token, bench_on_step, b, err);
  if (!code && row->n_prompt)
    *rate = (n_prompt - b->n_from) * 1e3 / (b->jobs[0].first_ms - (row->depth ? b->from_ms : b->jobs[0].submit_ms));
  else if (!code)
    *rate = b->n_token * 1e3 / (b->to_ms - b->from_ms);
  for (uint32_t i = 0; i < row->batch; i++) run_job_deinit(&b->jobs[i]);
  free(prompt);
  return code;
}

static enum moe_code bench_row_run(struct bench *b, struct bench_row *row, struct moe_error *err) {
  double unmeasured, sorted[BENCH_MAX_REPEAT];
  enum moe_code code = MOE_OK;
  uint32_t n = (uint32_t)b->o.repeat;
  for (int i = 0; i < BENCH_WARM && !code; i++) code = bench_once(b, row, &unmeasured, err);
  time_t now = time(NULL);
  struct tm utc;
  strftime(row->time, sizeof row->time, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
  for (uint32_t i = 0; i < n && !code; i++) code = bench_once(b, row, &row->rate[i], err);
  if (code) return code;
  memcpy(sorted, row->rate, n * sizeof *sorted);
  row->rates = spread_of(sorted, n);
  return MOE_OK;
}

static void bench_name(const struct bench_row *row, char out[64]) {
  int at = snprintf(out, 64, "%s%u", row->n_prompt ? "pp" : "tg", row->n_prompt ? row->n_prompt : row->n_gen);
  if (row->depth) at += snprintf(out + at, 64 - (size_t)at, " @ d%u", row->depth);
  if (row->batch > 1) snprintf(out + at, 64 - (size_t)at, " x%u", row->batch);
}

static void bench_print(const struct bench *b, const struct bench_row *row) {
  struct engine_description d;
  engine_describe(b->scheduler, &d);
  char name[64];
  bench_name(row, name);
  printf("| %s %s | %.2f MiB | %.2f M | Vulkan %s | %s | %.2f | %.2f..%.2f |\n", b->manifest.model_name,
         b->manifest.model_quantization, (double)b->manifest.source_bytes / (1 << 20),
         (double)b->manifest.model_n_param / 1e6, d.tier, name, row->rates.median, row->rates.low, row->rates.high);
  fflush(stdout);
}

/* The names of llama-bench's object, where it has the same thing, then what it has not. A sample's nanoseconds are
 * those of the row's tokens at the sample's rate. */
static json_t *bench_json(const struct bench *b, const struct bench_row *row) {
  struct engine_description d;
  engine_describe(b->scheduler, &d);
  const struct img_manifest *m = &b->manifest;
  json_t *rates = json_array(), *times = json_array();
  double ns[BENCH_MAX_REPEAT];
  uint32_t n = (uint32_t)b->o.repeat;
  uint64_t window = b->o.window ? (uint64_t)b->o.window : m->memory_max_row;
  for (uint32_t i = 0; i < n; i++) {
    ns[i] = ((double)row->n_prompt + (double)row->n_gen * row->batch) * 1e9 / row->rate[i];
    json_array_append_new(rates, json_real(row->rate[i]));
    json_array_append_new(times, json_integer((json_int_t)ns[i]));
  }
  const struct spread time = spread_of(ns, n);
  return json_pack("{s:s,s:s,s:s,s:s,s:o,s:I,s:I,s:I,s:I,s:s,s:s,s:I,s:I,s:I,s:s,s:I,s:I,s:f,s:f,s:o,s:o,"
                   "s:s,s:I,s:f,s:f,s:f}",
                   "build_commit", MOE_VERSION, "gpu_info", d.device, "backends", "Vulkan", "model_filename", b->path,
                   "model_type", json_sprintf("%s %s", m->model_name, m->model_quantization), "model_size",
                   (json_int_t)m->source_bytes, "model_n_params", (json_int_t)m->model_n_param, "n_batch",
                   (json_int_t)window, "n_ubatch", (json_int_t)window, "type_k", m->state_kv, "type_v", m->state_kv,
                   "n_prompt", (json_int_t)row->n_prompt, "n_gen", (json_int_t)row->n_gen, "n_depth",
                   (json_int_t)row->depth, "test_time", row->time, "avg_ns", (json_int_t)time.mean, "stddev_ns",
                   (json_int_t)time.deviation, "avg_ts", row->rates.mean, "stddev_ts", row->rates.deviation,
                   "samples_ns", times, "samples_ts", rates, "tier", d.tier, "n_parallel", (json_int_t)row->batch,
                   "median_ts", row->rates.median, "min_ts", row->rates.low, "max_ts", row->rates.high);
}

/* Runs a row and prints it, or adds it to the JSON array. */
static enum moe_code bench_measure(struct bench *b, uint32_t n_prompt, uint32_t n_gen, uint32_t depth, uint32_t batch,
                                   json_t *array, struct moe_error *err) {
  struct bench_row *row = calloc(1, sizeof *row);
  if (!row) return moe_fail(err, MOE_FAILED, "out of memory");
  row->n_prompt = n_prompt;
  row->n_gen = n_gen;
  row->depth = depth;
  row->batch = batch;
  enum moe_code code = bench_row_run(b, row, err);
  if (!code && array)
    json_array_append_new(array, bench_json(b, row));
  else if (!code)
    bench_print(b, row);
  free(row);
  return code;
}

static enum moe_code bench_all(struct bench *b, const struct bench_list lists[4], json_t *array,
                               struct moe_error *err) {
  enum moe_code code = MOE_OK;
  if (!array)
    printf("| model | size | params | backend | test | t/s (median of %u) | smallest..largest |\n"
           "| --- | ---: | ---: | --- | ---: | ---: | ---: |\n",
           (uint32_t)b->o.repeat);
  for (uint32_t d = 0; d < lists[3].n && !code; d++) {
    uint32_t depth = lists[3].value[d];
    for (uint32_t i = 0; i < lists[0].n && !code; i++)
      if (lists[0].value[i]) code = bench_measure(b, lists[0].value[i], 0, depth, 1, array, err);
    for (uint32_t i = 0; i < lists[1].n && !code; i++)
      for (uint32_t k = 0; lists[1].value[i] && k < lists[2].n && !code; k++)
        code = bench_measure(b, 0, lists[1].value[i], depth, lists[2].value[k], array, err);
  }
  return code;
}

static uint32_t bench_largest(const struct bench_list *list) {
  uint32_t largest = 0;
  for (uint32_t i = 0; i < list->n; i++)
    if (list->value[i] > largest) largest = list->value[i];
  return largest;
}

static enum moe_code bench_open(struct bench *b, const struct bench_list lists[4], struct moe_error *err) {
  struct img image;
  enum moe_code code = img_open(b->path, &image, err);
  if (code) return code;
  uint64_t bytes;
  const void *text = img_section_data(&image, IMG_SECTION_MANIFEST, &bytes);
  code = img_manifest_parse(text, bytes, &b->manifest, err);
  img_close(&image);
  if (code) return code;
  uint32_t n_prompt = bench_largest(&lists[0]), n_gen = bench_largest(&lists[1]) + 2;
  uint32_t n_ctx = bench_largest(&lists[3]) + (n_prompt + 1 > n_gen ? n_prompt + 1 : n_gen);
  const struct engine_options options = {.image_path = b->path,
                                         .device = b->o.device,
                                         .n_ctx = b->o.n_ctx ? (uint32_t)b->o.n_ctx : n_ctx,
                                         .n_slot = b->o.n_slot ? (uint32_t)b->o.n_slot : bench_largest(&lists[2]),
                                         .cache_dir = b->o.cache_dir,
                                         .tier = b->o.tier,
                                         .window = (uint32_t)b->o.window,
                                         .patient = true};
  code = engine_open(&options, verbs_progress, NULL, &b->scheduler, err);
  if (!code) scheduler_get_limits(b->scheduler, &b->limits);
  return code;
}

static enum moe_code bench_lists(const struct bench_options *o, struct bench_list lists[4], struct moe_error *err) {
  enum moe_code code = bench_parse_list("-p", o->prompt, 1 << 24, &lists[0], err);
  if (!code) code = bench_parse_list("-n", o->gen, 1 << 24, &lists[1], err);
  if (!code) code = bench_parse_list("-b", o->batch, BENCH_MAX_BATCH, &lists[2], err);
  if (!code) code = bench_parse_list("-d", o->depth, 1 << 24, &lists[3], err);
  for (uint32_t i = 0; i < lists[2].n && !code; i++)
    if (!lists[2].value[i]) code = moe_fail(err, MOE_USAGE, "-b %s: allowed 1 to %d", o->batch, BENCH_MAX_BATCH);
  return code;
}

enum moe_code verb_bench(int argc, char *const *argv, struct moe_error *err) {
  static const struct option_table table = {.command = "moert bench",
                                            .summary = "Measures prompt and generation speed.",
                                            .positionals = "MODEL.img",
                                            .min_positional = 1,
                                            .max_positional = 1,
                                            .rows = bench_rows,
                                            .n_row = sizeof bench_rows / sizeof *bench_rows};
  struct bench *b = calloc(1, sizeof *b);
  if (!b) return moe_fail(err, MOE_FAILED, "out of memory");
  struct option_result r;
  struct bench_list lists[4];
  enum moe_code code = options_command(&table, argc, argv, &b->o, &r, err);
  if (code || r.help) {
    free(b);
    return code;
  }
  b->path = r.positional[0];
  code = bench_lists(&b->o, lists, err);
  if (!code) code = bench_open(b, lists, err);
  json_t *array = !code && !strcmp(b->o.output, "json") ? json_array() : NULL;
  if (!code) code = bench_all(b, lists, array, err);
  if (!code && array) {
    json_dumpf(array, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    putchar('\n');
  }
  json_decref(array);
  engine_close(b->scheduler);
  free(b);
  return code;
}
