#include "front_http.h"

#include "front_error.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
  HTTP_MAX_HEAD = 32768,     /* bytes of a request head */
  HTTP_READ_AHEAD = 65536,   /* bytes taken from a socket beyond what is needed now */
  HTTP_OVERFLOW = 32,        /* connections above max_connections that are told so */
  HTTP_MIN_BODY_RATE = 4096, /* bytes a second that a body must make on the whole */
  HTTP_LINGER_SECONDS = 2,   /* how long a refused client may still send */
};

enum http_state {
  HTTP_HEAD,     /* waits for a request */
  HTTP_BODY,     /* its body arrives */
  HTTP_HANDLING, /* the handler has it; the reply is not complete */
  HTTP_FLUSH,    /* the reply is complete; its bytes are on their way */
  HTTP_LINGER,   /* refused: what still arrives is thrown away, so that the reply is not lost to a reset */
};

enum http_chunk_state { HTTP_CHUNK_SIZE, HTTP_CHUNK_DATA, HTTP_CHUNK_END, HTTP_CHUNK_TRAILER };

/* One connection and the one request that is current on it. */
struct http_request {
  struct http_server *server;
  struct http_request *next, *previous;
  struct bufferevent *bev;
  struct event *deadline; /* ends phases that take too long */
  struct event *kick;     /* continues after a reply, from the event loop */
  enum http_state state;
  bool overflow;    /* one connection too many: gets a 503 */
  bool close_after; /* no further request after this reply */
  bool linger;
  bool dead;           /* to be freed from the event loop */
  bool begun, chunked; /* of a reply in pieces */
  struct http_head head;
  char *head_text;
  struct evbuffer *body;
  uint64_t body_left; /* of the body or of the current chunk */
  enum http_chunk_state chunk;
  size_t trailer_bytes;
  http_closed_fn *on_close;
  void *on_close_user;
};

struct http_server {
  struct event_base *base;
  struct evconnlistener *listener;
  struct event *resume; /* listens again after the process ran out of descriptors */
  struct http_limits limits;
  http_handler_fn *handler;
  void *user;
  struct http_request *first;
  size_t n_connection;
  uint16_t port;
  bool stopping;
};

static void http_advance(struct http_request *r);

/* ---- the life of a connection ---- */

static void http_release_request(struct http_request *r) {
  free(r->head_text);
  r->head_text = NULL;
  evbuffer_drain(r->body, evbuffer_get_length(r->body));
  r->on_close = NULL;
  r->begun = r->chunked = false;
}

/* Frees the connection, telling the handler first when it still owed a reply. Only from event callbacks. */
static void http_free(struct http_request *r) {
  struct http_server *server = r->server;
  http_closed_fn *on_close = r->state == HTTP_HANDLING ? r->on_close : NULL;
  if (on_close) on_close(r->on_close_user);
  if (r->previous)
    r->previous->next = r->next;
  else
    server->first = r->next;
  if (r->next) r->next->previous = r->previous;
  server->n_connection--;
  if (server->listener) evconnlistener_enable(server->listener);
  http_release_request(r);
  event_free(r->deadline);
  event_free(r->kick);
  evbuffer_free(r->body);
  bufferevent_free(r->bev);
  free(r);
}

static void http_set_deadline(struct http_request *r, uint64_t seconds) {
  struct timeval time = {.tv_sec = (time_t)seconds};
  event_add(r->deadline, &time);
}

/* Asks the event loop to look at the connection again. */
static void http_kick(struct http_request *r) {
  event_active(r->kick, 0, 0);
}

static void http_next_request(struct http_request *r) {
  http_release_request(r);
  r->state = HTTP_HEAD;
  http_set_deadline(r, (uint64_t)r->server->limits.timeout);
}

/* After the last byte of a reply went to the system. */
static void http_flushed(struct http_request *r) {
  if (r->linger) {
    http_release_request(r);
    r->state = HTTP_LINGER;
    shutdown(bufferevent_getfd(r->bev), SHUT_WR);
    http_set_deadline(r, HTTP_LINGER_SECONDS);
    http_advance(r);
  } else if (r->close_after || r->server->stopping) {
    http_free(r);
  } else {
    http_next_request(r);
    http_advance(r);
  }
}

