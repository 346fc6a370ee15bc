/* test_gguf_hostile.c: the GGUF reader and `moec inspect` on broken and malicious files, in-process: each named class
 * with its message, truncation anywhere, and random damage. What must hold always: no crash, no sanitizer report, one
 * message, and *g NULL. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "gguf_maker.h"
#include "moec_inspect.h"
#include "src_gguf.h"

/* Marsaglia's xorshift64. */
static uint64_t random_state = 88172645463325252u;
static uint64_t random_next(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

/* Opening `path` must fail with this code and these words. */
static void expect_refusal(const char *path, enum moe_code code, const char *words) {
  struct gguf *g = (struct gguf *)&random_state;
  struct moe_error err = {0};
  enum moe_code found = gguf_open(path, &g, &err);
  if (found == MOE_OK) gguf_close(g);
  if (found != code) fail_msg("expected code %d and '%s', found %d: %s", code, words, found, err.message);
  assert_null(g);
  assert_int_equal(err.code, code);
  if (strstr(err.message, words) == NULL) fail_msg("expected '%s', found: %s", words, err.message);
  if (strchr(err.message, '\n') != NULL || strchr(err.message, '\x1b') != NULL)
    fail_msg("not one line: %s", err.message);
}

static void refuse_made(struct maker *m, enum moe_code code, const char *words) {
  expect_refusal(maker_path(m), code, words);
  maker_deinit(m);
}

/* Reads everything an accepted file has, as moec would. */
static uint64_t read_everything(const struct gguf *g) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < gguf_n_tensor(g); i++) {
    const struct gguf_tensor *t = gguf_tensor(g, i);
    assert_ptr_equal(gguf_find_tensor(g, t->name), t);
    if (t->bytes != 0) sum += t->data[0] + t->data[t->bytes / 2] + t->data[t->bytes - 1];
  }
  for (uint64_t i = 0; i < gguf_n_key(g); i++) {
    enum gguf_type type;
    const char *key = gguf_key(g, i, &type);
    struct gguf_array a;
    struct gguf_string s;
    uint32_t u = 0, each[4];
    float f;
    bool b;
    assert_true(gguf_has(g, key));
    if (gguf_get_u32(g, key, &u, NULL) == MOE_OK) sum += u;
    if (gguf_get_f32(g, key, &f, NULL) == MOE_OK) sum++;
    if (gguf_get_bool(g, key, &b, NULL) == MOE_OK) sum += b;
    if (gguf_get_u32_each(g, key, 4, each, NULL) == MOE_OK) sum += each[3];
    if (gguf_get_string(g, key, &s, NULL) == MOE_OK && s.bytes != 0) sum += (uint8_t)s.data[s.bytes - 1];
    if (gguf_get_array(g, key, &a, NULL) != MOE_OK || a.count == 0) continue;
    if (a.type == GGUF_STRING) {
      uint64_t cursor = 0, n = 0;
      for (; gguf_array_next(&a, &cursor, &s); n++)
        if (s.bytes != 0) sum += (uint8_t)s.data[s.bytes - 1];
      assert_int_equal(n, a.count);
    } else if (a.type == GGUF_F32 || a.type == GGUF_F64) {
      sum += gguf_array_f32(&a, a.count - 1) > 0;
    } else {
      sum += (uint64_t)gguf_array_i64(&a, a.count - 1);
    }
  }
  return sum;
}

/* Opens a file that may be anything: it is read whole and inspected, or refused with a message. Returns whether it was
 * accepted. */
static bool open_anything(const char *path, FILE *sink) {
  struct gguf *g = NULL;
  struct moe_error err = {0};
  enum moe_code code = gguf_open(path, &g, &err);
  if (code != MOE_OK) {
    assert_null(g);
    assert_true(code == MOE_FAILED || code == MOE_DECLINED);
    assert_int_equal(err.code, code);
    assert_true(err.message[0] != '\0' && strchr(err.message, '\n') == NULL);
    return false;
  }
  read_everything(g);
  gguf_close(g);
  rewind(sink);
  assert_int_equal(inspect_run(path, &(struct inspect_options){.json = true}, sink, NULL), MOE_OK);
  rewind(sink);
  assert_int_equal(inspect_run(path, &(struct inspect_options){.tensors = true}, sink, NULL), MOE_OK);
  return true;
}

