/* test_pretokenizers.c: how each row of pretokenizers.def cuts text.
 *
 * A vocabulary is made of the single bytes and of the pieces that are expected, and every piece that is a token as a
 * whole is made to be taken as it is (flag IMG_TOKENIZER_IGNORE_MERGES): the ids then say where the text was cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "emit_tokenizer.h"
#include "gguf_maker.h"
#include "src_gguf.h"
#include "tokenizer.h"

#define MAX_PIECE 24

struct cut {
  const char *pre;
  const char *pieces[MAX_PIECE]; /* the text is all of them in a row */
};

static const struct cut cuts[] = {
    {"gpt-2", {"don", "'t", " I", "'", "LL", " 1234", "  ", " x", "\n\n"}},
    {"gpt-2", {"a", "  ", " b", ".", "\xc2\xbd", "\xc3\xa9"}}, /* a fraction is a number */
    {"qwen2", {"don", "'t", " I", "'LL", " ", "1", "2", "3", " ", " x", "\n\n", "y"}},
    {"qwen2", {"a", ".b", " ...\n\n", " \n", "  ", " c", " ", "\xc2\xbd"}},
    {"qwen2", {"\xe3\x80\x80", "\xc2\xa0z", "\xc2\x85", "\xe1\xa0\x8ew"}}, /* U+0085 is white space, U+180E is not */
    {"llama-bpe", {"He", "'ll", " go", " ", "123", "4", " ?!\r\n", "x"}},
    {"gpt-4o", {"camel", "Case's", " HTTPServer", " ", "123", "45", " a", "//\n/", "b"}},
    {"gpt-4o",
     {"\xc3\x89t\xc3\xa9",
      "A\xcc\x81"
      "b",
      " x"}},
    {"deepseek-v3", {"123", "4", "\xe6\x97\xa5\xe6\x9c\xac\xe3\x81\xae", "x", " y", " +=\n", ".foo", " .", "foo"}},
    {"default", {"x", " 12"}},
    {"olmo", {"don", "'t", " I", "'", "LL", " 1234", "  ", " x"}},
    {"refact", {"x", " ", "1", "2", "'ll", " go", "  ", " y"}},
    {"command-r", {"x", " ", "1", "2"}},
    {"hunyuan", {"don", "'t", " I", "'LL", " ", "1", "2"}},
    {"qwen35",
     {"e\xcc\x81t", " \xe0\xa4\xa8\xe0\xa4\xae\xe0\xa5\x8d", " ", "1", "2", ".\n"}}, /* marks stay with letters */
    {"qwen2", {"e", "\xcc\x81t", " \xe0\xa4\xa8\xe0\xa4\xae", "\xe0\xa5\x8d"}},      /* here they do not */
    {"glm4", {"He", "'LL", " go", " ", "123", "4", " ?!\r\n", "x"}},
    {"tekken", {"camel", "Case", "'s", " ", "1", "2", " a", "//\n/", "HTTPServer"}},
    {"kimi-k2",
     {"\xe6\x97\xa5\xe6\x9c\xac",
      "\xe3\x81\xae"
      "Case's",
      " ", "123", "4", "\xe3\x80\x81\n"}},
    {"tiny_aya", {"12", "345", "678", " Ab", " ", "9"}},
    {"deepseek-llm", {"\n", "\n", " ab", "\xc3\xa9", " ?!", " ", " x", "1", "2", "\xe6\x97\xa5\xe6\x9c\xac", " ", " "}},
    {"deepseek-coder", {"\r", "\n", " ab", " ?!", " ", " x", "1", "2", "\xe6\x97\xa5"}},
    {"hunyuan-dense", {"123", "4", "\xe6\x97\xa5", "x", " +=\n"}},
    {"bailingmoe2", {"don", "'T", " x", " ", "1", "2", " ?\n\n", "y", "  \n\n"}},
    {"seed-coder", {"x", " ", "1", " ?", "\n", "y"}},
    {"minicpm5", {"x", " ", "123", "4", "y"}},
    {"exaone-moe", {"a b c", " ", "1", " ?\n", "\n"}},
    {"laguna", {"a", " b", "\n\n", " c"}},
    {"falcon", {"a", "...", "b", " c", " ", "123", "45"}},
    {"bloom", {"ab1", " c", ".", "d"}},
    {"viking", {"ab", "1", "2", " c"}},
    {"deepseek-r1-qwen", {"x", " ", "1", "2"}},
    {"llama3", {"x", " ", "12"}},
};

/* The name of a token in GPT-2's alphabet: bytes that are printable in Latin-1 as themselves, the others from U+0100
 * on. */
static void put_name(struct maker *m, const char *bytes, size_t n) {
  char name[256];
  size_t len = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t b = (uint8_t)bytes[i], cp = b;
    bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
    if (!printable) cp = b <= 0x20 ? 0x100 + b : b <= 0xa0 ? 0x121 + b - 0x7f : 0x143;
    if (cp >= 0x80) name[len++] = (char)(0xc0 | cp >> 6);
    name[len++] = (char)(cp >= 0x80 ? 0x80 | (cp & 0x3f) : cp);
  }
  maker_u64(m, len);
  maker_raw(m, name, len);
}

static struct tokenizer *make(const struct cut *c, uint32_t n, uint8_t **bytes) {
  struct maker m;
  struct gguf *g;
  struct tokenizer *t;
  struct moe_error err = {0};
  uint64_t len;
  maker_init(&m, 3);
  maker_key_text(&m, "tokenizer.ggml.model", "gpt2");
  maker_key_text(&m, "tokenizer.ggml.pre", c->pre);
  maker_key_array(&m, "tokenizer.ggml.tokens", GGUF_STRING, 256 + n);
  for (int b = 0; b < 256; b++) put_name(&m, (const char[]){(char)b}, 1);
  for (uint32_t i = 0; i < n; i++) put_name(&m, c->pieces[i], strlen(c->pieces[i]));
  maker_key_array(&m, "tokenizer.ggml.merges", GGUF_STRING, 0);
  if (gguf_open(maker_path(&m), &g, &err) || emit_tokenizer(g, bytes, &len, NULL, &err)) fail_msg("%s", err.message);
  ((struct img_tokenizer_header *)(void *)*bytes)->flags |= IMG_TOKENIZER_IGNORE_MERGES;
  if (tokenizer_create(*bytes, len, &t, &err)) fail_msg("%s", err.message);
  gguf_close(g);
  maker_deinit(&m);
  return t;
}

static void test_cuts(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
    const struct cut *c = &cuts[i];
    char text[256] = "";
    uint32_t n = 0, *ids;
    size_t n_id;
    uint8_t *bytes;
    for (; n < MAX_PIECE && c->pieces[n]; n++) strcat(text, c->pieces[n]);
    struct tokenizer *t = make(c, n, &bytes);
    assert_int_equal(tokenizer_encode(t, text, strlen(text), 0, SIZE_MAX, &ids, &n_id, NULL), MOE_OK);
    for (uint32_t k = 0; k < n; k++) {
      size_t len = 0;
      const char *piece = k < n_id ? tokenizer_piece(t, ids[k], false, &len) : "";
      if (len != strlen(c->pieces[k]) || memcmp(piece, c->pieces[k], len) != 0)
        fail_msg("case %zu, %s: piece %u is \"%.*s\", wanted \"%s\"", i, c->pre, k, (int)len, piece, c->pieces[k]);
    }
    assert_int_equal(n_id, n);
    free(ids);
    tokenizer_destroy(t);
    free(bytes);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
