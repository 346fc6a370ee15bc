/* test_tokenizer_hostile.c: tokenizers that nobody would make: vocabularies, scores, types, merges, ids and normalizers
 * at random, of every kind that is served, and payloads with damaged bytes. Each is refused with one line, or it
 * encodes and decodes any text: ids in range, in time, never a crash. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "emit_tokenizer.h"
#include "gguf_maker.h"
#include "src_gguf.h"
#include "tokenizer.h"

#ifndef CASES
#define CASES 3000
#endif

enum { SECONDS = 60, MAX_TEXT = 2048, MAX_ID = 512 };

static uint64_t random_state = 88172645463325252u; /* Marsaglia's xorshift64 */
static uint64_t random_next(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}
static uint32_t below(uint32_t n) {
  return (uint32_t)(random_next() % n);
}

static int case_number;

static void on_alarm(int number) {
  (void)number;
  dprintf(2, "case %d hangs\n", case_number);
  _exit(1);
}

/* ---- A random tokenizer ---- */

/* Pieces of which texts and tokens are made: they must meet to be of interest. */
static const char *const pieces[] = {"a",
                                     "b",
                                     "c",
                                     "e",
                                     "th",
                                     " ",
                                     "  ",
                                     "\xe2\x96\x81",
                                     "\xe2\x96\x81"
                                     "a",
                                     "\xc4\xa0",
                                     "\xc4\x8a",
                                     "\n",
                                     "\t",
                                     "0",
                                     "1",
                                     "12",
                                     ".",
                                     "'",
                                     "'s",
                                     "\xc3\xa9",
                                     "e\xcc\x81",
                                     "\xe4\xbd\xa0",
                                     "\xf0\x9f\x8e\xb8",
                                     "\xff",
                                     "\xed\xa0\x80",
                                     "<0x41>",
                                     "<0xFF>",
                                     "<0xe2>",
                                     "<s>",
                                     "</s>",
                                     "<unk>",
                                     "<|endoftext|>",
                                     "<|im_end|>",
                                     "<",
                                     ">",
                                     "\xef\xbf\xbd",
                                     "\xe3\x80\x80",
                                     "A",
                                     "",
                                     "\x01",
                                     "abcabcabcabcabcabcabcabc"};
enum { N_PIECE = sizeof pieces / sizeof *pieces };

/* One to four pieces. Returns text. */
static const char *token(char text[256]) {
  text[0] = 0;
  for (uint32_t n = below(8) == 0 ? 4 : 1 + below(2); n > 0; n--) strcat(text, pieces[below(N_PIECE)]);
  return text;
}

static void put_tokens(struct maker *m, uint32_t n) {
  char text[256];
  maker_key_array(m, "tokenizer.ggml.tokens", GGUF_STRING, n);
  for (uint32_t i = 0; i < n; i++) {
    if (i < 256 && n >= 256 && below(2)) /* byte tokens as SentencePiece has them */
      snprintf(text, sizeof text, "<0x%02X>", i);
    else
      token(text);
    maker_text(m, text);
  }
}

static void put_scores(struct maker *m, uint32_t n) {
  static const uint32_t odd[] = {0x7fc00000, 0x7f800000, 0xff800000, 0xff7fffff, 0, 0x80000000, 1};
  maker_key_array(m, "tokenizer.ggml.scores", GGUF_F32, n);
  for (uint32_t i = 0; i < n; i++) {
    float score = -(float)below(100);
    if (below(64) == 0)
      maker_u32(m, odd[below(sizeof odd / sizeof *odd)]);
    else
      maker_raw(m, &score, sizeof score);
  }
}

static void put_types(struct maker *m, uint32_t n) {
  maker_key_array(m, "tokenizer.ggml.token_type", GGUF_I32, n);
  for (uint32_t i = 0; i < n; i++) maker_u32(m, below(50) == 0 ? below(9) - 1 : i < 4 ? 3 : below(4) == 0 ? 4 : 1);
}

