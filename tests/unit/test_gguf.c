/* test_gguf.c: the GGUF reader on well-formed files: keys, arrays, tensors, release, hash, and the embedded model.
 * Broken files: tests/hostile/test_gguf_hostile.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gguf_maker.h"
#include "gguf_text.h"
#include "src_gguf.h"

static struct gguf *open_made(struct maker *m) {
  struct gguf *g = NULL;
  struct moe_error err = {0};
  if (gguf_open(maker_path(m), &g, &err) != MOE_OK) fail_msg("%s", err.message);
  assert_int_equal(err.code, MOE_OK);
  return g;
}

static void test_empty_file_of_both_versions(void **state) {
  (void)state;
  for (uint32_t version = 2; version <= 3; version++) {
    struct maker m;
    maker_init(&m, version);
    struct gguf *g = open_made(&m);
    assert_int_equal(gguf_version(g), version);
    assert_int_equal(gguf_file_bytes(g), 24);
    assert_int_equal(gguf_alignment(g), 32);
    assert_int_equal(gguf_n_key(g), 0);
    assert_int_equal(gguf_n_tensor(g), 0);
    assert_null(gguf_find_tensor(g, ""));
    assert_false(gguf_has(g, "general.architecture"));
    gguf_close(g);
    maker_deinit(&m);
  }
  gguf_close(NULL);
}

/* One key of each type, with values at their borders. */
static void make_all_types(struct maker *m) {
  maker_init(m, 3);
  maker_key(m, "u8", GGUF_U8), maker_raw(m, "\xff", 1);
  maker_key(m, "i8", GGUF_I8), maker_raw(m, "\x80", 1);
  maker_key(m, "u16", GGUF_U16), maker_raw(m, "\xff\xff", 2);
  maker_key(m, "i16", GGUF_I16), maker_raw(m, "\xfe\xff", 2);
  maker_key_u32(m, "u32", UINT32_MAX);
  maker_key(m, "i32", GGUF_I32), maker_u32(m, 7);
  maker_key(m, "i32_low", GGUF_I32), maker_u32(m, 0x80000000u);
  maker_key(m, "u64", GGUF_U64), maker_u64(m, UINT64_MAX);
  maker_key(m, "i64", GGUF_I64), maker_u64(m, (uint64_t)INT64_MIN);
  maker_key_f32(m, "f32", -0.5f);
  double wide = 1e6;
  maker_key(m, "f64", GGUF_F64), maker_raw(m, &wide, sizeof wide);
  maker_key(m, "yes", GGUF_BOOL), maker_raw(m, "\1", 1);
  maker_key(m, "no", GGUF_BOOL), maker_raw(m, "\0", 1);
  maker_key_text(m, "text", "h\xc3\xa9");
  maker_key_text(m, "empty", "");
}

