/* test_emit_tokenizer.c: from GGUF keys to the TOKENIZER and CHAT payloads: what is decided from them, what is declined
 * and what is refused, each with its message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "emit_chat.h"
#include "emit_tokenizer.h"
#include "gguf_maker.h"
#include "random_text.h"
#include "src_gguf.h"
#include "tokenizer.h"

/* A template that mentions everything still fits the room for the grammar. */
static void test_longest_grammar_fits(void **state) {
  (void)state;
  static const char *const members[] = {"reasoning", "content", "tool_calls"};
  size_t longest[3] = {0}, sum = 0;
#define CHAT_SPAN(member, open, close, syntax, needle) {member, sizeof open + sizeof close + 16},
#define CHAT_SPAN_BY CHAT_SPAN
  static const struct {
    const char *member;
    size_t bytes;
  } rows[] = {
#include "chat_grammars.def"
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (size_t k = 0; k < 3; k++)
      if (strcmp(rows[i].member, members[k]) == 0 && rows[i].bytes > longest[k]) longest[k] = rows[i].bytes;
  for (size_t k = 0; k < 3; k++) {
    assert_true(longest[k] > 0);
    sum += longest[k] + 64; /* names of members and punctuation */
  }
  assert_in_range(sum, 1, 1000);
}

/* A small model file; a member that is left out is not written, or as said. */
struct keys {
  const char *model, *pre; /* default gpt2 and qwen2; "" leaves the key out */
  const char *tokens[16];  /* default: a few, see below */
  int types[16];           /* as many as tokens; none: 0 in the first */
  const char *merges[8];
  const char *id_key; /* an id key, with its value */
  uint32_t id;
  const int64_t *suppress; /* n_suppress tokenizer.ggml.suppress_tokens, or NULL */
  uint64_t n_suppress;
  const char *bool_key;  /* a bool key that is true ... */
  const char *false_key; /* and one that is false */
  const char *chat_template;
  const char *name;        /* general.name */
  const float *scores;     /* as many as tokens, or n_score */
  int n_score;             /* 0: as many as tokens */
  const uint8_t *charsmap; /* charsmap_len bytes, or NULL */
  uint64_t charsmap_len;
};

static const struct keys good = {.tokens = {"a", "b", "\xc4\xa0", "ab",
                                            "\xc4\xa0"
                                            "ab",
                                            "<|im_start|>", "<|im_end|>", "<x>"},
                                 .types = {1, 1, 1, 1, 1, 3, 3, 4},
                                 .merges = {"a b", "\xc4\xa0 ab"}};

static void write_keys(const struct keys *k, struct maker *m) {
  uint64_t n = 0;
  maker_init(m, 3);
  if (!k->model || *k->model) maker_key_text(m, "tokenizer.ggml.model", k->model ? k->model : "gpt2");
  if (!k->pre || *k->pre) maker_key_text(m, "tokenizer.ggml.pre", k->pre ? k->pre : "qwen2");
  while (n < 16 && k->tokens[n]) n++;
  maker_key_array(m, "tokenizer.ggml.tokens", GGUF_STRING, n);
  for (uint64_t i = 0; i < n; i++) maker_text(m, k->tokens[i]);
  for (n = 0; n < 16 && k->types[n];) n++;
  if (n) maker_key_array(m, "tokenizer.ggml.token_type", GGUF_I32, n);
  for (uint64_t i = 0; i < n; i++) maker_u32(m, (uint32_t)k->types[i]);
  if (k->scores) {
    for (n = 0; n < 16 && k->tokens[n];) n++;
    if (k->n_score) n = (uint64_t)k->n_score;
    maker_key_array(m, "tokenizer.ggml.scores", GGUF_F32, n);
    maker_raw(m, k->scores, n * sizeof *k->scores);
  }
  if (k->charsmap) {
    maker_key_array(m, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, k->charsmap_len);
    maker_raw(m, k->charsmap, k->charsmap_len);
  }
  if (k->name) maker_key_text(m, "general.name", k->name);
  for (n = 0; n < 8 && k->merges[n];) n++;
  maker_key_array(m, "tokenizer.ggml.merges", GGUF_STRING, n);
  for (uint64_t i = 0; i < n; i++) maker_text(m, k->merges[i]);
  if (k->id_key) maker_key_u32(m, k->id_key, k->id);
  if (k->suppress) maker_key_array(m, "tokenizer.ggml.suppress_tokens", GGUF_I64, k->n_suppress);
  if (k->suppress) maker_raw(m, k->suppress, k->n_suppress * sizeof *k->suppress);
  if (k->bool_key) maker_key(m, k->bool_key, GGUF_BOOL), maker_raw(m, "\1", 1);
  if (k->false_key) maker_key(m, k->false_key, GGUF_BOOL), maker_raw(m, "\0", 1);
  if (k->chat_template) maker_key_text(m, "tokenizer.chat_template", k->chat_template);
}

static struct gguf *make(const struct keys *k) {
  struct maker m;
  struct moe_error err = {0};
  struct gguf *g;
  write_keys(k, &m);
  if (gguf_open(maker_path(&m), &g, &err) != MOE_OK) fail_msg("%s", err.message);
  maker_deinit(&m);
  return g;
}

/* Compiles and opens; the payload is the caller's to free. */
static uint8_t *emit(const struct keys *k, struct img_tokenizer *v) {
  struct gguf *g = make(k);
  struct moe_error err = {0};
  uint8_t *bytes;
  uint64_t len;
  if (emit_tokenizer(g, &bytes, &len, NULL, &err) != MOE_OK) fail_msg("%s", err.message);
  gguf_close(g);
  assert_int_equal(img_tokenizer_open(bytes, len, v, NULL), MOE_OK);
  return bytes;
}

static void expect_error(const struct keys *k, enum moe_code code, const char *message) {
  struct gguf *g = make(k);
  struct moe_error err = {0};
  uint8_t *bytes;
  uint64_t len;
  assert_int_equal(emit_tokenizer(g, &bytes, &len, NULL, &err), code);
  assert_null(bytes);
  if (!strstr(err.message, message)) fail_msg("expected \"%s\" in \"%s\"", message, err.message);
  gguf_close(g);
}

static void test_small_vocabulary(void **state) {
  (void)state;
  struct img_tokenizer v;
  uint8_t *bytes = emit(&good, &v);
  uint32_t n;
  assert_int_equal(v.n_vocab, 8);
  assert_int_equal(v.n_merge, 2);
  assert_int_equal(v.byte_ids['a'], 0);
  assert_int_equal(v.byte_ids[' '], 2); /* decoded from GPT-2's alphabet */
  assert_int_equal(v.byte_ids['c'], IMG_TOKEN_NONE);
  assert_memory_equal(img_token_bytes(&v, 4, &n), " ab", 3);
  assert_int_equal(img_tokenizer_find_merge(&v, 2, 3)->result, 4);
  assert_int_equal(img_tokenizer_find_merge(&v, 2, 3)->rank, 1);
  assert_int_equal(v.n_added, 3);
  assert_int_equal(v.bos_id, IMG_TOKEN_NONE);
  assert_int_equal(v.eot_id, 6); /* found by its text */
  assert_int_equal(v.n_eog, 1);
  assert_int_equal(v.flags, 0);
  assert_memory_equal(v.pre_name, "qwen2", 5);
  free(bytes);
}

static void test_alphabet_is_gpt2s(void **state) {
  (void)state;
  /* Bytes 0, 7f, a0, ad, and one that is written as itself; a token outside the alphabet stays as it is. */
  struct keys k = {.tokens = {"\xc4\x80", "\xc4\xa1", "\xc5\x82", "\xc5\x83", "\xc3\xbf", "\xe2\x82\xac", "\xc3"}};
  struct img_tokenizer v;
  uint8_t *bytes = emit(&k, &v);
  uint32_t n;
  assert_int_equal(v.byte_ids[0x00], 0);
  assert_int_equal(v.byte_ids[0x7f], 1);
  assert_int_equal(v.byte_ids[0xa0], 2);
  assert_int_equal(v.byte_ids[0xad], 3);
  assert_int_equal(v.byte_ids[0xff], 4);
  assert_memory_equal(img_token_bytes(&v, 5, &n), "\xe2\x82\xac", 3);
  assert_memory_equal(img_token_bytes(&v, 6, &n), "\xc3", 1);
  free(bytes);
}

static void test_bos_is_added_only_where_there_is_one(void **state) {
  (void)state;
  struct keys k = good;
  struct img_tokenizer v;
  k.bool_key = "tokenizer.ggml.add_bos_token";
  uint8_t *bytes = emit(&k, &v);
  assert_int_equal(v.flags, 0);
  free(bytes);
  k.id_key = "tokenizer.ggml.bos_token_id";
  k.id = 5;
  bytes = emit(&k, &v);
  assert_int_equal(v.flags, IMG_TOKENIZER_ADD_BOS);
  assert_int_equal(v.bos_id, 5);
  free(bytes);
  k.bool_key = NULL;
  k.id = UINT32_MAX; /* some writers' "none" */
  bytes = emit(&k, &v);
  assert_int_equal(v.bos_id, IMG_TOKEN_NONE);
  free(bytes);
}

static void test_what_is_not_served_is_declined_by_name(void **state) {
  (void)state;
  struct keys k = good;
  k.model = "rwkv";
  expect_error(&k, MOE_DECLINED, "tokenizer.ggml.model: \"rwkv\" is not served; served are: gpt2");
  k = good;
  k.pre = "superbpe";
  expect_error(&k, MOE_DECLINED, "tokenizer.ggml.pre: \"superbpe\" is not served; served are: gpt-2, olmo, mpt");
  k.pre = "";
  expect_error(&k, MOE_DECLINED, "tokenizer.ggml.pre: missing");
  k.pre = "deepseek-r1-qwen"; /* an alias */
  struct img_tokenizer v;
  free(emit(&k, &v));
}

static void test_contradictions_are_named(void **state) {
  (void)state;
  struct keys k = good;
  k.model = "";
  expect_error(&k, MOE_FAILED, "tokenizer.ggml.model");
  k = (struct keys){0};
  expect_error(&k, MOE_FAILED, "tokenizer.ggml.tokens: 0 tokens, allowed are 1 to");
  k = good;
  k.types[7] = 0;
  expect_error(&k, MOE_FAILED, "tokenizer.ggml.token_type: 7 types for the 8 tokens");
  k.types[7] = 9;
  expect_error(&k, MOE_FAILED, "tokenizer.ggml.token_type[7]: type 9, types are 1 to 6");
  k = good;
  k.id_key = "tokenizer.ggml.eos_token_id";
  k.id = 8;
  expect_error(&k, MOE_FAILED, "tokenizer.ggml.eos_token_id: token 8, tokenizer.ggml.tokens has 8");
}

/* The note about a merge that stands in the place of the second one. */
static void expect_note(const char *merge, uint32_t n_skipped, uint32_t n_duplicate, const char *first) {
  struct keys k = good;
  struct emit_tokenizer_note note;
  struct moe_error err = {0};
  struct img_tokenizer v;
  uint8_t *bytes;
  uint64_t len;
  k.merges[1] = merge;
  k.merges[2] = "\xc4\xa0 ab";
  struct gguf *g = make(&k);
  if (emit_tokenizer(g, &bytes, &len, &note, &err) != MOE_OK) fail_msg("%s", err.message);
  assert_int_equal(note.n_skipped, n_skipped);
  assert_int_equal(note.n_duplicate, n_duplicate);
  assert_string_equal(note.first, first);
  assert_int_equal(img_tokenizer_open(bytes, len, &v, NULL), MOE_OK);
  assert_int_equal(v.n_merge, 2);
  assert_int_equal(img_tokenizer_find_merge(&v, 2, 3)->rank, 2);           /* the others keep their rank */
  assert_int_equal(img_tokenizer_find_merge(&v, 0, 1)->rank, n_duplicate); /* the last of a pair counts */
  free(bytes);
  gguf_close(g);
}

static void test_useless_merges_are_passed_over(void **state) {
  (void)state;
  expect_note("ab", 1, 0, "merges[1] \"ab\": it is not two tokens with a space between them");
  expect_note(" a", 1, 0, "merges[1] \" a\": it is not two tokens with a space between them");
  expect_note("c b", 1, 0, "merges[1] \"c b\": the first token is not in tokenizer.ggml.tokens");
  expect_note("b c", 1, 0, "merges[1] \"b c\": the second token is not in tokenizer.ggml.tokens");
  expect_note("b a", 1, 0, "merges[1] \"b a\": the merged token is not in tokenizer.ggml.tokens");
  expect_note("a b", 0, 1, "");
}

static void test_end_tokens_are_known_by_their_text(void **state) {
  (void)state;
  struct keys k = {.tokens = {"a", "<|end|>", "<|eos|>", "</s>"}, .types = {1, 3, 3, 1}};
  struct img_tokenizer v;
  uint8_t *bytes = emit(&k, &v);
  assert_int_equal(v.n_eog, 2); /* </s> is a normal token here */
  assert_int_equal(v.eot_id, 1);
  free(bytes);
  k.tokens[3] = "<|call|>"; /* gpt-oss: <|end|> ends a message, not the answer */
  k.types[3] = 3;
  bytes = emit(&k, &v);
  assert_int_equal(v.n_eog, 2);
  assert_int_equal(v.eog[0], 2);
  assert_int_equal(v.eog[1], 3);
  free(bytes);
}

/* SentencePiece: names with U+2581 for spaces, bytes as <0xAB>. */
#define SPACE "\xe2\x96\x81"
static const float piece_scores[] = {0, 0, 0, 0, -1, -2, -2, -1e9f, -8, -9, -10, -7};
static const struct keys piece_keys = {
    .model = "llama",
    .pre = "default",
    .tokens = {"<unk>", "<s>", "</s>", "<0x0A>", "ab", SPACE "ab", "ba", SPACE SPACE, SPACE, "a", "b", "<x>"},
    .types = {2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 1, 4},
    .scores = piece_scores};

static void test_merges_from_scores(void **state) {
  (void)state;
  struct img_tokenizer v;
  uint8_t *bytes = emit(&piece_keys, &v);
  uint32_t n;
  assert_int_equal(v.kind, IMG_TOKENIZER_CHAR_BPE);
  assert_int_equal(v.flags, IMG_TOKENIZER_ADD_BOS | IMG_TOKENIZER_SPACE_PREFIX);
  assert_int_equal(v.bos_id, 1); /* unnamed: Llama's */
  assert_int_equal(v.eos_id, 2);
  assert_int_equal(v.unk_id, 0);
  assert_int_equal(v.byte_ids['\n'], 3);
  assert_int_equal(v.byte_ids['a'], IMG_TOKEN_NONE);
  assert_memory_equal(img_token_bytes(&v, 5, &n), " ab", 3);
  assert_int_equal(n, 3);
  assert_int_equal(v.n_merge, 4); /* a+b, b+a, the two ways to " ab" need " a" or "ab": one; space+space */
  uint32_t ab = img_tokenizer_find_merge(&v, 9, 10)->rank, ba = img_tokenizer_find_merge(&v, 10, 9)->rank;
  uint32_t space_ab = img_tokenizer_find_merge(&v, 8, 4)->rank, spaces = img_tokenizer_find_merge(&v, 8, 8)->rank;
  assert_true(ab < ba && ba == space_ab && ba < spaces); /* equal scores, equal ranks */
  assert_string_equal(v.patterns, " ++[^ ]*+|[^ ]++");
  free(bytes);
  struct keys k = piece_keys;
  k.tokens[6] = "b" SPACE "a"; /* a token with a space inside: text is not cut between b and a space */
  k.false_key = "tokenizer.ggml.add_space_prefix";
  k.bool_key = "tokenizer.ggml.remove_extra_whitespaces";
  bytes = emit(&k, &v);
  assert_string_equal(v.patterns, "(?: ++|[^ ]++)(?:[^ ]++|(?<=[\\x{62}]) ++)*+");
  assert_int_equal(v.flags, IMG_TOKENIZER_ADD_BOS | IMG_TOKENIZER_FEW_SPACES);
  free(bytes);
  k.id_key = "tokenizer.ggml.bos_token_id";
  k.id = UINT32_MAX; /* said to have none */
  bytes = emit(&k, &v);
  assert_int_equal(v.bos_id, IMG_TOKEN_NONE);
  assert_int_equal(v.flags, IMG_TOKENIZER_FEW_SPACES);
  free(bytes);
}

static void test_unigram_vocabulary(void **state) {
  (void)state;
  static const uint8_t charsmap[] = {4, 0, 0, 0, 1, 2, 3, 4, 'x', 0, 'y', 0};
  struct img_tokenizer v;
  struct keys k = piece_keys;
  k.model = "t5";
  k.charsmap = charsmap;
  k.charsmap_len = sizeof charsmap;
  uint8_t *bytes = emit(&k, &v);
  assert_int_equal(v.kind, IMG_TOKENIZER_UNIGRAM);
  assert_int_equal(v.n_merge, 0);
  assert_int_equal(v.n_sorted, 7); /* the normal ones */
  assert_int_equal(v.sorted[0], 8);
  assert_true(v.scores[4] == -1 && v.scores[10] == -10);
  assert_int_equal(v.eos_id, 1); /* T5's */
  assert_int_equal(v.flags, IMG_TOKENIZER_ADD_EOS);
  assert_int_equal(v.n_pattern, 0);
  assert_int_equal(v.n_charsmap, 1);
  assert_int_equal(v.charsmap[0], 0x04030201);
  assert_memory_equal(v.replacements, "x\0y", 4);
  free(bytes);
  k.charsmap_len = 7;
  expect_error(&k, MOE_FAILED, "tokenizer.ggml.precompiled_charsmap: 7 bytes, of which 4 should be units");
  k.charsmap_len = 11;
  expect_error(&k, MOE_FAILED, "replacements: the one at byte 2 does not end");
  k = piece_keys;
  k.n_score = 11;
  expect_error(&k, MOE_FAILED, "tokenizer.ggml.scores: 11 scores for the 12 tokens");
  k = piece_keys;
  k.scores = (const float[12]){0, 0, 1.0f / 0.0f};
  expect_error(&k, MOE_FAILED, "tokenizer.ggml.scores[2]: not a finite number");
  k = piece_keys;
  k.scores = NULL;
  expect_error(&k, MOE_FAILED, "tokenizer.ggml.scores");
}

static void test_merges_over_characters_from_the_file(void **state) {
  (void)state;
  static const char *const as[][2] = {{"gemma4", "default"}, {"gpt2", "gemma4"}};
  for (int i = 0; i < 2; i++) {
    struct img_tokenizer v;
    struct keys k = piece_keys;
    k.model = as[i][0];
    k.pre = as[i][1];
    k.merges[0] = "a b";
    k.merges[1] = SPACE " ab";
    k.id_key = "tokenizer.ggml.bos_token_id";
    k.id = 1;
    k.false_key = "tokenizer.ggml.add_bos_token"; /* a known mistake of converters */
    uint8_t *bytes = emit(&k, &v);
    assert_int_equal(v.kind, IMG_TOKENIZER_CHAR_BPE);
    assert_int_equal(v.n_merge, 2);
    assert_int_equal(img_tokenizer_find_merge(&v, 8, 4)->result, 5);
    assert_int_equal(v.flags, IMG_TOKENIZER_ADD_BOS);
    assert_int_equal(v.unk_id, IMG_TOKEN_NONE);
    free(bytes);
  }
}

static void test_suppressed_tokens(void **state) {
  (void)state;
  static const int64_t ids[] = {6, 2, 6}, many[9] = {0}, outside[] = {1, 8}, negative[] = {-1};
  struct img_tokenizer v;
  struct keys k = good;
  uint8_t *bytes = emit(&k, &v);
  assert_int_equal(v.n_suppress, 0);
  free(bytes);
  k.suppress = ids;
  k.n_suppress = 3;
  bytes = emit(&k, &v);
  assert_int_equal(v.n_suppress, 2);
  assert_int_equal(v.suppress[0], 2);
  assert_int_equal(v.suppress[1], 6);
  free(bytes);
  k.suppress = many;
  k.n_suppress = 9;
  expect_error(&k, MOE_DECLINED, "tokenizer.ggml.suppress_tokens: 9 tokens, at most 8 can be suppressed");
  struct gguf *g = make(&k);
  assert_int_equal(emit_tokenizer_served(g, NULL), MOE_DECLINED); /* moec inspect says it too */
  gguf_close(g);
  k.suppress = outside;
  k.n_suppress = 2;
  expect_error(&k, MOE_FAILED, "tokenizer.ggml.suppress_tokens[1]: token 8, tokenizer.ggml.tokens has 8");
  k.suppress = negative;
  k.n_suppress = 1;
  expect_error(&k, MOE_FAILED, "tokenizer.ggml.suppress_tokens[0]: -1 is no token");
}

/* Files with random damage: a message or a tokenizer that can be used, never a crash (the sanitizers watch). */
static void damage_file(const struct keys *k, uint32_t *made, uint32_t *refused) {
  static uint64_t seed = 20261201;
  struct maker m;
  write_keys(k, &m);
  (void)maker_path(&m); /* sets the counts */
  for (int round = 0; round < 3000; round++) {
    uint8_t *copy = malloc(m.used), *bytes;
    struct moe_error err = {0};
    struct gguf *g;
    struct tokenizer *t;
    struct maker broken = {.fd = -1};
    uint64_t len;
    memcpy(copy, m.bytes, m.used);
    for (uint64_t n = 1 + random_next(&seed) % 3; n > 0; n--)
      copy[random_next(&seed) % m.used] ^= (uint8_t)(1u << random_next(&seed) % 8);
    if (gguf_open(maker_path_of(&broken, copy, m.used), &g, &err) == MOE_OK) {
      if (emit_tokenizer(g, &bytes, &len, NULL, &err) == MOE_OK && tokenizer_create(bytes, len, &t, &err) == MOE_OK) {
        uint32_t *ids;
        size_t n;
        assert_int_equal(tokenizer_encode(t, "ab  ba x\xff<x>\xe2\x96\x81", 16, 3, SIZE_MAX, &ids, &n, NULL), MOE_OK);
        free(ids);
        tokenizer_destroy(t);
        ++*made;
      } else {
        assert_true(err.message[0] != 0);
        ++*refused;
      }
      free(bytes);
      gguf_close(g);
    }
    maker_deinit(&broken);
    free(copy);
  }
  maker_deinit(&m);
}

static void test_damaged_files_are_safe(void **state) {
  (void)state;
  static const uint8_t charsmap[] = {8, 0, 0, 0, 0, 4, 0, 0, 'a', 5, 0, 0, 'x', 0, 'y', 0};
  uint32_t made = 0, refused = 0;
  struct keys k = piece_keys;
  damage_file(&good, &made, &refused);
  k.charsmap = charsmap;
  k.charsmap_len = sizeof charsmap;
  damage_file(&k, &made, &refused);
  k.model = "t5";
  damage_file(&k, &made, &refused);
  assert_in_range(made, 100, 8900); /* both outcomes are exercised */
  assert_in_range(refused, 100, 8900);
}

static void test_strip_flags_go_by_the_models_name(void **state) {
  (void)state;
  struct img_tokenizer v;
  struct keys k = piece_keys;
  k.name = "Phi-3 mini";
  uint8_t *bytes = emit(&k, &v);
  assert_int_equal(v.token_attr[11], IMG_TOKEN_USER_DEFINED | IMG_TOKEN_RSTRIP);
  assert_int_equal(v.token_attr[2], IMG_TOKEN_CONTROL | IMG_TOKEN_RSTRIP);
  assert_int_equal(v.token_attr[1], IMG_TOKEN_CONTROL);
  assert_int_equal(v.token_attr[4], IMG_TOKEN_NORMAL);
  free(bytes);
  k.name = "Phi-2";
  bytes = emit(&k, &v);
  assert_int_equal(v.token_attr[2], IMG_TOKEN_CONTROL);
  free(bytes);
}

/* Compiles CHAT and compares origin and grammar; returns the payload. */
static uint8_t *expect_chat(const struct keys *k, enum img_chat_origin origin, const char *grammar,
                            struct img_chat *chat) {
  struct img_tokenizer v;
  struct moe_error err = {0};
  struct gguf *g = make(k);
  uint8_t *tokenizer = emit(k, &v), *bytes;
  uint64_t len;
  if (emit_chat(g, &v, &bytes, &len, &err) != MOE_OK) fail_msg("%s", err.message);
  assert_int_equal(img_chat_open(bytes, len, chat, NULL), MOE_OK);
  assert_int_equal(chat->origin, origin);
  assert_string_equal(chat->grammar, grammar);
  gguf_close(g);
  free(tokenizer);
  return bytes;
}

static void test_template_and_grammar(void **state) {
  (void)state;
  struct img_chat chat;
  struct keys k = good;
  k.id_key = "tokenizer.ggml.eos_token_id";
  k.id = 6;
  uint8_t *bytes = expect_chat(&k, IMG_CHAT_CHATML, "{}", &chat);
  assert_non_null(strstr(chat.template_text, "<|im_start|>"));
  assert_string_equal(chat.eos, "<|im_end|>");
  assert_string_equal(chat.bos, "");
  free(bytes);
  k.chat_template = "<think> </think>";
  free(expect_chat(&k, IMG_CHAT_MODEL, "{\"reasoning\":{\"open\":\"<think>\",\"close\":\"</think>\"}}", &chat));
  k.chat_template = "<tool_call> </tool_call> <think>";
  free(expect_chat(&k, IMG_CHAT_MODEL,
                   "{\"tool_calls\":{\"open\":\"<tool_call>\",\"close\":\"</tool_call>\",\"syntax\":\"json\"}}",
                   &chat));
  k.chat_template = "<think></think><tool_call><function=f></tool_call>";
  free(expect_chat(&k, IMG_CHAT_MODEL,
                   "{\"reasoning\":{\"open\":\"<think>\",\"close\":\"</think>\"},\"tool_calls\":{\"open\":\"<tool_call>"
                   "\",\"close\":\"</tool_call>\",\"syntax\":\"xml\"}}",
                   &chat));
  struct keys bare = {.tokens = {"a"}};
  free(expect_chat(&bare, IMG_CHAT_NONE, "{}", &chat));
}

#define SPAN(open, close) "{\"open\":\"" open "\",\"close\":\"" close "\"}"
#define CALLS(open, close, syntax)                                                                                     \
  "\"tool_calls\":{\"open\":\"" open "\",\"close\":\"" close "\",\"syntax\":\"" syntax "\"}"
#define THINK "\"reasoning\":" SPAN("<think>", "</think>")

static void test_grammars_of_families(void **state) {
  (void)state;
  static const struct {
    const char *template_text, *grammar;
  } cases[] = {
      {"<think> </think> <tool_call> </tool_call> <arg_key>",
       "{" THINK "," CALLS("<tool_call>", "</tool_call>", "glm") "}"},
      {"split('</think>')", "{" THINK "}"},
      {"<|channel|>analysis<|message|> <|channel|>final<|message|> <|channel|>commentary",
       "{\"reasoning\":" SPAN("<|channel|>analysis<|message|>", "<|end|>") ",\"content\":" SPAN(
           "<|channel|>final<|message|>", "<|return|>") "," CALLS("<|channel|>commentary", "<|call|>", "harmony") "}"},
      {"<|channel>thought <|tool_call>", "{\"reasoning\":" SPAN("<|channel>thought\\n", "<channel|>") "," CALLS(
                                             "<|tool_call>", "<tool_call|>", "gemma") "}"},
      {"</think> <think> <answer> </answer> <tool_calls> </tool_calls>",
       "{" THINK
       ",\"content\":" SPAN("<answer>", "</answer>") "," CALLS("<tool_calls>", "</tool_calls>", "json_array") "}"},
      {"<answer> </answer>", "{}"},
      {"[TOOL_CALLS] [ARGS] [THINK] [/THINK]",
       "{\"reasoning\":" SPAN("[THINK]", "[/THINK]") "," CALLS("[TOOL_CALLS]", "", "mistral") "}"},
      {"[TOOL_CALLS]", "{" CALLS("[TOOL_CALLS]", "", "json_array") "}"},
      {"<|tool_call|>", "{" CALLS("<|tool_call|>", "", "json_array") "}"},
      {"{\"name\": function name, \"parameters\": dictionary of argument name and its value}",
       "{" CALLS("{", "", "json_parameters") "}"},
      {"<\xef\xbd\x9ctool\xe2\x96\x81"
       "calls\xe2\x96\x81"
       "begin\xef\xbd\x9c> ```json <\xef\xbd\x9ctool\xe2\x96\x81"
       "calls\xe2\x96\x81"
       "end\xef\xbd\x9c>",
       "{" CALLS("<\xef\xbd\x9ctool\xe2\x96\x81"
                 "calls\xe2\x96\x81"
                 "begin\xef\xbd\x9c>",
                 "<\xef\xbd\x9ctool\xe2\x96\x81"
                 "calls\xe2\x96\x81"
                 "end\xef\xbd\x9c>",
                 "deepseek_fenced") "}"},
      {"<|tool_calls_section_begin|><|tool_calls_section_end|>",
       "{" CALLS("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "kimi") "}"},
      {"<minimax:tool_call></minimax:tool_call>",
       "{" CALLS("<minimax:tool_call>", "</minimax:tool_call>", "invoke") "}"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct keys k = good;
    struct img_chat chat;
    k.chat_template = cases[i].template_text;
    uint8_t *bytes = expect_chat(&k, IMG_CHAT_MODEL, cases[i].grammar, &chat);
    json_t *parsed = json_loads(chat.grammar, 0, NULL);
    assert_true(json_is_object(parsed));
    json_decref(parsed);
    free(bytes);
  }
}

static void test_embedded_model_is_deterministic(void **state) {
  (void)state;
  char path[512];
  struct gguf *g;
  uint8_t *first, *second;
  uint64_t first_len, second_len;
  snprintf(path, sizeof path, "%s/models/wordnet-moe.gguf", getenv("TESTS_DIR") ? getenv("TESTS_DIR") : "tests");
  assert_int_equal(gguf_open(path, &g, NULL), MOE_OK);
  assert_int_equal(emit_tokenizer_served(g, NULL), MOE_OK);
  assert_int_equal(emit_tokenizer(g, &first, &first_len, NULL, NULL), MOE_OK);
  assert_int_equal(emit_tokenizer(g, &second, &second_len, NULL, NULL), MOE_OK);
  assert_int_equal(first_len, second_len);
  assert_memory_equal(first, second, first_len);
  free(first);
  free(second);
  gguf_close(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_small_vocabulary),
      cmocka_unit_test(test_alphabet_is_gpt2s),
      cmocka_unit_test(test_bos_is_added_only_where_there_is_one),
      cmocka_unit_test(test_what_is_not_served_is_declined_by_name),
      cmocka_unit_test(test_contradictions_are_named),
      cmocka_unit_test(test_merges_from_scores),
      cmocka_unit_test(test_unigram_vocabulary),
      cmocka_unit_test(test_suppressed_tokens),
      cmocka_unit_test(test_merges_over_characters_from_the_file),
      cmocka_unit_test(test_damaged_files_are_safe),
      cmocka_unit_test(test_strip_flags_go_by_the_models_name),
      cmocka_unit_test(test_useless_merges_are_passed_over),
      cmocka_unit_test(test_end_tokens_are_known_by_their_text),
      cmocka_unit_test(test_template_and_grammar),
      cmocka_unit_test(test_grammars_of_families),
      cmocka_unit_test(test_longest_grammar_fits),
      cmocka_unit_test(test_embedded_model_is_deterministic),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
