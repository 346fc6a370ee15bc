/* test_tokenizer_pieces.c: SentencePiece's kinds: merges over characters, byte fallback, spaces, replacements, the most
 * probable pieces against all ways to cut, round trips. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "random_text.h"
#include "small_tokenizer.h"
#include "tokenizer_case.h"

static uint64_t random_state = 88172645463325252u;

static struct tokenizer *pieces(int kind, uint32_t flags, uint8_t **bytes) {
  uint64_t len;
  struct tokenizer *t;
  struct moe_error err = {0};
  *bytes = small_pieces(kind, flags, &len);
  if (tokenizer_create(*bytes, len, &t, &err) != MOE_OK) fail_msg("%s", err.message);
  return t;
}
#define CHAR(c) (SMALL_CHAR + (c))

static void test_merges_of_characters(void **state) {
  (void)state;
  uint8_t *bytes;
  struct tokenizer *t = pieces(IMG_TOKENIZER_CHAR_BPE, 0, &bytes);
  tokenizer_case_expect_ids(t, "abc", 0, TOKENIZER_CASE_IDS(SMALL_ABC));
  tokenizer_case_expect_ids(t, "aaab", 0, TOKENIZER_CASE_IDS(SMALL_AA, SMALL_AB));
  tokenizer_case_expect_ids(t, "a\xc3\xa9", 0, TOKENIZER_CASE_IDS(CHAR('a'), 0xc3, 0xa9));    /* no token: its bytes */
  tokenizer_case_expect_ids(t, "b\xff\xc3", 0, TOKENIZER_CASE_IDS(CHAR('b'), 0xff, 0xc3));    /* no UTF-8: the same */
  tokenizer_case_expect_ids(t, "x\xe2\x96\x81", 0, TOKENIZER_CASE_IDS(CHAR('x'), CHAR(' '))); /* U+2581 is a space */
  tokenizer_case_expect_ids(t, "Qb", 0,
                            TOKENIZER_CASE_IDS(CHAR('a'), CHAR(' '), SMALL_AB)); /* replaced before it is cut */
  tokenizer_case_expect_ids(t, "", 0, ((const int64_t[]){-1}));
  tokenizer_destroy(t);
  free(bytes);
}

static void test_spaces_of_pieces(void **state) {
  (void)state;
  uint8_t *bytes;
  struct tokenizer *t = pieces(IMG_TOKENIZER_CHAR_BPE, IMG_TOKENIZER_SPACE_PREFIX, &bytes);
  tokenizer_case_expect_ids(t, "b", 0, TOKENIZER_CASE_IDS(CHAR(' '), CHAR('b')));
  tokenizer_case_expect_ids(t, " b", 0, TOKENIZER_CASE_IDS(CHAR(' '), CHAR(' '), CHAR('b')));
  tokenizer_case_expect_ids(t, "b<think>b", 0,
                            TOKENIZER_CASE_IDS(CHAR(' '), CHAR('b'), SMALL_THINK, CHAR(' '), CHAR('b')));
  tokenizer_case_expect_ids(t, "<think>", 0, TOKENIZER_CASE_IDS(SMALL_THINK)); /* nothing before it: no space either */
  tokenizer_case_expect_ids(t,
                            "b\xff"
                            "b",
                            0, TOKENIZER_CASE_IDS(CHAR(' '), CHAR('b'), 0xff, CHAR('b')));
  tokenizer_destroy(t);
  free(bytes);
  t = pieces(IMG_TOKENIZER_CHAR_BPE, IMG_TOKENIZER_FEW_SPACES, &bytes);
  tokenizer_case_expect_ids(t, "  b   b ", 0, TOKENIZER_CASE_IDS(CHAR('b'), CHAR(' '), CHAR('b')));
  tokenizer_case_expect_ids(
      t, "Q Q", 0, TOKENIZER_CASE_IDS(CHAR('a'), CHAR(' '), CHAR('a'), CHAR(' '), CHAR('a'), CHAR(' '), CHAR('a')));
  tokenizer_case_expect_ids(t, "   ", 0, ((const int64_t[]){-1}));
  tokenizer_destroy(t);
  free(bytes);
  t = pieces(IMG_TOKENIZER_UNIGRAM, IMG_TOKENIZER_FEW_SPACES | IMG_TOKENIZER_SPACE_PREFIX, &bytes);
  tokenizer_case_expect_ids(t, "  b ", 0, TOKENIZER_CASE_IDS(CHAR(' '), CHAR('b')));
  tokenizer_case_expect_ids(t, "   ", 0, ((const int64_t[]){-1}));
  tokenizer_destroy(t);
  free(bytes);
}

