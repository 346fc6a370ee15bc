/* test_front_text.c: whole characters and stop strings across token borders. */
#include "front_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Feeds `text` in pieces of `piece` bytes; returns everything that was given out, pieces separated by '|'. */
static char *feed(const char *text, size_t piece, const char *const *stops, bool *stopped) {
  char *stop[FRONT_MAX_STOP];
  size_t n_stop = 0, length = strlen(text);
  while (stops && stops[n_stop]) {
    stop[n_stop] = strdup(stops[n_stop]);
    n_stop++;
  }
  struct front_text t;
  front_text_init(&t, stop, n_stop);
  char *out = calloc(1, 8 * length + 64);
  for (size_t at = 0; at <= length; at += piece) {
    size_t n = length - at < piece ? length - at : piece;
    assert_true(n ? front_text_add(&t, text + at, n) : front_text_finish(&t));
    if (n && n < piece) assert_true(front_text_finish(&t));
    size_t ready = 0;
    const char *given = front_text_ready(&t, &ready);
    if (ready) {
      strncat(out, given, ready);
      strcat(out, "|");
    }
    front_text_drop(&t);
  }
  *stopped = t.stopped;
  front_text_deinit(&t);
  return out;
}

static void expect(const char *text, size_t piece, const char *const *stops, const char *expected, bool expected_stop) {
  bool stopped = false;
  char *out = feed(text, piece, stops, &stopped);
  assert_string_equal(out, expected);
  assert_int_equal(stopped, expected_stop);
  free(out);
}

static void test_characters_stay_whole(void **state) {
  (void)state;
  expect("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", 1, NULL, "a|\xC3\xA9|\xE2\x82\xAC|\xF0\x9F\x98\x80|", false);
  expect("\xE2\x82\xAC", 2, NULL, "\xE2\x82\xAC|", false);
  expect("\xE2\x82", 1, NULL, "\xEF\xBF\xBD|", false); /* ends in half a character */
  expect("a\xFF\x80z", 4, NULL, "a\xEF\xBF\xBD\xEF\xBF\xBDz|", false);
  expect("\xF0\x9Fz", 1, NULL, "\xEF\xBF\xBDz|", false);           /* broken off by another character */
  expect("\xC0\xAF", 2, NULL, "\xEF\xBF\xBD\xEF\xBF\xBD|", false); /* overlong */
}

static void test_stop_strings(void **state) {
  (void)state;
  const char *end[] = {"END", NULL}, *two[] = {"\n\n", "Q:", NULL}, *self[] = {"aab", NULL},
             *euro[] = {"\xE2\x82\xAC", NULL};
  expect("abcENDxyz", 1, end, "a|b|c|", true);
  expect("abcENDxyz", 9, end, "abc|", true);
  expect("abcENDxyz", 4, end, "abc|", true);
  expect("abcEN", 1, end, "a|b|c|EN|", false); /* what was held back comes at the end */
  expect("abENc", 1, end, "a|b|ENc|", false);
  expect("one\ntwo Q: x\n\n", 1, two, "o|n|e|\nt|w|o| |", true);
  expect("aaaab", 1, self, "a|a|", true);
  expect("1\xE2\x82\xAC"
         "2",
         1, euro, "1|", true);
  expect("1\xE2\x82\xAD"
         "2",
         1, euro, "1|\xE2\x82\xAD|2|", false);
}

/* Against the plain definition: the text before the first stop string, however it is cut into pieces. */
static void test_random_cuts(void **state) {
  (void)state;
  const char *stops[] = {"aba", "bb", "cab", NULL};
  srand(7);
  for (int round = 0; round < 2000; round++) {
    char text[24] = {0}, expected[64] = {0};
    for (size_t i = 0; i < sizeof text - 1; i++) text[i] = (char)('a' + rand() % 3);
    bool stopped = false;
    char *out = feed(text, 1, stops, &stopped);
    size_t n = 0;
    for (char *c = out; *c; c++)
      if (*c != '|') expected[n++] = *c;
    free(out);
    /* Piece by piece of one byte, the first stop string to be complete wins. */
    size_t cut = strlen(text);
    bool found = false;
    for (size_t end = 1; end <= strlen(text) && !found; end++)
      for (size_t s = 0; stops[s]; s++) {
        size_t length = strlen(stops[s]);
        if (end >= length && !memcmp(text + end - length, stops[s], length) && (!found || end - length < cut)) {
          cut = end - length;
          found = true;
        }
      }
    text[cut] = 0;
    assert_string_equal(expected, text);
    assert_int_equal(stopped, found);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_characters_stay_whole),
      cmocka_unit_test(test_stop_strings),
      cmocka_unit_test(test_random_cuts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