/* ---- Files that are no GGUF ---- */

static void test_not_a_gguf(void **state) {
  (void)state;
  struct maker m;
  maker_init(&m, 3);
  expect_refusal("/nonexistent/x.gguf", MOE_FAILED, "cannot open: No such file");
  expect_refusal("/tmp", MOE_FAILED, "is a directory");
  expect_refusal("/dev/zero", MOE_FAILED, "no regular file");
  char pipe_path[] = "/tmp/moec-hostile-XXXXXX";
  assert_non_null(mkdtemp(pipe_path));
  char pipe[64];
  snprintf(pipe, sizeof pipe, "%s/pipe", pipe_path);
  assert_int_equal(mkfifo(pipe, 0600), 0);
  expect_refusal(pipe, MOE_FAILED, "no regular file"); /* at once: nobody writes to it */
  unlink(pipe), rmdir(pipe_path);

  expect_refusal(maker_path_of(&m, "", 0), MOE_FAILED, "truncated file: the header needs 24 bytes, the file has 0");
  expect_refusal(maker_path_of(&m, "GGUF\3\0\0\0", 8), MOE_FAILED, "truncated file");
  expect_refusal(maker_path_of(&m, "PK\3\4aaaaaaaaaaaaaaaaaaaa", 24), MOE_FAILED,
                 "not a GGUF file: it starts with 50 4b 03 04");
  expect_refusal(maker_path_of(&m, "tjgg\1\0\0\0aaaaaaaaaaaaaaaa", 24), MOE_DECLINED, "a ggjt file, older than GGUF");
  expect_refusal(maker_path_of(&m, "GGUF\1\0\0\0aaaaaaaaaaaaaaaa", 24), MOE_DECLINED,
                 "GGUF version 1, which is not read");
  expect_refusal(maker_path_of(&m, "GGUF\4\0\0\0aaaaaaaaaaaaaaaa", 24), MOE_DECLINED, "GGUF version 4 is unknown");
  expect_refusal(maker_path_of(&m, "GGUF\0\0\0\0aaaaaaaaaaaaaaaa", 24), MOE_DECLINED, "GGUF version 0 is unknown");
  expect_refusal(maker_path_of(&m, "GGUF\0\0\0\3aaaaaaaaaaaaaaaa", 24), MOE_DECLINED,
                 "a big-endian GGUF (version 3), made for a big-endian machine; moec reads little-endian ones: take");
  expect_refusal(maker_path_of(&m, "FUGG\0\0\0\2aaaaaaaaaaaaaaaa", 24), MOE_DECLINED, "a big-endian GGUF (version 2)");
  maker_deinit(&m);
}

static void test_counts(void **state) {
  (void)state;
  static const uint64_t counts[] = {2, 1000, 1ull << 32, UINT64_MAX / 64, UINT64_MAX};
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    struct maker m;
    maker_init(&m, 3);
    m.n_key = counts[i];
    refuse_made(&m, MOE_FAILED, "keys of at least 14 bytes each, 0 bytes are left");
    maker_init(&m, 3);
    m.n_tensor = counts[i];
    refuse_made(&m, MOE_FAILED, "tensors of at least 33 bytes each, 0 bytes are left");
  }
}

/* ---- Keys ---- */

