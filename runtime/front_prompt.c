#include "front_prompt.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { STACK_BYTES = 4 << 20 }; /* chat.h asks for 2 MiB */

struct front_prompt {
  struct front_prompt *next;
  struct front_params params;
  size_t max_id;
  int32_t *ids;
  size_t n;
  struct front_error error;
  front_prompt_fn *done; /* NULL: abandoned; the event loop's */
  void *user;
};

struct front_prompt_list {
  struct front_prompt *first, **end;
};

struct front_prompts {
  const struct front_model *model;
  pthread_t thread;
  bool running;
  int wake; /* an eventfd: something is made */
  struct event *readable;
  size_t n_pending;
  pthread_mutex_t mutex; /* guards what follows */
  pthread_cond_t work;
  struct front_prompt_list waiting, made;
  bool stopping;
};

/* ---- lists ---- */

static void front_prompt_push(struct front_prompt_list *list, struct front_prompt *prompt) {
  prompt->next = NULL;
  *list->end = prompt;
  list->end = &prompt->next;
}

static struct front_prompt *front_prompt_pop(struct front_prompt_list *list) {
  struct front_prompt *prompt = list->first;
  if (prompt && !(list->first = prompt->next)) list->end = &list->first;
  return prompt;
}

/* Takes a prompt out of a list; false when it is not in it. */
static bool front_prompt_take(struct front_prompt_list *list, struct front_prompt *prompt) {
  struct front_prompt **link = &list->first;
  while (*link && *link != prompt) link = &(*link)->next;
  if (!*link) return false;
  *link = prompt->next;
  if (!prompt->next) list->end = link;
  return true;
}

static void front_prompt_free(struct front_prompt *prompt) {
  front_params_deinit(&prompt->params);
  free(prompt->ids);
  free(prompt);
}

/* ---- the thread ---- */

/* The prompt's ids; on failure prompt->error says why. */
static bool front_prompt_make(const struct front_model *model, struct front_prompt *prompt) {
  const struct front_params *params = &prompt->params;
  struct front_error *error = &prompt->error;
  struct moe_error err = {0};
  if (!params->chat) {
    if (model->encode(model->user, params->prompt, params->prompt_bytes, true, prompt->max_id, &prompt->ids, &prompt->n,
                      &err))
      return front_fail(error, 400, NULL, "prompt", "prompt: %s", err.message);
    return true;
  }
  char *text = NULL;
  size_t bytes = 0;
  enum moe_code code = model->render(model->user, params->messages, params->variables, &text, &bytes, &err);
  if (code == MOE_DECLINED) return front_fail(error, 400, "no_chat_template", "messages", "%s", err.message);
  if (code) return front_fail(error, 400, "chat_template", "messages", "messages: %s", err.message);
  code = model->encode(model->user, text, bytes, false, prompt->max_id, &prompt->ids, &prompt->n, &err);
  free(text);
  return !code || front_fail(error, 400, NULL, "messages", "messages: %s", err.message);
}

static void *front_prompts_work(void *user) {
  struct front_prompts *p = user;
  const uint64_t one = 1;
  pthread_mutex_lock(&p->mutex);
  for (;;) {
    while (!p->stopping && !p->waiting.first) pthread_cond_wait(&p->work, &p->mutex);
    if (p->stopping) break;
    struct front_prompt *prompt = front_prompt_pop(&p->waiting);
    pthread_mutex_unlock(&p->mutex);
    front_prompt_make(p->model, prompt);
    pthread_mutex_lock(&p->mutex);
    front_prompt_push(&p->made, prompt);
    /* Cannot fail: a counter of 64 bits, and the event loop takes all there is when it is woken. */
    (void)!write(p->wake, &one, sizeof one);
  }
  pthread_mutex_unlock(&p->mutex);
  return NULL;
}

/* ---- the event loop's side ---- */

