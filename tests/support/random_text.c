/* random_text.c: see random_text.h. */
#include "random_text.h"

#include <string.h>

uint64_t random_next(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

/* Where single characters come from; a range is as likely as any other. */
static const uint32_t ranges[][2] = {
    {0x01, 0x7f},     {' ', ' '},         {'a', 'z'},         {'0', '9'},         {'\t', '\r'},
    {0x80, 0x7ff},    {0x300, 0x36f},     {0x400, 0x4ff},     {0x590, 0x5ff},     {0x600, 0x6ff},
    {0x900, 0x97f},   {0xe00, 0xe7f},     {0x1100, 0x11ff},   {0x1e00, 0x1fff},   {0x2000, 0x206f},
    {0x2150, 0x27bf}, {0x3000, 0x30ff},   {0x4e00, 0x9fff},   {0xac00, 0xd7a3},   {0xe000, 0xffff},
    {0xf900, 0xfdff}, {0x10000, 0x1ffff}, {0x1f300, 0x1f64f}, {0x20000, 0x2ffff}, {0x30000, 0x10ffff}};

/* Units of more than one character. */
static const char *const units[] = {"'s",
                                    "'LL",
                                    "  ",
                                    "   ",
                                    " \n",
                                    "\r\n",
                                    "\n\n",
                                    "the",
                                    " a",
                                    "e\xcc\x81",
                                    "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7",
                                    "\xf0\x9f\x87\xa9\xf0\x9f\x87\xaa",
                                    "\xe2\x9d\xa4\xef\xb8\x8f",
                                    "123456",
                                    "<|im_",
                                    "\xc2\xa0"};

static size_t put(uint32_t cp, char *out) {
  if (cp < 0x80) {
    out[0] = (char)cp;
    return 1;
  }
  size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
  for (size_t i = n; i-- > 1; cp >>= 6) out[i] = (char)(0x80 | (cp & 0x3f));
  out[0] = (char)((0xf00 >> n & 0xff) | cp);
  return n;
}

size_t random_text(uint64_t *state, char *out, size_t max_units) {
  size_t len = 0;
  for (uint64_t i = random_next(state) % max_units; i > 0; i--) {
    if (random_next(state) % 4 == 0) {
      const char *unit = units[random_next(state) % (sizeof units / sizeof *units)];
      memcpy(out + len, unit, strlen(unit));
      len += strlen(unit);
      continue;
    }
    const uint32_t *r = ranges[random_next(state) % (sizeof ranges / sizeof *ranges)];
    uint32_t cp = r[0] + (uint32_t)(random_next(state) % (r[1] - r[0] + 1));
    if ((cp >= 0xd800 && cp < 0xe000) || cp == 0x2581) continue;
    len += put(cp, out + len);
  }
  out[len] = 0;
  return len;
}
