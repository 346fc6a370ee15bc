/* engine_process.c: the engine process: protocol in, scheduler steps, protocol out.
 *
 * Owns: the loop of the engine process, its hardening, requests that are still arriving. Does not own: how steps run
 * (scheduler.h), the wire (ipc.h).
 * Invariants: nothing here waits for the front while the device has work, except when the ring is full; the process
 * ends when the front does. */
#include "engine_process.h"

#include "engine.h"
#include "engine_sandbox.h"
#include "ipc.h"
#include "options.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

struct engine_process_options {
#define OPTION OPTION_FIELD
#include "engine_rows.def"
#undef OPTION
};

static const struct option_row engine_process_rows[] = {
#define OPTION(...) OPTION_ROW(struct engine_process_options, __VA_ARGS__)
#include "engine_rows.def"
#undef OPTION
};

static const struct option_table engine_process_table = {
    .command = "moert engine",
    .summary = "Internal: the process that moert starts for the device.",
    .positionals = "MODEL.img",
    .min_positional = 1,
    .max_positional = 1,
    .rows = engine_process_rows,
    .n_row = sizeof engine_process_rows / sizeof *engine_process_rows,
};

/* Everything of the loop. */
struct engine_process {
  struct scheduler *scheduler;
  struct scheduler_limits limits;
  struct ipc_ring ring;
  union ipc_packet packet;
  struct ipc_submit arriving; /* the request whose prompt is arriving; n_prompt 0: none */
  int32_t *prompt;            /* limits.n_ctx tokens, room for the largest acceptable prompt */
  uint32_t n_arrived;
  bool stop, front_gone;
};

static void engine_process_send(struct engine_process *p, const union ipc_packet *packet) {
  for (;;) {
    enum ipc_status status = ipc_send(IPC_FD_SOCKET, packet);
    if (status == IPC_DONE) return;
    if (status == IPC_CLOSED) {
      p->front_gone = true;
      return;
    }
    struct pollfd wait = {.fd = IPC_FD_SOCKET, .events = POLLOUT};
    poll(&wait, 1, 1000);
  }
}

/* Puts an event into the ring; when it is full, waits for the front (which reads whenever it lives). */
static void engine_process_emit(struct engine_process *p, const struct ipc_event *event) {
  bool wake = false;
  while (!p->front_gone && !ipc_ring_write(&p->ring, event, &wake)) {
    struct pollfd wait = {.fd = IPC_FD_SOCKET, .events = 0};
    poll(&wait, 1, 1);
    if (wait.revents & (POLLHUP | POLLERR)) p->front_gone = true;
  }
  if (!wake) return;
  union ipc_packet packet;
  ipc_packet_init(&packet, IPC_WAKE);
  engine_process_send(p, &packet);
}

static void engine_process_on_token(void *user, const struct token_event *token) {
  struct ipc_event event;
  memset(&event, 0, sizeof event);
  event.kind = IPC_EVENT_TOKEN;
  event.id = token->id;
  event.token = token->token;
  event.is_end = token->is_end;
  event.logprob = token->logprob;
  event.n_top = token->n_top < SCHEDULER_MAX_LOGPROB ? token->n_top : SCHEDULER_MAX_LOGPROB;
  if (event.n_top) memcpy(event.top, token->top, event.n_top * sizeof *event.top);
  engine_process_emit(user, &event);
}

static void engine_process_on_finish(void *user, uint64_t id, enum finish_reason reason, const char *message) {
  struct ipc_event event;
  memset(&event, 0, sizeof event);
  event.kind = IPC_EVENT_FINISH;
  event.id = id;
  event.reason = (uint32_t)reason;
  if (reason == FINISH_ERROR) ipc_set_text(event.message, sizeof event.message, message);
  engine_process_emit(user, &event);
}

static void engine_process_submit(struct engine_process *p) {
  struct request request = {
      .id = p->arriving.id,
      .prompt = p->prompt,
      .n_prompt = p->arriving.n_prompt,
      .n_predict = p->arriving.n_predict,
      .sampling = p->arriving.sampling,
      .n_logprob = p->arriving.n_logprob,
      .ignore_eos = p->arriving.ignore_eos != 0,
  };
  struct moe_error err = {0};
  p->arriving.n_prompt = 0;
  if (scheduler_submit(p->scheduler, &request, &err))
    engine_process_on_finish(p, request.id, FINISH_ERROR, err.message);
}

