/* verb_verify.c: `moert verify`: whether an image is what its compiler wrote, and answers on this device what it
 * should.
 *
 * Owns: the self-test's bar. Does not own: hashes (img_reader_verify).
 * The bar, as for the goldens: the same tokens as long as the expected best two are more than 0.05 apart; over the
 * positions up to the first difference, |difference| of the log-probabilities of the expected best 4: mean under 0.01,
 * largest under 0.15. */
#include "load.h"
#include "run_jobs.h"
#include "verbs.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define VERIFY_TIE 0.05
#define VERIFY_MEAN 0.01
#define VERIFY_LARGEST 0.15
enum { VERIFY_BEST = 4 };

struct verify_options {
#define OPTION OPTION_FIELD
#include "verb_verify_options.def"
#undef OPTION
};

static const struct option_row verify_rows[] = {
#define OPTION(...) OPTION_ROW(struct verify_options, __VA_ARGS__)
#include "verb_verify_options.def"
#undef OPTION
};

/* What the image expects, as JSON arrays borrowed from root. */
struct verify_expected {
  json_t *root;
  const json_t *prompt_ids, *ids, *logprobs;
  size_t n_id;
};

static enum moe_code verify_parse(const struct img *image, struct verify_expected *e, struct moe_error *err) {
  uint64_t bytes;
  const uint8_t *data = img_section_data(image, IMG_SECTION_SELFTEST, &bytes);
  if (!data) return moe_fail(err, MOE_DECLINED, "%s: has no SELFTEST section", image->path);
  json_error_t at;
  e->root = json_loadb((const char *)data, bytes, 0, &at);
  e->prompt_ids = json_object_get(e->root, "prompt_ids");
  e->ids = json_object_get(e->root, "ids");
  e->logprobs = json_object_get(e->root, "logprobs");
  e->n_id = json_array_size(e->ids);
  if (!json_array_size(e->prompt_ids) || !e->n_id || json_array_size(e->logprobs) != e->n_id)
    return moe_fail(err, MOE_FAILED, "SELFTEST: needs prompt_ids, ids and as many logprobs");
  return MOE_OK;
}

/* Expected id and log-probability k at a position; false: none. */
static bool verify_top(const struct verify_expected *e, size_t position, size_t k, json_int_t *id, double *logprob) {
  const json_t *pair = json_array_get(json_array_get(e->logprobs, position), k);
  if (!json_is_integer(json_array_get(pair, 0)) || !json_is_number(json_array_get(pair, 1))) return false;
  *id = json_integer_value(json_array_get(pair, 0));
  *logprob = json_number_value(json_array_get(pair, 1));
  return true;
}

/* The found log-probability of an id at a position; NAN when it is not among the reported. */
static double verify_found(const struct run_job *job, size_t position, json_int_t id) {
  uint32_t n = job->request.n_logprob;
  for (uint32_t k = 0; k < n; k++)
    if (job->top[position * n + k].token == id) return (double)job->top[position * n + k].logprob;
  return (double)NAN;
}

/* Compares up to the first token that differs. */
static enum moe_code verify_compare(const struct verify_expected *e, const struct run_job *job, struct moe_error *err) {
  double sum = 0, largest = 0;
  size_t n = 0, position = 0;
  bool same = true;
  for (; position < e->n_id && position < job->n_id && same; position++) {
    json_int_t id = 0, second_id = 0;
    double expected, second = -1e9;
    for (size_t k = 0; k < VERIFY_BEST && verify_top(e, position, k, &id, &expected); k++) {
      double found = verify_found(job, position, id);
      double difference = isnan(found) ? 1e9 : fabs(found - expected);
      sum += difference;
      n++;
      if (difference > largest || isnan(difference)) largest = difference;
    }
    json_int_t best = json_integer_value(json_array_get(e->ids, position));
    same = job->ids[position] == best;
    if (same || !verify_top(e, position, 0, &id, &expected) || !verify_top(e, position, 1, &second_id, &second))
      continue;
    if (expected - second > VERIFY_TIE)
      return moe_fail(err, MOE_FAILED, "self-test: position %zu: token %d, expected %lld (ahead by %.3f)", position,
                      job->ids[position], (long long)best, expected - second);
  }
  double mean = n ? sum / (double)n : 0;
  if (!n || mean >= VERIFY_MEAN || largest >= VERIFY_LARGEST)
    return moe_fail(err, MOE_FAILED,
                    "self-test: log-probabilities differ by %.4f (mean), %.4f (largest); allowed under "
                    "%.2f and %.2f",
                    mean, largest, VERIFY_MEAN, VERIFY_LARGEST);
  printf("self-test: %zu of %zu positions compared, log-probabilities differ by %.5f (mean), %.5f (largest): passed\n",
         position, e->n_id, mean, largest);
  return MOE_OK;
}

static enum moe_code verify_self_test(const struct img *image, const struct engine_options *options,
                                      struct moe_error *err) {
  struct verify_expected e = {0};
  struct run_job job = {0};
  struct scheduler *s = NULL;
  enum moe_code code = verify_parse(image, &e, err);
  size_t n_prompt = json_array_size(e.prompt_ids);
  int32_t *prompt = calloc(n_prompt ? n_prompt : 1, sizeof *prompt);
  if (!code && !prompt) code = moe_fail(err, MOE_FAILED, "out of memory");
  for (size_t i = 0; i < n_prompt && !code; i++)
    prompt[i] = (int32_t)json_integer_value(json_array_get(e.prompt_ids, i));
  if (!code) code = engine_open(options, verbs_progress, NULL, &s, err);
  job.request = (struct request){.prompt = prompt,
                                 .n_prompt = (uint32_t)n_prompt,
                                 .n_predict = (uint32_t)e.n_id,
                                 .sampling = {.top_p = 1},
                                 .n_logprob = SCHEDULER_MAX_LOGPROB};
  if (!code) code = run_jobs(s, &job, 1, NULL, NULL, NULL, err);
  if (!code) code = verify_compare(&e, &job, err);
  engine_close(s);
  run_job_deinit(&job);
  free(prompt);
  json_decref(e.root);
  return code;
}

enum moe_code verb_verify(int argc, char *const *argv, struct moe_error *err) {
  static const struct option_table table = {
      .command = "moert verify",
      .summary = "Compares every byte of an image with its hash tree and checks its structures.",
      .positionals = "MODEL.img",
      .min_positional = 1,
      .max_positional = 1,
      .rows = verify_rows,
      .n_row = sizeof verify_rows / sizeof *verify_rows};
  struct verify_options o;
  struct option_result r;
  enum moe_code code = options_command(&table, argc, argv, &o, &r, err);
  if (code || r.help) return code;
  long n_cpu = sysconf(_SC_NPROCESSORS_ONLN);
  struct load load;
  code = load_map(r.positional[0], &load, err);
  if (!code) code = img_reader_verify(&load.image, n_cpu > 0 ? (unsigned)n_cpu : 1, NULL, err);
  if (!code) code = load_check(&load, err);
  if (!code)
    printf("%s: all %llu bytes are what the compiler wrote; structures, bounds and hazards are in order\n",
           r.positional[0], (unsigned long long)load.image.file_bytes);
  const struct engine_options options = {.image_path = r.positional[0],
                                         .device = o.device,
                                         .n_ctx = (uint32_t)o.n_ctx,
                                         .n_slot = o.n_slot ? (uint32_t)o.n_slot : 1,
                                         .cache_dir = o.cache_dir,
                                         .tier = o.tier,
                                         .patient = true};
  if (!code && o.self_test) code = verify_self_test(&load.image, &options, err);
  load_close(&load);
  return code;
}