static void front_prompts_on_made(evutil_socket_t fd, short what, void *user) {
  (void)what;
  struct front_prompts *p = user;
  uint64_t count;
  (void)!read(fd, &count, sizeof count);
  for (;;) {
    pthread_mutex_lock(&p->mutex);
    struct front_prompt *prompt = front_prompt_pop(&p->made);
    pthread_mutex_unlock(&p->mutex);
    if (!prompt) return;
    if (prompt->done) {
      struct front_params params = prompt->params;
      int32_t *ids = prompt->ids;
      memset(&prompt->params, 0, sizeof prompt->params);
      prompt->ids = NULL;
      p->n_pending--;
      prompt->done(prompt->user, &params, ids, prompt->n, &prompt->error);
    }
    front_prompt_free(prompt);
  }
}

struct front_prompt *front_prompt_start(struct front_prompts *p, struct front_params *params, size_t max_id,
                                        front_prompt_fn *done, void *user) {
  struct front_prompt *prompt = calloc(1, sizeof *prompt);
  if (!prompt) return NULL;
  prompt->params = *params;
  memset(params, 0, sizeof *params);
  prompt->max_id = max_id;
  prompt->done = done;
  prompt->user = user;
  p->n_pending++;
  pthread_mutex_lock(&p->mutex);
  front_prompt_push(&p->waiting, prompt);
  pthread_cond_signal(&p->work);
  pthread_mutex_unlock(&p->mutex);
  return prompt;
}

void front_prompt_abandon(struct front_prompts *p, struct front_prompt *prompt) {
  p->n_pending--;
  prompt->done = NULL;
  pthread_mutex_lock(&p->mutex);
  bool waits = front_prompt_take(&p->waiting, prompt);
  pthread_mutex_unlock(&p->mutex);
  if (waits) front_prompt_free(prompt);
}

size_t front_prompts_pending(const struct front_prompts *p) {
  return p->n_pending;
}

/* Signals are the event loop's. */
static int front_prompts_start_thread(struct front_prompts *p) {
  sigset_t all, before;
  pthread_attr_t attributes;
  int failed = pthread_attr_init(&attributes);
  if (failed) return failed;
  failed = pthread_attr_setstacksize(&attributes, STACK_BYTES);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  if (!failed) failed = pthread_create(&p->thread, &attributes, front_prompts_work, p);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  p->running = !failed;
  return failed;
}

enum moe_code front_prompts_create(struct event_base *base, const struct front_model *model, struct front_prompts **out,
                                   struct moe_error *err) {
  *out = NULL;
  struct front_prompts *p = calloc(1, sizeof *p);
  if (!p) return moe_fail(err, MOE_FAILED, "out of memory");
  p->model = model;
  p->waiting.end = &p->waiting.first;
  p->made.end = &p->made.first;
  pthread_mutex_init(&p->mutex, NULL);
  pthread_cond_init(&p->work, NULL);
  p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  p->readable = p->wake < 0 ? NULL : event_new(base, p->wake, EV_READ | EV_PERSIST, front_prompts_on_made, p);
  int failed = 0;
  enum moe_code code = MOE_OK;
  if (!p->readable || event_add(p->readable, NULL))
    code = moe_fail(err, MOE_FAILED, "cannot make an event for prompts: %s", strerror(errno));
  else if ((failed = front_prompts_start_thread(p)))
    code = moe_fail(err, MOE_FAILED, "cannot start a thread for prompts: %s", strerror(failed));
  if (code)
    front_prompts_destroy(p);
  else
    *out = p;
  return code;
}

void front_prompts_destroy(struct front_prompts *p) {
  if (!p) return;
  if (p->running) {
    pthread_mutex_lock(&p->mutex);
    p->stopping = true;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->mutex);
    pthread_join(p->thread, NULL);
  }
  struct front_prompt *prompt;
  while ((prompt = front_prompt_pop(&p->waiting)) || (prompt = front_prompt_pop(&p->made))) front_prompt_free(prompt);
  if (p->readable) event_free(p->readable);
  if (p->wake >= 0) close(p->wake);
  pthread_cond_destroy(&p->work);
  pthread_mutex_destroy(&p->mutex);
  free(p);
}