static void test_typed_values(void **state) {
  (void)state;
  struct maker m;
  make_all_types(&m);
  struct gguf *g = open_made(&m);
  static const struct {
    const char *key;
    int64_t value;
  } integers[] = {{"u8", 255}, {"i8", -128},        {"u16", 65535},         {"i16", -2},
                  {"i32", 7},  {"u32", UINT32_MAX}, {"i32_low", INT32_MIN}, {"i64", INT64_MIN}};
  for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
    int64_t wide = 1;
    uint32_t narrow = 1;
    int64_t v = integers[i].value;
    assert_int_equal(gguf_get_i64(g, integers[i].key, &wide, NULL), MOE_OK);
    assert_true(wide == v);
    assert_int_equal(gguf_get_u32(g, integers[i].key, &narrow, NULL), v >= 0 ? MOE_OK : MOE_FAILED);
    assert_true(narrow == (v >= 0 ? (uint32_t)v : 1));
  }
  uint64_t u64 = 0;
  uint32_t u32 = 5;
  int64_t i64 = 5;
  assert_int_equal(gguf_get_u64(g, "u64", &u64, NULL), MOE_OK);
  assert_true(u64 == UINT64_MAX);
  assert_int_equal(gguf_get_u32(g, "u64", &u32, NULL), MOE_FAILED);
  assert_int_equal(gguf_get_i64(g, "u64", &i64, NULL), MOE_FAILED);
  assert_true(u32 == 5 && i64 == 5);

  float f = 0;
  assert_int_equal(gguf_get_f32(g, "f32", &f, NULL), MOE_OK);
  assert_true(f == -0.5f);
  assert_int_equal(gguf_get_f32(g, "f64", &f, NULL), MOE_OK);
  assert_true(f == 1e6f);
  bool b = false;
  assert_int_equal(gguf_get_bool(g, "yes", &b, NULL), MOE_OK);
  assert_true(b);
  assert_int_equal(gguf_get_bool(g, "no", &b, NULL), MOE_OK);
  assert_false(b);
  struct gguf_string s;
  assert_int_equal(gguf_get_string(g, "text", &s, NULL), MOE_OK);
  assert_int_equal(s.bytes, 3);
  assert_memory_equal(s.data, "h\xc3\xa9", 3);
  assert_int_equal(gguf_get_string(g, "empty", &s, NULL), MOE_OK);
  assert_int_equal(s.bytes, 0);

  enum gguf_type type;
  assert_string_equal(gguf_key(g, 0, &type), "u8");
  assert_int_equal(type, GGUF_U8);
  assert_string_equal(gguf_type_name(type), "u8");
  assert_string_equal(gguf_type_name((enum gguf_type)99), "unknown");
  gguf_close(g);
  maker_deinit(&m);
}

static void assert_message(enum moe_code code, const struct moe_error *err, const char *part) {
  assert_int_equal(code, MOE_FAILED);
  if (strstr(err->message, part) == NULL) fail_msg("'%s' is not in: %s", part, err->message);
}

static void test_messages_of_getters(void **state) {
  (void)state;
  struct maker m;
  make_all_types(&m);
  maker_key_array(&m, "list", GGUF_I32, 2), maker_u32(&m, 3), maker_u32(&m, UINT32_MAX);
  struct gguf *g = open_made(&m);
  uint32_t u = 0, each[3];
  float f;
  bool b;
  struct gguf_string s;
  struct gguf_array a;
  struct moe_error e = {0};
  assert_message(gguf_get_u32(g, "llama.block_count", &u, &e), &e, "the key llama.block_count is missing"), e.code = 0;
  assert_message(gguf_get_u32(g, "text", &u, &e), &e, "the key text is a string, expected an integer"), e.code = 0;
  assert_message(gguf_get_u32(g, "list", &u, &e), &e, "the key list is an array of i32, expected an integer"),
      e.code = 0;
  assert_message(gguf_get_u32(g, "i8", &u, &e), &e, "the key i8 is -128, allowed 0 to 4294967295"), e.code = 0;
  assert_message(gguf_get_u32(g, "u64", &u, &e), &e, "is 18446744073709551615, allowed 0 to 4294967295"), e.code = 0;
  assert_message(gguf_get_f32(g, "u8", &f, &e), &e, "the key u8 is a u8, expected a float"), e.code = 0;
  assert_message(gguf_get_bool(g, "u8", &b, &e), &e, "expected a bool"), e.code = 0;
  assert_message(gguf_get_string(g, "u8", &s, &e), &e, "expected a string"), e.code = 0;
  assert_message(gguf_get_array(g, "u8", &a, &e), &e, "expected an array"), e.code = 0;
  assert_message(gguf_get_array_of(g, "list", GGUF_STRING, &a, &e), &e, "expected an array of strings"), e.code = 0;
  assert_message(gguf_get_array_of(g, "list", GGUF_F32, &a, &e), &e, "expected an array of floats"), e.code = 0;
  assert_message(gguf_get_u32_each(g, "list", 3, each, &e), &e, "the key list has 2 values, expected 3"), e.code = 0;
  assert_message(gguf_get_u32_each(g, "list", 2, each, &e), &e, "value 1 of the key list is -1"), e.code = 0;
  assert_message(gguf_get_u32_each(g, "f32", 2, each, &e), &e, "expected an integer"), e.code = 0;
  assert_message(gguf_get_u32_or(g, "text", 1, &u, &e), &e, "expected an integer"), e.code = 0;
  gguf_close(g);
  maker_deinit(&m);
}

