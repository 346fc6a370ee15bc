/* test_img_tokenizer.c: TOKENIZER and CHAT payloads: what is written is read back; each broken field gets its message;
 * random damage never leads outside the payload (the sanitizers watch), not even through lookups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "img_chat.h"
#include "img_tokenizer.h"
#include "small_tokenizer.h"

/* A copy in a block of exactly its size, so that a read past its end is seen. */
static uint8_t *copy_of(const uint8_t *bytes, uint64_t len) {
  uint8_t *copy = malloc(len ? len : 1);
  memcpy(copy, bytes, len);
  return copy;
}

static void test_payload_is_read_back(void **state) {
  (void)state;
  uint64_t len, again_len;
  uint8_t *bytes = small_tokenizer(IMG_TOKENIZER_ADD_BOS, NULL, &len);
  uint8_t *again = small_tokenizer(IMG_TOKENIZER_ADD_BOS, NULL, &again_len);
  assert_int_equal(len, again_len);
  assert_memory_equal(bytes, again, len);
  struct img_tokenizer v;
  struct moe_error err = {0};
  assert_int_equal(img_tokenizer_open(bytes, len, &v, &err), MOE_OK);
  assert_int_equal(v.n_vocab, SMALL_N_VOCAB);
  assert_int_equal(v.flags, IMG_TOKENIZER_ADD_BOS);
  assert_string_equal(v.patterns, " ?[^ ]+| +");
  assert_memory_equal(v.pre_name, "small", v.pre_name_len);
  assert_int_equal(v.n_added, 5);
  assert_int_equal(v.n_eog, 2);
  assert_int_equal(v.eog[0], SMALL_BOS);
  assert_int_equal(v.eog[1], SMALL_EOS);
  assert_int_equal(v.n_suppress, 2);
  assert_int_equal(v.suppress[0], SMALL_AA);
  assert_int_equal(v.suppress[1], SMALL_XYZ);
  for (uint32_t b = 0; b < 256; b++) assert_int_equal(v.byte_ids[b], b);
  for (uint32_t id = 0; id < SMALL_BOS; id++) {
    uint32_t n;
    const uint8_t *text = img_token_bytes(&v, id, &n);
    assert_int_equal(img_tokenizer_find_normal(&v, text, n), id);
    assert_int_equal(img_tokenizer_find_added(&v, text, n), IMG_TOKEN_NONE);
  }
  assert_int_equal(img_tokenizer_find_normal(&v, (const uint8_t *)"abcd", 4), IMG_TOKEN_NONE);
  assert_int_equal(img_tokenizer_find_added(&v, (const uint8_t *)"</s>", 4), SMALL_EOS);
  assert_int_equal(img_tokenizer_find_added(&v, (const uint8_t *)"</s", 3), IMG_TOKEN_NONE);
  assert_int_equal(img_tokenizer_find_merge(&v, 'a', SMALL_BC)->result, SMALL_ABC);
  assert_null(img_tokenizer_find_merge(&v, 'c', 'b'));
  free(bytes);
  free(again);
}

static void test_longest_added_token_matches(void **state) {
  (void)state;
  static const struct {
    const char *text;
    bool control;
    uint32_t want;
  } cases[] = {{"<s>", true, SMALL_BOS},        {"<s>>", true, SMALL_PAD},        {"<s>", false, IMG_TOKEN_NONE},
               {"<s", true, IMG_TOKEN_NONE},    {"<think>in", true, SMALL_THINK}, {"<think>ing", false, SMALL_THINKING},
               {"<think>", false, SMALL_THINK}, {"", true, IMG_TOKEN_NONE},       {"unused", true, IMG_TOKEN_NONE}};
  uint64_t len;
  uint8_t *bytes = small_tokenizer(0, NULL, &len);
  struct img_tokenizer v;
  assert_int_equal(img_tokenizer_open(bytes, len, &v, NULL), MOE_OK);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(
        img_tokenizer_match_added(&v, (const uint8_t *)cases[i].text, strlen(cases[i].text), cases[i].control),
        cases[i].want);
  free(bytes);
}