static void put_merges(struct maker *m, uint32_t n) {
  char a[256], b[256], text[600];
  static const char *const between[] = {" ", " ", " ", " ", " ", " ", "", "  ", " \x01 "};
  maker_key_array(m, "tokenizer.ggml.merges", GGUF_STRING, n);
  for (uint32_t i = 0; i < n; i++) {
    snprintf(text, sizeof text, "%s%s%s", token(a), between[below(sizeof between / sizeof *between)], token(b));
    maker_text(m, text);
  }
}

static void put_charsmap(struct maker *m) {
  uint32_t n = below(4) == 0 ? below(8) : 4 * below(300), units = below(4) == 0 ? below(5000) : n / 8 * 4;
  maker_key_array(m, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, n);
  for (uint32_t i = 0; i < n; i++) {
    uint8_t byte = i < 4 ? (uint8_t)(units >> 8 * i) : below(3) ? (uint8_t)below(256) : 0;
    maker_raw(m, &byte, 1);
  }
}

static void put_id(struct maker *m, const char *key, uint32_t n) {
  static const uint32_t odd[] = {0, UINT32_MAX, 1u << 31};
  if (below(2)) return;
  maker_key_u32(m, key, below(16) == 0 ? odd[below(3)] : below(n + 1));
}

static void put_bool(struct maker *m, const char *key) {
  if (below(2)) return;
  maker_key(m, key, GGUF_BOOL), maker_raw(m, below(2) ? "\1" : "\0", 1);
}

static const char *random_tokenizer(struct maker *m) {
  static const char *const models[] = {"gpt2", "gpt2", "llama", "llama", "t5", "t5", "gemma4", "bert", ""};
  static const char *const pres[] = {"gpt-2", "qwen2",   "qwen35", "llama-bpe", "gpt-4o",     "deepseek-v3",
                                     "glm4",  "default", "gemma4", "dbrx",      "no-such-one"};
  static const char *const names[] = {"x", "Phi-3 mini", "jina-v2-de", "modern-bert", "Qwen3"};
  uint32_t n = below(16) == 0 ? below(4) : 100 + below(400);
  uint32_t other = below(24) ? n : below(2) && n > 0 ? n - 1 : n + 1;
  maker_init(m, 3);
  maker_key_text(m, "general.name", names[below(sizeof names / sizeof *names)]);
  maker_key_text(m, "tokenizer.ggml.model", models[below(sizeof models / sizeof *models)]);
  if (below(8)) maker_key_text(m, "tokenizer.ggml.pre", pres[below(sizeof pres / sizeof *pres)]);
  put_tokens(m, n);
  if (below(4)) put_scores(m, other);
  if (below(4)) put_types(m, other);
  if (below(3)) put_merges(m, below(300));
  if (below(3) == 0) put_charsmap(m);
  put_id(m, "tokenizer.ggml.bos_token_id", n), put_id(m, "tokenizer.ggml.eos_token_id", n);
  put_id(m, "tokenizer.ggml.unknown_token_id", n), put_id(m, "tokenizer.ggml.padding_token_id", n);
  put_id(m, "tokenizer.ggml.eot_token_id", n);
  put_bool(m, "tokenizer.ggml.add_bos_token"), put_bool(m, "tokenizer.ggml.add_eos_token");
  put_bool(m, "tokenizer.ggml.add_space_prefix"), put_bool(m, "tokenizer.ggml.remove_extra_whitespaces");
  return maker_path(m);
}

/* ---- Using it ---- */

static size_t random_text(char text[MAX_TEXT]) {
  size_t n = 0;
  char one[256];
  while (n + sizeof one < MAX_TEXT && below(40)) {
    size_t bytes = strlen(token(one));
    memcpy(text + n, one, bytes);
    n += bytes;
    if (below(30) == 0) text[n++] = (char)below(256);
  }
  return n;
}

/* Encodes and decodes; returns the ids. */
static void use(const struct tokenizer *t) {
  char text[MAX_TEXT];
  const uint32_t n_vocab = tokenizer_view(t)->n_vocab;
  for (unsigned flags = 0; flags < 4; flags++) {
    uint32_t *ids = NULL;
    size_t n = 0, length = random_text(text), bytes = 0;
    char *back = NULL;
    struct moe_error err = {0};
    if (tokenizer_encode(t, text, length, flags, MAX_ID, &ids, &n, &err) != MOE_OK)
      fail_msg("case %d: %s", case_number, err.message);
    assert_true(n <= MAX_ID);
    for (size_t i = 0; i < n; i++)
      if (ids[i] >= n_vocab) fail_msg("case %d: id %u of a vocabulary of %u", case_number, ids[i], n_vocab);
    if (tokenizer_decode(t, ids, n, flags & 1, &back, &bytes, &err) != MOE_OK)
      fail_msg("case %d: %s", case_number, err.message);
    free(back);
    free(ids);
  }
}

