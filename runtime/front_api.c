#include "front_api.h"

#include "front_completion.h"

#include <stdlib.h>
#include <string.h>

/* ---- replies ---- */

static void front_api_send(struct http_request *request, int status, const char *extra, json_t *body) {
  char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
  http_reply(request, text ? status : 500, "application/json", extra, text ? text : "{}", text ? strlen(text) : 2);
  free(text);
  json_decref(body);
}

static void front_api_send_error(struct http_request *request, const char *extra, const struct front_error *error) {
  front_api_send(request, error->status, extra, front_error_json(error));
}

/* ---- state ---- */

static void front_api_health(struct front_api *api, struct http_request *request) {
  struct front_engine_status status;
  front_engine_get_status(api->engine, &status);
  if (status.state == FRONT_ENGINE_READY && !api->stopping) {
    front_api_send(request, 200, NULL,
                   json_pack("{s:s,s:I,s:i}", "status", "ok", "live_requests", (json_int_t)status.n_live,
                             "engine_restarts", (int)status.n_restart));
    return;
  }
  struct front_error error = {0};
  bool failed = status.state == FRONT_ENGINE_FAILED;
  const char *word = api->stopping ? "stopping" : failed ? "error" : "loading";
  if (failed)
    front_fail(&error, 503, "engine_failed", NULL, "%s", status.reason);
  else
    front_fail(&error, 503, word, NULL, api->stopping ? "The server is shutting down" : "Loading model");
  json_t *body = front_error_json(&error);
  json_object_set_new(body, "status", json_string(word));
  if (!failed && status.phase[0])
    json_object_set_new(body, "progress",
                        json_pack("{s:s,s:I,s:I}", "phase", status.phase, "done", (json_int_t)status.done, "total",
                                  (json_int_t)status.total));
  front_api_send(request, 503, "Retry-After: 1\r\n", body);
}

static json_t *front_api_model(const struct front_api *api) {
  struct front_engine_status status;
  front_engine_get_status(api->engine, &status);
  return json_pack("{s:s,s:s,s:I,s:s,s:{s:I,s:I,s:I,s:s,s:s}}", "id", api->model->name, "object", "model", "created",
                   (json_int_t)api->model->created, "owned_by", "moert", "meta", "n_vocab",
                   (json_int_t)api->model->n_vocab, "n_ctx", (json_int_t)status.limits.n_ctx, "n_slot",
                   (json_int_t)status.limits.n_slot, "device", status.device, "tier", status.tier);
}

static void front_api_models(struct front_api *api, struct http_request *request) {
  front_api_send(request, 200, NULL, json_pack("{s:s,s:[o]}", "object", "list", "data", front_api_model(api)));
}

/* ---- completions ---- */

/* Whether the engine can take a completion. While a lost one is being replaced it waits like the live ones. */
static bool front_api_available(const struct front_engine_status *status, struct front_error *error) {
  if (status->state == FRONT_ENGINE_STOPPED)
    return front_fail(error, 503, "stopping", NULL, "the server is shutting down");
  if (status->state == FRONT_ENGINE_LOADING) return front_fail(error, 503, "loading", NULL, "Loading model");
  if (status->state == FRONT_ENGINE_FAILED)
    return front_fail(error, 503, "engine_failed", NULL, "the engine cannot be started: %s", status->reason);
  return true;
}

/* counted: n is the prompt's length; else it may be longer. */
static bool front_api_fits(const struct front_params *params, size_t n, bool counted, uint32_t n_ctx,
                           struct front_error *error) {
  const char *param = params->chat ? "messages" : "prompt";
  if (n == 0) return front_fail(error, 400, NULL, param, "%s: found no tokens, allowed: at least one", param);
  if (n < n_ctx) return true;
  return front_fail(
      error, 400, "context_length_exceeded", param,
      "%s: found %s%zu tokens, allowed: at most %u (the context has %u tokens, and one must be left for the "
      "answer); shorten it, or start the server with a larger --ctx",
      param, counted ? "" : "more than ", counted ? n : n - 1, n_ctx - 1, n_ctx);
}

/* Begins the answer to a prompt: counted says whether n is its length (else it may be longer). Takes params and ids. */
static void front_api_start(struct front_api *api, struct http_request *request, struct front_params *params,
                            int32_t *ids, size_t n, bool counted, struct front_error *error) {
  struct front_engine_status status;
  front_engine_get_status(api->engine, &status);
  uint32_t n_ctx = status.limits.n_ctx;
  bool ok = !error->status && front_api_available(&status, error) && front_api_fits(params, n, counted, n_ctx, error);
  if (ok) {
    uint32_t room = n_ctx - (uint32_t)n;
    uint32_t n_predict = params->n_predict && params->n_predict < room ? params->n_predict : room;
    ok = front_completion_start(api->engine, api->model, request, params, ids, (uint32_t)n, n_predict, error);
  }
  free(ids);
  front_params_deinit(params);
  if (!ok) front_api_send_error(request, error->status == 503 ? "Retry-After: 1\r\n" : NULL, error);
}