static void test_fallbacks_and_layers(void **state) {
  (void)state;
  struct maker m;
  make_all_types(&m);
  maker_key_array(&m, "heads", GGUF_U16, 3), maker_raw(&m, "\1\0\2\0\3\0", 6);
  struct gguf *g = open_made(&m);
  uint32_t u, each[3] = {0};
  float f;
  bool b;
  assert_int_equal(gguf_get_u32_or(g, "absent", 9, &u, NULL), MOE_OK);
  assert_int_equal(u, 9);
  assert_int_equal(gguf_get_u32_or(g, "i32", 9, &u, NULL), MOE_OK);
  assert_int_equal(u, 7);
  assert_int_equal(gguf_get_f32_or(g, "absent", 1.5f, &f, NULL), MOE_OK);
  assert_true(f == 1.5f);
  assert_int_equal(gguf_get_bool_or(g, "absent", true, &b, NULL), MOE_OK);
  assert_true(b);
  assert_int_equal(gguf_get_u32_each(g, "heads", 3, each, NULL), MOE_OK);
  assert_true(each[0] == 1 && each[1] == 2 && each[2] == 3);
  assert_int_equal(gguf_get_u32_each(g, "i32", 3, each, NULL), MOE_OK);
  assert_true(each[0] == 7 && each[1] == 7 && each[2] == 7);
  gguf_close(g);
  maker_deinit(&m);
}

static void test_arrays(void **state) {
  (void)state;
  struct maker m;
  maker_init(&m, 3);
  maker_key_array(&m, "words", GGUF_STRING, 3), maker_text(&m, "a"), maker_text(&m, ""), maker_text(&m, "ccc");
  maker_key_array(&m, "none", GGUF_STRING, 0);
  maker_key_array(&m, "scores", GGUF_F32, 2);
  static const float scores[] = {1.25f, -3.0f};
  maker_raw(&m, scores, sizeof scores);
  maker_key_array(&m, "wide", GGUF_U64, 1), maker_u64(&m, UINT64_MAX);
  maker_key_array(&m, "small", GGUF_I8, 2), maker_raw(&m, "\xff\x05", 2);
  struct gguf *g = open_made(&m);
  struct gguf_array a;
  struct gguf_string s;
  uint64_t cursor = 0;
  assert_int_equal(gguf_get_array_of(g, "words", GGUF_STRING, &a, NULL), MOE_OK);
  assert_int_equal(a.count, 3);
  assert_true(gguf_array_next(&a, &cursor, &s) && s.bytes == 1 && s.data[0] == 'a');
  assert_true(gguf_array_next(&a, &cursor, &s) && s.bytes == 0);
  assert_true(gguf_array_next(&a, &cursor, &s) && s.bytes == 3 && memcmp(s.data, "ccc", 3) == 0);
  assert_false(gguf_array_next(&a, &cursor, &s));
  assert_int_equal(gguf_get_array_of(g, "none", GGUF_STRING, &a, NULL), MOE_OK);
  cursor = 0;
  assert_false(gguf_array_next(&a, &cursor, &s));
  assert_int_equal(gguf_get_array_of(g, "scores", GGUF_F32, &a, NULL), MOE_OK);
  assert_true(gguf_array_f32(&a, 0) == 1.25f && gguf_array_f32(&a, 1) == -3.0f);
  cursor = 0;
  assert_false(gguf_array_next(&a, &cursor, &s));
  assert_int_equal(gguf_get_array_of(g, "wide", GGUF_I64, &a, NULL), MOE_OK);
  assert_true(gguf_array_i64(&a, 0) == INT64_MAX);
  assert_int_equal(gguf_get_array_of(g, "small", GGUF_I64, &a, NULL), MOE_OK);
  assert_true(gguf_array_i64(&a, 0) == -1 && gguf_array_i64(&a, 1) == 5);
  gguf_close(g);
  maker_deinit(&m);
}