/* Opens a payload that may be anything; returns whether it was accepted. */
static bool use_payload(const uint8_t *payload, uint64_t bytes) {
  struct tokenizer *t = NULL;
  struct moe_error err = {0};
  enum moe_code code = tokenizer_create(payload, bytes, &t, &err);
  if (code != MOE_OK) {
    if (err.message[0] == 0 || strchr(err.message, '\n') != NULL) fail_msg("case %d: '%s'", case_number, err.message);
    return false;
  }
  use(t);
  tokenizer_destroy(t);
  return true;
}

static void check_message(enum moe_code code, const struct moe_error *err) {
  if (code != MOE_FAILED && code != MOE_DECLINED) fail_msg("case %d: code %d: %s", case_number, code, err->message);
  if (err->message[0] == 0 || strchr(err->message, '\n') != NULL || strstr(err->message, "out of memory") != NULL)
    fail_msg("case %d: '%s'", case_number, err->message);
}

/* The payload of a random tokenizer, or NULL when it is refused. */
static uint8_t *random_payload(uint64_t *bytes) {
  struct maker m;
  struct gguf *g = NULL;
  struct moe_error err = {0};
  uint8_t *payload = NULL;
  enum moe_code code = gguf_open(random_tokenizer(&m), &g, &err);
  if (code != MOE_OK) fail_msg("case %d: %s", case_number, err.message);
  code = emit_tokenizer(g, &payload, bytes, NULL, &err);
  gguf_close(g);
  maker_deinit(&m);
  if (code == MOE_OK) return payload;
  check_message(code, &err);
  free(payload);
  return NULL;
}

static void test_random_tokenizers(void **state) {
  (void)state;
  int accepted = 0;
  for (case_number = 0; case_number < CASES; case_number++) {
    uint64_t bytes = 0;
    alarm(SECONDS);
    uint8_t *payload = random_payload(&bytes);
    if (payload != NULL && !use_payload(payload, bytes)) fail_msg("case %d: what moec wrote is refused", case_number);
    accepted += payload != NULL;
    free(payload);
    alarm(0);
  }
  printf("%d of %d random tokenizers were taken\n", accepted, CASES);
  assert_true(accepted > CASES / 50 && accepted < CASES);
}

static void test_damaged_payloads(void **state) {
  (void)state;
  static const uint32_t poison[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffff0, 256, 65536};
  int accepted = 0, tried = 0;
  for (case_number = 0; case_number < CASES; case_number++) {
    uint64_t bytes = 0;
    uint8_t *payload = random_payload(&bytes);
    for (int k = 0; payload != NULL && k < 20; k++) {
      uint8_t *copy = malloc(bytes);
      assert_non_null(copy);
      memcpy(copy, payload, bytes);
      for (uint32_t n = 1 + below(3); n > 0; n--) {
        uint64_t at = random_next() % bytes & ~3ull;
        uint32_t word = poison[below(sizeof poison / sizeof *poison)];
        if (below(2))
          copy[random_next() % bytes] ^= (uint8_t)(1u << below(8));
        else if (at + 4 <= bytes)
          memcpy(copy + at, &word, sizeof word);
      }
      alarm(SECONDS);
      accepted += use_payload(copy, below(8) ? bytes : random_next() % bytes);
      tried++;
      alarm(0);
      free(copy);
    }
    free(payload);
    if (tried > CASES) break;
  }
  printf("%d of %d damaged payloads were taken\n", accepted, tried);
  assert_true(accepted > 0 && accepted < tried);
}

int main(void) {
  signal(SIGALRM, on_alarm);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_tokenizers), cmocka_unit_test(test_damaged_payloads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
