/* front_error.h: errors as HTTP clients get them, in OpenAI's shape:
 * {"error":{"message":...,"type":...,"param":...,"code":...}}.
 *
 * Owns: the mapping from an HTTP status to the type, and the JSON. Does not own: sending. */
#ifndef RUNTIME_FRONT_ERROR_H
#define RUNTIME_FRONT_ERROR_H

#include <jansson.h>

/* An error on its way to a client. status 0: none yet. The first one wins, as in moe_error.h. */
struct front_error {
  int status;       /* HTTP status */
  const char *code; /* constant, machine-readable: "context_length_exceeded"; NULL: none */
  char param[64];   /* the request's field, or "" */
  char message[1024];
};

/* Records an error (unless one is there) and returns false, so that validators can `return front_fail(...)`. */
_Bool front_fail(struct front_error *error, int status, const char *code, const char *param, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* The JSON object; the caller owns the reference. NULL only when memory is out. */
json_t *front_error_json(const struct front_error *error);

/* The same as text with a line end, allocated; the caller frees it. Never NULL short of memory. */
char *front_error_text(const struct front_error *error);

#endif