/* Acts on one packet of the front. The front is the same program and was checked by ipc_receive; a packet that makes no
 * sense here means that the two are out of step, and ends the process. */
static enum moe_code engine_process_packet(struct engine_process *p, const struct scheduler_sink *sink,
                                           struct moe_error *err) {
  const union ipc_packet *packet = &p->packet;
  switch (packet->header.kind) {
  case IPC_SUBMIT:
    if (p->arriving.n_prompt) return moe_fail(err, MOE_FAILED, "engine: a request arrived inside another one");
    if (packet->submit.n_prompt == 0 || packet->submit.n_prompt > p->limits.n_ctx) {
      return moe_fail(err, MOE_FAILED, "engine: a prompt of %u tokens arrived; allowed: 1 to %u",
                      packet->submit.n_prompt, p->limits.n_ctx);
    }
    p->arriving = packet->submit;
    p->n_arrived = 0;
    return MOE_OK;
  case IPC_PROMPT:
    if (!p->arriving.n_prompt || packet->prompt.n_tok > p->arriving.n_prompt - p->n_arrived)
      return moe_fail(err, MOE_FAILED, "engine: more prompt tokens arrived than were announced");
    memcpy(p->prompt + p->n_arrived, packet->prompt.token, packet->prompt.n_tok * sizeof *p->prompt);
    p->n_arrived += packet->prompt.n_tok;
    if (p->n_arrived == p->arriving.n_prompt) engine_process_submit(p);
    return MOE_OK;
  case IPC_CANCEL:
    scheduler_cancel(p->scheduler, packet->cancel.id, sink);
    return MOE_OK;
  case IPC_SHUTDOWN:
    p->stop = true;
    return MOE_OK;
  default:
    return moe_fail(err, MOE_FAILED, "engine: unexpected packet of kind %u", packet->header.kind);
  }
}

/* Reads what has arrived, steps, sleeps when there is nothing to do. */
static enum moe_code engine_process_loop(struct engine_process *p, struct moe_error *err) {
  struct scheduler_sink sink = {p, engine_process_on_token, engine_process_on_finish};
  while (!p->stop && !p->front_gone) {
    enum ipc_status status;
    while ((status = ipc_receive(IPC_FD_SOCKET, &p->packet)) != IPC_AGAIN) {
      if (status == IPC_CLOSED) return MOE_OK;
      enum moe_code code = engine_process_packet(p, &sink, err);
      if (code) return code;
    }
    if (p->stop) break;
    ipc_ring_beat(&p->ring);
    if (scheduler_idle(p->scheduler)) {
      struct pollfd wait = {.fd = IPC_FD_SOCKET, .events = POLLIN};
      poll(&wait, 1, -1);
      continue;
    }
    enum moe_code code = scheduler_step(p->scheduler, &sink, err);
    if (code) return code;
  }
  return MOE_OK;
}

static void engine_process_alive(void *user) {
  ipc_ring_beat(&((struct engine_process *)user)->ring);
}

static void engine_process_progress(void *user, const char *phase, uint64_t done, uint64_t total) {
  struct engine_process *p = user;
  union ipc_packet packet;
  ipc_packet_init(&packet, IPC_PROGRESS);
  ipc_set_text(packet.progress.phase, sizeof packet.progress.phase, phase);
  packet.progress.done = done;
  packet.progress.total = total;
  engine_process_send(p, &packet);
}

/* Closes every descriptor above the ring's. Not every kernel (gVisor's, Linux before 5.9) has close_range. */
static enum moe_code engine_process_close_others(struct moe_error *err) {
  if (!close_range(IPC_FD_RING + 1, ~0u, 0)) return MOE_OK;
  DIR *open_files = opendir("/proc/self/fd");
  if (!open_files) return moe_fail(err, MOE_FAILED, "engine: /proc/self/fd: %s", strerror(errno));
  for (struct dirent *entry; (entry = readdir(open_files));) {
    int fd = atoi(entry->d_name);
    if (fd > IPC_FD_RING && fd != dirfd(open_files)) close(fd);
  }
  closedir(open_files);
  return MOE_OK;
}