static void test_keys(void **state) {
  (void)state;
  struct maker m;
  maker_init(&m, 3), maker_key_u32(&m, "a", 1), maker_key_u32(&m, "b", 1), maker_key_u32(&m, "a", 2);
  refuse_made(&m, MOE_FAILED, "key[2] a: duplicate key, already at key[0]");
  maker_init(&m, 3), maker_key_u32(&m, "", 1), maker_raw(&m, "aaaa", 4);
  refuse_made(&m, MOE_FAILED, "key[0]: the key of 0 bytes, allowed 1 to 65535");
  maker_init(&m, 3), maker_key_u32(&m, "caf\xff\x1b[31m", 1);
  refuse_made(&m, MOE_FAILED,
              "key[0]: the key is not valid UTF-8 or has control characters: \"caf\xef\xbf\xbd\xef\xbf\xbd[31m\"");
  maker_init(&m, 3), maker_key(&m, "a", 13), maker_raw(&m, "aaaaaaaa", 8);
  refuse_made(&m, MOE_FAILED, "key[0] a: unknown value type 13, allowed 0 to 12");
  maker_init(&m, 3), maker_key(&m, "a", GGUF_BOOL), maker_raw(&m, "\2", 1);
  refuse_made(&m, MOE_FAILED, "a bool has the value 2");
  maker_init(&m, 3), maker_key(&m, "a", GGUF_STRING), maker_u64(&m, UINT64_MAX);
  refuse_made(&m, MOE_FAILED,
              "key[0] a: truncated file: the string needs 18446744073709551615 bytes at byte 45, the file has 45");
  maker_init(&m, 3), maker_u64(&m, UINT64_MAX - 20), maker_raw(&m, "aaaaaaaaaaaaaaaa", 16), m.n_key = 1;
  refuse_made(&m, MOE_FAILED, "key[0]: truncated file: the key needs");
  static char big[70000];
  memset(big, 'k', sizeof big - 1);
  maker_init(&m, 3), maker_key_u32(&m, big, 1);
  refuse_made(&m, MOE_FAILED, "the key of 69999 bytes, allowed 1 to 65535");
}

static void test_arrays(void **state) {
  (void)state;
  struct maker m;
  maker_init(&m, 3), maker_key_array(&m, "a", GGUF_ARRAY, 1), maker_raw(&m, "aaaaaaaaaaaa", 12);
  refuse_made(&m, MOE_FAILED, "key[0] a: an array of arrays");
  maker_init(&m, 3), maker_key_array(&m, "a", 99, 1), maker_raw(&m, "aaaaaaaaaaaa", 12);
  refuse_made(&m, MOE_FAILED, "unknown value type 99");
  maker_init(&m, 3), maker_key_array(&m, "a", GGUF_U64, UINT64_MAX / 4);
  refuse_made(&m, MOE_FAILED, "exceeds 2^64 bytes");
  maker_init(&m, 3), maker_key_array(&m, "a", GGUF_U32, 1ull << 40);
  refuse_made(&m, MOE_FAILED, "truncated file: the value needs 4398046511104 bytes");
  maker_init(&m, 3), maker_key_array(&m, "a", GGUF_STRING, UINT64_MAX);
  refuse_made(&m, MOE_FAILED,
              "truncated file: 18446744073709551615 strings need at least 8 bytes each, 0 bytes are left");
  maker_init(&m, 3), maker_key_array(&m, "a", GGUF_STRING, 2), maker_text(&m, "fine"), maker_u64(&m, 1ull << 63);
  refuse_made(&m, MOE_FAILED, "truncated file: a string of the array needs");
  maker_init(&m, 3), maker_key_array(&m, "a", GGUF_BOOL, 3), maker_raw(&m, "\0\1\7", 3);
  refuse_made(&m, MOE_FAILED, "a bool has the value 7");
}

static void test_alignment(void **state) {
  (void)state;
  static const uint32_t bad[] = {0, 1, 4, 12, 33, 48, 1u << 21, 0x80000000u, UINT32_MAX};
  struct maker m;
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    char words[80];
    snprintf(words, sizeof words, "general.alignment is %u, allowed are powers of two from 8 to 1048576", bad[i]);
    maker_init(&m, 3), maker_key_u32(&m, "general.alignment", bad[i]);
    refuse_made(&m, MOE_FAILED, words);
  }
  maker_init(&m, 3), maker_key_text(&m, "general.alignment", "32");
  refuse_made(&m, MOE_FAILED, "the key general.alignment is a string, expected an integer");
  maker_init(&m, 3), maker_tensor(&m, "t", 1, (const uint64_t[]){8}, FORMAT_F32, 16), maker_data(&m, 32, 64);
  refuse_made(&m, MOE_FAILED, "tensor[0] t: its offset 16 is no multiple of the alignment 32");
}

/* ---- Tensors ---- */

static void refuse_tensor(uint32_t n_dim, const uint64_t *dim, uint32_t format, uint64_t offset, const char *words) {
  struct maker m;
  maker_init(&m, 3);
  maker_tensor(&m, "blk.0.x", n_dim, dim, format, offset);
  maker_data(&m, 32, 4096);
  refuse_made(&m, MOE_FAILED, words);
}

