/* front_api.h: the server's endpoints.
 *
 * Owns: routes, authorization, and the way of a completion request from its body to a live completion. Does not own:
 * HTTP (front_http.h), fields (front_params.h), answers (front_completion.h). runtime/API.md describes the endpoints.
 * Thread rules: the front's one thread. */
#ifndef RUNTIME_FRONT_API_H
#define RUNTIME_FRONT_API_H

#include "front_engine.h"
#include "front_http.h"
#include "front_keys.h"
#include "front_model.h"
#include "front_params.h"
#include "front_prompt.h"

struct front_api {
  const struct front_model *model;
  struct front_engine *engine;
  struct front_prompts *prompts;
  struct front_defaults defaults;
  struct front_keys keys;
  bool stopping; /* new completions are refused */
};

/* An http_handler_fn; user is the struct front_api. */
void front_api_handle(void *user, struct http_request *request);

#endif
