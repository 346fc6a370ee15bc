/* utf8.c: see utf8.h. Owns nothing, keeps no state. */
#include "utf8.h"

int utf8_next(const uint8_t *s, size_t n) {
  uint8_t lead = s[0], low = 0x80, high = 0xbf; /* the range of the second byte; later ones have 80..BF */
  int length;
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return -1;
  length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (lead == 0xe0) low = 0xa0;  /* not overlong */
  if (lead == 0xed) high = 0x9f; /* not a surrogate */
  if (lead == 0xf0) low = 0x90;  /* not overlong */
  if (lead == 0xf4) high = 0x8f; /* not above U+10FFFF */
  for (int i = 1; i < length; i++) {
    if ((size_t)i == n) return 0;
    if (s[i] < low || s[i] > high) return -i;
    low = 0x80;
    high = 0xbf;
  }
  return length;
}
