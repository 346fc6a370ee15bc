/* test_chat.c: chat templates: the embedded model's prompt, what OpenAI's messages become, errors in the template's own
 * words, the bounds of memory and time, and what a start costs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "chat.h"
#include "emit_chat.h"
#include "emit_tokenizer.h"
#include "src_gguf.h"

static struct chat *create(const char *template_text) {
  const struct img_chat section = {.origin = IMG_CHAT_MODEL,
                                   .template_text = template_text,
                                   .template_len = strlen(template_text),
                                   .bos = "<s>",
                                   .bos_len = 3,
                                   .eos = "</s>",
                                   .eos_len = 4,
                                   .grammar = "{}",
                                   .grammar_len = 2};
  struct chat *chat;
  struct moe_error err = {0};
  if (chat_create(&section, &chat, &err) != MOE_OK) fail_msg("%s", err.message);
  return chat;
}

static void expect_render(struct chat *chat, const char *messages, const char *tools, const char *extra,
                          const char *want) {
  char *text;
  size_t len;
  struct moe_error err = {0};
  if (chat_render(chat, messages, tools, extra, &text, &len, &err) != MOE_OK) fail_msg("%s", err.message);
  assert_string_equal(text, want);
  assert_int_equal(len, strlen(want));
  free(text);
}

static void expect_error(struct chat *chat, const char *messages, const char *tools, const char *extra,
                         const char *message) {
  char *text;
  size_t len;
  struct moe_error err = {0};
  assert_int_equal(chat_render(chat, messages, tools, extra, &text, &len, &err), MOE_FAILED);
  assert_null(text);
  assert_string_equal(err.message, message);
}

static void expect_once(const char *template_text, const char *messages, const char *want) {
  struct chat *chat = create(template_text);
  expect_render(chat, messages, NULL, NULL, want);
  chat_destroy(chat);
}

static void test_embedded_model(void **state) {
  (void)state;
  char path[512];
  struct gguf *g;
  struct img_tokenizer v;
  struct img_chat section;
  struct chat *chat;
  uint8_t *tokenizer, *bytes;
  uint64_t tokenizer_len, len;
  snprintf(path, sizeof path, "%s/models/wordnet-moe.gguf", getenv("TESTS_DIR") ? getenv("TESTS_DIR") : "tests");
  assert_int_equal(gguf_open(path, &g, NULL), MOE_OK);
  assert_int_equal(emit_tokenizer(g, &tokenizer, &tokenizer_len, NULL, NULL), MOE_OK);
  assert_int_equal(img_tokenizer_open(tokenizer, tokenizer_len, &v, NULL), MOE_OK);
  assert_int_equal(emit_chat(g, &v, &bytes, &len, NULL), MOE_OK);
  assert_int_equal(img_chat_open(bytes, len, &section, NULL), MOE_OK);
  assert_int_equal(section.origin, IMG_CHAT_MODEL);
  assert_int_equal(chat_create(&section, &chat, NULL), MOE_OK);
  expect_render(chat, "[{\"role\":\"user\",\"content\":\"What is a guitar?\"}]", NULL, NULL,
                "<|im_start|>user\nWhat is a guitar?<|im_end|>\n<|im_start|>assistant\n");
  expect_render(chat, "[{\"role\":\"user\",\"content\":\"\\u00e9\\n\"},{\"role\":\"assistant\",\"content\":null}]",
                NULL, "{\"add_generation_prompt\":false}",
                "<|im_start|>user\n\xc3\xa9\n<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n");
  chat_destroy(chat);
  free(bytes);
  free(tokenizer);
  gguf_close(g);
}

static void test_variables(void **state) {
  (void)state;
  struct chat *chat =
      create("{{ bos_token }}|{{ eos_token }}|{{ tools is none }}|{{ thinking is defined and thinking }}|"
             "{{ add_generation_prompt }}|{{ messages|length }}");
  expect_render(chat, "[]", NULL, NULL, "<s>|</s>|true|false|true|0");
  expect_render(chat, "[]", "[]", "{\"thinking\":true,\"bos_token\":\"no\",\"messages\":[1]}",
                "<s>|</s>|true|true|true|0");
  expect_render(chat, "[]", "[{\"a\":1}]", NULL, "<s>|</s>|false|false|true|0");
  chat_destroy(chat);
}

static void test_messages_become_what_templates_read(void **state) {
  (void)state;
  expect_once(
      "{{ messages[0].content }}",
      "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}]",
      "a\nb");
  expect_once("{{ messages[0].tool_calls[0].function.arguments | tojson }}",
              "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":[1,"
              "\\\"\xc3\xa9"
              "\\\"]}\"}}]}]",
              "{\"a\": [1, \"\xc3\xa9\"]}");
  expect_once("{{ messages[0].tool_calls[0].function.arguments }}",
              "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{oops\"}}]}]",
              "{oops");
  expect_once("{{ messages[0].tool_calls is defined }}", "[{\"role\":\"assistant\",\"tool_calls\":null}]", "false");
  expect_once("{{ messages[0].thinking }}|{{ messages[0].reasoning_content }}",
              "[{\"role\":\"assistant\",\"content\":\"2\",\"reasoning_content\":\"1+1\"}]", "1+1|1+1");
  expect_once("{{ messages[0].thinking }}{{ messages[1].thinking is defined }}",
              "[{\"role\":\"assistant\",\"thinking\":\"a\",\"reasoning_content\":\"b\"},{\"role\":\"user\"}]",
              "afalse");
  expect_once("{{ messages[0].name }}{{ messages[0].content == '' }}", "[{\"role\":\"user\",\"name\":\"n\"}]", "ntrue");
  expect_once("{% for m in messages %}\n  {% if true %}\nx\n  {% endif %}\n{% endfor %}", "[{\"role\":\"u\"}]", "x\n");
  expect_once("{{ messages[0] | tojson(indent=2) }}", "[{\"role\":\"u\"}]",
              "{\n  \"role\": \"u\",\n  \"content\": \"\"\n}");
}

static void test_date(void **state) {
  (void)state;
  struct chat *chat = create("{{ strftime_now('%d %b %Y %B') }}");
  char *text, want[64], *later = want + 32;
  size_t len;
  time_t before = time(NULL), after;
  assert_int_equal(chat_render(chat, "[]", NULL, NULL, &text, &len, NULL), MOE_OK);
  after = time(NULL);
  strftime(want, 32, "%d %b %Y %B", localtime(&before));
  strftime(later, 32, "%d %b %Y %B", localtime(&after));
  assert_true(strcmp(text, want) == 0 || strcmp(text, later) == 0);
  free(text);
  chat_destroy(chat);
}

static void test_bad_requests_are_named(void **state) {
  (void)state;
  struct chat *chat = create("x");
  expect_error(chat, "{}", NULL, NULL, "messages: must be an array");
  expect_error(chat, "[1]", NULL, NULL, "messages[0]: must be an object");
  expect_error(chat, "[{\"role\":\"user\"},{\"content\":\"\"}]", NULL, NULL, "messages[1].role: must be a string");
  expect_error(chat, "[{\"role\":\"user\",\"content\":1}]", NULL, NULL,
               "messages[0].content: must be a string or an array of parts");
  expect_error(chat, "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]", NULL, NULL,
               "messages[0].content[0]: a part of type \"image_url\" is not served, only \"text\" with a text");
  expect_error(chat, "[{\"role\":\"a\",\"tool_calls\":{}}]", NULL, NULL, "messages[0].tool_calls: must be an array");
  expect_error(chat, "[{\"role\":\"a\",\"tool_calls\":[{}]}]", NULL, NULL,
               "messages[0].tool_calls[0]: must be an object with a function that has a name");
  expect_error(chat, "[]", "{}", NULL, "tools: must be an array");
  expect_error(chat, "[]", NULL, "[]", "template variables: must be an object");
  char *text;
  size_t len;
  struct moe_error err = {0};
  assert_int_equal(chat_render(chat, "[", NULL, NULL, &text, &len, &err), MOE_FAILED);
  assert_memory_equal(err.message, "messages: not JSON: ", 20);
  expect_render(chat, "[]", NULL, NULL, "x"); /* still usable */
  chat_destroy(chat);
}

