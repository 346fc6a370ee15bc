#include "front_engine.h"

#include "ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  MAX_FAILURES = 5,       /* engines in a row that were lost without having served */
  FIRST_BACKOFF_MS = 250, /* before the second restart in a row; doubles up to RETRY_SECONDS */
  RETRY_SECONDS = 30,     /* after giving up */
  SERVED_SECONDS = 10,    /* an engine that was ready for this long has served, and ends a row of restarts */
  STOP_SECONDS = 2,
  MAX_EVENTS = 256, /* taken from the ring before others have a turn */
};

struct front_engine {
  struct event_base *base;
  struct front_engine_options options;
  struct front_engine_sink sink;
  struct journal journal;
  enum front_engine_state state;
  pid_t pid; /* 0: no process */
  int fd;    /* the socket; -1: none */
  struct ipc_ring ring;
  struct event *readable, *writable, *child, *restart, *watch, *stop_timer, *more;
  union ipc_packet packet;
  struct journal_entry *sending;    /* its prompt is on its way */
  uint32_t n_sent_tok, sending_tok; /* of it; its prompt's length when it was announced */
  bool sending_cancelled;           /* its client left meanwhile; the rest still goes */
  uint32_t n_at_engine;
  bool ready, served, stopping; /* of the present process; stopping: for good */
  bool ever_ready;
  time_t ready_time;
  uint32_t n_failure, n_restart;
  uint32_t n_short; /* engines in a row that were not ready for SERVED_SECONDS, whatever they served */
  uint64_t last_beats;
  time_t last_life;
  struct ipc_ready description;
  struct ipc_progress progress;
  struct ipc_failed failed; /* what the present process said last; message "" if nothing */
  char reason[1200];
  struct stat image; /* as it was when the front opened it; zero when there is no such file */
};

static void front_engine_pump(struct front_engine *e);

/* Ends the present process, if there is one; SIGCHLD tells when it is done. */
static void front_engine_kill(struct front_engine *e) {
  if (e->pid > 0) kill(e->pid, SIGKILL);
}

static time_t front_engine_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

/* ---- starting ---- */

/* The context and slots that an engine is asked for: the options', or exactly those of the engines before it. What fits
 * by default may be less the next time, and live requests were taken in for what there was. */
static void front_engine_size(const struct front_engine *e, uint32_t *n_ctx, uint32_t *n_slot) {
  *n_ctx = e->ever_ready ? e->description.limits.n_ctx : e->options.n_ctx;
  *n_slot = e->ever_ready ? e->description.limits.n_slot : e->options.n_slot;
}

/* The child's side of fork: only calls that are safe there. */
static void front_engine_exec(struct front_engine *e, int socket_fd, int ring_fd) {
  char n_ctx_text[16], n_slot_text[16];
  uint32_t n_ctx, n_slot;
  char *argv[20];
  int n = 0;
  argv[n++] = "moert";
  argv[n++] = "engine";
  if (e->options.device) argv[n++] = "--device", argv[n++] = (char *)(uintptr_t)e->options.device;
  if (e->options.tier) argv[n++] = "--tier", argv[n++] = (char *)(uintptr_t)e->options.tier;
  if (e->options.cache_dir) argv[n++] = "--cache-dir", argv[n++] = (char *)(uintptr_t)e->options.cache_dir;
  front_engine_size(e, &n_ctx, &n_slot);
  snprintf(n_ctx_text, sizeof n_ctx_text, "%u", n_ctx);
  snprintf(n_slot_text, sizeof n_slot_text, "%u", n_slot);
  argv[n++] = "--ctx", argv[n++] = n_ctx_text;
  argv[n++] = "--slots", argv[n++] = n_slot_text;
  argv[n++] = "--", argv[n++] = (char *)(uintptr_t)e->options.image_path;
  argv[n] = NULL;
  /* Away from the low numbers first, so that one dup2 does not overwrite the other's source. */
  int high_socket = fcntl(socket_fd, F_DUPFD_CLOEXEC, 10), high_ring = fcntl(ring_fd, F_DUPFD_CLOEXEC, 10);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  if (high_socket < 0 || high_ring < 0 || null < 0 || dup2(null, 0) < 0 || dup2(2, 1) < 0 ||
      dup2(high_socket, IPC_FD_SOCKET) < 0 || dup2(high_ring, IPC_FD_RING) < 0)
    _exit(126);
  execv("/proc/self/exe", argv);
  _exit(127);
}

