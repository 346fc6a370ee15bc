/* tokenizer_case.c: see tokenizer_case.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tokenizer_case.h"

uint32_t *tokenizer_case_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags, size_t *n) {
  uint32_t *ids;
  struct moe_error err = {0};
  if (tokenizer_encode(t, text, len, flags, SIZE_MAX, &ids, n, &err) != MOE_OK) fail_msg("%s", err.message);
  return ids;
}

void tokenizer_case_expect_ids(const struct tokenizer *t, const char *text, unsigned flags, const int64_t *want) {
  size_t n, want_n = 0;
  while (want[want_n] >= 0) want_n++;
  uint32_t *ids = tokenizer_case_encode(t, text, strlen(text), flags, &n);
  bool same = n == want_n;
  for (size_t i = 0; same && i < n; i++) same = ids[i] == want[i];
  if (!same) {
    fprintf(stderr, "\"%s\" gives", text);
    for (size_t i = 0; i < n; i++) fprintf(stderr, " %u", ids[i]);
    fail_msg("%zu ids, wanted %zu others", n, want_n);
  }
  free(ids);
}

void tokenizer_case_expect_round_trip(const struct tokenizer *t, const char *text, size_t len) {
  size_t n, back_len;
  char *back;
  uint32_t *ids = tokenizer_case_encode(t, text, len, 0, &n);
  assert_int_equal(tokenizer_decode(t, ids, n, false, &back, &back_len, NULL), MOE_OK);
  assert_int_equal(back_len, len);
  assert_memory_equal(back, text, len);
  free(back);
  free(ids);
}

void tokenizer_case_expect_fast(const struct tokenizer *t, const char *unit, const char *end, size_t bytes) {
  size_t unit_len = strlen(unit), n, len = 0;
  char *text = malloc(bytes + unit_len + strlen(end) + 1);
  for (; len < bytes; len += unit_len) memcpy(text + len, unit, unit_len);
  strcpy(text + len, end);
  clock_t start = clock();
  uint32_t *ids = tokenizer_case_encode(t, text, len + strlen(end), TOKENIZER_PARSE_SPECIAL, &n);
  double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
  if (seconds > 20) fail_msg("%zu bytes of \"%s\" took %.1f s", len, unit, seconds);
  free(ids);
  free(text);
}
