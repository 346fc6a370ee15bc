/* verb_run.c: `moert run`: continues prompts in this process, without a server.
 *
 * Owns: reading prompts, printing text or JSON. Does not own: running (run_jobs.h), tokens (tokenizer.h), the chat
 * template (chat.h). */
#include "chat.h"
#include "img_reader.h"
#include "run_jobs.h"
#include "tokenizer.h"
#include "verbs.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { RUN_MAX_PROMPT = 4096 }; /* prompts of one --ids file */

struct run_options {
#define OPTION OPTION_FIELD
#include "verb_run_options.def"
#undef OPTION
};

static const struct option_row run_rows[] = {
#define OPTION(...) OPTION_ROW(struct run_options, __VA_ARGS__)
#include "verb_run_options.def"
#undef OPTION
};

static const struct option_table run_table = {.command = "moert run",
                                              .summary = "Continues a prompt and prints the text as it comes.",
                                              .positionals = "MODEL.img [PROMPT]",
                                              .min_positional = 1,
                                              .max_positional = 2,
                                              .rows = run_rows,
                                              .n_row = sizeof run_rows / sizeof *run_rows};

struct run {
  struct run_options o;
  const char *image_path, *prompt;
  struct img image;
  struct tokenizer *tokenizer; /* NULL: the image has none */
  struct tokenizer_stream stream;
  struct scheduler *scheduler;
  struct run_job *jobs;
  int32_t **prompts; /* [n_job], owned */
  uint32_t n_job;
  bool several; /* --ids held an array of arrays */
  double load_ms;
};

/* ---- prompts ---- */

static enum moe_code run_add_prompt(struct run *run, int32_t *ids, size_t n, struct moe_error *err) {
  if (!n || n > UINT32_MAX) {
    free(ids);
    return moe_fail(err, MOE_USAGE, "prompt %u is empty", run->n_job);
  }
  run->prompts[run->n_job] = ids;
  run->jobs[run->n_job++].request = (struct request){.prompt = ids, .n_prompt = (uint32_t)n};
  return MOE_OK;
}

static enum moe_code run_add_array(struct run *run, const json_t *array, struct moe_error *err) {
  size_t n = json_array_size(array);
  int32_t *ids = calloc(n ? n : 1, sizeof *ids);
  if (!ids) return moe_fail(err, MOE_FAILED, "out of memory for a prompt of %zu tokens", n);
  for (size_t i = 0; i < n; i++) {
    const json_t *id = json_array_get(array, i);
    json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    if (value < 0 || value > INT32_MAX) {
      free(ids);
      return moe_fail(err, MOE_USAGE, "--ids %s: prompt %u, element %zu is not a token id", run->o.ids, run->n_job, i);
    }
    ids[i] = (int32_t)value;
  }
  return run_add_prompt(run, ids, n, err);
}

static enum moe_code run_room(struct run *run, size_t n, struct moe_error *err) {
  run->jobs = calloc(n, sizeof *run->jobs);
  run->prompts = calloc(n, sizeof *run->prompts);
  return run->jobs && run->prompts ? MOE_OK : moe_fail(err, MOE_FAILED, "out of memory");
}

static enum moe_code run_read_ids(struct run *run, struct moe_error *err) {
  json_error_t at;
  json_t *root = strcmp(run->o.ids, "-") ? json_load_file(run->o.ids, 0, &at) : json_loadf(stdin, 0, &at);
  if (!root) return moe_fail(err, MOE_FAILED, "--ids %s: line %d: %s", run->o.ids, at.line, at.text);
  size_t n = json_array_size(root);
  run->several = n && json_is_array(json_array_get(root, 0));
  enum moe_code code = MOE_OK;
  if (!n || (run->several && n > RUN_MAX_PROMPT))
    code = moe_fail(err, MOE_USAGE, "--ids %s: needs an array of token ids, or of 1 to %d such arrays", run->o.ids,
                    RUN_MAX_PROMPT);
  if (!code) code = run_room(run, run->several ? n : 1, err);
  for (size_t i = 0; !code && run->several && i < n; i++) code = run_add_array(run, json_array_get(root, i), err);
  if (!code && !run->several) code = run_add_array(run, root, err);
  json_decref(root);
  return code;
}

/* The prompt text behind a user's message. *text: malloc'd. */
static enum moe_code run_chat(struct run *run, char **text, size_t *length, struct moe_error *err) {
  uint64_t bytes;
  const uint8_t *data = img_section_data(&run->image, IMG_SECTION_CHAT, &bytes);
  if (!data) return moe_fail(err, MOE_DECLINED, "%s: has no chat template; run without --chat", run->image_path);
  struct img_chat section;
  struct chat *chat = NULL;
  enum moe_code code = img_chat_open(data, bytes, &section, err);
  if (!code) code = chat_create(&section, &chat, err);
  json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", run->prompt);
  char *dumped = messages ? json_dumps(messages, 0) : NULL;
  if (!code && !dumped) code = moe_fail(err, MOE_USAGE, "the prompt is not UTF-8");
  if (!code) code = chat_render(chat, dumped, NULL, NULL, text, length, err);
  free(dumped);
  json_decref(messages);
  chat_destroy(chat);
  return code;
}