static void test_the_templates_own_message(void **state) {
  (void)state;
  struct chat *chat =
      create("{% if messages[0].role == 'tool' %}{{ raise_exception('Roles must alternate, \xc3\xa9' + '!') "
             "}}{% endif %}fine");
  expect_error(chat, "[{\"role\":\"tool\"}]", NULL, NULL, "chat template: Roles must alternate, \xc3\xa9!");
  expect_render(chat, "[{\"role\":\"user\"}]", NULL, NULL, "fine");
  chat_destroy(chat);
  chat = create("{{ raise_exception('\xc3\xa9' * 2000) if false else raise_exception(messages[0].content) }}");
  char messages[4096] = "[{\"role\":\"user\",\"content\":\"", *text;
  for (int i = 0; i < 1000; i++) strcat(messages, "\xc3\xa9");
  strcat(messages, "\"}]");
  struct moe_error err = {0};
  size_t len;
  assert_int_equal(chat_render(chat, messages, NULL, NULL, &text, &len, &err), MOE_FAILED);
  len = strlen(err.message);
  assert_in_range(len, sizeof err.message - 3, sizeof err.message - 1);
  assert_int_equal((uint8_t)err.message[len - 1], 0xa9); /* cut between characters */
  chat_destroy(chat);
}

static void test_bad_templates_are_refused(void **state) {
  (void)state;
  static const char *const bad[] = {"{% if %}", "{{ x", "{% for %}", "{{ 'a }}"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    const struct img_chat section = {
        .origin = IMG_CHAT_MODEL, .template_text = bad[i], .template_len = strlen(bad[i]), .bos = "", .eos = ""};
    struct chat *chat;
    struct moe_error err = {0};
    assert_int_equal(chat_create(&section, &chat, &err), MOE_FAILED);
    assert_null(chat);
    assert_memory_equal(err.message, "chat template: ", 15);
  }
  const struct img_chat none = {.origin = IMG_CHAT_NONE, .template_text = ""};
  struct chat *chat;
  struct moe_error err = {0};
  assert_int_equal(chat_create(&none, &chat, &err), MOE_DECLINED);
  assert_memory_equal(err.message, "this model has no chat template", 31);
  chat_destroy(NULL);
}