static void test_dimensions(void **state) {
  (void)state;
  const uint64_t huge = 2147483647;
  refuse_tensor(0, NULL, FORMAT_F32, 0, "tensor[0] blk.0.x: 0 dimensions, allowed 1 to 4");
  refuse_tensor(5, (const uint64_t[]){1, 1, 1, 1, 1}, FORMAT_F32, 0, "5 dimensions, allowed 1 to 4");
  struct maker m;
  maker_init(&m, 3), maker_text(&m, "t"), maker_u32(&m, UINT32_MAX), m.n_tensor = 1, maker_data(&m, 32, 4096);
  refuse_made(&m, MOE_FAILED, "4294967295 dimensions");
  refuse_tensor(1, (const uint64_t[]){0}, FORMAT_F32, 0, "dimension 0 is 0, allowed 1 to 2147483647");
  refuse_tensor(3, (const uint64_t[]){4, 4, 0}, FORMAT_F32, 0, "dimension 2 is 0");
  refuse_tensor(2, (const uint64_t[]){8, 1ull << 40}, FORMAT_F32, 0,
                "dimension 1 is 1099511627776, allowed 1 to 2147483647");
  refuse_tensor(2, (const uint64_t[]){UINT64_MAX, 2}, FORMAT_F32, 0, "dimension 0 is 18446744073709551615");
  refuse_tensor(4, (const uint64_t[]){huge, huge, huge, huge}, FORMAT_F32, 0,
                "the dimensions 2147483647 x 2147483647 x 2147483647 x 2147483647 overflow 64 bits");
  refuse_tensor(3, (const uint64_t[]){huge, huge, 3}, FORMAT_F32, 0, "weights in format F32 overflow 64 bits");
  refuse_tensor(2, (const uint64_t[]){1408, 8}, FORMAT_Q4_K, 0,
                "tensor[0] blk.0.x: 1408 columns, format Q4_K needs a multiple of 256");
  refuse_tensor(2, (const uint64_t[]){huge, huge}, FORMAT_F16, 0,
                "truncated file: its data need 9223372028264841218 bytes");
  refuse_tensor(2, (const uint64_t[]){1024, 2}, FORMAT_F32, 0,
                "truncated file: its data need 8192 bytes at byte 96, the file has 4192");
  refuse_tensor(1, (const uint64_t[]){1024}, FORMAT_F32, UINT64_MAX - 31,
                "its data at offset 18446744073709551584 overflow 64 bits");
  refuse_tensor(1, (const uint64_t[]){1024}, FORMAT_F32, 32,
                "truncated file: its data need 4096 bytes at byte 96, the file has 4160");
  refuse_tensor(1, (const uint64_t[]){1024}, 12345, 1ull << 50, "truncated file: its data need 0 bytes");
}

static void test_tensor_names(void **state) {
  (void)state;
  struct maker m;
  const uint64_t dim[] = {8};
  maker_init(&m, 3), maker_tensor(&m, "t", 1, dim, 0, 0), maker_tensor(&m, "u", 1, dim, 0, 32),
      maker_tensor(&m, "t", 1, dim, 0, 64);
  maker_data(&m, 32, 96);
  refuse_made(&m, MOE_FAILED, "tensor[2] t: duplicate tensor name, already at tensor[0]");
  maker_init(&m, 3), maker_tensor(&m, "a\nb", 1, dim, 0, 0), maker_data(&m, 32, 32);
  refuse_made(&m, MOE_FAILED, "tensor[0]: the name is not valid UTF-8 or has control characters");
  maker_init(&m, 3), maker_tensor(&m, "a\xed\xa0\x80", 1, dim, 0, 0), maker_data(&m, 32, 32);
  refuse_made(&m, MOE_FAILED, "not valid UTF-8");
  char longer[300];
  memset(longer, 'n', 256);
  longer[256] = '\0';
  maker_init(&m, 3), maker_tensor(&m, longer, 1, dim, 0, 0), maker_data(&m, 32, 32);
  refuse_made(&m, MOE_FAILED, "the name of 256 bytes, allowed 1 to 255");
}

static void test_overlap(void **state) {
  (void)state;
  struct maker m;
  maker_init(&m, 3);
  maker_tensor(&m, "late", 1, (const uint64_t[]){8}, 0, 64);
  maker_tensor(&m, "early", 1, (const uint64_t[]){24}, 0, 0); /* 96 bytes */
  maker_data(&m, 32, 96);
  refuse_made(&m, MOE_FAILED, "tensor[0] late: its data at byte 192 overlap those of tensor[1] early");
}