static void http_on_kick(evutil_socket_t fd, short what, void *user) {
  (void)fd, (void)what;
  struct http_request *r = user;
  if (r->dead)
    http_free(r);
  else if (r->state == HTTP_FLUSH && evbuffer_get_length(bufferevent_get_output(r->bev)) == 0)
    http_flushed(r);
}

/* ---- replies ---- */

static void http_finish(struct http_request *r) {
  r->state = HTTP_FLUSH;
  event_del(r->deadline);
  if (evbuffer_get_length(bufferevent_get_output(r->bev)) == 0) http_kick(r);
}

static void http_write_head(struct http_request *r, int status, const char *content_type, const char *extra) {
  struct evbuffer *out = bufferevent_get_output(r->bev);
  char date[64];
  time_t now = time(NULL);
  struct tm utc;
  strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &utc));
  if (r->server->stopping || !r->head.keep_alive) r->close_after = true;
  evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nServer: moert\r\nContent-Type: %s\r\n%s", status,
                      http_status_phrase(status), date, content_type, extra ? extra : "");
  /* HTTP/1.0 clients keep a connection only when told so. */
  if (r->close_after)
    evbuffer_add_printf(out, "Connection: close\r\n");
  else if (r->head.minor == 0)
    evbuffer_add_printf(out, "Connection: keep-alive\r\n");
}

static bool http_is_head_request(const struct http_request *r) {
  return r->head_text && r->head.method && !strcmp(r->head.method, "HEAD");
}

void http_reply(struct http_request *r, int status, const char *content_type, const char *extra, const char *body,
                size_t bytes) {
  struct evbuffer *out = bufferevent_get_output(r->bev);
  http_write_head(r, status, content_type, extra);
  evbuffer_add_printf(out, "Content-Length: %zu\r\n\r\n", bytes);
  if (!http_is_head_request(r)) evbuffer_add(out, body, bytes);
  http_finish(r);
}

