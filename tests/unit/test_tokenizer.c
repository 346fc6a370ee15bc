/* test_tokenizer.c: encoding and decoding: the golden ids of the embedded model, the merge loop against a plain one,
 * added tokens, normalization, bytes that are no UTF-8, streams, and texts made to be slow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "emit_tokenizer.h"
#include "random_text.h"
#include "small_tokenizer.h"
#include "src_gguf.h"
#include "tokenizer.h"
#include "tokenizer_case.h"
#include "utf8.h"

static uint64_t random_state = 88172645463325252u;

static char *test_path(const char *name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", getenv("TESTS_DIR") ? getenv("TESTS_DIR") : "tests", name);
  return path;
}

/* ---- The embedded model ---- */

static uint8_t *wordnet_bytes;
static struct tokenizer *wordnet;

static int open_wordnet(void **state) {
  (void)state;
  struct gguf *g;
  struct moe_error err = {0};
  uint64_t len;
  if (gguf_open(test_path("models/wordnet-moe.gguf"), &g, &err) ||
      emit_tokenizer(g, &wordnet_bytes, &len, NULL, &err) || tokenizer_create(wordnet_bytes, len, &wordnet, &err)) {
    fprintf(stderr, "%s\n", err.message);
    return 1;
  }
  gguf_close(g);
  return 0;
}

static int close_wordnet(void **state) {
  (void)state;
  tokenizer_destroy(wordnet);
  free(wordnet_bytes);
  return 0;
}

static void test_golden_ids(void **state) {
  (void)state;
  json_error_t why;
  json_t *golden = json_load_file(test_path("golden/tokenizer.json"), 0, &why), *one;
  if (!golden) fail_msg("%s", why.text);
  size_t index, cases = 0;
  json_array_foreach(json_object_get(golden, "cases"), index, one) {
    json_t *text = json_object_get(one, "text"), *want = json_object_get(one, "ids");
    int64_t ids[128];
    assert_in_range(json_array_size(want), 0, 127);
    for (size_t i = 0; i < json_array_size(want); i++) ids[i] = json_integer_value(json_array_get(want, i));
    ids[json_array_size(want)] = -1;
    tokenizer_case_expect_ids(wordnet, json_string_value(text), TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_SPECIAL, ids);
    tokenizer_case_expect_round_trip(wordnet, json_string_value(text), json_string_length(text));
    cases++;
  }
  assert_in_range(cases, 20, 1000);
  json_decref(golden);
}

static void test_ids_of_the_model(void **state) {
  (void)state;
  const struct img_tokenizer *v = tokenizer_view(wordnet);
  assert_int_equal(v->n_vocab, 4096);
  assert_int_equal(v->bos_id, IMG_TOKEN_NONE); /* not 11, a comma */
  assert_int_equal(v->eos_id, 4095);
  assert_int_equal(v->eot_id, 4095);
  assert_int_equal(v->pad_id, 4093);
  assert_int_equal(v->flags, 0); /* the pre-tokenizer is Qwen's, the vocabulary and its missing normalizer are not */
  assert_true(tokenizer_is_eog(wordnet, 4095));
  assert_true(tokenizer_is_eog(wordnet, 4093));
  assert_false(tokenizer_is_eog(wordnet, 4094));
}

static void test_control_tokens_need_parse_special(void **state) {
  (void)state;
  size_t n;
  uint32_t *ids = tokenizer_case_encode(wordnet, "<|im_start|>", 12, 0, &n);
  assert_in_range(n, 2, 12);
  for (size_t i = 0; i < n; i++) assert_int_not_equal(ids[i], 4094);
  free(ids);
  tokenizer_case_expect_ids(wordnet, "<|im_start|><|im_end|>", TOKENIZER_PARSE_SPECIAL, TOKENIZER_CASE_IDS(4094, 4095));
}

static void test_round_trip_of_10000_random_strings(void **state) {
  (void)state;
  char text[RANDOM_TEXT_BYTES(64)];
  for (int i = 0; i < 10000; i++) tokenizer_case_expect_round_trip(wordnet, text, random_text(&random_state, text, 64));
}

