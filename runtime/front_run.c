/* front_run.c: the front process from command line to exit.
 *
 * Owns: the event loop, signals, the order of starting and stopping. Does not own: what the parts do.
 * Invariants: a socket listens before the engine starts to load, so that a wrong address fails at once and /health
 * answers from the first moment; after SIGTERM the exit code is 0 however many requests had to be cut. */
#include "front_run.h"

#include "front_api.h"
#include "front_image.h"
#include "verbs.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

static const struct option_row front_run_rows[] = {
#define OPTION(...) OPTION_ROW(struct serve_options, __VA_ARGS__)
#include "serve_options.def"
#undef OPTION
};

const struct option_table front_run_table = {
    .command = "moert",
    .summary = "Serves an image over HTTP with OpenAI's API.",
    .positionals = "MODEL.img",
    .min_positional = 1,
    .max_positional = 1,
    .rows = front_run_rows,
    .n_row = sizeof front_run_rows / sizeof *front_run_rows,
};

/* The parts of a running front. */
struct front {
  struct event_base *base;
  struct http_server *http;
  struct front_api api;
  const struct serve_options *options;
  struct event *terminate, *interrupt, *grace, *flush;
  struct timespec start;
  enum moe_code code; /* how it ends */
  struct moe_error *err;
  bool stopping, engine_stopped;
};

static double front_seconds(const struct front *f) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)(now.tv_sec - f->start.tv_sec) + (double)(now.tv_nsec - f->start.tv_nsec) / 1e9;
}

static void front_on_progress(void *user, const char *phase, uint64_t done, uint64_t total) {
  (void)user;
  verbs_progress(NULL, phase, done, total);
}

static void front_on_ready(void *user) {
  struct front *f = user;
  struct front_engine_status status;
  front_engine_get_status(f->api.engine, &status);
  if (status.n_restart) {
    fprintf(stderr, "moert: ready again, on %s\n", status.device);
    return;
  }
  fprintf(stderr, "moert: ready after %.2f s: %s on %s, tier %s, context %u, slots %u\n", front_seconds(f),
          f->api.model->name, status.device, status.tier, status.limits.n_ctx, status.limits.n_slot);
}

static void front_on_first_failure(void *user, enum moe_code code, const char *message) {
  struct front *f = user;
  f->code = moe_fail(f->err, code ? code : MOE_FAILED, "%s", message);
  event_base_loopbreak(f->base);
}

/* ---- stopping: no new requests, then time for the live ones, then the engine, then the last bytes ---- */

static void front_on_stopped(void *user) {
  struct front *f = user;
  f->engine_stopped = true;
  struct timeval moment = {.tv_usec = http_server_connections(f->http) ? 500000 : 0};
  event_add(f->flush, &moment);
}

static void front_on_flush(evutil_socket_t fd, short what, void *user) {
  (void)fd, (void)what;
  struct front *f = user;
  event_base_loopbreak(f->base);
}

/* Looks from time to time whether the live requests are done, until the grace is over. */
static void front_on_grace(evutil_socket_t fd, short what, void *user) {
  (void)fd, (void)what;
  struct front *f = user;
  struct front_engine_status status;
  front_engine_get_status(f->api.engine, &status);
  if ((status.n_live || front_prompts_pending(f->api.prompts)) &&
      front_seconds(f) < (double)f->options->shutdown_grace) {
    struct timeval tick = {.tv_usec = 20000};
    event_add(f->grace, &tick);
    return;
  }
  front_engine_stop(f->api.engine);
}

static void front_on_signal(evutil_socket_t signal_number, short what, void *user) {
  (void)what;
  struct front *f = user;
  if (f->stopping) { /* asked twice: now */
    event_base_loopbreak(f->base);
    return;
  }
  f->stopping = f->api.stopping = true;
  http_server_stop(f->http); /* first: who reads the line below can count on no new connection */
  fprintf(stderr, "moert: %s: finishing live requests (up to %d s)\n", signal_number == SIGINT ? "SIGINT" : "SIGTERM",
          (int)f->options->shutdown_grace);
  clock_gettime(CLOCK_MONOTONIC, &f->start);
  front_on_grace(-1, 0, f);
}

/* ---- starting ---- */

