/* front_http.h: an HTTP/1.1 server on libevent's bufferevents.
 *
 * Owns: the listening socket, connections, framing of requests and replies, limits of size and time, and noticing at
 * once that a client is gone while its reply is being made. Does not own: routes and bodies' meaning (front_api.c),
 * grammar (front_http_parse.h). Why not evhttp: libevent 2.1's evhttp answers requests that it cannot parse, or that
 * are too large, by HTML pages that cannot be replaced, does not tell how many connections are open, and its one
 * timeout covers waiting for a request as well as the pause of a running stream. libwebsockets 4.1 takes no chunked
 * request bodies. So the sockets, buffers and timers are libevent's, and the small grammar is ours, stricter than both.
 * Invariants: a request gets exactly one reply or its on_close; memory of a connection is bounded by the limits;
 * nothing blocks. Thread rules: everything on the thread of the event base. */
#ifndef RUNTIME_FRONT_HTTP_H
#define RUNTIME_FRONT_HTTP_H

#include "front_http_parse.h"
#include "moe_error.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_server;
struct http_request; /* valid until its reply is complete or its on_close was called */

struct http_limits {
  int max_connections;
  size_t max_body;  /* bytes of a request's body */
  int timeout;      /* seconds: for a whole head, and for each pause in sending a body or taking a reply */
  size_t max_reply; /* bytes of a reply that a slow client may leave unread before it is dropped */
};

/* Called with each whole request. Must reply, now or later; when later, it sets on_close first. */
typedef void http_handler_fn(void *user, struct http_request *request);
/* The client is gone before the reply was complete. The request is invalid after this returns. */
typedef void http_closed_fn(void *user);

/* Binds and listens. port 0: the system picks one. Errors: MOE_FAILED: names address, port and the system's reason. */
enum moe_code http_server_open(struct event_base *base, const char *host, uint16_t port,
                               const struct http_limits *limits, http_handler_fn *handler, void *user,
                               struct http_server **out, struct moe_error *err);
uint16_t http_server_port(const struct http_server *server);
/* Stops listening and closes connections that wait for a request; replies in progress go on. */
void http_server_stop(struct http_server *server);
/* Connections that are open, for the end of a graceful stop. */
size_t http_server_connections(const struct http_server *server);
/* Closes everything; on_close is called for requests without a complete reply. */
void http_server_close(struct http_server *server);

const char *http_request_method(const struct http_request *request);
const char *http_request_path(const struct http_request *request);
const char *http_request_field(const struct http_request *request, const char *name); /* NULL when absent */
/* The body; not terminated. Valid until the reply is complete. */
const char *http_request_body(struct http_request *request, size_t *bytes);

void http_request_on_close(struct http_request *request, http_closed_fn *on_close, void *user);

/* A whole reply. extra: further header lines, each with CR LF, or NULL. The body is copied. */
void http_reply(struct http_request *request, int status, const char *content_type, const char *extra, const char *body,
                size_t bytes);

/* A reply in pieces: begin, any number of writes, end. */
void http_stream_begin(struct http_request *request, const char *content_type);
void http_stream_write(struct http_request *request, const char *data, size_t bytes);
void http_stream_end(struct http_request *request);
bool http_stream_begun(const struct http_request *request);

#endif