static void test_round_trip_of_random_bytes(void **state) {
  (void)state;
  char text[64];
  for (int i = 0; i < 10000; i++) {
    size_t len = random_next(&random_state) % sizeof text;
    for (size_t k = 0; k < len; k++) text[k] = (char)random_next(&random_state);
    tokenizer_case_expect_round_trip(wordnet, text, len);
  }
}

static void test_stream_is_the_text_in_valid_pieces(void **state) {
  (void)state;
  char text[RANDOM_TEXT_BYTES(64)], *whole = malloc(1 << 16);
  struct tokenizer_stream stream = {0};
  for (int i = 0; i < 2000; i++) {
    size_t len = random_text(&random_state, text, 64), n, total = 0, piece_len;
    uint32_t *ids = tokenizer_case_encode(wordnet, text, len, 0, &n);
    const char *piece;
    for (size_t k = 0; k <= n; k++) {
      if (k < n)
        assert_int_equal(tokenizer_stream_add(&stream, wordnet, ids[k], true, &piece, &piece_len, NULL), MOE_OK);
      else
        assert_int_equal(tokenizer_stream_finish(&stream, &piece, &piece_len, NULL), MOE_OK);
      assert_int_equal(piece[piece_len], 0);
      for (size_t at = 0; at < piece_len;) {
        int step = utf8_next((const uint8_t *)piece + at, piece_len - at);
        assert_in_range(step, 1, 4);
        at += (size_t)step;
      }
      memcpy(whole + total, piece, piece_len);
      total += piece_len;
    }
    assert_int_equal(total, len);
    assert_memory_equal(whole, text, len);
    free(ids);
  }
  tokenizer_stream_deinit(&stream);
  free(whole);
}

static void expect_stream(const char *bytes, size_t len, const char *want) {
  struct tokenizer_stream stream = {0};
  char got[64] = "";
  const char *piece;
  size_t n;
  for (size_t i = 0; i <= len; i++) {
    if (i < len) /* in the small vocabulary a byte is its own id; this one has the same first 256 by byte_ids */
      assert_int_equal(tokenizer_stream_add(&stream, wordnet, tokenizer_view(wordnet)->byte_ids[(uint8_t)bytes[i]],
                                            true, &piece, &n, NULL),
                       MOE_OK);
    else
      assert_int_equal(tokenizer_stream_finish(&stream, &piece, &n, NULL), MOE_OK);
    strncat(got, piece, n);
  }
  assert_string_equal(got, want);
  tokenizer_stream_deinit(&stream);
}

#define U_FFFD "\xef\xbf\xbd"

static void test_stream_replaces_what_is_no_character(void **state) {
  (void)state;
  expect_stream("a\xe2\x82\xac!", 5, "a\xe2\x82\xac!");
  expect_stream("a\xe2\x82!", 4, "a" U_FFFD "!");
  expect_stream("\xf0\x9f\xa6", 3, U_FFFD);                        /* never completed */
  expect_stream("\x80\xff", 2, U_FFFD U_FFFD);                     /* no beginning at all */
  expect_stream("\xed\xa0\x80", 3, U_FFFD U_FFFD U_FFFD);          /* a surrogate */
  expect_stream("\xc0\xaf", 2, U_FFFD U_FFFD);                     /* overlong */
  expect_stream("\xf0\x90\xe2\x82\xac", 5, U_FFFD "\xe2\x82\xac"); /* cut off by another character */
}

