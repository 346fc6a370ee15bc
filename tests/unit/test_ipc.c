/* test_ipc.c: the packets and the ring between front and engine, with an honest and a dishonest peer. */
#include "ipc.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static void test_packets_arrive_whole(void **state) {
  (void)state;
  int pair[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
  static union ipc_packet sent, got;
  assert_int_equal(ipc_receive(pair[1], &got), IPC_AGAIN);
  ipc_packet_init(&sent, IPC_PROMPT);
  sent.prompt.n_tok = IPC_PACKET_TOKENS;
  sent.header.bytes += IPC_PACKET_TOKENS * sizeof(int32_t);
  for (int i = 0; i < IPC_PACKET_TOKENS; i++) sent.prompt.token[i] = i;
  assert_true(sent.header.bytes <= IPC_PACKET_BYTES);
  assert_int_equal(ipc_send(pair[0], &sent), IPC_DONE);
  ipc_packet_init(&sent, IPC_CANCEL);
  sent.cancel.id = 77;
  assert_int_equal(ipc_send(pair[0], &sent), IPC_DONE);
  assert_int_equal(ipc_receive(pair[1], &got), IPC_DONE);
  assert_int_equal(got.prompt.token[IPC_PACKET_TOKENS - 1], IPC_PACKET_TOKENS - 1);
  assert_int_equal(ipc_receive(pair[1], &got), IPC_DONE);
  assert_int_equal(got.cancel.id, 77);
  close(pair[0]);
  assert_int_equal(ipc_receive(pair[1], &got), IPC_CLOSED);
  assert_int_equal(ipc_send(pair[1], &sent), IPC_CLOSED);
  close(pair[1]);
}

static void test_broken_packets_close(void **state) {
  (void)state;
  static const struct {
    uint32_t kind, claimed, n_tok;
    size_t bytes;
  } cases[] = {
      {0, 8, 0, 8},           {99, 8, 0, 8},           {IPC_CANCEL, 16, 0, 12}, {IPC_CANCEL, 12, 0, 12},
      {IPC_CANCEL, 8, 0, 16}, {IPC_PROMPT, 16, 1, 16}, {IPC_PROMPT, 20, 2, 20}, {IPC_PROMPT, 16, 0x40000000, 16},
      {IPC_READY, 8, 0, 8},   {IPC_WAKE, 4, 0, 4},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int pair[2];
    static union ipc_packet sent, got;
    memset(&sent, 0, sizeof sent);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    sent.header = (struct ipc_header){cases[i].kind, cases[i].claimed};
    sent.prompt.n_tok = cases[i].n_tok;
    assert_int_equal(send(pair[0], &sent, cases[i].bytes, 0), (ssize_t)cases[i].bytes);
    assert_int_equal(ipc_receive(pair[1], &got), IPC_CLOSED);
    close(pair[0]);
    close(pair[1]);
  }
}

static void test_texts_are_terminated(void **state) {
  (void)state;
  int pair[2];
  static union ipc_packet sent, got;
  assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
  ipc_packet_init(&sent, IPC_FAILED);
  memset(sent.failed.message, 'x', sizeof sent.failed.message);
  assert_int_equal(ipc_send(pair[0], &sent), IPC_DONE);
  assert_int_equal(ipc_receive(pair[1], &got), IPC_DONE);
  assert_int_equal(strlen(got.failed.message), sizeof got.failed.message - 1);
  close(pair[0]);
  close(pair[1]);
}

enum { N_EVENT = 50000 };

/* The engine's side: writes as fast as the ring takes it, and wakes through a pipe. */
struct writer {
  struct ipc_ring ring;
  int wake;
};

static void *write_events(void *user) {
  struct writer *w = user;
  for (uint64_t i = 0; i < N_EVENT; i++) {
    struct ipc_event event = {.id = i, .kind = IPC_EVENT_TOKEN, .token = (int32_t)(i * 3), .n_top = i % 21};
    bool wake = false;
    while (!ipc_ring_write(&w->ring, &event, &wake)) usleep(100);
    if (wake && write(w->wake, "w", 1) != 1) return NULL;
    if (i % 5000 == 0) usleep(2000); /* lets the reader run dry and sleep */
  }
  return NULL;
}