static void test_tensors(void **state) {
  (void)state;
  struct maker m;
  maker_init(&m, 3);
  maker_key_u32(&m, "general.alignment", 64);
  maker_tensor(&m, "experts", 3, (const uint64_t[]){512, 3, 2}, FORMAT_Q4_K, 0);
  maker_tensor(&m, "norm", 1, (const uint64_t[]){7}, FORMAT_F32, 1728);
  maker_tensor(&m, "odd", 2, (const uint64_t[]){7, 7}, 77, 1792);
  maker_data(&m, 64, 1792);
  m.bytes[m.used - 1792] = 0x5a;
  struct gguf *g = open_made(&m);
  assert_int_equal(gguf_n_tensor(g), 3);
  const struct gguf_tensor *t = gguf_find_tensor(g, "experts");
  assert_ptr_equal(t, gguf_tensor(g, 0));
  assert_string_equal(t->name, "experts");
  assert_true(t->n_dim == 3 && t->dim[0] == 512 && t->dim[1] == 3 && t->dim[2] == 2 && t->dim[3] == 1);
  assert_ptr_equal(t->format, format_find(FORMAT_Q4_K));
  assert_int_equal(t->n_element, 3072);
  assert_int_equal(t->bytes, 1728);
  assert_int_equal(t->offset, m.used - 1792);
  assert_int_equal(t->data[0], 0x5a);
  gguf_release(g, t);
  assert_int_equal(t->data[0], 0x5a); /* still there */
  gguf_release_range(g, t->data + 1, 100);
  gguf_release_range(g, t->data, UINT64_MAX); /* out of the file: ignored */
  assert_int_equal(t->data[0], 0x5a);
  t = gguf_find_tensor(g, "norm");
  assert_true(t != NULL && t->bytes == 28 && t->n_dim == 1);
  t = gguf_find_tensor(g, "odd");
  assert_true(t != NULL && t->format == NULL && t->format_number == 77 && t->bytes == 0 && t->n_element == 49);
  assert_null(gguf_find_tensor(g, "experts2"));
  gguf_close(g);
  maker_deinit(&m);
}

static void test_many_names_are_found(void **state) {
  (void)state;
  enum { N = 5000 };
  struct maker m;
  maker_init(&m, 3);
  char name[32];
  for (uint32_t i = 0; i < N; i++) {
    snprintf(name, sizeof name, "key.%u", i);
    maker_key_u32(&m, name, i * 3);
  }
  struct gguf *g = open_made(&m);
  for (uint32_t i = 0, v; i < N; i++) {
    snprintf(name, sizeof name, "key.%u", i);
    assert_int_equal(gguf_get_u32(g, name, &v, NULL), MOE_OK);
    assert_int_equal(v, i * 3);
  }
  assert_false(gguf_has(g, "key.5000"));
  gguf_close(g);
  maker_deinit(&m);
}

static bool count_progress(void *context, uint64_t done, uint64_t total) {
  uint64_t *last = context;
  assert_true(done > *last && done <= total);
  *last = done;
  return true;
}

static void test_hash(void **state) {
  (void)state;
  struct maker m;
  maker_init(&m, 3);
  struct gguf *g = open_made(&m);
  uint8_t hash[GGUF_HASH_BYTES];
  uint64_t last = 0;
  assert_int_equal(gguf_hash(g, hash, count_progress, &last, NULL), MOE_OK);
  assert_int_equal(last, 24);
  /* printf 'GGUF\x03\0\0\0' followed by 16 zero bytes, through b2sum -l 256 */
  static const uint8_t expected[GGUF_HASH_BYTES] = {0x56, 0xae, 0x4e, 0x49, 0x13, 0xa5, 0x28, 0xf5, 0x2c, 0xf4, 0xe8,
                                                    0x3a, 0x2c, 0x43, 0xa8, 0x8d, 0x99, 0x22, 0xa4, 0xb5, 0x56, 0xce,
                                                    0xfb, 0x4b, 0x4a, 0x7d, 0x45, 0xce, 0xa6, 0xff, 0x05, 0xc7};
  assert_memory_equal(hash, expected, sizeof hash);
  gguf_close(g);
  maker_deinit(&m);
}