/* A break: writes `value` (of `size` bytes) at `offset` in table `table` (or in the header when table is HEADER). */
enum { HEADER = -1 };
struct damage {
  int table;
  uint64_t offset;
  uint64_t value;
  size_t size;
  const char *message; /* must be part of the error's message */
};

#define FIELD(name) offsetof(struct img_tokenizer_header, name)
#define TABLE(which, member)                                                                                           \
  (FIELD(tables) + IMG_TOKENIZER_T_##which * 16 + (sizeof(#member) == sizeof("bytes") ? 8u : 0u))

static const struct damage damages[] = {
    {HEADER, FIELD(layout), 4, 4, "layout 4"},
    {HEADER, FIELD(header_bytes), 64, 4, "layout 3 of 64"},
    {HEADER, FIELD(kind), 9, 4, "kind: 9"},
    {HEADER, FIELD(kind), 0, 4, "kind: 0"},
    {HEADER, FIELD(key.left), 2, 8, "key: an even factor"},
    {HEADER, FIELD(key.right), 2, 8, "key: an even factor"},
    {HEADER, FIELD(flags), 0x40, 4, "flags: 0x40"},
    {HEADER, FIELD(flags), 0x10, 4, "flags: 0x10 has a flag of other kinds than 1"},
    {HEADER, FIELD(n_vocab), 0, 4, "n_vocab: 0"},
    {HEADER, FIELD(n_vocab), 0xffffffff, 4, "n_vocab: 4294967295"},
    {HEADER, FIELD(n_vocab), SMALL_N_VOCAB + 1, 4, "token_start: "},
    {HEADER, FIELD(n_merge), 0xffffffff, 4, "n_merge: 4294967295"},
    {HEADER, FIELD(n_merge), 4, 4, "merge_slots: 5 occupied, the header says 4"},
    {HEADER, FIELD(n_merge), 8, 4, "n_merge_slot: 8 slots for 8"},
    {HEADER, FIELD(n_pattern), 0, 4, "n_pattern: 0"},
    {HEADER, FIELD(n_pattern), 2, 4, "patterns: 1 terminators"},
    {HEADER, FIELD(n_added), 0xffffffff, 4, "n_added: "},
    {HEADER, FIELD(n_eog), 3, 4, "eog: 8 bytes, the header's counts need 12"},
    {HEADER, FIELD(n_token_slot), 3, 4, "n_token_slot: 3"},
    {HEADER, FIELD(n_token_slot), 0, 4, "n_token_slot: 0"},
    {HEADER, FIELD(n_token_slot), 0x80000000, 4, "token_slots: "},
    {HEADER, FIELD(n_merge_slot), 1, 4, "n_merge_slot: 1"},
    {HEADER, FIELD(bos_id), SMALL_N_VOCAB, 4, "bos_id: token 268, the vocabulary has 268"},
    {HEADER, FIELD(bos_id), IMG_TOKEN_NONE, 4, "flags: 0x1 adds a token"},
    {HEADER, FIELD(unk_id), 0xfffffffe, 4, "unk_id: "},
    {HEADER, TABLE(TOKEN_BYTES, offset), 8, 8, "token_bytes: offset 8 is not a multiple"},
    {HEADER, TABLE(TOKEN_BYTES, offset), 0, 8, "token_bytes: offset 0 and"},
    {HEADER, TABLE(TOKEN_BYTES, bytes), UINT64_MAX, 8, "token_bytes: offset"},
    {HEADER, TABLE(EOG, offset), UINT64_MAX - 15, 8, "eog: offset"},
    {HEADER, TABLE(BYTE_IDS, bytes), 1020, 8, "byte_ids: 1020 bytes"},
    {HEADER, TABLE(PRE_NAME, bytes), 0, 8, "pre_name bytes: 0"},
    {IMG_TOKENIZER_T_PATTERNS, 2, 0, 1, "patterns: 2 terminators"},
    {IMG_TOKENIZER_T_TOKEN_START, 0, 1, 4, "token_start: goes from 1"},
    {IMG_TOKENIZER_T_TOKEN_START, 40, 0xffff, 4, "token_start[10]: token goes from 65535 to 11"},
    {IMG_TOKENIZER_T_TOKEN_START, 4ull * SMALL_N_VOCAB, 3, 4, "token_start: goes from 0 to 3"},
    {IMG_TOKENIZER_T_TOKEN_ATTR, 14, 7, 2, "token_attr[7]: 0x7"},
    {IMG_TOKENIZER_T_TOKEN_ATTR, 14, 0x401, 2, "token_attr[7]: 0x401"},
    {IMG_TOKENIZER_T_TOKEN_ATTR, 2ull * SMALL_BOS, IMG_TOKEN_NORMAL, 2, "empty or a normal one"},
    {IMG_TOKENIZER_T_TOKEN_SLOTS, 0, SMALL_N_VOCAB, 4, "token_slots[0]: token 268"},
    {IMG_TOKENIZER_T_TOKEN_SLOTS, 0, SMALL_EOS, 4, "not a normal one"},
    {IMG_TOKENIZER_T_BYTE_IDS, 4 * 65, 66, 4, "byte_ids[65]: token 66"},
    {IMG_TOKENIZER_T_BYTE_IDS, 0, 70000, 4, "byte_ids[0]: token 70000"},
    {IMG_TOKENIZER_T_ADDED, 0, 70000, 4, "added[0]: token 70000"},
    {IMG_TOKENIZER_T_ADDED, 4, SMALL_EOS, 4, "added[1]: token 263 is not above"},
    {IMG_TOKENIZER_T_EOG, 4, SMALL_BOS, 4, "eog[1]: token 262"},
    {IMG_TOKENIZER_T_EOG, 4, 70000, 4, "eog[1]: token 70000"},
    {HEADER, TABLE(SUPPRESS, bytes), 6, 8, "suppress: 6 bytes are not a number of entries"},
    {HEADER, TABLE(SUPPRESS, bytes), 36, 8, "suppress"},
    {IMG_TOKENIZER_T_SUPPRESS, 4, SMALL_AA, 4, "suppress[1]: token 259 is none"},
    {IMG_TOKENIZER_T_SUPPRESS, 0, 70000, 4, "suppress[0]: token 70000 is none"},
};

/* The same in a payload of kind 3. */
static const struct damage piece_damages[] = {
    {HEADER, FIELD(kind), IMG_TOKENIZER_CHAR_BPE, 4, "scores: "},
    {HEADER, FIELD(kind), IMG_TOKENIZER_BPE, 4, "n_pattern: 0"},
    {HEADER, FIELD(flags), IMG_TOKENIZER_NFC, 4, "flags: 0x4 has a flag of other kinds than 3"},
    {HEADER, TABLE(SCORES, bytes), 8, 8, "scores: 8 bytes, the header's counts need"},
    {HEADER, TABLE(SORTED, bytes), 6, 8, "sorted: 6 bytes are not a number of entries"},
    {HEADER, TABLE(CHARSMAP, bytes), 1023, 8, "charsmap: 1023 bytes are not"},
    {HEADER, TABLE(REPLACEMENTS, bytes), 3, 8, "replacements: the one at byte 0 does not end"},
    {HEADER, TABLE(REPLACEMENTS, offset), 16, 8, "replacements: offset 16"},
    {IMG_TOKENIZER_T_SCORES, 12, 0x7fc00000, 4, "scores[3]: not a finite number"},
    {IMG_TOKENIZER_T_SCORES, 4ull * SMALL_XYZ, 0xff800000, 4, "scores[261]: not a finite number"},
    {IMG_TOKENIZER_T_SORTED, 0, 70000, 4, "sorted[0]: token 70000"},
    {IMG_TOKENIZER_T_SORTED, 4, SMALL_BOS, 4, "sorted[1]: token 262 is none"},
    {IMG_TOKENIZER_T_SORTED, 8, SMALL_CHAR, 4, "sorted[2]: token 268 is not above token 269"},
    {IMG_TOKENIZER_T_REPLACEMENTS, 3, 1, 1, "replacements: the one at byte 0 does not end"},
};

static void expect_refused(const uint8_t *bytes, uint64_t len, const char *message) {
  struct moe_error err = {0};
  assert_int_equal(img_tokenizer_check(bytes, len, &err), MOE_FAILED);
  if (!strstr(err.message, message) || strncmp(err.message, "TOKENIZER ", 10) != 0)
    fail_msg("expected \"%s\" in \"%s\"", message, err.message);
}

static void expect_all_named(uint8_t *bytes, uint64_t len, const struct damage *list, size_t n) {
  const struct img_tokenizer_header *h = (const void *)bytes;
  for (size_t i = 0; i < n; i++) {
    const struct damage *d = &list[i];
    uint8_t *broken = copy_of(bytes, len);
    uint64_t base = d->table == HEADER ? 0 : h->tables[d->table].offset;
    memcpy(broken + base + d->offset, &d->value, d->size);
    expect_refused(broken, len, d->message);
    free(broken);
  }
  free(bytes);
}

static void test_broken_fields_are_named(void **state) {
  (void)state;
  uint64_t len, pieces_len;
  uint8_t *bytes = small_tokenizer(IMG_TOKENIZER_ADD_BOS, NULL, &len);
  uint8_t *pieces = small_pieces(IMG_TOKENIZER_UNIGRAM, 0, &pieces_len);
  expect_all_named(bytes, len, damages, sizeof damages / sizeof *damages);
  expect_all_named(pieces, pieces_len, piece_damages, sizeof piece_damages / sizeof *piece_damages);
}

/* A vocabulary of `n` tokens "0000", "0001", ...; all of type `type`, one of them `longest` bytes long. */
static enum moe_code build_many(uint32_t n, int kind, uint32_t longest, uint8_t **bytes, uint64_t *len,
                                struct moe_error *err) {
  static const char *const patterns[] = {"a", NULL};
  char *text = malloc((size_t)n * 9 + longest), *at = text;
  const uint8_t **texts = malloc(n * sizeof *texts);
  uint32_t *lens = malloc(n * sizeof *lens);
  uint16_t *attr = malloc(n * sizeof *attr);
  for (uint32_t i = 0; i < n; i++) {
    texts[i] = (uint8_t *)at;
    lens[i] = i + 1 < n ? 8 : longest;
    attr[i] = IMG_TOKEN_NORMAL;
    if (lens[i] == 8)
      at += snprintf(at, 9, "%08x", i);
    else
      memset(at, 'x', longest);
  }
  struct img_tokenizer_source s = {.kind = (enum img_tokenizer_kind)kind,
                                   .n_vocab = n,
                                   .bos_id = IMG_TOKEN_NONE,
                                   .eos_id = IMG_TOKEN_NONE,
                                   .eot_id = IMG_TOKEN_NONE,
                                   .pad_id = IMG_TOKEN_NONE,
                                   .unk_id = IMG_TOKEN_NONE,
                                   .pre_name = "many",
                                   .patterns = patterns,
                                   .n_pattern = 1,
                                   .token_text = texts,
                                   .token_len = lens,
                                   .token_attr = attr};
  enum moe_code c = img_tokenizer_build(&s, bytes, len, err);
  free(text);
  free(texts);
  free(lens);
  free(attr);
  return c;
}

static void test_crowded_tables_are_refused(void **state) {
  (void)state;
  uint64_t len;
  uint8_t *bytes;
  struct moe_error err = {0};
  struct img_tokenizer v;
  if (build_many(5000, IMG_TOKENIZER_BPE, 8, &bytes, &len, &err)) fail_msg("%s", err.message);
  assert_int_equal(img_tokenizer_open(bytes, len, &v, &err), MOE_OK);
  uint32_t *slots = (uint32_t *)(uintptr_t)v.token_slots, used = 0;
  for (uint32_t s = 0; s < v.n_token_slot; s++) /* the same entries, all in a row */
    if (slots[s] != IMG_TOKEN_NONE) slots[used++] = slots[s];
  for (uint32_t s = used; s < v.n_token_slot; s++) slots[s] = IMG_TOKEN_NONE;
  expect_refused(bytes, len, "token_slots: over 1024 occupied slots in a row");
  free(bytes);
}

static void test_long_pieces_are_refused(void **state) {
  (void)state;
  uint64_t len;
  uint8_t *bytes;
  struct moe_error err = {0};
  assert_int_equal(build_many(3, IMG_TOKENIZER_BPE, 513, &bytes, &len, &err), MOE_OK);
  free(bytes);
  assert_int_equal(build_many(3, IMG_TOKENIZER_CHAR_BPE, 512, &bytes, &len, &err), MOE_OK);
  free(bytes);
  assert_int_equal(build_many(3, IMG_TOKENIZER_CHAR_BPE, 513, &bytes, &len, &err), MOE_FAILED);
  assert_non_null(strstr(err.message, "token_start[2]: a normal token of 513 bytes, kind 2 allows 512"));
}

static void test_prefixes_and_replacements(void **state) {
  (void)state;
  static const uint32_t want[] = {SMALL_CHAR + 'a', SMALL_AA, SMALL_AAAA};
  uint64_t len;
  uint8_t *bytes = small_pieces(IMG_TOKENIZER_UNIGRAM, 0, &len);
  struct img_tokenizer v;
  struct img_prefix_walk walk = {0};
  const char *replacement;
  assert_int_equal(img_tokenizer_open(bytes, len, &v, NULL), MOE_OK);
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(img_tokenizer_next_prefix(&v, &walk, (const uint8_t *)"aaaab", 5), want[i]);
    assert_int_equal(walk.depth, 1 << i);
  }
  assert_int_equal(img_tokenizer_next_prefix(&v, &walk, (const uint8_t *)"aaaab", 5), IMG_TOKEN_NONE);
  assert_int_equal(img_tokenizer_next_prefix(&v, &walk, (const uint8_t *)"aaaab", 5), IMG_TOKEN_NONE);
  walk = (struct img_prefix_walk){0};
  assert_int_equal(img_tokenizer_next_prefix(&v, &walk, (const uint8_t *)"\xff", 1), IMG_TOKEN_NONE);
  assert_int_equal(img_tokenizer_replace(&v, (const uint8_t *)"QQ", 2, &replacement), 1);
  assert_string_equal(replacement, "a a");
  assert_int_equal(img_tokenizer_replace(&v, (const uint8_t *)"q", 1, &replacement), 0);
  assert_int_equal(img_tokenizer_replace(&v, (const uint8_t *)"\0Q", 2, &replacement), 0);
  free(bytes);
}