/* "Q" becomes three bytes: a text of them comes to more than may be. */
static void test_replacements_without_end(void **state) {
  (void)state;
  size_t len = TOKENIZER_MAX_TEXT / 3 * 2 + 1, n;
  char *text = malloc(len);
  uint32_t *ids;
  assert_non_null(text);
  memset(text, 'Q', len);
  for (int kind = IMG_TOKENIZER_CHAR_BPE; kind <= IMG_TOKENIZER_UNIGRAM; kind++) {
    uint8_t *bytes;
    struct moe_error err = {0};
    struct tokenizer *t = pieces(kind, 0, &bytes);
    assert_int_equal(tokenizer_encode(t, text, len, 0, 10, &ids, &n, &err), MOE_FAILED);
    assert_null(ids);
    assert_string_equal(err.message,
                        "text: over 134217728 bytes once it is normalized, at most that many can be tokenized");
    tokenizer_destroy(t);
    free(bytes);
  }
  free(text);
}

/* All ways to cut, tried one by one. */
static float best_way(const struct img_tokenizer *v, const char *text, size_t len) {
  if (len == 0) return 0;
  float best = -1e30f;
  for (uint32_t i = 0; i < v->n_sorted; i++) {
    uint32_t n, id = v->sorted[i];
    const uint8_t *token = img_token_bytes(v, id, &n);
    if (n > len || memcmp(token, text, n) != 0) continue;
    float rest = v->scores[id] + best_way(v, text + n, len - n);
    if (rest > best) best = rest;
  }
  return best;
}

static void test_most_probable_pieces(void **state) {
  (void)state;
  uint8_t *bytes;
  struct tokenizer *t = pieces(IMG_TOKENIZER_UNIGRAM, 0, &bytes);
  tokenizer_case_expect_ids(t, "ab", 0, TOKENIZER_CASE_IDS(SMALL_AB)); /* -7, not -8 */
  tokenizer_case_expect_ids(
      t, "abc", 0, TOKENIZER_CASE_IDS(SMALL_ABC)); /* -10, as a bc; of equals the first, which is the longer one */
  tokenizer_case_expect_ids(t, "xyz", 0, TOKENIZER_CASE_IDS(CHAR('x'), CHAR('y'), CHAR('z'))); /* -12, not -13 */
  tokenizer_case_expect_ids(t, "aaaa", 0, TOKENIZER_CASE_IDS(SMALL_AA, SMALL_AA));             /* -15, not -16 */
  tokenizer_case_expect_ids(t, "a\xf0\x9f\xa6\x9c", 0, TOKENIZER_CASE_IDS(CHAR('a'), 0xf0, 0x9f, 0xa6, 0x9c));
  tokenizer_case_expect_ids(t, "\xff", 0, TOKENIZER_CASE_IDS(0xff));
  const struct img_tokenizer *v = tokenizer_view(t);
  for (int round = 0; round < 500; round++) {
    char text[11];
    size_t len = random_next(&random_state) % sizeof text, n;
    for (size_t i = 0; i < len; i++) text[i] = "aabcxyz"[random_next(&random_state) % 7];
    uint32_t *ids = tokenizer_case_encode(t, text, len, 0, &n);
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += v->scores[ids[i]];
    assert_true(sum == best_way(v, text, len));
    free(ids);
  }
  tokenizer_destroy(t);
  free(bytes);
}

static void test_round_trips_of_pieces(void **state) {
  (void)state;
  for (int kind = IMG_TOKENIZER_CHAR_BPE; kind <= IMG_TOKENIZER_LAST_KIND; kind++) {
    uint8_t *bytes;
    struct tokenizer *t = pieces(kind, 0, &bytes);
    char text[RANDOM_TEXT_BYTES(32)];
    for (int i = 0; i < 10000; i++) {
      size_t len = random_text(&random_state, text, 32);
      for (size_t k = 0; k < len; k++)
        if (text[k] == 'Q') text[k] = 'q';
      tokenizer_case_expect_round_trip(t, text, len);
    }
    for (int i = 0; i < 10000; i++) { /* bytes, mostly no UTF-8 */
      size_t len = random_next(&random_state) % 48;
      for (size_t k = 0; k < len; k++) text[k] = (char)(random_next(&random_state) | 0x80);
      if (!memchr(text, 0xe2, len)) tokenizer_case_expect_round_trip(t, text, len); /* no U+2581 */
    }
    tokenizer_case_expect_fast(t, "aaab", "", 1 << 18);
    tokenizer_case_expect_fast(t, " ", "", 1 << 18);
    tokenizer_case_expect_fast(t, "\xf0\x9f\xa6\x9c", "", 1 << 18);
    tokenizer_destroy(t);
    free(bytes);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_merges_of_characters),  cmocka_unit_test(test_replacements_without_end),
      cmocka_unit_test(test_spaces_of_pieces),      cmocka_unit_test(test_most_probable_pieces),
      cmocka_unit_test(test_round_trips_of_pieces),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