static bool stop_at_once(void *context, uint64_t done, uint64_t total) {
  (void)done, (void)total;
  (*(int *)context)++;
  return false;
}

/* A hash that nobody waits for any more ends with the chunk it is in. */
static void test_hash_stops(void **state) {
  (void)state;
  struct maker m;
  maker_init(&m, 3);
  maker_data(&m, 32, 3 << 20);
  struct gguf *g = open_made(&m);
  uint8_t hash[GGUF_HASH_BYTES];
  struct moe_error err = {0};
  int calls = 0;
  assert_int_equal(gguf_hash(g, hash, stop_at_once, &calls, &err), MOE_FAILED);
  assert_int_equal(calls, 1);
  assert_non_null(strstr(err.message, "hashing was stopped at byte"));
  gguf_close(g);
  maker_deinit(&m);
}

/* The embedded model, as moec sees it. */
static void test_embedded_model(void **state) {
  (void)state;
  const char *dir = getenv("TESTS_DIR");
  if (dir == NULL) skip();
  char path[1024];
  snprintf(path, sizeof path, "%s/models/wordnet-moe.gguf", dir);
  struct gguf *g = NULL;
  struct moe_error err = {0};
  if (gguf_open(path, &g, &err) != MOE_OK) fail_msg("%s", err.message);
  struct gguf_string s;
  uint32_t n_expert;
  assert_int_equal(gguf_get_string(g, "general.architecture", &s, NULL), MOE_OK);
  assert_true(s.bytes == 8 && memcmp(s.data, "qwen3moe", 8) == 0);
  assert_int_equal(gguf_get_u32(g, "qwen3moe.expert_count", &n_expert, NULL), MOE_OK);
  assert_int_equal(n_expert, 16);
  uint64_t end = 0;
  for (uint64_t i = 0; i < gguf_n_tensor(g); i++) {
    const struct gguf_tensor *t = gguf_tensor(g, i);
    assert_true(format_compiled(t->format));
    if (t->offset + t->bytes > end) end = t->offset + t->bytes;
  }
  assert_true(end <= gguf_file_bytes(g) && gguf_file_bytes(g) - end < 32);
  gguf_close(g);
}

static void test_text(void **state) {
  (void)state;
  assert_true(gguf_text_plain("", 0));
  assert_true(gguf_text_plain("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\xb8", 10));
  static const char *const bad[] = {
      "\x80",     "\xc0\x80",     "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8\x88\x80",  "\xff",
      "\xe2\x82", "\xf0\x9f\x8e", "\n",   "\x7f",         "\xc2\x85",     "\x1b[2J",          "ok\xc3then bad"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(gguf_text_plain(bad[i], strlen(bad[i])));
  assert_false(gguf_text_plain("a\0b", 3));
  char out[16];
  assert_string_equal(gguf_text_printable(out, sizeof out, "a\x1b\xff", 3), "a\xef\xbf\xbd\xef\xbf\xbd");
  assert_string_equal(gguf_text_printable(out, 5, "ab\xe2\x82\xac", 5), "ab"); /* never half a character */
  assert_string_equal(gguf_text_printable(out, 6, "ab\xe2\x82\xac", 5), "ab\xe2\x82\xac");
  assert_string_equal(gguf_text_printable(out, 1, "abc", 3), "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_empty_file_of_both_versions),
      cmocka_unit_test(test_typed_values),
      cmocka_unit_test(test_messages_of_getters),
      cmocka_unit_test(test_fallbacks_and_layers),
      cmocka_unit_test(test_arrays),
      cmocka_unit_test(test_tensors),
      cmocka_unit_test(test_many_names_are_found),
      cmocka_unit_test(test_hash),
      cmocka_unit_test(test_hash_stops),
      cmocka_unit_test(test_embedded_model),
      cmocka_unit_test(test_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