static enum moe_code run_encode(struct run *run, struct moe_error *err) {
  if (!run->prompt) return moe_fail(err, MOE_USAGE, "give a PROMPT or --ids FILE (moert run --help)");
  if (!run->tokenizer)
    return moe_fail(err, MOE_DECLINED, "%s: has no tokenizer; give the prompt as --ids FILE", run->image_path);
  char *text = NULL;
  size_t length = strlen(run->prompt), n = 0;
  uint32_t *ids = NULL;
  unsigned flags = TOKENIZER_PARSE_SPECIAL | (run->o.chat ? 0 : TOKENIZER_ADD_SPECIAL);
  enum moe_code code = run_room(run, 1, err);
  if (!code && run->o.chat) code = run_chat(run, &text, &length, err);
  if (!code) code = tokenizer_encode(run->tokenizer, text ? text : run->prompt, length, flags, SIZE_MAX, &ids, &n, err);
  free(text);
  return code ? code : run_add_prompt(run, (int32_t *)ids, n, err);
}

/* ---- output ---- */

/* Text as it comes, when there is one prompt and no --json. An output that takes no more (a closed pipe) ends the run.
 */
static enum moe_code run_print_token(void *user, struct run_job *job, const struct token_event *event,
                                     struct moe_error *err) {
  struct run *run = user;
  (void)job;
  const char *text;
  size_t length;
  if (event->is_end) return MOE_OK;
  enum moe_code code =
      tokenizer_stream_add(&run->stream, run->tokenizer, (uint32_t)event->token, true, &text, &length, err);
  if (code) return code;
  fwrite(text, 1, length, stdout);
  return verbs_flush(err);
}

static enum moe_code run_text(const struct run *run, const struct run_job *job, char **text, size_t *length,
                              struct moe_error *err) {
  if (run->tokenizer)
    return tokenizer_decode(run->tokenizer, (const uint32_t *)job->ids, job->n_id, true, text, length, err);
  *text = calloc(1, 1);
  *length = 0;
  return *text ? MOE_OK : moe_fail(err, MOE_FAILED, "out of memory");
}

static json_t *run_logprobs(const struct run_job *job) {
  json_t *all = json_array();
  uint32_t n = job->request.n_logprob;
  for (uint32_t i = 0; n && i < job->n_id; i++) {
    json_t *position = json_array();
    for (uint32_t k = 0; k < n; k++) {
      const struct token_logprob *top = &job->top[(size_t)i * n + k];
      /* JSON has no infinity; an impossible token is as far away as a float can say */
      double logprob = isfinite(top->logprob) ? (double)top->logprob : -3.4e38;
      json_array_append_new(position, json_pack("[I,f]", (json_int_t)top->token, logprob));
    }
    json_array_append_new(all, position);
  }
  return all;
}

/* Text that may be cut inside a character, as JSON: what is no UTF-8 becomes U+FFFD. */
static json_t *run_text_json(const struct run *run, const struct run_job *job) {
  struct tokenizer_stream stream = {0};
  json_t *parts = json_string("");
  for (uint32_t i = 0; run->tokenizer && i <= job->n_id; i++) {
    const char *text;
    size_t length;
    enum moe_code code =
        i < job->n_id ? tokenizer_stream_add(&stream, run->tokenizer, (uint32_t)job->ids[i], true, &text, &length, NULL)
                      : tokenizer_stream_finish(&stream, &text, &length, NULL);
    if (code || !length) continue;
    json_t *joined = json_pack("s%+%", json_string_value(parts), json_string_length(parts), text, length);
    json_decref(parts);
    parts = joined;
  }
  tokenizer_stream_deinit(&stream);
  return parts;
}

static json_t *run_ids_json(const int32_t *ids, uint32_t n) {
  json_t *array = json_array();
  for (uint32_t i = 0; i < n; i++) json_array_append_new(array, json_integer(ids[i]));
  return array;
}

/* The object of DESIGN.md for one prompt. prompt_ms: submit to first token; predicted_ms: first to last token. */
static json_t *run_json(const struct run *run, const struct run_job *job) {
  struct engine_description description;
  engine_describe(run->scheduler, &description);
  return json_pack("{s:o,s:o,s:o,s:o,s:{s:f,s:f,s:I,s:f,s:I,s:f},s:s,s:s}", "prompt_ids",
                   run_ids_json(job->request.prompt, job->request.n_prompt), "ids", run_ids_json(job->ids, job->n_id),
                   "text", run_text_json(run, job), "logprobs", run_logprobs(job), "timings", "load_ms", run->load_ms,
                   "first_token_ms", job->first_ms, "prompt_tokens", (json_int_t)job->request.n_prompt, "prompt_ms",
                   job->first_ms - job->submit_ms, "predicted_tokens", (json_int_t)job->n_id, "predicted_ms",
                   job->last_ms - job->first_ms, "device", description.device, "tier", description.tier);
}