/* Every connection needs a descriptor: ask the system for enough of them. */
static void front_raise_descriptors(int64_t connections) {
  struct rlimit limit;
  rlim_t wanted = (rlim_t)connections + 128;
  if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

static enum moe_code front_make_events(struct front *f, struct moe_error *err) {
  f->base = event_base_new();
  if (!f->base) return moe_fail(err, MOE_FAILED, "out of memory for the event loop");
  f->terminate = evsignal_new(f->base, SIGTERM, front_on_signal, f);
  f->interrupt = evsignal_new(f->base, SIGINT, front_on_signal, f);
  f->grace = evtimer_new(f->base, front_on_grace, f);
  f->flush = evtimer_new(f->base, front_on_flush, f);
  if (!f->terminate || !f->interrupt || !f->grace || !f->flush || event_add(f->terminate, NULL) ||
      event_add(f->interrupt, NULL))
    return moe_fail(err, MOE_FAILED, "out of memory for events");
  return MOE_OK;
}

static enum moe_code front_start(struct front *f, const char *image_path, struct moe_error *err) {
  const struct serve_options *o = f->options;
  struct http_limits limits = {
      .max_connections = (int)o->max_connections,
      .max_body = (size_t)o->max_body,
      .timeout = (int)o->timeout,
      .max_reply = 16 << 20,
  };
  struct front_engine_options engine = {
      .image_path = image_path,
      .device = o->device,
      .tier = o->tier,
      .cache_dir = o->cache_dir,
      .n_ctx = (uint32_t)o->n_ctx,
      .n_slot = (uint32_t)o->n_slot,
      .timeout = (uint32_t)o->engine_timeout,
  };
  struct front_engine_sink sink = {f, front_on_progress, front_on_ready, front_on_first_failure, front_on_stopped};
  enum moe_code code = front_make_events(f, err);
  if (!code && o->api_key_file) code = front_keys_read(&f->api.keys, o->api_key_file, err);
  if (!code)
    code = http_server_open(f->base, o->host, (uint16_t)o->port, &limits, front_api_handle, &f->api, &f->http, err);
  if (!code) code = front_prompts_create(f->base, f->api.model, &f->api.prompts, err);
  if (!code) code = front_engine_create(f->base, &engine, &sink, &f->api.engine, err);
  if (code) return code;
  fprintf(stderr, "moert: listening on http://%s%s%s:%u\n", strchr(o->host, ':') ? "[" : "", o->host,
          strchr(o->host, ':') ? "]" : "", http_server_port(f->http));
  return MOE_OK;
}

static void front_free(struct front *f) {
  http_server_close(f->http);
  front_prompts_destroy(f->api.prompts);
  front_engine_destroy(f->api.engine);
  struct event *events[] = {f->terminate, f->interrupt, f->grace, f->flush};
  for (size_t i = 0; i < sizeof events / sizeof *events; i++)
    if (events[i]) event_free(events[i]);
  if (f->base) event_base_free(f->base);
  libevent_global_shutdown();
}

enum moe_code front_run_serve(const char *image_path, const struct front_model *model,
                              const struct serve_options *options, struct moe_error *err) {
  struct front f = {.options = options, .err = err};
  f.api.model = model;
  f.api.defaults = (struct front_defaults){
      .temperature = options->temperature,
      .top_p = options->top_p,
      .min_p = options->min_p,
      .top_k = options->top_k,
      .n_predict = options->n_predict,
  };
  json_t *name = json_string(model->name);
  json_decref(name);
  if (!name) return moe_fail(err, MOE_USAGE, "the model's name is not UTF-8; give another one with --alias");
  clock_gettime(CLOCK_MONOTONIC, &f.start);
  signal(SIGPIPE, SIG_IGN);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return moe_fail(err, MOE_FAILED, "prctl: %s", strerror(errno));
  front_raise_descriptors(options->max_connections);
  enum moe_code code = front_start(&f, image_path, err);
  if (!code) {
    event_base_dispatch(f.base);
    code = f.code;
  }
  front_free(&f);
  return code;
}

enum moe_code front_run(int argc, char *const *argv, struct moe_error *err) {
  struct serve_options options;
  struct option_result result;
  struct front_image *image = NULL;
  enum moe_code code = options_command(&front_run_table, argc, argv, &options, &result, err);
  if (code || result.help) return code;
  const char *path = result.positional[0];
  code = front_image_open(path, options.alias, &image, err);
  if (!code) code = front_run_serve(path, front_image_get_model(image), &options, err);
  front_image_close(image);
  return code;
}