static void front_engine_close_channel(struct front_engine *e) {
  if (e->readable) event_free(e->readable);
  if (e->writable) event_free(e->writable);
  e->readable = e->writable = NULL;
  if (e->fd >= 0) close(e->fd);
  e->fd = -1;
  ipc_ring_close(&e->ring);
}

/* The front's tokenizer and the engine's weights must come from the same file: refuses to start another engine on a
 * file that was replaced or changed meanwhile. */
static enum moe_code front_engine_check_image(const struct front_engine *e, struct moe_error *err) {
  struct stat now = {0};
  if (stat(e->options.image_path, &now)) memset(&now, 0, sizeof now);
  if (now.st_dev == e->image.st_dev && now.st_ino == e->image.st_ino && now.st_size == e->image.st_size &&
      now.st_mtim.tv_sec == e->image.st_mtim.tv_sec && now.st_mtim.tv_nsec == e->image.st_mtim.tv_nsec)
    return MOE_OK;
  return moe_fail(err, MOE_FAILED,
                  "%s: the file has changed since the server started; start the server again to serve it",
                  e->options.image_path);
}

static void front_engine_on_readable(evutil_socket_t fd, short what, void *user);
static void front_engine_on_writable(evutil_socket_t fd, short what, void *user);

static enum moe_code front_engine_start(struct front_engine *e, struct moe_error *err) {
  int pair[2] = {-1, -1}, ring_fd = -1;
  enum moe_code code = front_engine_check_image(e, err);
  if (!code) code = ipc_ring_create(&e->ring, &ring_fd, err);
  if (!code && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
    code = moe_fail(err, MOE_FAILED, "cannot make a socket for the engine: %s", strerror(errno));
  if (!code) {
    int room = 8 * IPC_PACKET_BYTES;
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    evutil_make_socket_nonblocking(pair[0]);
    e->fd = pair[0];
    e->readable = event_new(e->base, e->fd, EV_READ | EV_PERSIST, front_engine_on_readable, e);
    e->writable = event_new(e->base, e->fd, EV_WRITE, front_engine_on_writable, e);
    if (!e->readable || !e->writable) code = moe_fail(err, MOE_FAILED, "out of memory for the engine's socket");
  }
  pid_t pid = code ? -1 : fork();
  if (pid == 0) front_engine_exec(e, pair[1], ring_fd);
  if (!code && pid < 0) code = moe_fail(err, MOE_FAILED, "cannot start the engine: %s", strerror(errno));
  if (pair[1] >= 0) close(pair[1]);
  if (ring_fd >= 0) close(ring_fd);
  if (code) {
    front_engine_close_channel(e);
    return code;
  }
  e->pid = pid;
  e->last_life = front_engine_now();
  e->ready = e->served = false;
  e->n_at_engine = 0;
  e->sending = NULL;
  memset(&e->failed, 0, sizeof e->failed);
  memset(&e->progress, 0, sizeof e->progress);
  event_add(e->readable, NULL);
  return MOE_OK;
}

/* ---- to the engine ---- */

/* Sends what e->packet holds; false when it must wait or the engine is gone (its end is noticed elsewhere). */
static bool front_engine_send(struct front_engine *e) {
  enum ipc_status status = ipc_send(e->fd, &e->packet);
  if (status == IPC_AGAIN) event_add(e->writable, NULL);
  return status == IPC_DONE;
}

static bool front_engine_announce(struct front_engine *e, struct journal_entry *entry) {
  ipc_packet_init(&e->packet, IPC_SUBMIT);
  struct ipc_submit *submit = &e->packet.submit;
  submit->id = entry->id;
  submit->n_prompt = entry->n_token;
  submit->n_predict = entry->n_predict - (entry->n_token - entry->n_prompt);
  submit->n_logprob = entry->n_logprob;
  submit->ignore_eos = entry->ignore_eos;
  submit->sampling = entry->sampling;
  if (!front_engine_send(e)) return false;
  e->sending = entry;
  e->sending_tok = entry->n_token;
  e->n_sent_tok = 0;
  return true;
}

static bool front_engine_send_prompt(struct front_engine *e) {
  while (e->n_sent_tok < e->sending_tok) {
    uint32_t n = e->sending_tok - e->n_sent_tok;
    if (n > IPC_PACKET_TOKENS) n = IPC_PACKET_TOKENS;
    ipc_packet_init(&e->packet, IPC_PROMPT);
    e->packet.prompt.n_tok = n;
    e->packet.header.bytes += n * (uint32_t)sizeof(int32_t);
    memcpy(e->packet.prompt.token, e->sending->token + e->n_sent_tok, n * sizeof(int32_t));
    if (!front_engine_send(e)) return false;
    e->n_sent_tok += n;
  }
  e->sending->state = JOURNAL_SENT;
  e->n_at_engine++;
  struct journal_entry *sent = e->sending;
  e->sending = NULL;
  if (e->sending_cancelled) journal_cancel(&e->journal, sent);
  e->sending_cancelled = false;
  return true;
}

static bool front_engine_send_cancel(struct front_engine *e, struct journal_entry *entry) {
  ipc_packet_init(&e->packet, IPC_CANCEL);
  e->packet.cancel.id = entry->id;
  if (!front_engine_send(e)) return false;
  e->n_at_engine--;
  journal_remove(&e->journal, entry);
  return true;
}

static void front_engine_finish(struct front_engine *e, struct journal_entry *entry, enum finish_reason reason,
                                const char *message) {
  struct journal_sink sink = entry->sink;
  if (entry->state == JOURNAL_SENT) e->n_at_engine--;
  journal_remove(&e->journal, entry);
  sink.on_finish(sink.user, reason, message);
}

/* Sends whatever can go now: the rest of a prompt, cancellations, then waiting requests in order of arrival. */
static void front_engine_pump(struct front_engine *e) {
  if (e->state != FRONT_ENGINE_READY) return;
  uint32_t room = e->description.limits.n_slot + e->description.limits.n_queue;
  for (;;) {
    struct journal_entry *entry = NULL;
    if (e->sending) {
      if (!front_engine_send_prompt(e)) return;
    } else if ((entry = journal_first(&e->journal, JOURNAL_CANCELLED))) {
      if (!front_engine_send_cancel(e, entry)) return;
    } else if (e->n_at_engine < room && !journal_is_guarded(&e->journal) &&
               (entry = journal_first(&e->journal, JOURNAL_WAITING))) {
      if (entry->n_token >= e->description.limits.n_ctx)
        front_engine_finish(e, entry, FINISH_ERROR, "the request does not fit the context of the engine");
      else if (!front_engine_announce(e, entry))
        return;
    } else {
      return;
    }
  }
}

static void front_engine_on_writable(evutil_socket_t fd, short what, void *user) {
  (void)fd, (void)what;
  front_engine_pump(user);
}

/* ---- from the engine ---- */

static void front_engine_on_event(struct front_engine *e, const struct ipc_event *event) {
  struct journal_entry *entry = journal_find(&e->journal, event->id);
  if (!entry || entry->state != JOURNAL_SENT) return; /* cancelled meanwhile */
  if (event->kind == IPC_EVENT_FINISH) {
    front_engine_finish(e, entry, event->reason, event->reason == FINISH_ERROR ? event->message : NULL);
    return;
  }
  e->served = true;
  if (!journal_emit(entry, event->token, event->is_end != 0)) {
    struct journal_sink sink = entry->sink;
    journal_cancel(&e->journal, entry);
    sink.on_finish(sink.user, FINISH_ERROR, "out of memory");
    return;
  }
  entry->sink.on_token(entry->sink.user, event);
}

/* Takes events out of the ring; true when there may be more. A bounded number, or an engine that is faster than the
 * front would keep it from its sockets. */
static bool front_engine_take_events(struct front_engine *e) {
  struct ipc_event event;
  bool broken = false;
  uint32_t n = 0;
  for (; n < MAX_EVENTS && ipc_ring_read(&e->ring, &event, &broken); n++) front_engine_on_event(e, &event);
  if (broken) front_engine_kill(e); /* its memory is not to be trusted any more */
  return n == MAX_EVENTS;
}

/* Takes what is in the ring, with turns for the sockets in between. */
static void front_engine_drain_ring(struct front_engine *e) {
  static const struct timeval now = {0};
  if (front_engine_take_events(e)) event_add(e->more, &now);
  front_engine_pump(e);
}

static void front_engine_on_more(evutil_socket_t fd, short what, void *user) {
  (void)fd, (void)what;
  struct front_engine *e = user;
  if (e->ready) front_engine_drain_ring(e);
}

static void front_engine_become_ready(struct front_engine *e, const struct ipc_ready *ready) {
  e->description = *ready;
  e->ready = e->ever_ready = true;
  e->state = FRONT_ENGINE_READY;
  e->ready_time = e->last_life = front_engine_now();
  e->sink.on_ready(e->sink.user);
  front_engine_drain_ring(e); /* also makes the ring ask for a wake */
}

static void front_engine_on_packet(struct front_engine *e, const union ipc_packet *packet) {
  switch (packet->header.kind) {
  case IPC_PROGRESS:
    e->progress = packet->progress;
    e->last_life = front_engine_now();
    e->sink.on_progress(e->sink.user, e->progress.phase, e->progress.done, e->progress.total);
    break;
  case IPC_FAILED:
    e->failed = packet->failed;
    break;
  case IPC_WAKE:
    if (e->ready) front_engine_drain_ring(e);
    break;
  case IPC_READY: {
    const struct scheduler_limits *limits = &packet->ready.limits;
    if (packet->ready.version != IPC_VERSION || !limits->n_ctx || !limits->n_slot || limits->n_queue > 1u << 20 ||
        limits->n_slot > 1u << 20) {
      front_engine_kill(e);
      break;
    }
    if (!e->stopping) front_engine_become_ready(e, &packet->ready);
    break;
  }
  default:
    front_engine_kill(e);
  }
}

/* Reads all packets; false when the peer is gone. */
static bool front_engine_drain_socket(struct front_engine *e) {
  union ipc_packet packet;
  for (;;) {
    enum ipc_status status = ipc_receive(e->fd, &packet);
    if (status != IPC_DONE) return status == IPC_AGAIN;
    front_engine_on_packet(e, &packet);
  }
}

static void front_engine_on_readable(evutil_socket_t fd, short what, void *user) {
  (void)fd, (void)what;
  struct front_engine *e = user;
  if (front_engine_drain_socket(e)) return;
  /* The socket closed: the process is ending, or is out of its mind. Its end comes by SIGCHLD. */
  event_del(e->readable);
  front_engine_kill(e);
}

/* ---- losing an engine ---- */

static void front_engine_describe_end(struct front_engine *e, int status) {
  if (e->failed.message[0])
    snprintf(e->reason, sizeof e->reason, "%s", e->failed.message);
  else if (WIFSIGNALED(status))
    snprintf(e->reason, sizeof e->reason, "the engine process was ended by signal %d (%s)", WTERMSIG(status),
             strsignal(WTERMSIG(status)));
  else
    snprintf(e->reason, sizeof e->reason, "the engine process ended with code %d", WEXITSTATUS(status));
}

/* Ends every live request with an error. */
static void front_engine_fail_all(struct front_engine *e) {
  struct journal_entry *entry;
  journal_requeue(&e->journal);
  while ((entry = e->journal.first)) front_engine_finish(e, entry, FINISH_ERROR, e->reason);
}

/* Settles what no engine is needed for: requests whose last token came but not their finish, and those that have seen
 * too many engines die (one of them may be what kills them). */
static void front_engine_settle(struct front_engine *e) {
  for (struct journal_entry *entry = e->journal.first, *next; entry; entry = next) {
    enum finish_reason reason;
    next = entry->next;
    if (journal_is_complete(entry, e->description.limits.n_ctx, &reason))
      front_engine_finish(e, entry, reason, NULL);
    else if (entry->n_lost >= JOURNAL_MAX_LOST)
      front_engine_finish(e, entry, FINISH_ERROR, e->reason);
  }
}

static void front_engine_schedule(struct front_engine *e) {
  struct timeval delay = {0};
  if (e->state == FRONT_ENGINE_FAILED) {
    delay.tv_sec = RETRY_SECONDS;
  } else if (e->n_short > 1) {
    long ms = (long)FIRST_BACKOFF_MS << (e->n_short < 10 ? e->n_short - 2 : 8);
    if (ms > RETRY_SECONDS * 1000L) ms = RETRY_SECONDS * 1000L;
    delay = (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
  }
  event_add(e->restart, &delay);
}

/* The present process is gone (reaped). */
static void front_engine_lost(struct front_engine *e, int status) {
  bool by_word = e->failed.message[0] != 0;
  bool lasted = e->ready && front_engine_now() - e->ready_time >= SERVED_SECONDS;
  if (lasted || (e->ready && e->served)) e->n_failure = 0;
  if (lasted) e->n_short = 0;
  e->n_failure++;
  e->n_short++;
  front_engine_close_channel(e);
  e->pid = 0;
  e->ready = false;
  /* The half-announced request, if any, goes again from its start. */
  if (e->sending && e->sending_cancelled) journal_cancel(&e->journal, e->sending);
  e->sending = NULL;
  e->sending_cancelled = false;
  e->n_at_engine = 0;
  front_engine_describe_end(e, status);
  if (e->stopping) {
    e->state = FRONT_ENGINE_STOPPED;
    snprintf(e->reason, sizeof e->reason, "the server is shutting down");
    front_engine_fail_all(e);
    e->sink.on_stopped(e->sink.user);
    return;
  }
  if (!e->ever_ready && (by_word || e->n_failure >= MAX_FAILURES)) {
    e->state = FRONT_ENGINE_FAILED;
    front_engine_fail_all(e);
    e->sink.on_first_failure(e->sink.user, by_word ? (enum moe_code)e->failed.code : MOE_FAILED, e->reason);
    return;
  }
  fprintf(stderr, "moert: the engine is lost: %s\n", e->reason);
  if (e->state != FRONT_ENGINE_FAILED && e->n_failure >= MAX_FAILURES) {
    fprintf(stderr, "moert: giving up after %d engines in a row; trying again every %d s\n", MAX_FAILURES,
            RETRY_SECONDS);
    e->state = FRONT_ENGINE_FAILED;
  } else if (e->state != FRONT_ENGINE_FAILED) {
    e->state = e->ever_ready ? FRONT_ENGINE_RESTARTING : FRONT_ENGINE_LOADING;
  }
  journal_requeue(&e->journal);
  front_engine_settle(e);
  if (e->state == FRONT_ENGINE_FAILED) front_engine_fail_all(e);
  front_engine_schedule(e);
}

static void front_engine_on_child(evutil_socket_t fd, short what, void *user) {
  (void)fd, (void)what;
  struct front_engine *e = user;
  int status = 0;
  if (e->pid <= 0 || waitpid(e->pid, &status, WNOHANG) != e->pid) return;
  /* What it said and emitted before its end still counts. */
  e->pid = 0;
  bool was_ready = e->ready;
  if (e->fd >= 0) front_engine_drain_socket(e);
  while (was_ready && front_engine_take_events(e)) continue;
  front_engine_lost(e, status);
}

static void front_engine_on_restart(evutil_socket_t fd, short what, void *user) {
  (void)fd, (void)what;
  struct front_engine *e = user;
  struct moe_error err = {0};
  if (e->stopping) return;
  e->n_restart++;
  if (front_engine_start(e, &err)) {
    snprintf(e->reason, sizeof e->reason, "%s", err.message);
    fprintf(stderr, "moert: %s\n", err.message);
    e->n_failure++;
    e->n_short++;
    if (e->n_failure >= MAX_FAILURES) {
      e->state = FRONT_ENGINE_FAILED;
      front_engine_fail_all(e);
    }
    front_engine_schedule(e);
  }
}

/* Once a second: an engine that loads or has work and gives no sign of life hangs in its driver, and so does one that
 * said why it ends and does not end. */
static void front_engine_on_watch(evutil_socket_t fd, short what, void *user) {
  (void)fd, (void)what;
  struct front_engine *e = user;
  if (e->pid > 0 && e->failed.message[0]) front_engine_kill(e);
  if (!e->options.timeout || e->pid <= 0) return;
  uint64_t beats = ipc_ring_beats(&e->ring);
  time_t now = front_engine_now();
  if (e->ready && (beats != e->last_beats || e->n_at_engine == 0)) e->last_life = now;
  e->last_beats = beats;
  if (now - e->last_life < (time_t)e->options.timeout) return;
  if (!e->failed.message[0])
    snprintf(e->failed.message, sizeof e->failed.message, "the engine made no %s for %u s",
             e->ready ? "step" : "progress in loading", e->options.timeout);
  e->failed.code = MOE_FAILED;
  front_engine_kill(e);
}

/* The end of front_engine_stop's patience. */
static void front_engine_on_stop_timer(evutil_socket_t fd, short what, void *user) {
  (void)fd, (void)what;
  struct front_engine *e = user;
  if (e->pid > 0) {
    front_engine_kill(e);
  } else if (e->state != FRONT_ENGINE_STOPPED) {
    e->state = FRONT_ENGINE_STOPPED;
    snprintf(e->reason, sizeof e->reason, "the server is shutting down");
    front_engine_fail_all(e);
    e->sink.on_stopped(e->sink.user);
  }
}

/* ---- the object ---- */

enum moe_code front_engine_create(struct event_base *base, const struct front_engine_options *options,
                                  const struct front_engine_sink *sink, struct front_engine **out,
                                  struct moe_error *err) {
  *out = NULL;
  struct front_engine *e = calloc(1, sizeof *e);
  if (!e) return moe_fail(err, MOE_FAILED, "out of memory");
  e->base = base;
  e->options = *options;
  e->sink = *sink;
  e->fd = -1;
  if (stat(options->image_path, &e->image)) memset(&e->image, 0, sizeof e->image);
  e->child = evsignal_new(base, SIGCHLD, front_engine_on_child, e);
  e->restart = evtimer_new(base, front_engine_on_restart, e);
  e->watch = event_new(base, -1, EV_PERSIST, front_engine_on_watch, e);
  e->stop_timer = evtimer_new(base, front_engine_on_stop_timer, e);
  e->more = evtimer_new(base, front_engine_on_more, e);
  struct timeval second = {.tv_sec = 1};
  enum moe_code code = MOE_OK;
  if (!e->child || !e->restart || !e->watch || !e->stop_timer || !e->more || event_add(e->child, NULL) ||
      event_add(e->watch, &second))
    code = moe_fail(err, MOE_FAILED, "out of memory for events");
  if (!code) code = front_engine_start(e, err);
  if (code) {
    front_engine_destroy(e);
    return code;
  }
  *out = e;
  return MOE_OK;
}

void front_engine_destroy(struct front_engine *e) {
  if (!e) return;
  if (e->pid > 0) {
    kill(e->pid, SIGKILL);
    waitpid(e->pid, NULL, 0);
  }
  front_engine_close_channel(e);
  struct event *events[] = {e->child, e->restart, e->watch, e->stop_timer, e->more};
  for (size_t i = 0; i < sizeof events / sizeof *events; i++)
    if (events[i]) event_free(events[i]);
  while (e->journal.first) journal_remove(&e->journal, e->journal.first);
  free(e);
}

void front_engine_get_status(const struct front_engine *e, struct front_engine_status *status) {
  *status = (struct front_engine_status){
      .state = e->state,
      .phase = e->progress.phase,
      .done = e->progress.done,
      .total = e->progress.total,
      .reason = e->reason,
      .limits = e->description.limits,
      .device = e->description.device,
      .tier = e->description.tier,
      .n_restart = e->n_restart,
      .n_live = e->journal.n_entry,
  };
}

struct journal_entry *front_engine_submit(struct front_engine *e, const struct request *request,
                                          const struct journal_sink *sink) {
  struct journal_entry *entry = journal_add(&e->journal, request, sink);
  if (entry && e->writable)
    event_active(e->writable, EV_WRITE, 0); /* from the event loop: no callback before the return */
  return entry;
}

void front_engine_cancel(struct front_engine *e, struct journal_entry *entry) {
  if (entry == e->sending)
    e->sending_cancelled = true; /* the engine expects the rest of its prompt first */
  else
    journal_cancel(&e->journal, entry);
  front_engine_pump(e);
}

void front_engine_stop(struct front_engine *e) {
  if (e->stopping) return;
  e->stopping = true;
  event_del(e->restart);
  struct timeval patience = {.tv_sec = e->pid > 0 && e->ready ? STOP_SECONDS : 0};
  if (e->pid > 0 && e->ready) {
    ipc_packet_init(&e->packet, IPC_SHUTDOWN);
    ipc_send(e->fd, &e->packet);
  }
  event_add(e->stop_timer, &patience);
}
