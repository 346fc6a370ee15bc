/* vocabulary.c: see vocabulary.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "img_tokenizer.h"
#include "src_gguf.h"
#include "vocabulary.h"

struct entry {
  const char *text; /* NULL: no token has this number */
  size_t len;
  uint32_t type;
};

static json_t *load(const char *dir, const char *name) {
  char path[600];
  json_error_t why;
  snprintf(path, sizeof path, "%s/%s", dir, name);
  json_t *json = json_load_file(path, JSON_DECODE_INT_AS_REAL, &why); /* a model_max_length is 10^30 */
  if (!json) fail_msg("%s: %s", path, why.text);
  return json;
}

static bool is_byte(const char *text) {
  return strlen(text) == 6 && strncmp(text, "<0x", 3) == 0 && text[5] == '>';
}

/* Whether a name is a run of several U+2581. */
static bool is_spaces(const char *text) {
  size_t n = 0;
  while (strncmp(text + 3 * n, "\xe2\x96\x81", 3) == 0) n++;
  return n > 1 && text[3 * n] == 0;
}

/* A user-defined token's text as converters write it for SentencePiece: with spaces. */
static void put_with_spaces(struct maker *m, const char *text) {
  char out[256];
  size_t len = 0;
  for (; *text; len++) {
    bool space = strncmp(text, "\xe2\x96\x81", 3) == 0;
    assert_true(len < sizeof out);
    out[len] = (char)(space ? ' ' : *text);
    text += space ? 3 : 1;
  }
  maker_u64(m, len);
  maker_raw(m, out, len);
}

/* All tokens by their number. Returns how many; *list is malloc'd. */
static uint32_t collect(json_t *tokenizer, bool gemma4, struct entry **list) {
  json_t *vocab = json_object_get(json_object_get(tokenizer, "model"), "vocab"), *id, *one;
  json_t *added = json_object_get(tokenizer, "added_tokens");
  const char *text;
  size_t i;
  uint32_t n = (uint32_t)(json_object_size(vocab) + json_array_size(added));
  *list = calloc(n, sizeof **list);
  uint32_t end = 0;
  json_object_foreach(vocab, text, id) {
    uint32_t at = (uint32_t)json_number_value(id);
    assert_true(at < n);
    (*list)[at] = (struct entry){text, strlen(text), is_byte(text) ? IMG_TOKEN_BYTE : IMG_TOKEN_NORMAL};
    if (at >= end) end = at + 1;
  }
  const char *unknown = json_string_value(json_object_get(json_object_get(tokenizer, "model"), "unk_token"));
  json_array_foreach(added, i, one) {
    uint32_t at = (uint32_t)json_number_value(json_object_get(one, "id"));
    json_t *content = json_object_get(one, "content");
    bool special = json_is_true(json_object_get(one, "special"));
    assert_true(at < n);
    text = json_string_value(content);
    if (gemma4 && is_spaces(text)) continue; /* merges lead to it; as an added token it would not match spaces */
    (*list)[at] = (struct entry){text, json_string_length(content),
                                 unknown && strcmp(text, unknown) == 0 ? IMG_TOKEN_UNKNOWN
                                 : special                             ? IMG_TOKEN_CONTROL
                                                                       : IMG_TOKEN_USER_DEFINED};
    if (at >= end) end = at + 1;
  }
  return end;
}

static void put_text(struct maker *m, const char *text, size_t len) {
  maker_u64(m, len);
  maker_raw(m, text, len);
}

static void put_merges(struct maker *m, json_t *merges) {
  json_t *one;
  size_t i;
  maker_key_array(m, "tokenizer.ggml.merges", GGUF_STRING, json_array_size(merges));
  json_array_foreach(merges, i, one) {
    if (json_is_string(one)) {
      put_text(m, json_string_value(one), json_string_length(one));
      continue;
    }
    json_t *left = json_array_get(one, 0), *right = json_array_get(one, 1);
    size_t n = json_string_length(left);
    maker_u64(m, n + 1 + json_string_length(right));
    maker_raw(m, json_string_value(left), n);
    maker_raw(m, " ", 1);
    maker_raw(m, json_string_value(right), json_string_length(right));
  }
}

/* The special tokens that tokenizer_config.json names. */
static void put_ids(struct maker *m, json_t *config, const struct entry *list, uint32_t n) {
  static const char *const keys[][2] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                                        {"eos_token", "tokenizer.ggml.eos_token_id"},
                                        {"pad_token", "tokenizer.ggml.padding_token_id"},
                                        {"unk_token", "tokenizer.ggml.unknown_token_id"}};
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
    json_t *value = json_object_get(config, keys[k][0]);
    if (json_is_object(value)) value = json_object_get(value, "content");
    for (uint32_t i = 0; json_is_string(value) && i < n; i++)
      if (list[i].text && strcmp(list[i].text, json_string_value(value)) == 0) maker_key_u32(m, keys[k][1], i);
  }
  json_t *add = json_object_get(config, "add_bos_token");
  if (!json_is_boolean(add)) return;
  maker_key(m, "tokenizer.ggml.add_bos_token", GGUF_BOOL);
  maker_raw(m, json_is_true(add) ? "\1" : "\0", 1);
}

struct gguf *vocabulary_open(const char *dir, const char *model, const char *pre, int space_prefix, struct maker *m) {
  json_t *tokenizer = load(dir, "tokenizer.json"), *config = load(dir, "tokenizer_config.json");
  struct entry *list;
  struct moe_error err = {0};
  struct gguf *g;
  uint32_t n = collect(tokenizer, strcmp(model, "gemma4") == 0, &list);
  bool scores = strcmp(model, "llama") == 0;
  maker_init(m, 3);
  maker_key_text(m, "tokenizer.ggml.model", model);
  if (pre) maker_key_text(m, "tokenizer.ggml.pre", pre);
  maker_key_array(m, "tokenizer.ggml.tokens", GGUF_STRING, n);
  for (uint32_t i = 0; i < n; i++) {
    char none[32];
    snprintf(none, sizeof none, "[PAD%u]", i);
    if (scores && list[i].text && list[i].type == IMG_TOKEN_USER_DEFINED)
      put_with_spaces(m, list[i].text);
    else
      put_text(m, list[i].text ? list[i].text : none, list[i].text ? list[i].len : strlen(none));
  }
  maker_key_array(m, "tokenizer.ggml.token_type", GGUF_I32, n);
  for (uint32_t i = 0; i < n; i++) maker_u32(m, list[i].text ? list[i].type : IMG_TOKEN_UNUSED);
  if (scores) {
    maker_key_array(m, "tokenizer.ggml.scores", GGUF_F32, n);
    for (uint32_t i = 0; i < n; i++)
      maker_raw(m, &(float){list[i].text && is_spaces(list[i].text) ? -1e9f : -(float)i}, sizeof(float));
  } else {
    put_merges(m, json_object_get(json_object_get(tokenizer, "model"), "merges"));
  }
  put_ids(m, config, list, n);
  if (space_prefix >= 0) {
    maker_key(m, "tokenizer.ggml.add_space_prefix", GGUF_BOOL);
    maker_raw(m, space_prefix ? "\1" : "\0", 1);
  }
  json_t *chat = json_object_get(config, "chat_template");
  if (json_is_string(chat)) maker_key_text(m, "tokenizer.chat_template", json_string_value(chat));
  if (gguf_open(maker_path(m), &g, &err) != MOE_OK) fail_msg("%s: %s", dir, err.message);
  free(list);
  json_decref(tokenizer);
  json_decref(config);
  return g;
}
