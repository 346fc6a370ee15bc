/* ipc.h: the protocol between the front process and the engine process.
 *
 * Owns: the packets on the control socket, the ring of results in shared memory, their sizes, and the checks on what
 * arrives. Does not own: processes (front_engine.c, engine_process.c) or what the events mean to a client.
 * Invariants: both ends are the same binary, so structures go over as they are; but either end may be a crashed, half
 * written peer, so every size, kind and offset that comes from it is checked before use, and a broken one ends the
 * connection, never this process. Packets go over a SOCK_SEQPACKET pair, one structure a packet, in order. The ring has
 * one writer (engine) and one reader (front); order in it is order of emission.
 * Thread rules: one thread on each end. */
#ifndef RUNTIME_IPC_H
#define RUNTIME_IPC_H

#include "moe_error.h"
#include "scheduler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { IPC_VERSION = 1, IPC_PACKET_BYTES = 32768, IPC_PACKET_TOKENS = 8000 };

/* File descriptors of the engine process: the front puts them there before exec. */
enum { IPC_FD_SOCKET = 3, IPC_FD_RING = 4 };

enum ipc_kind {
  /* front to engine */
  IPC_SUBMIT = 1,   /* struct ipc_submit; the request is complete with its last IPC_PROMPT */
  IPC_PROMPT = 2,   /* struct ipc_prompt: the next tokens of the request last announced */
  IPC_CANCEL = 3,   /* struct ipc_cancel */
  IPC_SHUTDOWN = 4, /* struct ipc_header: end with exit code 0 */
  /* engine to front */
  IPC_PROGRESS = 16, /* struct ipc_progress: loading */
  IPC_READY = 17,    /* struct ipc_ready: requests are welcome */
  IPC_FAILED = 18,   /* struct ipc_failed: why this engine ends now */
  IPC_WAKE = 19,     /* struct ipc_header: the ring is no longer empty */
};

struct ipc_header {
  uint32_t kind;  /* enum ipc_kind */
  uint32_t bytes; /* of the packet, header counted */
};

struct ipc_submit {
  struct ipc_header header;
  uint64_t id;
  uint32_t n_prompt, n_predict, n_logprob, ignore_eos;
  struct sampling_params sampling;
};

struct ipc_prompt {
  struct ipc_header header;
  uint32_t n_tok, reserved;
  int32_t token[IPC_PACKET_TOKENS]; /* n_tok of them are sent */
};

struct ipc_cancel {
  struct ipc_header header;
  uint64_t id;
};

struct ipc_progress {
  struct ipc_header header;
  char phase[32];
  uint64_t done, total;
};

struct ipc_ready {
  struct ipc_header header;
  uint32_t version, reserved;
  struct scheduler_limits limits;
  char device[256], tier[16];
};

struct ipc_failed {
  struct ipc_header header;
  uint32_t code, reserved; /* enum moe_code */
  char message[1024];
};

union ipc_packet {
  struct ipc_header header;
  struct ipc_submit submit;
  struct ipc_prompt prompt;
  struct ipc_cancel cancel;
  struct ipc_progress progress;
  struct ipc_ready ready;
  struct ipc_failed failed;
};

/* Bytes of a packet of this kind without variable part; 0 for an unknown kind. */
uint32_t ipc_kind_bytes(uint32_t kind);

/* Fills the header of a packet of fixed size and zeroes the rest. */
void ipc_packet_init(union ipc_packet *packet, enum ipc_kind kind);

/* Copies text into a fixed field, cut at its size, always terminated. */
void ipc_set_text(char *field, size_t size, const char *text);

/* Results of ipc_send and ipc_receive. */
enum ipc_status { IPC_DONE, IPC_AGAIN, IPC_CLOSED };

/* Sends one packet. IPC_AGAIN: the socket is full (only when it does not block); IPC_CLOSED: the peer is gone. */
enum ipc_status ipc_send(int fd, const union ipc_packet *packet);

/* Receives and checks one packet without blocking. IPC_CLOSED also when the peer sent nonsense; text fields arrive
 * terminated. */
enum ipc_status ipc_receive(int fd, union ipc_packet *packet);

/* ---- the ring ---- */

enum ipc_event_kind { IPC_EVENT_TOKEN = 1, IPC_EVENT_FINISH = 2 };
enum { IPC_MESSAGE_BYTES = 256, IPC_RING_BYTES = 1 << 20 };

/* One record of the ring, of fixed size, so that a reader can never lose its place. */
struct ipc_event {
  uint64_t id;
  uint32_t kind;   /* enum ipc_event_kind */
  int32_t token;   /* TOKEN */
  uint32_t is_end; /* TOKEN */
  uint32_t n_top;  /* TOKEN: at most SCHEDULER_MAX_LOGPROB */
  float logprob;   /* TOKEN */
  uint32_t reason; /* FINISH: enum finish_reason */
  union {
    struct token_logprob top[SCHEDULER_MAX_LOGPROB];
    char message[IPC_MESSAGE_BYTES]; /* FINISH with FINISH_ERROR */
  };
};

/* A mapped ring; one of these on each side, over the same memory. */
struct ipc_ring {
  struct ipc_ring_memory *memory;
  uint32_t capacity; /* events */
};

/* Creates the shared memory and maps it. *fd is owned by the caller. Errors: MOE_FAILED with the system's reason. */
enum moe_code ipc_ring_create(struct ipc_ring *ring, int *fd, struct moe_error *err);
/* Maps a ring that the other process created. */
enum moe_code ipc_ring_open(struct ipc_ring *ring, int fd, struct moe_error *err);
void ipc_ring_close(struct ipc_ring *ring);

/* Writer: appends one event; false when the ring is full. *wake: the reader may sleep and needs an IPC_WAKE. */
bool ipc_ring_write(struct ipc_ring *ring, const struct ipc_event *event, bool *wake);
/* Writer: tells that it is alive (counts up). */
void ipc_ring_beat(struct ipc_ring *ring);

/* Reader: takes one event; false when the ring is empty, and then the next write wakes. The copy is checked: kind,
 * n_top and reason are in range and message is terminated; *broken is set, and false returned, when the writer left
 * nonsense. */
bool ipc_ring_read(struct ipc_ring *ring, struct ipc_event *event, bool *broken);
/* Reader: the writer's count of beats. */
uint64_t ipc_ring_beats(const struct ipc_ring *ring);

#endif
