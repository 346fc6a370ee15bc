/* scripted_engine.c: a scheduler without a device, for tests of the server: the prompt is a little program that says
 * what the answer is and what goes wrong.
 *
 * Token ids 0 to 255 are bytes, SCRIPTED_END ends a text. The program is the text before the first '|', the answer so
 * far what follows it, so that a replayed request goes on where it was. Commands, as NAME:ARGUMENT, separated by ',':
 *   say:TEXT    answer TEXT (up to the next ',' or '|')         count:N   answer "1 2 3 ... N"
 *   rand:N      answer N letters drawn by (seed, position)
 *   slow:MS     take so long for each token                      error:K   fail this request at token K
 *   escape:1   answer what came of making a socket and of starting a program
 *   lost:K      lose the device at token K (once)                die:K     die by SIGKILL at token K (once)
 *   dies:K      die by SIGKILL at token K whenever it comes      stall:K   hang at token K (once)
 *   frail:K     die by SIGKILL after K tokens from one engine
 * "Once" is remembered in the file that SCRIPT_ONCE names. engine_open takes its fate from the first line of the file
 * that SCRIPT_STARTS names, and removes that line: ok, decline MESSAGE, fail MESSAGE, crash, slow MS, fits N (a context
 * of N by default). With SCRIPT_CLOSE_HANGS an engine that lost its device hangs in engine_close, as a driver may. */
#include "scripted_engine.h"

#include "engine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { N_SLOT = 4, N_QUEUE = 4, N_CTX = 4096 };

struct live {
  bool used;
  struct request request;
  int32_t *token; /* prompt and emitted */
  uint32_t n_token, n_emitted;
};

struct scheduler {
  struct scheduler_limits limits;
  struct live live[256];
  bool lost;
};

static void sleep_ms(long ms) {
  usleep((useconds_t)ms * 1000);
}

enum moe_code engine_open(const struct engine_options *options, engine_progress_fn *progress, void *user,
                          struct scheduler **out, struct moe_error *err) {
  char word[64] = "ok", rest[256] = "", text[4096] = "";
  const char *path = getenv("SCRIPT_STARTS");
  FILE *file = path ? fopen(path, "r") : NULL;
  *out = NULL;
  if (file) {
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = 0;
    sscanf(text, "%63s %255[^\n]", word, rest);
    char *next = strchr(text, '\n');
    file = fopen(path, "w");
    if (next) fputs(next + 1, file);
    fclose(file);
  }
  progress(user, "upload", 1, 2);
  if (!strcmp(word, "decline")) return moe_fail(err, MOE_DECLINED, "%s", rest);
  if (!strcmp(word, "fail")) return moe_fail(err, MOE_FAILED, "%s", rest);
  if (!strcmp(word, "crash")) raise(SIGKILL);
  if (!strcmp(word, "slow")) sleep_ms(atol(rest));
  struct scheduler *s = calloc(1, sizeof *s);
  s->limits = (struct scheduler_limits){
      .n_ctx = options->n_ctx         ? options->n_ctx
               : strcmp(word, "fits") ? N_CTX
                                      : (uint32_t)atol(rest),
      .n_slot = options->n_slot ? options->n_slot : N_SLOT,
      .n_queue = N_QUEUE,
      .n_vocab = SCRIPTED_VOCAB,
  };
  *out = s;
  return MOE_OK;
}

void engine_describe(const struct scheduler *s, struct engine_description *description) {
  (void)s;
  *description = (struct engine_description){.device = "scripted", .tier = "base"};
}

void engine_close(struct scheduler *s) {
  if (s && s->lost && getenv("SCRIPT_CLOSE_HANGS")) sleep_ms(1000000);
  for (size_t i = 0; s && i < 256; i++) free(s->live[i].token);
  free(s);
}

void scheduler_get_limits(const struct scheduler *s, struct scheduler_limits *limits) {
  *limits = s->limits;
}

enum moe_code scheduler_submit(struct scheduler *s, const struct request *request, struct moe_error *err) {
  size_t n_live = 0;
  struct live *place = NULL;
  for (size_t i = 0; i < 256; i++) {
    n_live += s->live[i].used;
    if (!s->live[i].used && !place) place = &s->live[i];
  }
  if (request->n_prompt >= s->limits.n_ctx) return moe_fail(err, MOE_USAGE, "prompt too long");
  if (n_live >= s->limits.n_slot + s->limits.n_queue) return moe_fail(err, MOE_FAILED, "queue full");
  free(place->token);
  *place = (struct live){.used = true, .request = *request, .n_token = request->n_prompt};
  place->token = malloc(s->limits.n_ctx * sizeof(int32_t));
  memcpy(place->token, request->prompt, request->n_prompt * sizeof(int32_t));
  return MOE_OK;
}

static void finish(struct live *live, const struct scheduler_sink *sink, enum finish_reason reason,
                   const char *message) {
  live->used = false;
  sink->on_finish(sink->user, live->request.id, reason, message);
}

void scheduler_cancel(struct scheduler *s, uint64_t id, const struct scheduler_sink *sink) {
  for (size_t i = 0; i < 256; i++)
    if (s->live[i].used && s->live[i].request.id == id) finish(&s->live[i], sink, FINISH_CANCELLED, NULL);
}