/* Merges live at hashed places: find the slot first. */
static void test_broken_merges_are_named(void **state) {
  (void)state;
  uint64_t len;
  uint8_t *bytes = small_tokenizer(0, NULL, &len);
  struct img_tokenizer v;
  assert_int_equal(img_tokenizer_open(bytes, len, &v, NULL), MOE_OK);
  struct img_merge *m = (struct img_merge *)(uintptr_t)img_tokenizer_find_merge(&v, 'a', 'b');
  m->result = SMALL_ABC;
  expect_refused(bytes, len, "token 258 is not as long as 97 and 98 together");
  m->result = 70000;
  expect_refused(bytes, len, "merge of 97 and 98 into 70000");
  m->left = IMG_TOKEN_NONE;
  expect_refused(bytes, len, "4 occupied, the header says 5");
  free(bytes);
}

static void test_every_truncation_is_refused(void **state) {
  (void)state;
  uint64_t len;
  uint8_t *bytes = small_tokenizer(0, NULL, &len);
  const struct img_tokenizer_header *h = (const void *)bytes;
  uint64_t end = h->tables[IMG_TOKENIZER_T_EOG].offset + h->tables[IMG_TOKENIZER_T_EOG].bytes;
  for (uint64_t n = 0; n < end; n += n < 300 ? 1 : 37) {
    uint8_t *cut = copy_of(bytes, n);
    expect_refused(cut, n, n < sizeof *h ? "its header alone has 336" : "are not between");
    free(cut);
  }
  expect_refused(bytes + 1, len - 1, "not mapped on 8 bytes");
  free(bytes);
}

