#include "moe_error.h"

#include <stdarg.h>
#include <stdio.h>

enum moe_code moe_fail(struct moe_error *err, enum moe_code code, const char *format, ...) {
  if (err && err->code == MOE_OK) {
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    err->code = code;
  }
  return code;
}
