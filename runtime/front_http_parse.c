#include "front_http_parse.h"

#include <string.h>
#include <strings.h>

static bool refuse(struct http_refusal *refusal, int status, const char *reason) {
  *refusal = (struct http_refusal){status, reason};
  return false;
}

/* Characters of methods and field names (RFC 9110 token). */
static bool is_token_char(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(const char *text) {
  if (!*text) return false;
  for (; *text; text++)
    if (!is_token_char((unsigned char)*text)) return false;
  return true;
}

size_t http_head_length(const char *data, size_t bytes, size_t *skip, struct http_refusal *refusal) {
  size_t at = 0;
  *refusal = (struct http_refusal){0};
  while (bytes - at >= 2 && data[at] == '\r' && data[at + 1] == '\n') at += 2;
  *skip = at;
  if (at < bytes && data[at] != '\r' && !is_token_char((unsigned char)data[at])) {
    refuse(refusal, 400, "this is not HTTP (is it TLS? the server speaks plain HTTP)");
    return 0;
  }
  for (size_t line = at; line < bytes;) {
    const char *lf = memchr(data + line, '\n', bytes - line);
    if (!lf) return 0;
    size_t end = (size_t)(lf - data);
    if (end == line || data[end - 1] != '\r') {
      refuse(refusal, 400, "a line of the request head does not end in CR LF");
      return 0;
    }
    if (end - 1 == line) return end + 1;
    line = end + 1;
  }
  return 0;
}

/* "METHOD TARGET HTTP/1.x", terminated. */
static bool parse_request_line(char *line, struct http_head *head, struct http_refusal *refusal) {
  char *target = strchr(line, ' ');
  char *version = target ? strchr(target + 1, ' ') : NULL;
  if (!version || strchr(version + 1, ' '))
    return refuse(refusal, 400, "the request line is not METHOD TARGET VERSION with one space between");
  *target++ = 0;
  *version++ = 0;
  if (!is_token(line) || strlen(line) > 32) return refuse(refusal, 400, "the request's method is not a token");
  if (strncmp(version, "HTTP/", 5)) return refuse(refusal, 400, "the request line does not end in an HTTP version");
  if (strcmp(version, "HTTP/1.0") && strcmp(version, "HTTP/1.1"))
    return refuse(refusal, 505, "only HTTP/1.0 and HTTP/1.1 are served");
  head->minor = version[7] - '0';
  head->method = line;
  for (const unsigned char *c = (unsigned char *)target; *c; c++)
    if (*c <= ' ' || *c >= 127)
      return refuse(refusal, 400, "the request target holds a character that must be percent-encoded");
  if (!strncasecmp(target, "http://", 7)) { /* the absolute form, as a proxy would send it */
    char *path = strchr(target + 7, '/');
    target = path ? path : "/";
  }
  if (target[0] != '/' && strcmp(target, "*")) return refuse(refusal, 400, "the request target does not start with /");
  char *query = strchr(target, '?');
  head->query = "";
  if (query) {
    *query = 0;
    head->query = query + 1;
  }
  head->path = target;
  return true;
}

/* "Name: value", terminated. */
static bool parse_field(char *line, struct http_head *head, struct http_refusal *refusal) {
  if (*line == ' ' || *line == '\t') return refuse(refusal, 400, "a header field is folded over several lines");
  if (head->n_field == HTTP_MAX_HEADER_FIELDS)
    return refuse(refusal, 431, "the request has more than 128 header fields");
  char *colon = strchr(line, ':');
  if (!colon) return refuse(refusal, 400, "a header field has no colon");
  *colon = 0;
  if (!is_token(line)) return refuse(refusal, 400, "a header field's name is not a token");
  char *value = colon + 1;
  while (*value == ' ' || *value == '\t') value++;
  size_t length = strlen(value);
  while (length && (value[length - 1] == ' ' || value[length - 1] == '\t')) length--;
  value[length] = 0;
  for (const unsigned char *c = (unsigned char *)value; *c; c++)
    if ((*c < ' ' && *c != '\t') || *c == 127) return refuse(refusal, 400, "a header field holds a control character");
  head->field[head->n_field++] = (struct http_field){line, value};
  return true;
}

const char *http_find_field(const struct http_head *head, const char *name) {
  for (size_t i = 0; i < head->n_field; i++)
    if (!strcasecmp(head->field[i].name, name)) return head->field[i].value;
  return NULL;
}

static size_t count_fields(const struct http_head *head, const char *name) {
  size_t count = 0;
  for (size_t i = 0; i < head->n_field; i++) count += !strcasecmp(head->field[i].name, name);
  return count;
}

/* Whether a comma-separated list holds the word. */
static bool list_has(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *at = list; at && *at;) {
    at += strspn(at, " \t,");
    size_t n = strcspn(at, " \t,");
    if (n == length && !strncasecmp(at, word, n)) return true;
    at += n;
  }
  return false;
}