/* ---- Truncation ---- */

/* Reads the embedded model. The caller frees *data. */
static size_t embedded_model(uint8_t **data) {
  const char *dir = getenv("TESTS_DIR");
  char path[1024];
  snprintf(path, sizeof path, "%s/models/wordnet-moe.gguf", dir != NULL ? dir : ".");
  FILE *file = fopen(path, "rb");
  if (file == NULL) fail_msg("cannot open %s", path);
  fseek(file, 0, SEEK_END);
  size_t bytes = (size_t)ftell(file);
  rewind(file);
  *data = malloc(bytes);
  assert_non_null(*data);
  assert_int_equal(fread(*data, 1, bytes, file), bytes);
  fclose(file);
  return bytes;
}

static void test_truncated_model(void **state) {
  (void)state;
  uint8_t *data;
  size_t bytes = embedded_model(&data);
  struct maker m = {.fd = -1};
  for (size_t cut = 0; cut <= 65536; cut += 1024)
    expect_refusal(maker_path_of(&m, data, cut), MOE_FAILED, "truncated file");
  for (size_t cut = 1 << 17; cut < bytes; cut *= 2)
    expect_refusal(maker_path_of(&m, data, cut), MOE_FAILED, "truncated file");
  expect_refusal(maker_path_of(&m, data, bytes - 32), MOE_FAILED, "truncated file: its data need");
  free(data);
  maker_deinit(&m);
}

/* A small file with all kinds of values. */
static void make_small(struct maker *m) {
  maker_init(m, 3);
  maker_key_text(m, "general.architecture", "qwen3moe");
  maker_key_text(m, "general.name", "s\xff\x1b[2J\xe2\x82");
  maker_key_u32(m, "general.alignment", 32);
  maker_key_u32(m, "qwen3moe.block_count", 2);
  maker_key_f32(m, "qwen3moe.rope.freq_base", 1e6f);
  maker_key(m, "qwen3moe.flag", GGUF_BOOL), maker_raw(m, "\1", 1);
  maker_key(m, "qwen3moe.wide", GGUF_U64), maker_u64(m, UINT64_MAX);
  maker_key(m, "qwen3moe.double", GGUF_F64), maker_u64(m, 0x7ff8000000000001u);
  maker_key_array(m, "qwen3moe.heads", GGUF_I32, 4), maker_raw(m, "\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0", 16);
  maker_key_array(m, "tokenizer.ggml.tokens", GGUF_STRING, 3), maker_text(m, "a"), maker_text(m, "\xff\xfe"),
      maker_text(m, "");
  maker_key_array(m, "tokenizer.ggml.scores", GGUF_F32, 2), maker_raw(m, "\0\0\x80\x7f\0\0\xc0\x7f", 8);
  maker_tensor(m, "token_embd.weight", 2, (const uint64_t[]){256, 3}, FORMAT_Q4_K, 0);
  maker_tensor(m, "blk.0.ffn_up_exps.weight", 3, (const uint64_t[]){32, 2, 3}, FORMAT_Q8_0, 448);
  maker_tensor(m, "blk.0.attn_norm.weight", 1, (const uint64_t[]){5}, FORMAT_F32, 672);
  maker_tensor(m, "odd", 1, (const uint64_t[]){5}, FORMAT_IQ4_NL + 60, 704);
  maker_data(m, 32, 704);
}

static void test_every_truncation_of_a_small_file(void **state) {
  (void)state;
  struct maker m;
  make_small(&m);
  FILE *sink = tmpfile();
  assert_non_null(sink);
  assert_true(open_anything(maker_path(&m), sink));
  for (size_t cut = 0; cut < m.used; cut++)
    expect_refusal(maker_path_of(&m, m.bytes, cut), MOE_FAILED, "truncated file");
  fclose(sink);
  maker_deinit(&m);
}

/* ---- Random damage ---- */

/* Values that break arithmetic. */
static const uint64_t poison[] = {0,          1,          9,          31,         0x7f,
                                  0x80,       0xff,       0x7fffffff, 0x80000000, 0xffffffff,
                                  1ull << 32, 1ull << 40, INT64_MAX,  1ull << 63, UINT64_MAX - 31,
                                  UINT64_MAX};

