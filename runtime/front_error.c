#include "front_error.h"

#include "utf8.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes a text valid UTF-8: a client's broken bytes may be quoted in it, and its end may have been cut. */
static void front_error_clean(char *text) {
  size_t n = strlen(text);
  for (size_t at = 0; at < n;) {
    int k = utf8_next((const uint8_t *)text + at, n - at);
    size_t bad = k > 0 ? 0 : k < 0 ? (size_t)-k : n - at;
    memset(text + at, '?', bad);
    at += k > 0 ? (size_t)k : bad;
  }
}

bool front_fail(struct front_error *error, int status, const char *code, const char *param, const char *format, ...) {
  if (error->status) return false;
  error->status = status;
  error->code = code;
  snprintf(error->param, sizeof error->param, "%s", param ? param : "");
  front_error_clean(error->param);
  va_list args;
  va_start(args, format);
  vsnprintf(error->message, sizeof error->message, format, args);
  va_end(args);
  front_error_clean(error->message);
  return false;
}

static const char *front_error_type(int status) {
  switch (status) {
  case 401:
    return "authentication_error";
  case 404:
    return "not_found_error";
  case 429:
    return "rate_limit_error";
  case 501:
    return "not_supported_error";
  case 503:
    return "unavailable_error";
  default:
    return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

json_t *front_error_json(const struct front_error *error) {
  return json_pack("{s:{s:s,s:s,s:s?,s:s?}}", "error", "message", error->message, "type",
                   front_error_type(error->status), "param", error->param[0] ? error->param : NULL, "code",
                   error->code);
}

char *front_error_text(const struct front_error *error) {
  json_t *body = front_error_json(error);
  char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
  json_decref(body);
  return text;
}
