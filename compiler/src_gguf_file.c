/* src_gguf_file.c: the files under a GGUF: mapping, giving memory back, the source hash. See src_gguf.h. */
#include "src_gguf_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_BYTES = 24, HASH_CHUNK = 1 << 20 };

enum moe_code gguf_file_map(struct gguf *g, struct moe_error *err) {
  /* Without O_NONBLOCK, opening a named pipe would wait for its writer. */
  g->fd = open(g->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (g->fd < 0) return moe_fail(err, MOE_FAILED, "%.300s: cannot open: %s", g->path, strerror(errno));
  struct stat st;
  if (fstat(g->fd, &st) != 0) return moe_fail(err, MOE_FAILED, "%.300s: cannot stat: %s", g->path, strerror(errno));
  if (!S_ISREG(st.st_mode))
    return moe_fail(err, MOE_FAILED, "%.300s: is %s; a GGUF must be a regular file", g->path,
                    S_ISDIR(st.st_mode) ? "a directory" : "no regular file");
  g->bytes = (uint64_t)st.st_size;
  if (g->bytes < HEADER_BYTES)
    return moe_fail(err, MOE_FAILED, "%.300s: truncated file: the header needs %d bytes, the file has %ju", g->path,
                    HEADER_BYTES, (uintmax_t)g->bytes);
  void *map = mmap(NULL, g->bytes, PROT_READ, MAP_PRIVATE, g->fd, 0);
  if (map == MAP_FAILED) return moe_fail(err, MOE_FAILED, "%.300s: cannot map: %s", g->path, strerror(errno));
  g->map = map;
  return MOE_OK;
}

void gguf_file_unmap(struct gguf *g) {
  if (g->map != NULL) munmap((void *)(uintptr_t)g->map, g->bytes);
  if (g->fd >= 0) close(g->fd);
}

/* The same for one file; nothing when the range is not in it. */
static void release_range(const struct gguf *g, const void *data, uint64_t bytes) {
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  uint64_t first = (uint64_t)((uintptr_t)data - (uintptr_t)g->map);
  if (bytes == 0 || !moe_inside(first, bytes, g->bytes)) return;
  /* Whole pages outwards: what a neighbour has on the border pages is read again when it is needed. Failure costs only
   * memory. */
  uint64_t start = first & ~(page - 1);
  madvise((void *)(uintptr_t)(g->map + start), first + bytes - start, MADV_DONTNEED);
}

void gguf_release_range(const struct gguf *g, const void *data, uint64_t bytes) {
  release_range(g, data, bytes);
  for (uint32_t i = 1; i < g->n_part; i++) release_range(g->part[i], data, bytes);
}

void gguf_release(const struct gguf *g, const struct gguf_tensor *t) {
  gguf_release_range(g, t->data, t->bytes);
}

/* Who is told of the bytes that are hashed. */
struct hash_progress {
  gguf_progress_fn call; /* may be NULL */
  void *context;
  uint64_t done, total; /* over all files */
};

/* Hashes all bytes of one file through `buffer`. */
static enum moe_code hash_file(const struct gguf *g, crypto_generichash_state *hash, uint8_t *buffer,
                               struct hash_progress *progress, struct moe_error *err) {
  uint64_t done = 0;
  while (done < g->bytes) {
    uint64_t left = g->bytes - done;
    ssize_t n = pread(g->fd, buffer, left < HASH_CHUNK ? left : HASH_CHUNK, (off_t)done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return moe_fail(err, MOE_FAILED, "%.300s: cannot read at byte %ju: %s", g->path, (uintmax_t)done,
                      strerror(errno));
    if (n == 0)
      return moe_fail(err, MOE_FAILED, "%.300s: the file shrank from %ju to %ju bytes while it was read", g->path,
                      (uintmax_t)g->bytes, (uintmax_t)done);
    crypto_generichash_update(hash, buffer, (unsigned long long)n);
    done += (uint64_t)n;
    progress->done += (uint64_t)n;
    if (progress->call != NULL && !progress->call(progress->context, progress->done, progress->total))
      return moe_fail(err, MOE_FAILED, "%.300s: hashing was stopped at byte %ju", g->path, (uintmax_t)done);
  }
  return MOE_OK;
}

enum moe_code gguf_hash(const struct gguf *g, uint8_t hash[GGUF_HASH_BYTES], gguf_progress_fn progress, void *context,
                        struct moe_error *err) {
  crypto_generichash_state state;
  uint8_t *buffer = malloc(HASH_CHUNK);
  if (buffer == NULL) return moe_fail(err, MOE_FAILED, "out of memory for %d bytes to hash the source", HASH_CHUNK);
  crypto_generichash_init(&state, NULL, 0, GGUF_HASH_BYTES);
  struct hash_progress all = {progress, context, 0, gguf_file_bytes(g)};
  enum moe_code code = hash_file(g, &state, buffer, &all, err);
  for (uint32_t i = 1; i < g->n_part && code == MOE_OK; i++) code = hash_file(g->part[i], &state, buffer, &all, err);
  if (code == MOE_OK) crypto_generichash_final(&state, hash, GGUF_HASH_BYTES);
  free(buffer);
  return code;
}