static void test_memory_and_time_are_bounded(void **state) {
  (void)state;
  struct chat *chat = create("{% set ns = namespace(x=[1, 2, 3, 4]) %}{% for i in range(messages|length * 40) %}"
                             "{% set ns.x = ns.x + ns.x %}{% endfor %}");
  expect_error(chat, "[{\"role\":\"user\"}]", NULL, NULL,
               "chat template: needs more than 256 MiB; the conversation is too large for it");
  expect_render(chat, "[]", NULL, NULL, "");
  chat_destroy(chat);
  chat = create("{% for i in range(messages|length * 100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}");
  clock_t start = clock();
  expect_error(chat, "[{\"role\":\"user\"}]", NULL, NULL,
               "chat template: stopped after 2000 ms; the conversation is too large for it");
  assert_in_range(clock() - start, CLOCKS_PER_SEC, 4 * CLOCKS_PER_SEC);
  expect_render(chat, "[]", NULL, NULL, "");
  chat_destroy(chat);
}

static void test_deep_nesting_is_an_error(void **state) {
  (void)state;
  size_t depth = 200000, len;
  char *deep = malloc(depth + 1), *text;
  struct moe_error err = {0};
  struct chat *chat = create("x");
  memset(deep, '[', depth);
  deep[depth] = 0;
  assert_int_equal(chat_render(chat, deep, NULL, NULL, &text, &len, &err), MOE_FAILED);
  assert_string_equal(err.message, "messages: not JSON: stack overflow");
  free(deep);
  chat_destroy(chat);
}

static void test_large_content(void **state) {
  (void)state;
  size_t size = 4 << 20, len;
  char *messages = malloc(size + 64), *text;
  strcpy(messages, "[{\"role\":\"user\",\"content\":\"");
  size_t at = strlen(messages);
  memset(messages + at, 'a', size);
  strcpy(messages + at + size, "\"}]");
  struct chat *chat = create("{{ messages[0].content + '!' }}");
  struct moe_error err = {0};
  if (chat_render(chat, messages, NULL, NULL, &text, &len, &err) != MOE_OK) fail_msg("%s", err.message);
  assert_int_equal(len, size + 1);
  free(text);
  free(messages);
  chat_destroy(chat);
}

static void test_start_is_quick(void **state) {
  (void)state;
  clock_t best = CLOCKS_PER_SEC;
  for (int i = 0; i < 5; i++) {
    clock_t start = clock();
    chat_destroy(create("{% for m in messages %}{{ m.content }}{% endfor %}"));
    if (clock() - start < best) best = clock() - start;
  }
  if (best > CLOCKS_PER_SEC / 10) /* 10 ms seen; a slow machine gets the rest */
    fail_msg("%.0f ms of processor time", best * 1e3 / CLOCKS_PER_SEC);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_embedded_model),
      cmocka_unit_test(test_variables),
      cmocka_unit_test(test_messages_become_what_templates_read),
      cmocka_unit_test(test_date),
      cmocka_unit_test(test_bad_requests_are_named),
      cmocka_unit_test(test_the_templates_own_message),
      cmocka_unit_test(test_bad_templates_are_refused),
      cmocka_unit_test(test_memory_and_time_are_bounded),
      cmocka_unit_test(test_deep_nesting_is_an_error),
      cmocka_unit_test(test_large_content),
      cmocka_unit_test(test_start_is_quick),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