static void test_ids_outside_the_vocabulary(void **state) {
  (void)state;
  struct moe_error err = {0};
  struct tokenizer_stream stream = {0};
  const uint32_t ids[] = {5, 4096};
  char *text;
  const char *piece;
  size_t len;
  assert_int_equal(tokenizer_decode(wordnet, ids, 2, true, &text, &len, &err), MOE_FAILED);
  assert_string_equal(err.message, "ids[1]: token 4096, the vocabulary has 4096");
  assert_null(text);
  assert_int_equal(tokenizer_stream_add(&stream, wordnet, UINT32_MAX, true, &piece, &len, NULL), MOE_FAILED);
  (void)tokenizer_piece(wordnet, UINT32_MAX, true, &len);
  assert_int_equal(len, 0);
  tokenizer_stream_deinit(&stream);
}

static void test_control_tokens_can_be_left_out(void **state) {
  (void)state;
  const uint32_t ids[] = {4094, 39, 4095};
  char *text;
  size_t len;
  assert_int_equal(tokenizer_decode(wordnet, ids, 3, true, &text, &len, NULL), MOE_OK);
  assert_string_equal(text, "H");
  free(text);
  assert_int_equal(tokenizer_decode(wordnet, ids, 3, false, &text, &len, NULL), MOE_OK);
  assert_string_equal(text, "<|im_start|>H<|im_end|>");
  free(text);
}

/* ---- Texts made to be slow ---- */

static void test_long_runs_are_not_slow(void **state) {
  (void)state;
  static const char *const units[] = {
      "a",    " ",  "\n",           " \n", "1", "!", "<|im_start|", "<", "ab", "e\xcc\x81", "\xcc\x81\xcc\xa3",
      "\xff", "'s", "\xe6\x97\xa5", "a "};
  uint64_t len;
  uint8_t *bytes = small_tokenizer(IMG_TOKENIZER_NFC, NULL, &len);
  struct tokenizer *small;
  assert_int_equal(tokenizer_create(bytes, len, &small, NULL), MOE_OK);
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    tokenizer_case_expect_fast(wordnet, units[i], "", 1 << 20);
    tokenizer_case_expect_fast(wordnet, units[i], "x", 1 << 18);
    tokenizer_case_expect_fast(small, units[i], "", 1 << 18);
  }
  tokenizer_destroy(small);
  free(bytes);
}

/* ---- The small vocabulary ---- */

static struct tokenizer *small(uint32_t flags, const char *const *patterns, uint8_t **bytes) {
  uint64_t len;
  struct tokenizer *t;
  struct moe_error err = {0};
  *bytes = small_tokenizer(flags, patterns, &len);
  if (tokenizer_create(*bytes, len, &t, &err) != MOE_OK) fail_msg("%s", err.message);
  return t;
}

static void test_added_tokens(void **state) {
  (void)state;
  uint8_t *bytes;
  struct tokenizer *t = small(IMG_TOKENIZER_ADD_BOS | IMG_TOKENIZER_ADD_EOS, NULL, &bytes);
  tokenizer_case_expect_ids(t, "x<s>y", TOKENIZER_PARSE_SPECIAL, TOKENIZER_CASE_IDS('x', SMALL_BOS, 'y'));
  tokenizer_case_expect_ids(t, "x<s>y", 0, TOKENIZER_CASE_IDS('x', '<', 's', '>', 'y'));
  tokenizer_case_expect_ids(t, "<think>ingx<think>in", 0,
                            TOKENIZER_CASE_IDS(SMALL_THINKING, 'x', SMALL_THINK, 'i', 'n'));
  tokenizer_case_expect_ids(t, "x \n<s>>\t y", TOKENIZER_PARSE_SPECIAL, TOKENIZER_CASE_IDS('x', SMALL_PAD, 'y'));
  tokenizer_case_expect_ids(t, "<s>> <s>>", TOKENIZER_PARSE_SPECIAL, TOKENIZER_CASE_IDS(SMALL_PAD, SMALL_PAD));
  tokenizer_case_expect_ids(t, "z", TOKENIZER_ADD_SPECIAL, TOKENIZER_CASE_IDS(SMALL_BOS, 'z', SMALL_EOS));
  tokenizer_case_expect_ids(t, "", TOKENIZER_ADD_SPECIAL, TOKENIZER_CASE_IDS(SMALL_BOS, SMALL_EOS));
  tokenizer_destroy(t);
  free(bytes);
}