/* No new privileges, no descriptor but the standard ones, the socket and the ring, and no life after the front. */
static enum moe_code engine_process_harden(struct moe_error *err) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_PDEATHSIG, SIGKILL))
    return moe_fail(err, MOE_FAILED, "engine: prctl: %s", strerror(errno));
  enum moe_code code = engine_process_close_others(err);
  if (code) return code;
  signal(SIGPIPE, SIG_IGN);
  signal(SIGINT, SIG_IGN); /* these two reach the whole group; the front decides */
  signal(SIGTERM, SIG_IGN);
  return MOE_OK;
}

static enum moe_code engine_process_serve(struct engine_process *p, const struct engine_options *options,
                                          struct moe_error *err) {
  enum moe_code code = engine_process_harden(err);
  if (!code) code = ipc_ring_open(&p->ring, IPC_FD_RING, err);
  if (!code) code = engine_open(options, engine_process_progress, p, &p->scheduler, err);
  if (code) return code;
  struct moe_error no_sandbox = {0};
  if (engine_sandbox_enter(&no_sandbox))
    fprintf(stderr, "moert engine: goes on without a sandbox: %s\n", no_sandbox.message);
  scheduler_get_limits(p->scheduler, &p->limits);
  p->prompt = malloc((size_t)p->limits.n_ctx * sizeof *p->prompt);
  if (!p->prompt) return moe_fail(err, MOE_FAILED, "engine: no memory for a prompt of %u tokens", p->limits.n_ctx);

  struct engine_description description = {0};
  engine_describe(p->scheduler, &description);
  union ipc_packet packet;
  ipc_packet_init(&packet, IPC_READY);
  packet.ready.version = IPC_VERSION;
  packet.ready.limits = p->limits;
  ipc_set_text(packet.ready.device, sizeof packet.ready.device, description.device);
  ipc_set_text(packet.ready.tier, sizeof packet.ready.tier, description.tier);
  engine_process_send(p, &packet);
  return engine_process_loop(p, err);
}

/* Tells the front why this process ends; the message is then the front's to print. */
static void engine_process_report(struct engine_process *p, struct moe_error *err) {
  union ipc_packet packet;
  ipc_packet_init(&packet, IPC_FAILED);
  packet.failed.code = (uint32_t)err->code;
  ipc_set_text(packet.failed.message, sizeof packet.failed.message, err->message);
  engine_process_send(p, &packet);
  if (!p->front_gone) err->message[0] = 0;
}

enum moe_code engine_process_run(int argc, char *const *argv, struct moe_error *err) {
  struct engine_process_options o;
  struct option_result result;
  enum moe_code code = options_parse(&engine_process_table, argc, argv, &o, &result, err);
  if (code) return code;
  if (result.help) {
    options_print_help(&engine_process_table, stdout);
    return MOE_OK;
  }
  if (fcntl(IPC_FD_SOCKET, F_GETFD) < 0 || fcntl(IPC_FD_RING, F_GETFD) < 0)
    return moe_fail(err, MOE_USAGE, "moert engine is started by moert itself; use `moert MODEL.img`");
  struct engine_options options = {
      .image_path = result.positional[0],
      .device = o.device,
      .n_ctx = (uint32_t)o.n_ctx,
      .n_slot = (uint32_t)o.n_slot,
      .cache_dir = o.cache_dir,
      .tier = o.tier,
  };
  struct engine_process *p = calloc(1, sizeof *p);
  if (!p) return moe_fail(err, MOE_FAILED, "engine: out of memory");
  options.alive = engine_process_alive;
  options.alive_user = p;
  code = engine_process_serve(p, &options, err);
  if (code) engine_process_report(p, err);
  engine_close(p->scheduler);
  ipc_ring_close(&p->ring);
  free(p->prompt);
  free(p);
  return code;
}
