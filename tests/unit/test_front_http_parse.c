/* test_front_http_parse.c: request heads, whole and broken; random heads stay inside their buffers. */
#include "front_http_parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Parses a head from a buffer of exactly its size, so that AddressSanitizer sees every step beyond it. */
static int status_of(const char *text, size_t n, struct http_head *head, char **buffer) {
  struct http_refusal refusal;
  size_t skip = 0;
  *buffer = malloc(n ? n : 1);
  memcpy(*buffer, text, n);
  size_t length = http_head_length(*buffer, n, &skip, &refusal);
  if (refusal.status) return refusal.status;
  if (!length) return 0;
  assert_true(skip <= length && length <= n);
  return http_parse_head(*buffer + skip, length - skip, head, &refusal) ? 200 : refusal.status;
}

static void test_a_whole_head(void **state) {
  (void)state;
  static const char text[] = "\r\nPOST /v1/x?q=1&r HTTP/1.1\r\nHost: a\r\nContent-Length:  12 \r\nX-Empty:\r\n"
                             "Connection: foo, Close\r\nexpect: 100-Continue\r\n\r\nbody";
  struct http_head head;
  char *buffer;
  assert_int_equal(status_of(text, sizeof text - 1, &head, &buffer), 200);
  assert_string_equal(head.method, "POST");
  assert_string_equal(head.path, "/v1/x");
  assert_string_equal(head.query, "q=1&r");
  assert_int_equal(head.body_bytes, 12);
  assert_false(head.keep_alive);
  assert_false(head.chunked);
  assert_true(head.expect_continue);
  assert_string_equal(http_find_field(&head, "x-empty"), "");
  assert_null(http_find_field(&head, "x"));
  free(buffer);
  static const char absolute[] = "GET http://host:80/p HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
  assert_int_equal(status_of(absolute, sizeof absolute - 1, &head, &buffer), 200);
  assert_string_equal(head.path, "/p");
  assert_true(head.keep_alive);
  free(buffer);
}

static void test_parts_of_a_head_wait(void **state) {
  (void)state;
  static const char text[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  for (size_t n = 0; n < sizeof text - 1; n++) {
    struct http_head head;
    char *buffer;
    assert_int_equal(status_of(text, n, &head, &buffer), 0);
    free(buffer);
  }
}

static void test_random_heads(void **state) {
  (void)state;
  static const char seed[] =
      "POST /v1/x?q HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
  srand(3);
  for (int round = 0; round < 20000; round++) {
    char text[sizeof seed];
    memcpy(text, seed, sizeof seed);
    for (int k = rand() % 5; k >= 0; k--)
      text[(size_t)rand() % (sizeof seed - 1)] = (char)(rand() % 4 ? " \r\n:\t,/H1"[rand() % 9] : rand());
    struct http_head head;
    char *buffer;
    int status = status_of(text, sizeof seed - 1 - (size_t)rand() % 4, &head, &buffer);
    assert_true(status == 0 || status == 200 || (status >= 400 && status <= 505));
    /* Never both ways of saying how long the body is. */
    if (status == 200 && head.chunked) assert_int_equal(head.body_bytes, 0);
    free(buffer);
  }
}

static void test_chunk_sizes(void **state) {
  (void)state;
  uint64_t size = 0;
  assert_true(http_parse_chunk_size("1aF", 3, &size));
  assert_int_equal(size, 0x1af);
  assert_true(http_parse_chunk_size("0", 1, &size));
  assert_true(http_parse_chunk_size("5;name=value", 12, &size));
  assert_int_equal(size, 5);
  assert_false(http_parse_chunk_size("", 0, &size));
  assert_false(http_parse_chunk_size(";x", 2, &size));
  assert_false(http_parse_chunk_size("0x5", 3, &size));
  assert_false(http_parse_chunk_size("-5", 2, &size));
  assert_false(http_parse_chunk_size("+5", 2, &size));
  assert_false(http_parse_chunk_size("11111111111111111", 17, &size));
  assert_false(http_parse_chunk_size("5;\nGET / HTTP/1.1", 17, &size)); /* a line's end to a lenient proxy */
  assert_false(http_parse_chunk_size("5;a\rb", 6, &size));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_whole_head),
      cmocka_unit_test(test_parts_of_a_head_wait),
      cmocka_unit_test(test_random_heads),
      cmocka_unit_test(test_chunk_sizes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