static uint64_t random_state = 88172645463325252u;
static uint64_t random_next(void) { /* Marsaglia's xorshift64 */
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

/* Everything that reading code does with a payload that passed. */
static void use(const struct img_tokenizer *v) {
  uint32_t n;
  for (uint32_t id = 0; id < v->n_vocab; id++) {
    const uint8_t *text = img_token_bytes(v, id, &n);
    (void)img_tokenizer_find_normal(v, text, n);
    (void)img_tokenizer_find_added(v, text, n);
    (void)img_tokenizer_find_merge(v, id, (id + 1) % v->n_vocab);
    const char *replacement;
    struct img_prefix_walk walk = {0};
    while (img_tokenizer_next_prefix(v, &walk, text, n) != IMG_TOKEN_NONE) {
    }
    if (img_tokenizer_replace(v, text, n, &replacement))
      assert_in_range(strlen(replacement), 0, IMG_TOKENIZER_MAX_REPLACEMENT);
  }
}

static void damage_at_random(uint8_t *bytes, uint64_t len) {
  uint32_t passed = 0;
  for (int round = 0; round < 20000; round++) {
    uint8_t *broken = copy_of(bytes, len);
    for (uint64_t flips = 1 + random_next() % 4; flips > 0; flips--) {
      uint64_t range = random_next() % 2 ? sizeof(struct img_tokenizer_header) : len;
      broken[random_next() % range] ^= (uint8_t)(1u << random_next() % 8);
    }
    struct img_tokenizer v;
    struct moe_error err = {0};
    if (img_tokenizer_open(broken, len, &v, &err) == MOE_OK) {
      use(&v);
      passed++;
    } else {
      assert_int_equal(err.code, MOE_FAILED);
    }
    free(broken);
  }
  assert_in_range(passed, 100, 19000); /* both outcomes are exercised */
  free(bytes);
}

static void test_random_damage_stays_inside(void **state) {
  (void)state;
  uint64_t len;
  uint8_t *bytes = small_tokenizer(IMG_TOKENIZER_ADD_BOS, NULL, &len);
  damage_at_random(bytes, len);
  bytes = small_pieces(IMG_TOKENIZER_CHAR_BPE, IMG_TOKENIZER_SPACE_PREFIX, &len);
  damage_at_random(bytes, len);
  bytes = small_pieces(IMG_TOKENIZER_UNIGRAM, IMG_TOKENIZER_FEW_SPACES, &len);
  damage_at_random(bytes, len);
}

/* ---- CHAT ---- */

static uint8_t *small_chat(uint64_t *len) {
  const struct img_chat chat = {IMG_CHAT_MODEL, "{{ x }}", "<s>", "", "{}", 7, 3, 0, 2};
  uint8_t *bytes;
  assert_int_equal(img_chat_build(&chat, &bytes, len, NULL), MOE_OK);
  return bytes;
}

static void test_chat_is_read_back(void **state) {
  (void)state;
  uint64_t len;
  uint8_t *bytes = small_chat(&len);
  struct img_chat v;
  assert_int_equal(img_chat_open(bytes, len, &v, NULL), MOE_OK);
  assert_int_equal(v.origin, IMG_CHAT_MODEL);
  assert_string_equal(v.template_text, "{{ x }}");
  assert_string_equal(v.bos, "<s>");
  assert_string_equal(v.eos, "");
  assert_string_equal(v.grammar, "{}");
  assert_int_equal(v.template_len, 7);
  free(bytes);
}

static void test_broken_chat_is_named(void **state) {
  (void)state;
  static const struct {
    uint64_t offset, value;
    size_t size;
    const char *message;
  } breaks[] = {{0, 2, 4, "CHAT header: layout 2"},
                {4, 8, 4, "CHAT header: layout 1 of 8"},
                {8, 3, 4, "CHAT header: origin 3"},
                {12, 1, 4, "reserved 1"},
                {8, 0, 4, "CHAT template: 7 bytes with origin 0"},
                {24, UINT64_MAX, 8, "CHAT template: 18446744073709551615 bytes, at most"},
                {16, UINT64_MAX, 8, "CHAT template: offset 18446744073709551615"},
                {32, 16, 8, "CHAT bos: offset 16"},
                {40, 4, 8, "CHAT bos: its first NUL is not at byte 4"},
                {72, 4000000, 8, "CHAT grammar: offset"},
                {80, 0, 1, "CHAT template: its first NUL is not at byte 7"}};
  uint64_t len;
  uint8_t *bytes = small_chat(&len);
  for (size_t i = 0; i < sizeof breaks / sizeof *breaks; i++) {
    uint8_t *broken = copy_of(bytes, len);
    memcpy(broken + breaks[i].offset, &breaks[i].value, breaks[i].size);
    struct moe_error err = {0};
    assert_int_equal(img_chat_check(broken, len, &err), MOE_FAILED);
    if (!strstr(err.message, breaks[i].message)) fail_msg("\"%s\" in \"%s\"", breaks[i].message, err.message);
    free(broken);
  }
  for (uint64_t n = 0; n < 96; n++) {
    uint8_t *cut = copy_of(bytes, n);
    assert_int_equal(img_chat_check(cut, n, NULL), MOE_FAILED);
    free(cut);
  }
  free(bytes);
}

static void test_random_chat_damage_stays_inside(void **state) {
  (void)state;
  uint64_t len;
  uint8_t *bytes = small_chat(&len);
  for (int round = 0; round < 20000; round++) {
    uint8_t *broken = copy_of(bytes, len);
    broken[random_next() % len] ^= (uint8_t)(1u << random_next() % 8);
    struct img_chat v;
    if (img_chat_open(broken, len, &v, NULL) == MOE_OK)
      assert_int_equal(strlen(v.template_text) + strlen(v.bos) + strlen(v.eos) + strlen(v.grammar),
                       v.template_len + v.bos_len + v.eos_len + v.grammar_len);
    free(broken);
  }
  free(bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_payload_is_read_back),       cmocka_unit_test(test_longest_added_token_matches),
      cmocka_unit_test(test_broken_fields_are_named),    cmocka_unit_test(test_broken_merges_are_named),
      cmocka_unit_test(test_crowded_tables_are_refused), cmocka_unit_test(test_long_pieces_are_refused),
      cmocka_unit_test(test_prefixes_and_replacements),  cmocka_unit_test(test_every_truncation_is_refused),
      cmocka_unit_test(test_random_damage_stays_inside), cmocka_unit_test(test_chat_is_read_back),
      cmocka_unit_test(test_broken_chat_is_named),       cmocka_unit_test(test_random_chat_damage_stays_inside),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