static void test_merges_go_by_rank_then_from_the_left(void **state) {
  (void)state;
  uint8_t *bytes;
  struct tokenizer *t = small(0, NULL, &bytes);
  tokenizer_case_expect_ids(t, "abc", 0, TOKENIZER_CASE_IDS(SMALL_ABC)); /* bc before ab */
  tokenizer_case_expect_ids(t, "ab", 0, TOKENIZER_CASE_IDS(SMALL_AB));
  tokenizer_case_expect_ids(t, "aaaaa", 0, TOKENIZER_CASE_IDS(SMALL_AAAA, 'a'));
  tokenizer_case_expect_ids(t, "aaab", 0, TOKENIZER_CASE_IDS(SMALL_AA, SMALL_AB)); /* ab takes the last a first */
  tokenizer_case_expect_ids(t, "a bc", 0, TOKENIZER_CASE_IDS('a', ' ', SMALL_BC));
  tokenizer_case_expect_ids(t, "xyz", 0, TOKENIZER_CASE_IDS('x', 'y', 'z'));
  tokenizer_destroy(t);
  free(bytes);
  t = small(IMG_TOKENIZER_IGNORE_MERGES, NULL, &bytes);
  tokenizer_case_expect_ids(t, "xyz", 0, TOKENIZER_CASE_IDS(SMALL_XYZ));
  tokenizer_case_expect_ids(t, "xyzz", 0, TOKENIZER_CASE_IDS('x', 'y', 'z', 'z'));
  tokenizer_destroy(t);
  free(bytes);
}

/* The rule word by word: merge the pair of lowest rank, leftmost first, until there is none. */
static size_t plain_bpe(const struct img_tokenizer *v, const char *text, size_t len, uint32_t *ids) {
  size_t n = len;
  for (size_t i = 0; i < len; i++) ids[i] = (uint8_t)text[i];
  for (;;) {
    const struct img_merge *best = NULL;
    size_t at = 0;
    for (size_t i = 0; i + 1 < n; i++) {
      const struct img_merge *m = img_tokenizer_find_merge(v, ids[i], ids[i + 1]);
      if (m && (!best || m->rank < best->rank)) best = m, at = i;
    }
    if (!best) return n;
    ids[at] = best->result;
    memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
    n--;
  }
}

static void test_merge_loop_against_a_plain_one(void **state) {
  (void)state;
  static const char *const whole[] = {"(?s).+", NULL};
  uint8_t *bytes;
  struct tokenizer *t = small(0, whole, &bytes);
  for (int round = 0; round < 5000; round++) {
    char text[64];
    uint32_t want[64];
    size_t len = random_next(&random_state) % sizeof text, n;
    for (size_t i = 0; i < len; i++) text[i] = "aaabc"[random_next(&random_state) % 5];
    size_t want_n = plain_bpe(tokenizer_view(t), text, len, want);
    uint32_t *ids = tokenizer_case_encode(t, text, len, 0, &n);
    assert_int_equal(n, want_n);
    assert_memory_equal(ids, want, n * sizeof *ids);
    free(ids);
  }
  tokenizer_destroy(t);
  free(bytes);
}

static void test_patterns_cut_one_after_the_other(void **state) {
  (void)state;
  static const char *const chain[] = {"[0-9]+", "[a-z]+(?!9)", "a", NULL}; /* the second sees no digit behind letters */
  uint8_t *bytes;
  struct tokenizer *t = small(0, chain, &bytes);
  tokenizer_case_expect_ids(t, "bc9bc", 0, TOKENIZER_CASE_IDS(SMALL_BC, '9', SMALL_BC));
  tokenizer_case_expect_ids(t, "abc", 0, TOKENIZER_CASE_IDS('a', SMALL_BC)); /* the third pattern has cut a off */
  tokenizer_case_expect_ids(t, "aa", 0, TOKENIZER_CASE_IDS('a', 'a'));
  tokenizer_destroy(t);
  free(bytes);
}