static bool parse_content_length(const char *text, uint64_t *bytes) {
  uint64_t value = 0;
  if (!*text) return false;
  for (; *text; text++) {
    if (*text < '0' || *text > '9') return false;
    if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
        __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
      return false;
  }
  *bytes = value;
  return true;
}

/* What the fields say about the body and the connection. */
static bool parse_framing(struct http_head *head, struct http_refusal *refusal) {
  const char *length = http_find_field(head, "Content-Length");
  const char *encoding = http_find_field(head, "Transfer-Encoding");
  const char *connection = http_find_field(head, "Connection");
  const char *expect = http_find_field(head, "Expect");
  if (count_fields(head, "Content-Length") > 1)
    return refuse(refusal, 400, "the request has several Content-Length fields");
  if (length && encoding) return refuse(refusal, 400, "the request has both Content-Length and Transfer-Encoding");
  if (encoding && (strcasecmp(encoding, "chunked") || count_fields(head, "Transfer-Encoding") > 1))
    return refuse(refusal, 501, "the only transfer encoding served is chunked");
  if (encoding && head->minor == 0) return refuse(refusal, 400, "an HTTP/1.0 request has a Transfer-Encoding");
  if (length && !parse_content_length(length, &head->body_bytes))
    return refuse(refusal, 400, "Content-Length is not a number");
  head->chunked = encoding != NULL;
  if (head->minor == 1 && count_fields(head, "Host") != 1)
    return refuse(refusal, 400, "an HTTP/1.1 request needs one Host field");
  head->keep_alive = head->minor == 1 ? !(connection && list_has(connection, "close"))
                                      : connection && list_has(connection, "keep-alive");
  if (expect && strcasecmp(expect, "100-continue"))
    return refuse(refusal, 417, "the only expectation served is 100-continue");
  head->expect_continue = expect && head->minor == 1;
  return true;
}

bool http_parse_head(char *text, size_t bytes, struct http_head *head, struct http_refusal *refusal) {
  memset(head, 0, sizeof *head);
  if (memchr(text, 0, bytes)) return refuse(refusal, 400, "the request head holds a zero byte");
  bool first = true;
  for (char *line = text; line < text + bytes;) {
    char *lf = memchr(line, '\n', (size_t)(text + bytes - line));
    if (!lf || lf == line || lf[-1] != '\r')
      return refuse(refusal, 400, "a line of the request head does not end in CR LF");
    lf[-1] = 0;
    if (!*line) break;
    if (!(first ? parse_request_line(line, head, refusal) : parse_field(line, head, refusal))) return false;
    first = false;
    line = lf + 1;
  }
  if (first) return refuse(refusal, 400, "the request is empty");
  return parse_framing(head, refusal);
}

bool http_parse_chunk_size(const char *line, size_t bytes, uint64_t *size) {
  uint64_t value = 0;
  size_t i = 0;
  for (; i < bytes && i < 16; i++) {
    char c = line[i];
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0) break;
    value = value << 4 | (uint64_t)digit;
  }
  if (i == 0 || i == 16) return false;
  if (i < bytes && line[i] != ';' && line[i] != ' ' && line[i] != '\t') return false;
  for (; i < bytes; i++) /* an extension; a bare CR or LF in it is a line's end to other parsers */
    if (((unsigned char)line[i] < ' ' && line[i] != '\t') || line[i] == 127) return false;
  *size = value;
  return true;
}

const char *http_status_phrase(int status) {
  switch (status) {
  case 100:
    return "Continue";
  case 200:
    return "OK";
  case 400:
    return "Bad Request";
  case 401:
    return "Unauthorized";
  case 404:
    return "Not Found";
  case 405:
    return "Method Not Allowed";
  case 408:
    return "Request Timeout";
  case 413:
    return "Content Too Large";
  case 417:
    return "Expectation Failed";
  case 429:
    return "Too Many Requests";
  case 431:
    return "Request Header Fields Too Large";
  case 500:
    return "Internal Server Error";
  case 501:
    return "Not Implemented";
  case 503:
    return "Service Unavailable";
  case 505:
    return "HTTP Version Not Supported";
  default:
    return "Status";
  }
}
