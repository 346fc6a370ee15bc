/* test_front_journal.c: the live requests, and what of them survives an engine. */
#include "front_journal.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct journal_entry *add(struct journal *j, const int32_t *prompt, uint32_t n, uint32_t n_predict) {
  struct request request = {.prompt = prompt, .n_prompt = n, .n_predict = n_predict};
  struct journal_sink sink = {0};
  return journal_add(j, &request, &sink);
}

static void test_order_and_removal(void **state) {
  (void)state;
  struct journal j = {0};
  struct journal_entry *a = add(&j, (int32_t[]){1, 2}, 2, 9), *b = add(&j, (int32_t[]){3}, 1, 9),
                       *c = add(&j, (int32_t[]){4}, 1, 9);
  assert_int_equal(j.n_entry, 3);
  assert_ptr_equal(journal_first(&j, JOURNAL_WAITING), a);
  a->state = JOURNAL_SENT;
  assert_ptr_equal(journal_first(&j, JOURNAL_WAITING), b);
  uint64_t id = b->id;
  journal_cancel(&j, b); /* waiting: gone at once */
  assert_null(journal_find(&j, id));
  journal_cancel(&j, a); /* sent: the engine must be told first */
  assert_ptr_equal(journal_first(&j, JOURNAL_CANCELLED), a);
  assert_int_equal(j.n_entry, 1);
  journal_remove(&j, a);
  assert_int_equal(j.n_entry, 1);
  journal_remove(&j, c);
  assert_int_equal(j.n_entry, 0);
  assert_null(j.first);
  assert_null(j.last);
}

static void test_emitted_tokens_become_the_prompt(void **state) {
  (void)state;
  struct journal j = {0};
  struct journal_entry *entry = add(&j, (int32_t[]){1, 2}, 2, 1000);
  entry->state = JOURNAL_SENT;
  for (int32_t i = 0; i < 500; i++) assert_true(journal_emit(entry, 100 + i, false));
  journal_requeue(&j);
  assert_int_equal(entry->state, JOURNAL_WAITING);
  assert_int_equal(entry->n_token, 502);
  assert_int_equal(entry->token[1], 2);
  assert_int_equal(entry->token[501], 599);
  journal_remove(&j, entry);
}

static void test_losses_are_counted_without_progress(void **state) {
  (void)state;
  struct journal j = {0};
  struct journal_entry *busy = add(&j, (int32_t[]){1}, 1, 99), *waiting = add(&j, (int32_t[]){1}, 1, 99);
  for (uint32_t i = 1; i <= 3; i++) {
    busy->state = JOURNAL_SENT;
    journal_requeue(&j);
    assert_int_equal(busy->n_lost, i);
    assert_int_equal(waiting->n_lost, 0); /* was at no engine */
  }
  busy->state = JOURNAL_SENT;
  journal_emit(busy, 5, false);
  journal_requeue(&j);
  assert_int_equal(busy->n_lost, 1);
  busy->state = JOURNAL_SENT;
  journal_cancel(&j, busy);
  journal_requeue(&j); /* its client is gone, and the engine that had to be told too */
  assert_ptr_equal(j.first, waiting);
  journal_remove(&j, waiting);
}

static void test_suspects_go_alone(void **state) {
  (void)state;
  struct journal j = {0};
  struct journal_entry *a = add(&j, (int32_t[]){1}, 1, 99), *b = add(&j, (int32_t[]){1}, 1, 99);
  for (int i = 0; i < 2; i++) {
    a->state = JOURNAL_SENT;
    assert_false(journal_is_guarded(&j)); /* b may go too */
    b->state = JOURNAL_SENT;
    journal_requeue(&j);
  }
  assert_false(journal_is_guarded(&j)); /* none is at the engine */
  a->state = JOURNAL_SENT;
  assert_true(journal_is_guarded(&j));
  assert_true(journal_emit(a, 5, false));
  assert_false(journal_is_guarded(&j)); /* b's turn */
  b->state = JOURNAL_SENT;
  struct journal_entry *c = add(&j, (int32_t[]){1}, 1, 99);
  assert_true(journal_is_guarded(&j)); /* c would be a second one to blame */
  journal_requeue(&j);
  assert_int_equal(a->n_lost, 1);
  assert_int_equal(b->n_lost, JOURNAL_MAX_LOST);
  assert_int_equal(c->n_lost, 0);
  journal_remove(&j, b);
  c->state = JOURNAL_SENT;
  assert_false(journal_is_guarded(&j)); /* nobody is a suspect any more */
  journal_remove(&j, a);
  journal_remove(&j, c);
}

static void test_lost_finishes(void **state) {
  (void)state;
  struct journal j = {0};
  enum finish_reason reason;
  struct journal_entry *entry = add(&j, (int32_t[]){1, 2}, 2, 3);
  assert_false(journal_is_complete(entry, 100, &reason));
  journal_emit(entry, 5, false);
  journal_emit(entry, 6, false);
  assert_false(journal_is_complete(entry, 100, &reason));
  assert_true(journal_is_complete(entry, 4, &reason)); /* the context is full */
  assert_int_equal(reason, FINISH_LENGTH);
  journal_emit(entry, 7, false);
  assert_true(journal_is_complete(entry, 100, &reason));
  assert_int_equal(reason, FINISH_LENGTH);
  journal_remove(&j, entry);
  entry = add(&j, (int32_t[]){1}, 1, 3);
  journal_emit(entry, 0, true);
  assert_true(journal_is_complete(entry, 100, &reason));
  assert_int_equal(reason, FINISH_STOP);
  journal_remove(&j, entry);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_order_and_removal),
      cmocka_unit_test(test_emitted_tokens_become_the_prompt),
      cmocka_unit_test(test_losses_are_counted_without_progress),
      cmocka_unit_test(test_suspects_go_alone),
      cmocka_unit_test(test_lost_finishes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