static void test_normalization(void **state) {
  (void)state;
  static const struct {
    const char *text, *nfc;
  } cases[] = {{"A\xcc\x81", "\xc3\x81"},                                /* A and acute */
               {"\xe2\x84\xab", "\xc3\x85"},                             /* Angstrom sign */
               {"\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c"}, /* Hangul */
               {"q\xcc\x87\xcc\xa3", "q\xcc\xa3\xcc\x87"},               /* order of marks */
               {"\xff"
                "A\xcc\x81",
                "\xff\xc3\x81"},                  /* beside bytes that are no UTF-8 */
               {"\xef\xac\x81", "\xef\xac\x81"}}; /* a ligature stays: canonical only */
  uint8_t *bytes, *plain_bytes;
  struct tokenizer *t = small(IMG_TOKENIZER_NFC, NULL, &bytes), *plain = small(0, NULL, &plain_bytes);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t n, want_n;
    uint32_t *ids = tokenizer_case_encode(t, cases[i].text, strlen(cases[i].text), 0, &n);
    uint32_t *want = tokenizer_case_encode(plain, cases[i].nfc, strlen(cases[i].nfc), 0, &want_n);
    assert_int_equal(n, want_n);
    assert_memory_equal(ids, want, n * sizeof *ids);
    free(ids);
    free(want);
  }
  tokenizer_case_expect_round_trip(plain, "A\xcc\x81", 3);
  tokenizer_destroy(t);
  tokenizer_destroy(plain);
  free(bytes);
  free(plain_bytes);
}

static void test_strip_flags_take_all_white_space(void **state) {
  (void)state;
  static const char *const spaces[] = {" ",
                                       "\t",
                                       "\r\n",
                                       "\xc2\x85",
                                       "\xc2\xa0",
                                       "\xe1\x9a\x80",
                                       "\xe2\x80\x83",
                                       "\xe2\x80\xa8",
                                       "\xe2\x80\xaf",
                                       "\xe2\x81\x9f",
                                       "\xe3\x80\x80"};
  static const char *const others[] = {"\xe1\xa0\x8e", "\xe2\x80\x8b", "\xc2\x86", "\xe3\x80\x81"};
  uint8_t *bytes;
  struct tokenizer *t = small(0, NULL, &bytes);
  char text[64];
  size_t n;
  for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
    snprintf(text, sizeof text, "x%s%s<s>>%sy", spaces[i], spaces[i], spaces[i]);
    tokenizer_case_expect_ids(t, text, TOKENIZER_PARSE_SPECIAL, TOKENIZER_CASE_IDS('x', SMALL_PAD, 'y'));
  }
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    snprintf(text, sizeof text, "x%s<s>>%sy", others[i], others[i]);
    free(tokenizer_case_encode(t, text, strlen(text), TOKENIZER_PARSE_SPECIAL, &n));
    assert_int_equal(n, 3 + 2 * strlen(others[i]));
  }
  tokenizer_destroy(t);
  free(bytes);
}

static void test_bad_pattern_is_named(void **state) {
  (void)state;
  static const char *const bad[] = {"a", "(b", NULL};
  uint64_t len;
  uint8_t *bytes = small_tokenizer(0, bad, &len);
  struct tokenizer *t;
  struct moe_error err = {0};
  assert_int_equal(tokenizer_create(bytes, len, &t, &err), MOE_FAILED);
  assert_null(t);
  assert_non_null(strstr(err.message, "TOKENIZER patterns[1]: missing closing parenthesis at byte 2"));
  free(bytes);
}

