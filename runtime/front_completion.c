#include "front_completion.h"

#include "front_logprobs.h"
#include "front_reply.h"
#include "front_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

struct front_completion {
  struct front_engine *engine;
  const struct front_model *model;
  struct http_request *http;
  struct journal_entry *entry;
  struct front_params params;
  struct reply_head head;
  struct front_text text;
  struct front_logprobs logprobs; /* when it is streamed only those that were not sent */
  char *answer;                   /* its text so far, when it is not streamed */
  size_t n_answer, answer_capacity;
  struct reply_usage usage;
  double start_ms, first_ms, last_ms;
};

static double front_completion_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void front_completion_free(struct front_completion *c) {
  front_params_deinit(&c->params);
  front_text_deinit(&c->text);
  front_logprobs_deinit(&c->logprobs);
  free(c->answer);
  free(c);
}

/* Sends one event of a stream; takes the reference. logprobs: of reply_dump. */
static void front_completion_send(struct front_completion *c, json_t *event, const char *logprobs) {
  size_t bytes = 0;
  char *line = reply_dump(event, "data: ", logprobs, "\n\n", &bytes);
  if (line) http_stream_write(c->http, line, bytes);
  free(line);
}

static bool front_completion_append(struct front_completion *c, const char *text, size_t n) {
  if (c->answer_capacity - c->n_answer < n) {
    size_t capacity = (c->n_answer + n) * 2 + 256;
    char *answer = realloc(c->answer, capacity);
    if (!answer) return false;
    c->answer = answer;
    c->answer_capacity = capacity;
  }
  if (n) memcpy(c->answer + c->n_answer, text, n);
  c->n_answer += n;
  return true;
}

/* Sends the text that is ready, n bytes of it, and the log-probabilities that are. */
static bool front_completion_send_text(struct front_completion *c, const char *text, size_t n) {
  char *logprobs = c->params.logprobs ? front_logprobs_text(&c->logprobs) : NULL;
  if (c->params.logprobs && !logprobs) return false;
  front_completion_send(c, reply_text_chunk(&c->head, text, n), logprobs);
  free(logprobs);
  front_logprobs_drop(&c->logprobs);
  return true;
}

/* Gives out the text that is ready, with its tokens' log-probabilities. last: nothing follows. */
static bool front_completion_flush(struct front_completion *c, bool last) {
  size_t n = 0;
  const char *text = front_text_ready(&c->text, &n);
  if (!n && !last) return true;
  bool ok = true;
  front_logprobs_advance(&c->logprobs, c->text.n_taken + n, last && !c->text.stopped);
  if (!c->params.stream)
    ok = front_completion_append(c, text, n);
  else if (n || c->logprobs.n_ready)
    ok = front_completion_send_text(c, text, n);
  front_text_drop(&c->text);
  return ok;
}

/* Ends with an error: as an event when the stream has begun, else as the reply. Frees the completion. */
static void front_completion_fail(struct front_completion *c, const struct front_error *error) {
  if (http_stream_begun(c->http)) {
    front_completion_send(c, front_error_json(error), NULL);
    http_stream_end(c->http);
  } else {
    char *text = front_error_text(error);
    http_reply(c->http, error->status, "application/json", NULL, text ? text : "", text ? strlen(text) : 0);
    free(text);
  }
  front_completion_free(c);
}

static void front_completion_reply_whole(struct front_completion *c, const char *finish) {
  size_t bytes = 0;
  char *logprobs = c->params.logprobs ? front_logprobs_text(&c->logprobs) : NULL, *text = NULL;
  if (logprobs || !c->params.logprobs)
    text = reply_dump(reply_whole(&c->head, c->answer ? c->answer : "", c->n_answer, finish, &c->usage), "", logprobs,
                      "", &bytes);
  free(logprobs);
  if (text)
    http_reply(c->http, 200, "application/json", NULL, text, bytes);
  else
    http_reply(c->http, 500, "application/json", NULL, "{}", 2);
  free(text);
}

/* Ends in the ordinary way and frees the completion. */
static void front_completion_end(struct front_completion *c, const char *finish) {
  c->usage.prompt_ms = c->usage.n_completion ? c->first_ms - c->start_ms : 0;
  c->usage.completion_ms = c->usage.n_completion ? c->last_ms - c->first_ms : 0;
  if (!front_text_finish(&c->text) || !front_completion_flush(c, true)) {
    struct front_error error = {0};
    front_fail(&error, 500, NULL, NULL, "out of memory");
    front_completion_fail(c, &error);
    return;
  }
  if (c->params.stream) {
    front_completion_send(c, reply_finish_chunk(&c->head, finish, &c->usage), NULL);
    if (c->params.include_usage) front_completion_send(c, reply_usage_chunk(&c->head, &c->usage), NULL);
    http_stream_write(c->http, "data: [DONE]\n\n", 14);
    http_stream_end(c->http);
  } else {
    front_completion_reply_whole(c, finish);
  }
  front_completion_free(c);
}

