#include "ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* The shared memory. head and tail count events and never wrap in practice (64 bits); an event's slot is its number
 * modulo the capacity. Writer and reader fields lie on lines of their own. */
struct ipc_ring_memory {
  _Alignas(64) _Atomic uint64_t head;  /* events written */
  _Alignas(64) _Atomic uint64_t tail;  /* events read */
  _Alignas(64) _Atomic uint32_t sleep; /* the reader found the ring empty and waits for IPC_WAKE */
  _Alignas(64) _Atomic uint64_t beats;
  _Alignas(64) struct ipc_event event[];
};

uint32_t ipc_kind_bytes(uint32_t kind) {
  switch (kind) {
  case IPC_SUBMIT:
    return sizeof(struct ipc_submit);
  case IPC_PROMPT:
    return offsetof(struct ipc_prompt, token);
  case IPC_CANCEL:
    return sizeof(struct ipc_cancel);
  case IPC_SHUTDOWN:
    return sizeof(struct ipc_header);
  case IPC_PROGRESS:
    return sizeof(struct ipc_progress);
  case IPC_READY:
    return sizeof(struct ipc_ready);
  case IPC_FAILED:
    return sizeof(struct ipc_failed);
  case IPC_WAKE:
    return sizeof(struct ipc_header);
  default:
    return 0;
  }
}

void ipc_packet_init(union ipc_packet *packet, enum ipc_kind kind) {
  uint32_t bytes = ipc_kind_bytes(kind);
  memset(packet, 0, bytes);
  packet->header = (struct ipc_header){.kind = kind, .bytes = bytes};
}

void ipc_set_text(char *field, size_t size, const char *text) {
  size_t length = strnlen(text ? text : "", size - 1);
  if (length) memcpy(field, text, length);
  memset(field + length, 0, size - length);
}

enum ipc_status ipc_send(int fd, const union ipc_packet *packet) {
  for (;;) {
    ssize_t sent = send(fd, packet, packet->header.bytes, MSG_NOSIGNAL);
    if (sent >= 0) return IPC_DONE;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return IPC_AGAIN;
    if (errno != EINTR) return IPC_CLOSED;
  }
}

/* Whether `bytes` bytes that arrived are a whole packet of a known kind. */
static bool ipc_packet_valid(const union ipc_packet *packet, size_t bytes) {
  if (bytes < sizeof packet->header || packet->header.bytes != bytes) return false;
  uint32_t fixed = ipc_kind_bytes(packet->header.kind);
  if (!fixed || bytes < fixed) return false;
  if (packet->header.kind != IPC_PROMPT) return bytes == fixed;
  return packet->prompt.n_tok <= IPC_PACKET_TOKENS && bytes - fixed == packet->prompt.n_tok * sizeof(int32_t);
}

enum ipc_status ipc_receive(int fd, union ipc_packet *packet) {
  for (;;) {
    ssize_t got = recv(fd, packet, sizeof *packet, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? IPC_AGAIN : IPC_CLOSED;
    if (got == 0 || !ipc_packet_valid(packet, (size_t)got)) return IPC_CLOSED;
    if (packet->header.kind == IPC_PROGRESS) packet->progress.phase[sizeof packet->progress.phase - 1] = 0;
    if (packet->header.kind == IPC_FAILED) packet->failed.message[sizeof packet->failed.message - 1] = 0;
    if (packet->header.kind == IPC_READY) {
      packet->ready.device[sizeof packet->ready.device - 1] = 0;
      packet->ready.tier[sizeof packet->ready.tier - 1] = 0;
    }
    return IPC_DONE;
  }
}

static enum moe_code ipc_ring_map(struct ipc_ring *ring, int fd, struct moe_error *err) {
  void *memory = mmap(NULL, IPC_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED)
    return moe_fail(err, MOE_FAILED, "result ring: cannot map %d bytes: %s", IPC_RING_BYTES, strerror(errno));
  ring->memory = memory;
  ring->capacity = (IPC_RING_BYTES - sizeof(struct ipc_ring_memory)) / sizeof(struct ipc_event);
  return MOE_OK;
}

enum moe_code ipc_ring_create(struct ipc_ring *ring, int *fd, struct moe_error *err) {
  *ring = (struct ipc_ring){0};
  *fd = memfd_create("moert-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (*fd < 0) return moe_fail(err, MOE_FAILED, "result ring: cannot create shared memory: %s", strerror(errno));
  enum moe_code code = MOE_OK;
  /* Sealed: a writer gone mad cannot take the memory away under the reader. */
  if (ftruncate(*fd, IPC_RING_BYTES) || fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
    code = moe_fail(err, MOE_FAILED, "result ring: cannot reserve %d bytes: %s", IPC_RING_BYTES, strerror(errno));
  else
    code = ipc_ring_map(ring, *fd, err);
  if (code) {
    close(*fd);
    *fd = -1;
  }
  return code;
}

enum moe_code ipc_ring_open(struct ipc_ring *ring, int fd, struct moe_error *err) {
  *ring = (struct ipc_ring){0};
  struct stat info;
  if (fstat(fd, &info) || info.st_size != IPC_RING_BYTES)
    return moe_fail(err, MOE_FAILED, "result ring: descriptor %d is not a ring of %d bytes", fd, IPC_RING_BYTES);
  return ipc_ring_map(ring, fd, err);
}

void ipc_ring_close(struct ipc_ring *ring) {
  if (ring->memory) munmap(ring->memory, IPC_RING_BYTES);
  *ring = (struct ipc_ring){0};
}

bool ipc_ring_write(struct ipc_ring *ring, const struct ipc_event *event, bool *wake) {
  struct ipc_ring_memory *m = ring->memory;
  uint64_t head = atomic_load_explicit(&m->head, memory_order_relaxed);
  uint64_t tail = atomic_load_explicit(&m->tail, memory_order_acquire);
  *wake = false;
  if (head - tail >= ring->capacity) return false;
  m->event[head % ring->capacity] = *event;
  /* Sequentially consistent with the reader's (set sleep, look at head again): one of the two sees the other. */
  atomic_store(&m->head, head + 1);
  *wake = atomic_exchange(&m->sleep, 0) != 0;
  return true;
}

void ipc_ring_beat(struct ipc_ring *ring) {
  atomic_fetch_add_explicit(&ring->memory->beats, 1, memory_order_relaxed);
}

uint64_t ipc_ring_beats(const struct ipc_ring *ring) {
  return atomic_load_explicit(&ring->memory->beats, memory_order_relaxed);
}

static bool ipc_event_valid(struct ipc_event *event) {
  if (event->kind == IPC_EVENT_TOKEN) return event->n_top <= SCHEDULER_MAX_LOGPROB;
  event->message[IPC_MESSAGE_BYTES - 1] = 0;
  return event->kind == IPC_EVENT_FINISH && event->reason <= FINISH_ERROR;
}

bool ipc_ring_read(struct ipc_ring *ring, struct ipc_event *event, bool *broken) {
  struct ipc_ring_memory *m = ring->memory;
  uint64_t tail = atomic_load_explicit(&m->tail, memory_order_relaxed);
  uint64_t head = atomic_load(&m->head);
  *broken = false;
  if (head == tail) {
    atomic_store(&m->sleep, 1);
    head = atomic_load(&m->head);
    if (head == tail) return false;
    atomic_store(&m->sleep, 0);
  }
  if (head - tail > ring->capacity) {
    *broken = true;
    return false;
  }
  *event = m->event[tail % ring->capacity];
  atomic_store_explicit(&m->tail, tail + 1, memory_order_release);
  *broken = !ipc_event_valid(event);
  return !*broken;
}
