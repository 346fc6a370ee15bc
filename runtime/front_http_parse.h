/* front_http_parse.h: HTTP/1.x request heads and chunked bodies, as pure functions over bytes.
 *
 * Owns: the grammar (RFC 9112) and its strictness. Does not own: connections, limits of time, replies.
 * Invariants: never reads outside the given bytes; every result is a whole value or an HTTP status with a reason.
 * Anything on which two HTTP parsers could disagree (bare LF, folded lines, several lengths, length beside chunked,
 * spaces around names) is refused. Thread rules: none, no state. */
#ifndef RUNTIME_FRONT_HTTP_PARSE_H
#define RUNTIME_FRONT_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_MAX_HEADER_FIELDS = 128 };

struct http_field {
  const char *name, *value; /* terminated; point into the head */
};

/* A parsed head; every string points into the buffer given to http_parse_head. */
struct http_head {
  const char *method, *path; /* path without query, still percent-encoded */
  const char *query;         /* after '?', or "" */
  int minor;                 /* HTTP/1.minor: 0 or 1 */
  struct http_field field[HTTP_MAX_HEADER_FIELDS];
  size_t n_field;
  bool keep_alive;      /* what version and Connection ask for */
  bool chunked;         /* the body comes in chunks */
  bool expect_continue; /* the client waits for 100 Continue */
  uint64_t body_bytes;  /* Content-Length, 0 when absent or chunked */
};

/* Why something was refused: an HTTP status and a constant sentence. */
struct http_refusal {
  int status;
  const char *reason;
};

/* Length of the head at the start of data (through its empty line); 0 when more bytes are needed. At a line that cannot
 * be part of any head *refusal is set (status not 0) and 0 returned. Empty lines before the request line are skipped:
 * *skip bytes of them lie before the head, and are counted in the length. */
size_t http_head_length(const char *data, size_t bytes, size_t *skip, struct http_refusal *refusal);

/* Parses a whole head in place (writes terminators into text[0..bytes)). text starts at the request line and ends with
 * the empty line. Returns false and fills *refusal when it is not acceptable. */
bool http_parse_head(char *text, size_t bytes, struct http_head *head, struct http_refusal *refusal);

/* The first value of a field, by case-insensitive name; NULL when absent. */
const char *http_find_field(const struct http_head *head, const char *name);

/* One step of a chunked body's line: parses "SIZE[;extensions]" without its CRLF. False when malformed. */
bool http_parse_chunk_size(const char *line, size_t bytes, uint64_t *size);

/* The standard phrase of a status code. */
const char *http_status_phrase(int status);

#endif