static void front_completion_on_token(void *user, const struct ipc_event *event) {
  struct front_completion *c = user;
  c->last_ms = front_completion_now();
  if (c->usage.n_completion++ == 0) c->first_ms = c->last_ms;
  bool ok = true;
  if (!event->is_end) {
    size_t n = 0, start = front_text_end(&c->text);
    const char *bytes = c->model->piece(c->model->user, event->token, true, &n);
    ok = front_text_add(&c->text, bytes, n);
    if (c->params.logprobs)
      ok = ok && front_logprobs_add(&c->logprobs,
                                    reply_token_logprobs(c->model, c->head.chat, event, c->params.n_top, start), start);
    ok = ok && front_completion_flush(c, false);
  }
  if (ok && !c->text.stopped) return;
  front_engine_cancel(c->engine, c->entry);
  if (ok) {
    front_completion_end(c, "stop");
    return;
  }
  struct front_error error = {0};
  front_fail(&error, 500, NULL, NULL, "out of memory");
  front_completion_fail(c, &error);
}

static void front_completion_on_finish(void *user, enum finish_reason reason, const char *message) {
  struct front_completion *c = user;
  if (reason == FINISH_STOP || reason == FINISH_LENGTH) {
    front_completion_end(c, reason == FINISH_STOP ? "stop" : "length");
    return;
  }
  struct front_error error = {0};
  struct front_engine_status status;
  front_engine_get_status(c->engine, &status);
  bool lost = status.state != FRONT_ENGINE_READY;
  front_fail(&error, lost ? 503 : 500, lost ? "engine_lost" : "engine_error", NULL, "the request failed: %s",
             message ? message : "it was cancelled by the engine");
  front_completion_fail(c, &error);
}

static void front_completion_on_close(void *user) {
  struct front_completion *c = user;
  front_engine_cancel(c->engine, c->entry);
  front_completion_free(c);
}

static void front_completion_set_id(struct reply_head *head) {
  static const char digits[] = "0123456789abcdefghijklmnopqrstuv";
  unsigned char random[24] = {0};
  if (getrandom(random, sizeof random, 0) < 0) random[0] = 1;
  int n = snprintf(head->id, sizeof head->id, "%s-", head->chat ? "chatcmpl" : "cmpl");
  for (size_t i = 0; i < sizeof random; i++) head->id[(size_t)n + i] = digits[random[i] % 32];
  head->id[(size_t)n + sizeof random] = 0;
}

bool front_completion_start(struct front_engine *engine, const struct front_model *model, struct http_request *http,
                            struct front_params *params, const int32_t *prompt, uint32_t n_prompt, uint32_t n_predict,
                            struct front_error *error) {
  struct front_completion *c = calloc(1, sizeof *c);
  if (!c) {
    front_params_deinit(params);
    return front_fail(error, 500, NULL, NULL, "out of memory");
  }
  c->engine = engine;
  c->model = model;
  c->http = http;
  c->params = *params;
  memset(params, 0, sizeof *params);
  c->head = (struct reply_head){.chat = c->params.chat, .created = time(NULL), .model = model->name};
  front_completion_set_id(&c->head);
  front_text_init(&c->text, c->params.stop, c->params.n_stop);
  c->params.n_stop = 0;
  c->logprobs.chat = c->head.chat;
  c->usage.n_prompt = n_prompt;
  c->start_ms = front_completion_now();
  /* The chosen token's log-probability comes only with a list of at least one. */
  uint32_t n_logprob = !c->params.logprobs ? 0 : c->params.n_top ? c->params.n_top : 1;
  struct request request = {
      .prompt = prompt,
      .n_prompt = n_prompt,
      .n_predict = n_predict,
      .sampling = c->params.sampling,
      .n_logprob = n_logprob,
      .ignore_eos = c->params.ignore_eos,
  };
  struct journal_sink sink = {c, front_completion_on_token, front_completion_on_finish};
  c->entry = front_engine_submit(engine, &request, &sink);
  if (!c->entry) {
    front_completion_free(c);
    return front_fail(error, 500, NULL, NULL, "out of memory");
  }
  http_request_on_close(http, front_completion_on_close, c);
  if (c->params.stream) {
    http_stream_begin(http, "text/event-stream");
    if (c->head.chat) front_completion_send(c, reply_role_chunk(&c->head), NULL);
  }
  return true;
}