/* A request whose prompt is being made. */
struct front_api_waiting {
  struct front_api *api;
  struct http_request *request;
  struct front_prompt *prompt;
};

static void front_api_on_prompt(void *user, struct front_params *params, int32_t *ids, size_t n,
                                const struct front_error *error) {
  struct front_api_waiting *waiting = user;
  struct front_error copy = *error;
  http_request_on_close(waiting->request, NULL, NULL);
  front_api_start(waiting->api, waiting->request, params, ids, n, false, &copy);
  free(waiting);
}

static void front_api_on_close(void *user) {
  struct front_api_waiting *waiting = user;
  front_prompt_abandon(waiting->api->prompts, waiting->prompt);
  free(waiting);
}

/* Has the prompt made; the answer begins when it is there. Takes params when it returns true. */
static bool front_api_wait(struct front_api *api, struct http_request *request, struct front_params *params,
                           size_t max_id) {
  struct front_api_waiting *waiting = calloc(1, sizeof *waiting);
  if (!waiting) return false;
  waiting->api = api;
  waiting->request = request;
  waiting->prompt = front_prompt_start(api->prompts, params, max_id, front_api_on_prompt, waiting);
  if (!waiting->prompt) {
    free(waiting);
    return false;
  }
  http_request_on_close(request, front_api_on_close, waiting);
  return true;
}

static void front_api_complete(struct front_api *api, struct http_request *request, bool chat) {
  struct front_error error = {0};
  struct front_engine_status status;
  struct front_params params = {0};
  size_t bytes = 0;
  front_engine_get_status(api->engine, &status);
  const char *body = http_request_body(request, &bytes);
  if (api->stopping) front_fail(&error, 503, "stopping", NULL, "the server is shutting down");
  bool ok = !error.status && front_api_available(&status, &error) &&
            front_params_parse(&params, chat, body, bytes, &api->defaults, api->model->n_vocab, &error);
  /* n_ctx ids are too many already: more are of no use. */
  if (ok && !params.ids) {
    if (front_api_wait(api, request, &params, status.limits.n_ctx)) return;
    front_fail(&error, 500, NULL, NULL, "out of memory");
  }
  int32_t *ids = params.ids;
  params.ids = NULL;
  front_api_start(api, request, &params, ids, params.n_ids, true, &error);
}

static void front_api_chat_completions(struct front_api *api, struct http_request *request) {
  front_api_complete(api, request, true);
}

static void front_api_text_completions(struct front_api *api, struct http_request *request) {
  front_api_complete(api, request, false);
}

/* ---- routes ---- */

static const struct front_route {
  const char *method, *path;
  bool needs_key;
  void (*handle)(struct front_api *api, struct http_request *request);
} front_routes[] = {
    {"GET", "/health", false, front_api_health},
    {"GET", "/v1/health", false, front_api_health},
    {"GET", "/v1/models", true, front_api_models},
    {"POST", "/v1/chat/completions", true, front_api_chat_completions},
    {"POST", "/v1/completions", true, front_api_text_completions},
};

/* The route of a path, whatever the method; a slash at the end is ignored. */
static const struct front_route *front_api_find(const char *path) {
  size_t length = strlen(path);
  if (length > 1 && path[length - 1] == '/') length--;
  for (size_t i = 0; i < sizeof front_routes / sizeof *front_routes; i++)
    if (strlen(front_routes[i].path) == length && !memcmp(front_routes[i].path, path, length)) return &front_routes[i];
  return NULL;
}

void front_api_handle(void *user, struct http_request *request) {
  struct front_api *api = user;
  const char *method = http_request_method(request), *path = http_request_path(request);
  const struct front_route *route = front_api_find(path);
  struct front_error error = {0};
  if (!route) {
    front_fail(&error, 404, "not_found", NULL,
               "%s is not served; see GET /health, GET /v1/models, POST /v1/chat/completions "
               "and POST /v1/completions",
               path);
    front_api_send_error(request, NULL, &error);
  } else if (strcmp(method, route->method) && !(!strcmp(method, "HEAD") && !strcmp(route->method, "GET"))) {
    bool get = !strcmp(route->method, "GET");
    front_fail(&error, 405, "method_not_allowed", NULL, "%s takes %s, found %s", route->path, route->method, method);
    front_api_send_error(request, get ? "Allow: GET, HEAD\r\n" : "Allow: POST\r\n", &error);
  } else if (route->needs_key && !front_keys_allow(&api->keys, http_request_field(request, "Authorization"))) {
    front_fail(&error, 401, "invalid_api_key", NULL,
               "this server needs an API key: send it as 'Authorization: Bearer KEY'");
    front_api_send_error(request, "WWW-Authenticate: Bearer\r\n", &error);
  } else {
    route->handle(api, request);
  }
}