static void test_ring_loses_nothing(void **state) {
  (void)state;
  struct ipc_ring reader;
  struct writer w;
  struct moe_error err = {0};
  int fd = -1, pipe_fd[2];
  assert_int_equal(ipc_ring_create(&reader, &fd, &err), MOE_OK);
  assert_int_equal(ipc_ring_open(&w.ring, fd, &err), MOE_OK);
  close(fd);
  assert_int_equal(pipe(pipe_fd), 0);
  w.wake = pipe_fd[1];
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, write_events, &w), 0);
  uint64_t next = 0;
  bool broken = false;
  while (next < N_EVENT) {
    struct ipc_event event;
    if (ipc_ring_read(&reader, &event, &broken)) {
      assert_int_equal(event.id, next);
      assert_int_equal(event.token, (int32_t)(next * 3));
      next++;
    } else { /* the promise: after an empty read, the next write wakes */
      char byte;
      assert_false(broken);
      assert_int_equal(read(pipe_fd[0], &byte, 1), 1);
    }
  }
  pthread_join(thread, NULL);
  ipc_ring_close(&reader);
  ipc_ring_close(&w.ring);
  close(pipe_fd[0]);
  close(pipe_fd[1]);
}

static void test_ring_is_bounded(void **state) {
  (void)state;
  struct ipc_ring ring;
  struct moe_error err = {0};
  struct ipc_event event = {.kind = IPC_EVENT_FINISH, .reason = FINISH_STOP};
  int fd = -1;
  bool wake = false, broken = false;
  assert_int_equal(ipc_ring_create(&ring, &fd, &err), MOE_OK);
  uint32_t n = 0;
  while (ipc_ring_write(&ring, &event, &wake)) n++;
  assert_int_equal(n, ring.capacity);
  assert_true(ipc_ring_read(&ring, &event, &broken));
  assert_true(ipc_ring_write(&ring, &event, &wake));
  ipc_ring_beat(&ring);
  assert_int_equal(ipc_ring_beats(&ring), 1);
  assert_int_not_equal(ftruncate(fd, 0), 0); /* nobody takes the memory away */
  ipc_ring_close(&ring);
  close(fd);
}

/* A writer gone mad: every 64-bit word of the ring's head becomes nonsense in turn; every event too. */
static void test_broken_ring_is_noticed(void **state) {
  (void)state;
  struct ipc_ring ring;
  struct moe_error err = {0};
  struct ipc_event good = {.kind = IPC_EVENT_TOKEN}, got;
  int fd = -1;
  bool wake = false, broken = false;
  static const struct ipc_event bad[] = {
      {.kind = 0},
      {.kind = 3},
      {.kind = IPC_EVENT_TOKEN, .n_top = SCHEDULER_MAX_LOGPROB + 1},
      {.kind = IPC_EVENT_FINISH, .reason = FINISH_ERROR + 1},
  };
  assert_int_equal(ipc_ring_create(&ring, &fd, &err), MOE_OK);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_true(ipc_ring_write(&ring, &bad[i], &wake));
    assert_false(ipc_ring_read(&ring, &got, &broken));
    assert_true(broken);
  }
  struct ipc_event message = {.kind = IPC_EVENT_FINISH, .reason = FINISH_ERROR};
  memset(message.message, 'x', sizeof message.message);
  assert_true(ipc_ring_write(&ring, &message, &wake));
  assert_true(ipc_ring_read(&ring, &got, &broken));
  assert_int_equal(strlen(got.message), IPC_MESSAGE_BYTES - 1);
  assert_true(ipc_ring_write(&ring, &good, &wake));
  uint64_t *head = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  *head = UINT64_MAX / 3;
  assert_false(ipc_ring_read(&ring, &got, &broken));
  assert_true(broken);
  munmap(head, 4096);
  ipc_ring_close(&ring);
  close(fd);
}

static void test_wrong_ring_is_refused(void **state) {
  (void)state;
  struct ipc_ring ring;
  struct moe_error err = {0};
  int fd = memfd_create("small", 0);
  assert_int_equal(ftruncate(fd, 4096), 0);
  assert_int_equal(ipc_ring_open(&ring, fd, &err), MOE_FAILED);
  close(fd);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_packets_arrive_whole),  cmocka_unit_test(test_broken_packets_close),
      cmocka_unit_test(test_texts_are_terminated),  cmocka_unit_test(test_ring_loses_nothing),
      cmocka_unit_test(test_ring_is_bounded),       cmocka_unit_test(test_broken_ring_is_noticed),
      cmocka_unit_test(test_wrong_ring_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