bool scheduler_idle(const struct scheduler *s) {
  for (size_t i = 0; i < 256; i++)
    if (s->live[i].used) return false;
  return true;
}

/* Whether the program has the command; *argument is what follows it. */
static bool command(const char *program, const char *name, const char **argument) {
  char pattern[32];
  snprintf(pattern, sizeof pattern, "%s:", name);
  const char *found = strstr(program, pattern);
  *argument = found ? found + strlen(pattern) : "";
  return found != NULL;
}

/* Whether the program wants `name` to happen at token k; "once" events only the first time. */
static bool happens(const char *program, const char *name, uint32_t k, bool once) {
  const char *argument, *path = getenv("SCRIPT_ONCE");
  if (!command(program, name, &argument) || (uint32_t)atol(argument) != k) return false;
  if (!once) return true;
  int fd = path ? open(path, O_CREAT | O_EXCL | O_WRONLY, 0600) : -1;
  if (fd >= 0) close(fd);
  return fd >= 0;
}

/* The k-th token of the program's answer; position is absolute. */
static int32_t answer_token(const char *program, uint32_t k, uint64_t seed, uint32_t position) {
  const char *argument;
  if (command(program, "say", &argument)) {
    size_t length = strcspn(argument, ",");
    return k < length ? (unsigned char)argument[k] : SCRIPTED_END;
  }
  if (command(program, "count", &argument)) {
    uint32_t at = 0;
    for (long i = 1; i <= atol(argument); i++) {
      char number[24];
      uint32_t length = (uint32_t)snprintf(number, sizeof number, i > 1 ? " %ld" : "%ld", i);
      if (k < at + length) return (unsigned char)number[k - at];
      at += length;
    }
    return SCRIPTED_END;
  }
  if (command(program, "rand", &argument) && k < (uint32_t)atol(argument)) {
    uint64_t hash = (seed ^ (uint64_t)position * 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
    return (int32_t)('a' + (hash >> 33) % 26);
  }
  if (command(program, "escape", &argument)) {
    char tried[128];
    errno = 0;
    int length =
        snprintf(tried, sizeof tried, "socket: %s; ", strerror(socket(AF_INET, SOCK_STREAM, 0) < 0 ? errno : 0));
    execl("/bin/true", "true", (char *)NULL);
    snprintf(tried + length, sizeof tried - (size_t)length, "exec: %s", strerror(errno));
    return k < strlen(tried) ? tried[k] : SCRIPTED_END;
  }
  return SCRIPTED_END;
}

static void emit(struct live *live, int32_t token, const struct scheduler_sink *sink) {
  struct token_logprob top[SCHEDULER_MAX_LOGPROB];
  bool is_end = token == SCRIPTED_END && !live->request.ignore_eos;
  for (int i = 0; i < SCHEDULER_MAX_LOGPROB; i++)
    top[i] = (struct token_logprob){.token = (token + i) % SCRIPTED_VOCAB, .logprob = -0.25F - (float)i};
  struct token_event event = {.id = live->request.id,
                              .token = token,
                              .is_end = is_end,
                              .logprob = live->request.n_logprob ? -0.25F : 0,
                              .n_top = live->request.n_logprob,
                              .top = top};
  sink->on_token(sink->user, &event);
  live->token[live->n_token++] = token;
  live->n_emitted++;
}

static enum moe_code advance(struct scheduler *s, struct live *live, const struct scheduler_sink *sink,
                             struct moe_error *err) {
  char program[4097];
  uint32_t n = 0;
  while (n < live->n_token && live->token[n] != '|' && n < 4096) {
    program[n] = (char)live->token[n];
    n++;
  }
  program[n] = 0;
  uint32_t k = live->n_token > n ? live->n_token - n - 1 : 0;
  const char *argument;
  if (command(program, "slow", &argument)) sleep_ms(atol(argument));
  if (happens(program, "die", k, true) || happens(program, "dies", k, false)) raise(SIGKILL);
  if (command(program, "frail", &argument) && live->n_emitted == (uint32_t)atol(argument)) raise(SIGKILL);
  if (happens(program, "lost", k, true)) {
    s->lost = true;
    return moe_fail(err, MOE_FAILED, "the device is lost");
  }
  while (happens(program, "stall", k, true)) sleep_ms(1000000);
  if (happens(program, "error", k, false)) {
    finish(live, sink, FINISH_ERROR, "scripted failure");
    return MOE_OK;
  }
  int32_t token = answer_token(program, k, live->request.sampling.seed, live->n_token);
  emit(live, token, sink);
  if (token == SCRIPTED_END && !live->request.ignore_eos)
    finish(live, sink, FINISH_STOP, NULL);
  else if (live->n_emitted == live->request.n_predict || live->n_token == s->limits.n_ctx)
    finish(live, sink, FINISH_LENGTH, NULL);
  return MOE_OK;
}

enum moe_code scheduler_step(struct scheduler *s, const struct scheduler_sink *sink, struct moe_error *err) {
  uint32_t n_active = 0;
  usleep(500);
  for (size_t i = 0; i < 256 && n_active < s->limits.n_slot; i++) {
    if (!s->live[i].used) continue;
    n_active++;
    enum moe_code code = advance(s, &s->live[i], sink, err);
    if (code) return code;
  }
  return MOE_OK;
}