/* Damages `bytes` bytes in one to four places: flipped bits, random bytes, or words of poison. */
static void damage(uint8_t *data, size_t bytes) {
  uint64_t places = 1 + random_next() % 4;
  for (uint64_t i = 0; i < places; i++) {
    size_t at = random_next() % bytes, room = bytes - at, width;
    uint64_t value = poison[random_next() % (sizeof poison / sizeof poison[0])];
    switch (random_next() % 4) {
    case 0:
      data[at] ^= (uint8_t)(1u << (random_next() % 8));
      break;
    case 1:
      data[at] = (uint8_t)random_next();
      break;
    default:
      width = random_next() % 2 ? 8 : 4;
      memcpy(data + at, &value, width < room ? width : room);
    }
  }
}

static void test_random_damage_of_a_small_file(void **state) {
  (void)state;
  enum { CASES = 20000 };
  struct maker m;
  make_small(&m);
  maker_path(&m); /* sets the counts */
  FILE *sink = tmpfile();
  uint8_t *copy = malloc(m.used);
  assert_true(sink != NULL && copy != NULL);
  size_t header = m.used - 704;
  int accepted = 0;
  for (int i = 0; i < CASES; i++) {
    memcpy(copy, m.bytes, m.used);
    damage(copy, header);
    accepted += open_anything(maker_path_of(&m, copy, m.used), sink);
  }
  /* Most damage is to text or numbers that nothing checks, or is refused; both must have happened, or the test tests
   * nothing. */
  assert_true(accepted > CASES / 50 && accepted < CASES * 49 / 50);
  free(copy);
  fclose(sink);
  maker_deinit(&m);
}

/* The embedded model's header, damaged in place in one file. */
static void test_random_damage_of_the_model(void **state) {
  (void)state;
  enum { CASES = 1000 };
  uint8_t *data;
  size_t bytes = embedded_model(&data);
  struct maker m = {.fd = -1};
  struct gguf *g;
  const char *path = maker_path_of(&m, data, bytes);
  assert_int_equal(gguf_open(path, &g, NULL), MOE_OK);
  size_t header = gguf_tensor(g, 0)->offset;
  for (uint64_t i = 0; i < gguf_n_tensor(g); i++)
    if (gguf_tensor(g, i)->offset < header) header = gguf_tensor(g, i)->offset;
  gguf_close(g);
  FILE *sink = tmpfile();
  uint8_t *copy = malloc(header);
  assert_true(sink != NULL && copy != NULL);
  for (int i = 0; i < CASES; i++) {
    memcpy(copy, data, header);
    if (i % 2 == 0)
      damage(copy, header);
    else
      damage(copy + header - 4096, 4096); /* the tensors' records stand last */
    assert_int_equal(pwrite(m.fd, copy, header, 0), header);
    open_anything(path, sink);
  }
  free(copy);
  free(data);
  fclose(sink);
  maker_deinit(&m);
}

/* ---- The report ---- */

