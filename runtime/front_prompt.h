/* front_prompt.h: from a request's messages or text to its prompt's ids, in a thread of its own.
 *
 * Owns: the thread, the requests that wait for it, the order (of arrival). Does not own: the template and the tokenizer
 * (front_model.h), what becomes of the ids (front_api.c).
 * Invariants: a large conversation takes a template a second or two, in which the event loop goes on; the model's
 * encode and render are called by this thread only; a request that is abandoned while it waits costs nothing more.
 * Thread rules: all functions and callbacks are the event loop's. */
#ifndef RUNTIME_FRONT_PROMPT_H
#define RUNTIME_FRONT_PROMPT_H

#include "front_model.h"
#include "front_params.h"

#include <event2/event.h>

struct front_prompts; /* the thread and its queue */
struct front_prompt;  /* one request in it */

/* The ids of a prompt, n of them (taken: to be freed), or an error whose status is not 0. params: given back (taken:
 * the callee ends it with front_params_deinit or moves it on). */
typedef void front_prompt_fn(void *user, struct front_params *params, int32_t *ids, size_t n,
                             const struct front_error *error);

/* Starts the thread. The model must outlive the object. */
enum moe_code front_prompts_create(struct event_base *base, const struct front_model *model, struct front_prompts **out,
                                   struct moe_error *err);
/* Ends the thread, after what it works on now; no callbacks. */
void front_prompts_destroy(struct front_prompts *p);

/* Queues a request; done is called from the event loop, never before this returns. params moves in. max_id: the largest
 * number of ids that is of use (front_model.h). NULL when memory is out; params then stays the caller's. */
struct front_prompt *front_prompt_start(struct front_prompts *p, struct front_params *params, size_t max_id,
                                        front_prompt_fn *done, void *user);
/* The request's client is gone: done is not called any more. */
void front_prompt_abandon(struct front_prompts *p, struct front_prompt *prompt);

/* Requests whose done is still to come. */
size_t front_prompts_pending(const struct front_prompts *p);

#endif
