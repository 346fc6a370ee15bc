/* test_vocabularies.c: published tokenizers against the ids that their families' own implementations give, and round
 * trips of random text through each of them, whole and as streams.
 *
 * The vocabularies are fetched by `./build.sh test` (cmake/vocabularies.sh); without them the test is skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>
#include <utf8proc.h>

#include "emit_tokenizer.h"
#include "random_text.h"
#include "src_gguf.h"
#include "tokenizer.h"
#include "vocabulary.h"

enum { N_RANDOM = 10000, MAX_CHARS = 48 };

/* How decode(encode(text)) may differ from text. */
enum normalization { NONE, NFC, SPACE_BEFORE };

static const struct vocabulary {
  const char *name, *model, *pre;
  int space_prefix;   /* tokenizer.ggml.add_space_prefix, or -1 */
  const char *golden; /* a file beside this one, or NULL */
  enum normalization normalization;
} vocabularies[] = {
    {"qwen3", "gpt2", "qwen2", -1, "tokenizer-qwen3.json", NFC},
    {"gptoss", "gpt2", "gpt-4o", -1, "tokenizer-gptoss.json", NONE},
    {"llama3_2", "gpt2", "llama-bpe", -1, "tokenizer-llama3_2.json", NONE},
    {"deepseek_v3", "gpt2", "deepseek-v3", -1, "tokenizer-deepseek_v3.json", NONE},
    {"llama2", "llama", "default", -1, NULL, SPACE_BEFORE},
    {"gemma3", "llama", "default", 0, NULL, NONE},
    {"gemma3", "gemma4", NULL, -1, NULL, NONE}, /* the same by its merges, as Gemma 4's files have them */
};

static struct tokenizer *open_vocabulary(const struct vocabulary *v, uint8_t **bytes) {
  char dir[600];
  struct maker m;
  struct moe_error err = {0};
  struct tokenizer *t;
  struct emit_tokenizer_note note;
  uint64_t len;
  snprintf(dir, sizeof dir, "%s/%s", getenv("VOCABULARIES"), v->name);
  struct gguf *g = vocabulary_open(dir, v->model, v->pre, v->space_prefix, &m);
  if (emit_tokenizer(g, bytes, &len, &note, &err) || tokenizer_create(*bytes, len, &t, &err))
    fail_msg("%s: %s", v->name, err.message);
  assert_int_equal(note.n_skipped + note.n_duplicate, 0);
  gguf_close(g);
  maker_deinit(&m);
  return t;
}

static json_t *load_golden(const char *name) {
  char path[600];
  json_error_t why;
  snprintf(path, sizeof path, "%s/golden/%s", getenv("TESTS_DIR") ? getenv("TESTS_DIR") : "tests", name);
  json_t *golden = json_load_file(path, 0, &why);
  if (!golden) fail_msg("%s: %s", path, why.text);
  return golden;
}

static void expect_ids(const char *name, const struct tokenizer *t, const json_t *text, const json_t *want) {
  uint32_t *ids;
  size_t n;
  struct moe_error err = {0};
  if (tokenizer_encode(t, json_string_value(text), json_string_length(text), 0, SIZE_MAX, &ids, &n, &err))
    fail_msg("%s", err.message);
  bool same = n == json_array_size(want);
  for (size_t i = 0; same && i < n; i++) same = ids[i] == json_integer_value(json_array_get(want, i));
  if (!same) {
    fprintf(stderr, "%s: \"%s\" gives", name, json_string_value(text));
    for (size_t i = 0; i < n; i++) fprintf(stderr, " %u", ids[i]);
    char *wanted = json_dumps(want, JSON_COMPACT);
    fail_msg("wanted %s", wanted);
  }
  free(ids);
}

static void check_golden(const struct vocabulary *v, const struct tokenizer *t) {
  json_t *golden = load_golden(v->golden), *one;
  size_t i;
  assert_true(json_array_size(json_object_get(golden, "cases")) > 10);
  json_array_foreach(json_object_get(golden, "cases"), i, one)
      expect_ids(v->name, t, json_object_get(one, "text"), json_object_get(one, "ids"));
  json_decref(golden);
}