/* What is kept in GGUFs and is no model: a key that tells, its value, what the report says. */
static void test_inspect_names_what_is_no_model(void **state) {
  (void)state;
  static const struct {
    const char *key, *value, *architecture;
    uint32_t pooling;
    bool tensors;
    const char *is, *words;
  } cases[] = {
      {"general.type", "adapter", "qwen3", 0, true, "an adapter (LoRA) for another model", "merge it into that model"},
      {"general.type", "imatrix", NULL, 0, true, "an importance matrix", "llama-quantize takes it"},
      {"general.type", "mmproj", "clip", 0, true, "the part of a model that reads images or sound",
       "give the language"},
      {"general.name", "x", "clip", 0, true, "the part of a model that reads images or sound",
       "'clip': it is the part"},
      {"general.name", "x", "controlvector", 0, true, "a control vector for another model", "give the model itself"},
      {"general.name", "x", "nomic-bert", 0, true, "an embedding model", "it gives vectors"},
      {"general.name", "x", "qwen3", 3, true, "an embedding model",
       "qwen3.pooling_type is 3 (last token): it is an emb"},
      {"general.name", "x", "qwen3", 4, true, "a reranker", "qwen3.pooling_type is 4 (rank): it is a reranker"},
      {"general.name", "x", "qwen3", 77, true, "an embedding model", "qwen3.pooling_type is 77: it is"},
      {"tokenizer.ggml.tokens", NULL, "qwen3", 0, false, "a vocabulary without weights", "it has no tensors"},
      {"general.name", "x", "qwen3", 0, false, "a header without weights", "fetch the model again"},
      {"general.type", "model", "qwen3", 0, true, "a model that generates text", "qwen3.block_count is missing"},
      {"general.type", "model", NULL, 0, true, "a model that generates text", "general.architecture is missing"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct maker m;
    maker_init(&m, 3);
    if (cases[i].value != NULL)
      maker_key_text(&m, cases[i].key, cases[i].value);
    else
      maker_key_array(&m, cases[i].key, GGUF_STRING, 1), maker_text(&m, "a");
    if (cases[i].architecture != NULL) maker_key_text(&m, "general.architecture", cases[i].architecture);
    if (cases[i].pooling != 0) maker_key_u32(&m, "qwen3.pooling_type", cases[i].pooling);
    if (cases[i].tensors) maker_tensor(&m, "x", 1, (const uint64_t[]){8}, FORMAT_F32, 0), maker_data(&m, 32, 32);
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_int_equal(inspect_run(maker_path(&m), &(struct inspect_options){0}, out, NULL), MOE_OK);
    fclose(out);
    if (strstr(text, cases[i].is) == NULL || strstr(text, cases[i].words) == NULL ||
        strstr(text, "compiles         no") == NULL)
      fail_msg("case %zu: '%s' or '%s' is not in:\n%s", i, cases[i].is, cases[i].words, text);
    free(text);
    maker_deinit(&m);
  }
}

static void test_inspect_says_why_not(void **state) {
  (void)state;
  struct maker m;
  maker_init(&m, 3);
  maker_key_text(&m, "general.architecture",
                 "mam\x1b"
                 "ba");
  maker_tensor(&m, "blk.0.x", 2, (const uint64_t[]){256, 1}, FORMAT_Q1_0, 0);
  maker_tensor(&m, "blk.1.x", 2, (const uint64_t[]){256, 1}, 99, 288);
  maker_data(&m, 32, 288);
  char *text = NULL;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  assert_int_equal(inspect_run(maker_path(&m), &(struct inspect_options){0}, out, NULL), MOE_OK);
  fclose(out);
  static const char *const words[] = {"general.architecture: 'mam\xef\xbf\xbd"
                                      "ba' is not served; moec compiles ",
                                      "format Q1_0 of tensor blk.0.x is not compiled yet; supported: F32,",
                                      "format number 99 of tensor blk.1.x is unknown", "(1 tensors have that format)",
                                      "compiles         no"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strstr(text, words[i]) == NULL) fail_msg("'%s' is not in:\n%s", words[i], text);
  assert_null(strchr(text, '\x1b'));
  free(text);
  maker_deinit(&m);
}

static void test_inspect_reports_a_full_disk(void **state) {
  (void)state;
  struct maker m;
  make_small(&m);
  FILE *full = fopen("/dev/full", "w");
  if (full == NULL) skip();
  struct moe_error err = {0};
  assert_int_equal(inspect_run(maker_path(&m), &(struct inspect_options){.json = true}, full, &err), MOE_FAILED);
  assert_non_null(strstr(err.message, "cannot write the report"));
  fclose(full);
  maker_deinit(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_not_a_gguf),
      cmocka_unit_test(test_counts),
      cmocka_unit_test(test_keys),
      cmocka_unit_test(test_arrays),
      cmocka_unit_test(test_alignment),
      cmocka_unit_test(test_dimensions),
      cmocka_unit_test(test_tensor_names),
      cmocka_unit_test(test_overlap),
      cmocka_unit_test(test_truncated_model),
      cmocka_unit_test(test_every_truncation_of_a_small_file),
      cmocka_unit_test(test_random_damage_of_a_small_file),
      cmocka_unit_test(test_random_damage_of_the_model),
      cmocka_unit_test(test_inspect_names_what_is_no_model),
      cmocka_unit_test(test_inspect_says_why_not),
      cmocka_unit_test(test_inspect_reports_a_full_disk),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