/* What still opens after damage must encode and decode without leaving its payload (the sanitizers watch). */
static void use_damaged(uint8_t *bytes, uint64_t len) {
  uint32_t opened = 0;
  for (int round = 0; round < 5000; round++) {
    uint8_t *broken = malloc(len);
    struct tokenizer *t;
    memcpy(broken, bytes, len);
    broken[random_next(&random_state) % len] ^= (uint8_t)(1u << random_next(&random_state) % 8);
    if (tokenizer_create(broken, len, &t, NULL) == MOE_OK) {
      size_t n, text_len;
      char *text;
      uint32_t *ids = tokenizer_case_encode(t, "abcaabcQ <s>x<think>ing \xff A\xcc\x81", 29, 3, &n);
      assert_int_equal(tokenizer_decode(t, ids, n, false, &text, &text_len, NULL), MOE_OK);
      free(text);
      free(ids);
      opened++;
      tokenizer_destroy(t);
    }
    free(broken);
  }
  assert_in_range(opened, 100, 4999);
  free(bytes);
}

static void test_damaged_payloads_are_safe_to_use(void **state) {
  (void)state;
  uint64_t len;
  uint8_t *bytes = small_tokenizer(IMG_TOKENIZER_NFC, NULL, &len);
  use_damaged(bytes, len);
  bytes = small_pieces(IMG_TOKENIZER_CHAR_BPE, IMG_TOKENIZER_SPACE_PREFIX, &len);
  use_damaged(bytes, len);
  bytes = small_pieces(IMG_TOKENIZER_UNIGRAM, IMG_TOKENIZER_FEW_SPACES, &len);
  use_damaged(bytes, len);
}

static void test_too_long_a_text_is_refused(void **state) {
  (void)state;
  struct moe_error err = {0};
  uint32_t *ids;
  size_t n;
  assert_int_equal(tokenizer_encode(wordnet, "", TOKENIZER_MAX_TEXT + 1ull, 0, SIZE_MAX, &ids, &n, &err), MOE_FAILED);
  assert_string_equal(err.message, "text: 67108865 bytes, at most 67108864 can be tokenized at once");
}

static void test_encoding_stops_at_what_is_of_use(void **state) {
  (void)state;
  static const char text[] = "a bird<|im_end|> that sings in the morning";
  size_t n_all, n;
  uint32_t *all = tokenizer_case_encode(wordnet, text, strlen(text), TOKENIZER_PARSE_SPECIAL, &n_all), *ids;
  assert_true(n_all > 5);
  for (size_t max = 0; max <= n_all + 1; max++) {
    assert_int_equal(tokenizer_encode(wordnet, text, strlen(text), TOKENIZER_PARSE_SPECIAL, max, &ids, &n, NULL),
                     MOE_OK);
    assert_int_equal(n, max < n_all ? max : n_all);
    assert_memory_equal(ids, all, n * sizeof *ids);
    free(ids);
  }
  free(all);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_golden_ids),
      cmocka_unit_test(test_encoding_stops_at_what_is_of_use),
      cmocka_unit_test(test_ids_of_the_model),
      cmocka_unit_test(test_control_tokens_need_parse_special),
      cmocka_unit_test(test_round_trip_of_10000_random_strings),
      cmocka_unit_test(test_round_trip_of_random_bytes),
      cmocka_unit_test(test_stream_is_the_text_in_valid_pieces),
      cmocka_unit_test(test_stream_replaces_what_is_no_character),
      cmocka_unit_test(test_ids_outside_the_vocabulary),
      cmocka_unit_test(test_control_tokens_can_be_left_out),
      cmocka_unit_test(test_long_runs_are_not_slow),
      cmocka_unit_test(test_added_tokens),
      cmocka_unit_test(test_merges_go_by_rank_then_from_the_left),
      cmocka_unit_test(test_merge_loop_against_a_plain_one),
      cmocka_unit_test(test_patterns_cut_one_after_the_other),
      cmocka_unit_test(test_normalization),
      cmocka_unit_test(test_strip_flags_take_all_white_space),
      cmocka_unit_test(test_bad_pattern_is_named),
      cmocka_unit_test(test_damaged_payloads_are_safe_to_use),
      cmocka_unit_test(test_too_long_a_text_is_refused),
  };
  return cmocka_run_group_tests(tests, open_wordnet, close_wordnet);
}