void http_stream_begin(struct http_request *r, const char *content_type) {
  r->begun = true;
  r->chunked = r->head.minor == 1;
  if (!r->chunked) r->close_after = true; /* HTTP/1.0: the end of the body is the end of the connection */
  http_write_head(r, 200, content_type, "Cache-Control: no-cache\r\n");
  evbuffer_add_printf(bufferevent_get_output(r->bev), r->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
}

void http_stream_write(struct http_request *r, const char *data, size_t bytes) {
  struct evbuffer *out = bufferevent_get_output(r->bev);
  if (bytes == 0 || r->dead) return;
  if (evbuffer_get_length(out) > r->server->limits.max_reply) {
    r->dead = true; /* not here: the caller still uses the request */
    http_kick(r);
    return;
  }
  if (r->chunked) evbuffer_add_printf(out, "%zx\r\n", bytes);
  evbuffer_add(out, data, bytes);
  if (r->chunked) evbuffer_add(out, "\r\n", 2);
}

void http_stream_end(struct http_request *r) {
  if (r->chunked) evbuffer_add(bufferevent_get_output(r->bev), "0\r\n\r\n", 5);
  http_finish(r);
}

bool http_stream_begun(const struct http_request *r) {
  return r->begun;
}

/* Answers a request that is not going to be handled, and closes. */
static void http_refuse(struct http_request *r, int status, const char *reason) {
  struct front_error error = {0};
  front_fail(&error, status, NULL, NULL, "%s", reason);
  char *text = front_error_text(&error);
  r->close_after = r->linger = true;
  http_reply(r, status, "application/json", NULL, text ? text : "", text ? strlen(text) : 0);
  free(text);
}

/* ---- requests ---- */

static void http_dispatch(struct http_request *r) {
  r->state = HTTP_HANDLING;
  event_del(r->deadline);
  r->server->handler(r->server->user, r);
}

/* Whether the body may be read; refuses otherwise. */
static bool http_accept_body(struct http_request *r, uint64_t bytes) {
  if (bytes <= r->server->limits.max_body && evbuffer_get_length(r->body) <= r->server->limits.max_body - bytes)
    return true;
  char reason[128];
  snprintf(reason, sizeof reason, "the request's body is larger than the limit of %zu bytes",
           r->server->limits.max_body);
  http_refuse(r, 413, reason);
  return false;
}

/* Takes a head from the input; false when the loop must stop (more bytes needed, or refused). */
static bool http_take_head(struct http_request *r) {
  struct evbuffer *in = bufferevent_get_input(r->bev);
  size_t bytes = evbuffer_get_length(in), skip = 0;
  if (bytes > HTTP_MAX_HEAD) bytes = HTTP_MAX_HEAD;
  if (bytes == 0) return false;
  struct http_refusal refusal;
  const char *data = (const char *)evbuffer_pullup(in, (ev_ssize_t)bytes);
  size_t length = http_head_length(data, bytes, &skip, &refusal);
  memset(&r->head, 0, sizeof r->head);
  if (refusal.status || (!length && bytes == HTTP_MAX_HEAD)) {
    http_refuse(r, refusal.status ? refusal.status : 431,
                refusal.status ? refusal.reason : "the request head is larger than 32768 bytes");
    return false;
  }
  if (!length) return false;
  r->head_text = malloc(length);
  if (!r->head_text) {
    r->dead = true;
    http_kick(r);
    return false;
  }
  memcpy(r->head_text, data + skip, length - skip);
  evbuffer_drain(in, length);
  if (!http_parse_head(r->head_text, length - skip, &r->head, &refusal)) {
    http_refuse(r, refusal.status, refusal.reason);
    return false;
  }
  if (r->overflow) {
    http_refuse(r, 503, "too many connections; try again later (the limit is --max-connections)");
    return false;
  }
  if (!http_accept_body(r, r->head.body_bytes)) return false;
  if (r->head.expect_continue && (r->head.chunked || r->head.body_bytes))
    evbuffer_add_printf(bufferevent_get_output(r->bev), "HTTP/1.1 100 Continue\r\n\r\n");
  r->state = HTTP_BODY;
  r->body_left = r->head.body_bytes;
  r->chunk = HTTP_CHUNK_SIZE;
  r->trailer_bytes = 0;
  uint64_t most = r->head.chunked ? r->server->limits.max_body : r->head.body_bytes;
  http_set_deadline(r, (uint64_t)r->server->limits.timeout + most / HTTP_MIN_BODY_RATE);
  return true;
}

/* Moves what has arrived of the current piece into the body; true when the piece is whole. */
static bool http_take_bytes(struct http_request *r) {
  struct evbuffer *in = bufferevent_get_input(r->bev);
  size_t bytes = evbuffer_get_length(in);
  if (bytes > r->body_left) bytes = (size_t)r->body_left;
  if (bytes) evbuffer_remove_buffer(in, r->body, bytes);
  r->body_left -= bytes;
  return r->body_left == 0;
}

/* One line of a chunked body. Returns it (allocated, *bytes long) or NULL when it has not arrived, or is refused. */
static char *http_take_chunk_line(struct http_request *r, size_t *bytes) {
  struct evbuffer *in = bufferevent_get_input(r->bev);
  char *line = evbuffer_readln(in, bytes, EVBUFFER_EOL_CRLF_STRICT);
  if ((line && *bytes > 1024) || (!line && evbuffer_get_length(in) > 1024)) {
    free(line);
    http_refuse(r, 400, "a line of the chunked body is longer than 1024 bytes");
    return NULL;
  }
  return line;
}

/* Takes one element of a chunked body. Returns false when the loop must stop. *whole: the body is complete. */
static bool http_take_chunk(struct http_request *r, bool *whole) {
  size_t bytes = 0;
  if (r->chunk == HTTP_CHUNK_DATA) {
    if (!http_take_bytes(r)) return false;
    r->chunk = HTTP_CHUNK_END;
    return true;
  }
  char *line = http_take_chunk_line(r, &bytes);
  if (!line) return false;
  bool ok = true;
  if (r->chunk == HTTP_CHUNK_SIZE) {
    ok = http_parse_chunk_size(line, bytes, &r->body_left);
    r->chunk = ok && r->body_left ? HTTP_CHUNK_DATA : HTTP_CHUNK_TRAILER;
  } else if (r->chunk == HTTP_CHUNK_END) {
    ok = bytes == 0;
    r->chunk = HTTP_CHUNK_SIZE;
  } else {
    r->trailer_bytes += bytes;
    *whole = bytes == 0;
    ok = r->trailer_bytes <= 8192;
  }
  free(line);
  if (!ok) http_refuse(r, 400, "the chunked body is malformed");
  return ok && (r->chunk != HTTP_CHUNK_DATA || http_accept_body(r, r->body_left));
}

/* Does whatever the bytes at hand allow. */
static void http_advance(struct http_request *r) {
  for (;;) {
    if (r->state == HTTP_HEAD) {
      if (!http_take_head(r)) return;
    } else if (r->state == HTTP_BODY) {
      bool whole = false;
      if (r->head.chunked ? !http_take_chunk(r, &whole) : !(whole = http_take_bytes(r))) return;
      if (whole) http_dispatch(r);
    } else if (r->state == HTTP_LINGER) {
      struct evbuffer *in = bufferevent_get_input(r->bev);
      evbuffer_drain(in, evbuffer_get_length(in));
      return;
    } else {
      return;
    }
  }
}

/* ---- event callbacks ---- */

static void http_on_read(struct bufferevent *bev, void *user) {
  (void)bev;
  http_advance(user);
}

static void http_on_drained(struct bufferevent *bev, void *user) {
  struct http_request *r = user;
  if (r->state == HTTP_FLUSH && evbuffer_get_length(bufferevent_get_output(bev)) == 0) http_flushed(r);
}

static void http_on_event(struct bufferevent *bev, short what, void *user) {
  struct http_request *r = user;
  bool only_eof = (what & BEV_EVENT_EOF) && !(what & (BEV_EVENT_ERROR | BEV_EVENT_TIMEOUT));
  /* A client may stop sending after its request and still read the rest of a reply that is already complete. */
  if (only_eof && r->state == HTTP_FLUSH && evbuffer_get_length(bufferevent_get_output(bev))) {
    r->close_after = true;
    r->linger = false;
    return;
  }
  http_free(r);
}

static void http_on_deadline(evutil_socket_t fd, short what, void *user) {
  (void)fd, (void)what;
  struct http_request *r = user;
  bool partial =
      r->state == HTTP_BODY || (r->state == HTTP_HEAD && evbuffer_get_length(bufferevent_get_input(r->bev)) > 0);
  if (partial)
    http_refuse(r, 408, "the request did not arrive in time");
  else
    http_free(r);
}

static void http_on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int length,
                           void *user) {
  (void)address, (void)length;
  struct http_server *server = user;
  struct http_request *r = calloc(1, sizeof *r);
  if (r) r->body = evbuffer_new();
  if (r) r->deadline = evtimer_new(server->base, http_on_deadline, r);
  if (r) r->kick = event_new(server->base, -1, 0, http_on_kick, r);
  if (r) r->bev = bufferevent_socket_new(server->base, fd, BEV_OPT_CLOSE_ON_FREE);
  if (!r || !r->body || !r->deadline || !r->kick || !r->bev) {
    if (r && r->body) evbuffer_free(r->body);
    if (r && r->deadline) event_free(r->deadline);
    if (r && r->kick) event_free(r->kick);
    if (r && r->bev)
      bufferevent_free(r->bev);
    else
      close(fd);
    free(r);
    return;
  }
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* a token must not wait for the next one */
  /* A client whose machine vanished while a whole answer is made: noticed within two minutes, not two hours. */
  int idle = 60, interval = 15, probes = 4;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  r->server = server;
  r->overflow = server->n_connection >= (size_t)server->limits.max_connections;
  r->next = server->first;
  if (r->next) r->next->previous = r;
  server->first = r;
  if (++server->n_connection >= (size_t)server->limits.max_connections + HTTP_OVERFLOW)
    evconnlistener_disable(listener);
  struct timeval patience = {.tv_sec = server->limits.timeout};
  bufferevent_setcb(r->bev, http_on_read, http_on_drained, http_on_event, r);
  bufferevent_setwatermark(r->bev, EV_READ, 0, HTTP_READ_AHEAD);
  bufferevent_set_timeouts(r->bev, NULL, &patience);
  http_next_request(r);
  bufferevent_enable(r->bev, EV_READ | EV_WRITE);
}

