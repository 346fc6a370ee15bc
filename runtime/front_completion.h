/* front_completion.h: one answer on its way from the engine to its client.
 *
 * Owns: a live completion: tokens to text, stop strings, log-probabilities that wait for their text, the reply as a
 * whole or as server-sent events. Does not own: the HTTP connection, the journal entry. A completion ends by itself:
 * when the engine finishes it, at a stop string, or when its client is gone. Thread rules: the front's one thread. */
#ifndef RUNTIME_FRONT_COMPLETION_H
#define RUNTIME_FRONT_COMPLETION_H

#include "front_engine.h"
#include "front_error.h"
#include "front_http.h"
#include "front_model.h"
#include "front_params.h"

/* Starts answering. params: moved in (deinitialized by the completion). prompt: n_prompt ids, borrowed for the call.
 * n_predict: most tokens, at least 1. Returns false, with *error filled and the HTTP request untouched, when memory is
 * out; else the completion replies. */
bool front_completion_start(struct front_engine *engine, const struct front_model *model, struct http_request *http,
                            struct front_params *params, const int32_t *prompt, uint32_t n_prompt, uint32_t n_predict,
                            struct front_error *error);

#endif
