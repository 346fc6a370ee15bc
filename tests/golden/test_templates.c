/* test_templates.c: published chat templates, with tools, tool answers, reasoning and switches, against the prompts
 * that Jinja makes of them; a template that refuses a conversation is quoted.
 *
 * The templates are fetched by `./build.sh test` (cmake/vocabularies.sh); without them the test is skipped. */
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

#include "chat.h"

static json_t *load(const char *dir, const char *name) {
  char path[800];
  json_error_t why;
  snprintf(path, sizeof path, "%s/%s", dir, name);
  json_t *json = json_load_file(path, JSON_DECODE_INT_AS_REAL, &why);
  if (!json) fail_msg("%s: %s", path, why.text);
  return json;
}

/* A token's text in tokenizer_config.json: a string, an object with one, or nothing. */
static const char *token_text(const json_t *config, const char *key) {
  const json_t *value = json_object_get(config, key);
  if (json_is_object(value)) value = json_object_get(value, "content");
  return json_is_string(value) ? json_string_value(value) : "";
}

static struct chat *create(const json_t *config) {
  const json_t *text = json_object_get(config, "chat_template");
  const char *bos = token_text(config, "bos_token"), *eos = token_text(config, "eos_token");
  const struct img_chat section = {.origin = IMG_CHAT_MODEL,
                                   .template_text = json_string_value(text),
                                   .template_len = json_string_length(text),
                                   .bos = bos,
                                   .bos_len = strlen(bos),
                                   .eos = eos,
                                   .eos_len = strlen(eos),
                                   .grammar = "{}",
                                   .grammar_len = 2};
  struct chat *chat;
  struct moe_error err = {0};
  if (chat_create(&section, &chat, &err) != MOE_OK) fail_msg("%s", err.message);
  return chat;
}

/* Integers stay integers on the way to the template: the cases are read anew without JSON_DECODE_INT_AS_REAL. */
static char *dump(const json_t *value) {
  return value ? json_dumps(value, JSON_COMPACT) : NULL;
}

static void check(const char *name, const char *which, struct chat *chat, const json_t *c, const json_t *want) {
  char *messages = dump(json_object_get(c, "messages")), *tools = dump(json_object_get(c, "tools"));
  char *extra = dump(json_object_get(c, "extra")), *text, message[1200];
  size_t len;
  struct moe_error err = {0};
  enum moe_code code = chat_render(chat, messages, tools, extra, &text, &len, &err);
  const char *prompt = json_string_value(json_object_get(want, "text"));
  if (prompt && (code || strcmp(text, prompt) != 0))
    fail_msg("%s, %s: gives\n%s\nwanted\n%s", name, which, code ? err.message : text, prompt);
  snprintf(message, sizeof message, "chat template: %s", json_string_value(json_object_get(want, "error")));
  if (!prompt && (code != MOE_FAILED || strcmp(err.message, message) != 0))
    fail_msg("%s, %s: gives\n%s\nwanted the error\n%s", name, which, code ? err.message : text, message);
  free(text);
  free(messages);
  free(tools);
  free(extra);
}

static void test_templates(void **state) {
  (void)state;
  char path[600];
  snprintf(path, sizeof path, "%s/golden/chat-templates.json", getenv("TESTS_DIR") ? getenv("TESTS_DIR") : "tests");
  json_t *golden = json_load_file(path, 0, NULL), *prompts, *want;
  const char *name, *which;
  size_t n = 0;
  assert_non_null(golden);
  json_object_foreach(json_object_get(golden, "prompts"), name, prompts) {
    snprintf(path, sizeof path, "%s/%s", getenv("VOCABULARIES"), name);
    json_t *config = load(path, "tokenizer_config.json");
    struct chat *chat = create(config);
    json_object_foreach(prompts, which, want) {
      check(name, which, chat, json_object_get(json_object_get(golden, "cases"), which), want);
      n++;
    }
    chat_destroy(chat);
    json_decref(config);
  }
  assert_in_range(n, 40, 1000);
  json_decref(golden);
}

int main(void) {
  const char *dir = getenv("VOCABULARIES");
  if (!dir || access(dir, R_OK) != 0) {
    puts("skipped: the templates are not there (cmake/vocabularies.sh fetches them)");
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_templates)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