/* accept() failed, most likely for want of descriptors: try again a little later instead of at once and forever. */
static void http_on_accept_error(struct evconnlistener *listener, void *user) {
  struct http_server *server = user;
  struct timeval later = {.tv_usec = 100000};
  evconnlistener_disable(listener);
  event_add(server->resume, &later);
}

static void http_on_resume(evutil_socket_t fd, short what, void *user) {
  (void)fd, (void)what;
  struct http_server *server = user;
  if (server->listener) evconnlistener_enable(server->listener);
}

/* ---- the server ---- */

static enum moe_code http_listen(struct http_server *server, const char *host, uint16_t port, struct moe_error *err) {
  char service[8];
  snprintf(service, sizeof service, "%u", port);
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
  int status = getaddrinfo(host, service, &hints, &found);
  if (status) return moe_fail(err, MOE_FAILED, "cannot listen on %s: %s", host, gai_strerror(status));
  errno = 0;
  server->listener = evconnlistener_new_bind(server->base, http_on_accept, server,
                                             LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE, 512,
                                             found->ai_addr, (int)found->ai_addrlen);
  freeaddrinfo(found);
  if (!server->listener) {
    int reason = errno ? errno : EADDRNOTAVAIL;
    return moe_fail(err, MOE_FAILED, "cannot listen on %s port %u: %s%s", host, port, strerror(reason),
                    reason == EADDRINUSE ? "; choose another one with --port, or 0 for any free one" : "");
  }
  evconnlistener_set_error_cb(server->listener, http_on_accept_error);
  struct sockaddr_storage bound = {0};
  socklen_t length = sizeof bound;
  getsockname(evconnlistener_get_fd(server->listener), (struct sockaddr *)&bound, &length);
  server->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                   : ((struct sockaddr_in *)&bound)->sin_port);
  return MOE_OK;
}

