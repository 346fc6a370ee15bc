/* test_front_logprobs.c: log-probabilities kept as text: what is ready, what waits, both shapes, and the splice. */
#include "front_logprobs.h"
#include "front_reply.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect(const struct front_logprobs *l, const char *want) {
  char *text = front_logprobs_text(l);
  assert_string_equal(text, want);
  free(text);
}

static void test_chat(void **state) {
  (void)state;
  struct front_logprobs l = {.chat = true};
  expect(&l, "{\"content\":[],\"refusal\":null}");
  for (size_t i = 0; i < 100; i++) assert_true(front_logprobs_add(&l, json_pack("{s:I}", "n", (json_int_t)i), 2 * i));
  expect(&l, "{\"content\":[],\"refusal\":null}");
  front_logprobs_advance(&l, 4, false); /* tokens at 0 and 2 */
  expect(&l, "{\"content\":[{\"n\":0},{\"n\":1}],\"refusal\":null}");
  front_logprobs_drop(&l);
  front_logprobs_drop(&l); /* nothing is ready any more */
  front_logprobs_advance(&l, 5, false);
  expect(&l, "{\"content\":[{\"n\":2}],\"refusal\":null}");
  front_logprobs_advance(&l, 0, true);
  front_logprobs_drop(&l);
  assert_int_equal(l.n_token, 0);
  assert_int_equal(l.column[0].n, 0);
  front_logprobs_deinit(&l);
}

static void test_text(void **state) {
  (void)state;
  struct front_logprobs l = {0};
  for (int i = 0; i < 3; i++)
    assert_true(front_logprobs_add(&l,
                                   json_pack("{s:s,s:f,s:{s:f},s:i}", "tokens", "\",", "token_logprobs", -0.5 * i,
                                             "top_logprobs", "]", -1.5, "text_offset", i),
                                   (size_t)i));
  front_logprobs_advance(&l, 1, false);
  front_logprobs_drop(&l);
  front_logprobs_advance(&l, 9, false);
  expect(&l, "{\"tokens\":[\"\\\",\",\"\\\",\"],\"token_logprobs\":[-0.5,-1.0],"
             "\"top_logprobs\":[{\"]\":-1.5},{\"]\":-1.5}],\"text_offset\":[1,2]}");
  front_logprobs_deinit(&l);
}

static void test_splice(void **state) {
  (void)state;
  const struct reply_head head = {.chat = true, .id = "x", .model = "\"logprobs\":null"};
  struct reply_usage usage = {0};
  size_t bytes;
  static const char words[] = "say \"logprobs\":null";
  char *text = reply_dump(reply_whole(&head, words, strlen(words), "stop", &usage), "", "[7]", "", &bytes);
  json_t *read = json_loadb(text, bytes, 0, NULL);
  json_t *choice = json_array_get(json_object_get(read, "choices"), 0);
  assert_int_equal(json_integer_value(json_array_get(json_object_get(choice, "logprobs"), 0)), 7);
  assert_string_equal(json_string_value(json_object_get(json_object_get(choice, "message"), "content")), words);
  assert_string_equal(json_string_value(json_object_get(read, "model")), head.model);
  json_decref(read);
  free(text);
  text = reply_dump(reply_text_chunk(&head, "a", 1), "data: ", NULL, "\n\n", &bytes);
  assert_memory_equal(text, "data: {", 7);
  assert_non_null(strstr(text, "\"logprobs\":null"));
  assert_string_equal(text + bytes - 3, "}\n\n");
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_chat),
      cmocka_unit_test(test_text),
      cmocka_unit_test(test_splice),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
