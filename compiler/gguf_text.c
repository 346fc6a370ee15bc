/* gguf_text.c: see gguf_text.h. */
#include "gguf_text.h"

#include <string.h>

/* The length of the valid UTF-8 character at p (1 to 4), or 0. *code: its number. */
static size_t character(const uint8_t *p, size_t left, uint32_t *code) {
  static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
  size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
  if (n == 0 || n > left) return 0;
  uint32_t c = n == 1 ? p[0] : p[0] & (0xffu >> (n + 1));
  for (size_t i = 1; i < n; i++) {
    if ((p[i] & 0xc0) != 0x80) return 0;
    c = c << 6 | (p[i] & 0x3fu);
  }
  if (c < smallest[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return 0;
  *code = c;
  return n;
}

static bool is_control(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code <= 0x9f);
}

bool gguf_text_plain(const char *data, size_t bytes) {
  const uint8_t *p = (const uint8_t *)data;
  uint32_t code = 0;
  for (size_t i = 0, n; i < bytes; i += n) {
    n = character(p + i, bytes - i, &code);
    if (n == 0 || is_control(code)) return false;
  }
  return true;
}

const char *gguf_text_printable(char *dst, size_t capacity, const char *data, size_t bytes) {
  const uint8_t *p = (const uint8_t *)data;
  size_t used = 0;
  if (capacity == 0) return dst;
  for (size_t i = 0; i < bytes;) {
    uint32_t code = 0;
    size_t n = character(p + i, bytes - i, &code);
    bool good = n != 0 && !is_control(code);
    size_t step = n != 0 ? n : 1, room = good ? n : 3;
    if (used + room >= capacity) break;
    memcpy(dst + used, good ? (const char *)p + i : "\xef\xbf\xbd", room);
    used += room;
    i += step;
  }
  dst[used] = '\0';
  return dst;
}