/* The texts that all vocabularies share. */
static void check_texts(const struct vocabulary *v, const struct tokenizer *t, const json_t *golden) {
  json_t *texts = json_object_get(golden, "texts"), *ids = json_object_get(json_object_get(golden, "ids"), v->name);
  size_t n = json_array_size(texts);
  assert_true(n > 60 && json_array_size(ids) == n);
  for (size_t i = 0; i < n; i++) expect_ids(v->name, t, json_array_get(texts, i), json_array_get(ids, i));
}

/* What a text comes back as. malloc'd. */
static char *normalized(enum normalization how, const char *text, size_t len, size_t *out_len) {
  char *out = NULL;
  if (how == NFC) {
    utf8proc_ssize_t n = utf8proc_map((const uint8_t *)text, (utf8proc_ssize_t)len, (utf8proc_uint8_t **)&out,
                                      UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    assert_true(n >= 0);
    *out_len = (size_t)n;
  } else {
    size_t before = how == SPACE_BEFORE && len > 0;
    out = malloc(len + 2);
    memcpy(out, " ", 1);
    memcpy(out + before, text, len + 1);
    *out_len = len + before;
  }
  return out;
}

/* The stream of the ids, cut after each token, is the text too, and each piece is whole characters. */
static void check_stream(const struct tokenizer *t, const uint32_t *ids, size_t n, const char *want, size_t want_len) {
  struct tokenizer_stream stream = {0};
  const char *piece;
  size_t len, at = 0;
  for (size_t i = 0; i <= n; i++) {
    enum moe_code c = i < n ? tokenizer_stream_add(&stream, t, ids[i], false, &piece, &len, NULL)
                            : tokenizer_stream_finish(&stream, &piece, &len, NULL);
    assert_int_equal(c, MOE_OK);
    assert_true(len <= want_len - at);
    assert_memory_equal(piece, want + at, len);
    assert_true(len == 0 || ((uint8_t)piece[0] & 0xc0) != 0x80);
    at += len;
  }
  assert_int_equal(at, want_len);
  tokenizer_stream_deinit(&stream);
}

static void check_round_trips(const struct vocabulary *v, const struct tokenizer *t) {
  char text[RANDOM_TEXT_BYTES(MAX_CHARS)];
  uint64_t seed = 20261201;
  for (int i = 0; i < N_RANDOM; i++) {
    size_t len = random_text(&seed, text, MAX_CHARS), n, back_len, want_len;
    uint32_t *ids;
    char *back;
    assert_int_equal(tokenizer_encode(t, text, len, 0, SIZE_MAX, &ids, &n, NULL), MOE_OK);
    assert_int_equal(tokenizer_decode(t, ids, n, false, &back, &back_len, NULL), MOE_OK);
    char *want = normalized(v->normalization, text, len, &want_len);
    if (back_len != want_len || memcmp(back, want, want_len) != 0)
      fail_msg("%s: text %d: \"%s\" comes back as \"%s\"", v->name, i, want, back);
    check_stream(t, ids, n, want, want_len);
    free(want);
    free(back);
    free(ids);
  }
}

static void test_vocabularies(void **state) {
  (void)state;
  json_t *texts = load_golden("tokenizer-texts.json");
  for (size_t i = 0; i < sizeof vocabularies / sizeof *vocabularies; i++) {
    const struct vocabulary *v = &vocabularies[i];
    uint8_t *bytes;
    struct tokenizer *t = open_vocabulary(v, &bytes);
    if (v->golden) check_golden(v, t);
    check_texts(v, t, texts);
    check_round_trips(v, t);
    tokenizer_destroy(t);
    free(bytes);
  }
  json_decref(texts);
}

int main(void) {
  const char *dir = getenv("VOCABULARIES");
  if (!dir || access(dir, R_OK) != 0) {
    puts("skipped: the vocabularies are not there (cmake/vocabularies.sh fetches them)");
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_vocabularies)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