static enum moe_code run_print_json(const struct run *run, struct moe_error *err) {
  json_t *out = run->several ? json_array() : run_json(run, &run->jobs[0]);
  for (uint32_t i = 0; run->several && i < run->n_job; i++) json_array_append_new(out, run_json(run, &run->jobs[i]));
  if (!out || (run->several && json_array_size(out) != run->n_job))
    return moe_fail(err, MOE_FAILED, "out of memory for the answer");
  json_dumpf(out, stdout, JSON_COMPACT | JSON_REAL_PRECISION(8));
  putchar('\n');
  json_decref(out);
  return MOE_OK;
}

/* Several prompts: each text after the other. One: what the stream still holds. */
static enum moe_code run_print_text(struct run *run, struct moe_error *err) {
  char *text;
  size_t length;
  const char *rest;
  enum moe_code code = MOE_OK;
  if (!run->several) {
    code = tokenizer_stream_finish(&run->stream, &rest, &length, err);
    if (!code) fwrite(rest, 1, length, stdout);
    putchar('\n');
  }
  for (uint32_t i = 0; run->several && i < run->n_job && !code; i++) {
    code = run_text(run, &run->jobs[i], &text, &length, err);
    if (code) break;
    fwrite(text, 1, length, stdout);
    putchar('\n');
    free(text);
  }
  return code;
}

/* ---- the verb ---- */

static enum moe_code run_open(struct run *run, struct moe_error *err) {
  enum moe_code code = img_open(run->image_path, &run->image, err);
  if (code) return code;
  uint64_t bytes;
  const uint8_t *section = img_section_data(&run->image, IMG_SECTION_TOKENIZER, &bytes);
  code = section ? tokenizer_create(section, bytes, &run->tokenizer, err) : MOE_OK;
  if (!code && !run->tokenizer && !run->o.json)
    code = moe_fail(err, MOE_DECLINED, "%s: has no tokenizer; use --ids and --json", run->image_path);
  if (!code) code = run->o.ids ? run_read_ids(run, err) : run_encode(run, err);
  return code;
}

static enum moe_code run_engine(struct run *run, struct moe_error *err) {
  uint32_t n_slot = (uint32_t)run->o.n_slot;
  if (!n_slot) n_slot = run->n_job < 64 ? run->n_job : 64;
  const struct engine_options options = {.image_path = run->image_path,
                                         .device = run->o.device,
                                         .n_ctx = (uint32_t)run->o.n_ctx,
                                         .n_slot = n_slot,
                                         .cache_dir = run->o.cache_dir,
                                         .tier = run->o.tier,
                                         .window = (uint32_t)run->o.window,
                                         .patient = run->o.window > 0};
  enum moe_code code = engine_open(&options, verbs_progress, NULL, &run->scheduler, err);
  run->load_ms = verbs_now_ms();
  return code;
}

static void run_requests(struct run *run) {
  uint64_t seed = (uint64_t)run->o.seed;
  if (run->o.seed < 0 && getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = (uint64_t)(verbs_now_ms() * 1e6);
  for (uint32_t i = 0; i < run->n_job; i++) {
    struct request *r = &run->jobs[i].request;
    r->n_predict = run->o.n_predict ? (uint32_t)run->o.n_predict : UINT32_MAX;
    r->sampling = (struct sampling_params){.temperature = (float)run->o.temperature,
                                           .top_k = (uint32_t)run->o.top_k,
                                           .top_p = (float)run->o.top_p,
                                           .min_p = (float)run->o.min_p,
                                           .seed = seed + i};
    r->n_logprob = (uint32_t)run->o.n_logprob;
    r->ignore_eos = run->o.ignore_eos;
  }
}

static void run_deinit(struct run *run) {
  engine_close(run->scheduler);
  tokenizer_stream_deinit(&run->stream);
  tokenizer_destroy(run->tokenizer);
  for (uint32_t i = 0; i < run->n_job; i++) {
    run_job_deinit(&run->jobs[i]);
    free(run->prompts[i]);
  }
  free(run->jobs);
  free(run->prompts);
  if (run->image.map) img_close(&run->image);
}

enum moe_code verb_run(int argc, char *const *argv, struct moe_error *err) {
  struct run run = {0};
  struct option_result r;
  enum moe_code code = options_command(&run_table, argc, argv, &run.o, &r, err);
  if (code || r.help) return code;
  run.image_path = r.positional[0];
  run.prompt = r.positional[1];
  if (run.prompt && run.o.ids) return moe_fail(err, MOE_USAGE, "give a PROMPT or --ids FILE, not both");
  code = run_open(&run, err);
  if (!code) code = run_engine(&run, err);
  if (!code) {
    run_requests(&run);
    bool stream = !run.o.json && !run.several;
    code = run_jobs(run.scheduler, run.jobs, run.n_job, stream ? run_print_token : NULL, NULL, &run, err);
  }
  if (!code) code = run.o.json ? run_print_json(&run, err) : run_print_text(&run, err);
  run_deinit(&run);
  return code;
}
