#include "img_hash.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void hash_init(crypto_generichash_blake2b_state *state, const char *personal) {
  uint8_t salt[crypto_generichash_blake2b_SALTBYTES] = {0};
  uint8_t person[crypto_generichash_blake2b_PERSONALBYTES] = {0};
  memcpy(person, personal, strlen(personal));
  crypto_generichash_blake2b_init_salt_personal(state, NULL, 0, IMG_HASH_BYTES, salt, person);
}

static void hash_all(const char *personal, const void *data, uint64_t bytes, uint8_t out[IMG_HASH_BYTES]) {
  crypto_generichash_blake2b_state state;
  hash_init(&state, personal);
  crypto_generichash_blake2b_update(&state, data, bytes);
  crypto_generichash_blake2b_final(&state, out, IMG_HASH_BYTES);
}

void img_hash_leaf(const void *data, uint64_t bytes, uint8_t out[IMG_HASH_BYTES]) {
  hash_all("moe-leaf", data, bytes, out);
}

void img_hash_node(const uint8_t *leaves, uint64_t n_leaf, uint8_t out[IMG_HASH_BYTES]) {
  hash_all("moe-section", leaves, n_leaf * IMG_HASH_BYTES, out);
}

void img_hash_root(const void *header, uint32_t header_bytes, uint8_t out[IMG_HASH_BYTES]) {
  static const uint8_t zero[IMG_HASH_BYTES];
  const uint8_t *bytes = header;
  uint32_t at = (uint32_t)offsetof(struct img_prefix, root), after = at + IMG_HASH_BYTES;
  crypto_generichash_blake2b_state state;
  hash_init(&state, "moe-root");
  crypto_generichash_blake2b_update(&state, bytes, at);
  crypto_generichash_blake2b_update(&state, zero, IMG_HASH_BYTES);
  crypto_generichash_blake2b_update(&state, bytes + after, header_bytes - after);
  crypto_generichash_blake2b_final(&state, out, IMG_HASH_BYTES);
}

struct hash_job {
  int fd;
  uint64_t offset, bytes, n_leaf;
  uint8_t *leaves;
  _Atomic uint64_t next;
  _Atomic uint64_t *progress;
  _Atomic int error; /* errno, or -1 for a file that ends early */
};

static int read_leaf(const struct hash_job *job, uint64_t leaf, uint8_t *buffer, uint64_t bytes) {
  uint64_t done = 0;
  while (done < bytes) {
    ssize_t n = pread(job->fd, buffer + done, bytes - done, (off_t)(job->offset + leaf * IMG_LEAF_BYTES + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return -1;
    done += (uint64_t)n;
  }
  return 0;
}

static void *hash_worker(void *arg) {
  struct hash_job *job = arg;
  uint8_t *buffer = malloc(IMG_LEAF_BYTES);
  if (!buffer) {
    atomic_store(&job->error, ENOMEM);
    return NULL;
  }
  for (;;) {
    uint64_t leaf = atomic_fetch_add(&job->next, 1);
    if (leaf >= job->n_leaf || atomic_load(&job->error)) break;
    uint64_t left = job->bytes - leaf * IMG_LEAF_BYTES, bytes = left < IMG_LEAF_BYTES ? left : IMG_LEAF_BYTES;
    int error = read_leaf(job, leaf, buffer, bytes);
    if (error) {
      atomic_store(&job->error, error);
      break;
    }
    img_hash_leaf(buffer, bytes, job->leaves + leaf * IMG_HASH_BYTES);
    if (job->progress) atomic_fetch_add(job->progress, bytes);
  }
  free(buffer);
  return NULL;
}

enum moe_code img_hash_file(int fd, uint64_t offset, uint64_t bytes, unsigned n_thread, _Atomic uint64_t *progress,
                            uint8_t out[IMG_HASH_BYTES], struct moe_error *err) {
  struct hash_job job = {.fd = fd, .offset = offset, .bytes = bytes, .progress = progress};
  job.n_leaf = bytes / IMG_LEAF_BYTES + (bytes % IMG_LEAF_BYTES != 0);
  job.leaves = calloc(job.n_leaf + 1, IMG_HASH_BYTES);
  pthread_t thread[64];
  unsigned started = 0;
  if (!job.leaves)
    return moe_fail(err, MOE_FAILED, "out of memory for %llu leaf hashes", (unsigned long long)job.n_leaf);
  while (started + 1 < n_thread && started < 64 && started + 1 < job.n_leaf) {
    if (pthread_create(&thread[started], NULL, hash_worker, &job)) break;
    started++;
  }
  hash_worker(&job);
  while (started) pthread_join(thread[--started], NULL);
  int error = atomic_load(&job.error);
  if (!error) img_hash_node(job.leaves, job.n_leaf, out);
  free(job.leaves);
  if (error < 0) return moe_fail(err, MOE_FAILED, "the file ended while it was read; another program is changing it");
  if (error) return moe_fail(err, MOE_FAILED, "cannot read the file: %s", strerror(error));
  return MOE_OK;
}

void img_hash_hex(const uint8_t hash[IMG_HASH_BYTES], char out[2 * IMG_HASH_BYTES + 1]) {
  sodium_bin2hex(out, 2 * IMG_HASH_BYTES + 1, hash, IMG_HASH_BYTES);
}