enum moe_code http_server_open(struct event_base *base, const char *host, uint16_t port,
                               const struct http_limits *limits, http_handler_fn *handler, void *user,
                               struct http_server **out, struct moe_error *err) {
  *out = NULL;
  struct http_server *server = calloc(1, sizeof *server);
  if (!server) return moe_fail(err, MOE_FAILED, "HTTP server: out of memory");
  server->base = base;
  server->limits = *limits;
  server->handler = handler;
  server->user = user;
  server->resume = evtimer_new(base, http_on_resume, server);
  enum moe_code code =
      server->resume ? http_listen(server, host, port, err) : moe_fail(err, MOE_FAILED, "HTTP server: out of memory");
  if (code) {
    http_server_close(server);
    return code;
  }
  *out = server;
  return MOE_OK;
}

uint16_t http_server_port(const struct http_server *server) {
  return server->port;
}

size_t http_server_connections(const struct http_server *server) {
  return server->n_connection;
}

void http_server_stop(struct http_server *server) {
  server->stopping = true;
  if (server->listener) evconnlistener_free(server->listener);
  server->listener = NULL;
  for (struct http_request *r = server->first, *next; r; r = next) {
    next = r->next;
    if (r->state == HTTP_HEAD) http_free(r);
  }
}

void http_server_close(struct http_server *server) {
  if (!server) return;
  if (server->listener) evconnlistener_free(server->listener);
  server->listener = NULL;
  while (server->first) http_free(server->first);
  if (server->resume) event_free(server->resume);
  free(server);
}

const char *http_request_method(const struct http_request *r) {
  return r->head.method;
}
const char *http_request_path(const struct http_request *r) {
  return r->head.path;
}

const char *http_request_field(const struct http_request *r, const char *name) {
  return http_find_field(&r->head, name);
}

const char *http_request_body(struct http_request *r, size_t *bytes) {
  *bytes = evbuffer_get_length(r->body);
  return *bytes ? (const char *)evbuffer_pullup(r->body, -1) : "";
}

void http_request_on_close(struct http_request *r, http_closed_fn *on_close, void *user) {
  r->on_close = on_close;
  r->on_close_user = user;
}
