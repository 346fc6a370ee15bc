#define _GNU_SOURCE
#include "img_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "img_hash.h"
#include "img_reader.h"

struct img_writer {
  char *path, *folder;
  char *temporary; /* the hidden name, NULL while the file has none */
  int fd;
  bool open;
  uint32_t n_section;
  struct img_section section[IMG_MAX_SECTION];
  _Atomic uint64_t section_bytes; /* of the open section */
};

static uint64_t aligned(uint64_t offset) {
  return (offset + IMG_ALIGN - 1) / IMG_ALIGN * IMG_ALIGN;
}

/* A hidden name in the output's folder; NULL without memory. */
static char *hidden_name(const struct img_writer *w) {
  char *name;
  const char *slash = strrchr(w->path, '/');
  if (asprintf(&name, "%s/.%s.%ld.partial", w->folder, slash ? slash + 1 : w->path, (long)getpid()) < 0) return NULL;
  return name;
}

/* Names of the process's descriptors: an unnamed file gets its name through them. */
static void self_path(const struct img_writer *w, char path[64]) {
  snprintf(path, 64, "/proc/self/fd/%d", w->fd);
}

static enum moe_code open_file(struct img_writer *w, struct moe_error *err) {
  char self[64];
  w->fd = open(w->folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  self_path(w, self);
  if (w->fd >= 0 && !access(self, F_OK)) return MOE_OK;
  bool no_proc = w->fd >= 0;
  if (no_proc) close(w->fd);
  if (no_proc || errno == EOPNOTSUPP || errno == EISDIR ||
      errno == EINVAL) { /* or a file system without unnamed files */
    w->temporary = hidden_name(w);
    if (!w->temporary) return moe_fail(err, MOE_FAILED, "out of memory");
    unlink(w->temporary); /* what a killed process of this number left; never through somebody's link */
    w->fd = open(w->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  }
  if (w->fd < 0)
    return moe_fail(err, MOE_FAILED, "%s: cannot write in folder %s: %s", w->path, w->folder, strerror(errno));
  return MOE_OK;
}

enum moe_code img_writer_create(const char *path, struct img_writer **writer, struct moe_error *err) {
  struct stat st;
  if (!stat(path, &st) && !S_ISREG(st.st_mode)) /* renaming over a device or a folder must not happen */
    return moe_fail(err, MOE_FAILED, "%s: exists and is not a regular file; name another output", path);
  struct img_writer *w = calloc(1, sizeof *w);
  if (!w) return moe_fail(err, MOE_FAILED, "out of memory");
  w->fd = -1;
  const char *slash = strrchr(path, '/');
  w->path = strdup(path);
  w->folder = !slash ? strdup(".") : slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
  enum moe_code code = w->path && w->folder ? open_file(w, err) : moe_fail(err, MOE_FAILED, "out of memory");
  if (code != MOE_OK) {
    img_writer_destroy(w);
    return code;
  }
  *writer = w;
  return MOE_OK;
}

enum moe_code img_writer_need(const struct img_writer *w, uint64_t bytes, struct moe_error *err) {
  struct statvfs st;
  if (fstatvfs(w->fd, &st)) return MOE_OK; /* the writes will tell */
  uint64_t available;
  if (!moe_mul(st.f_bavail, st.f_frsize, &available) || available >= bytes) return MOE_OK;
  return moe_fail(err, MOE_FAILED,
                  "%s: the image needs %llu bytes, the file system of folder %s has %llu free; make room, or name "
                  "another output",
                  w->path, (unsigned long long)bytes, w->folder, (unsigned long long)available);
}

void img_writer_destroy(struct img_writer *w) {
  if (!w) return;
  if (w->fd >= 0) close(w->fd);
  if (w->temporary) unlink(w->temporary);
  free(w->temporary);
  free(w->folder);
  free(w->path);
  free(w);
}

uint64_t img_writer_bytes(const struct img_writer *w) {
  if (w->open) return w->section[w->n_section].offset + atomic_load(&w->section_bytes);
  if (!w->n_section) return 0;
  const struct img_section *last = &w->section[w->n_section - 1];
  return last->offset + last->bytes;
}

enum moe_code img_writer_begin(struct img_writer *w, enum img_section_kind kind, struct moe_error *err) {
  if (w->open || w->n_section == IMG_MAX_SECTION)
    return moe_fail(err, MOE_USAGE, "section %s: begun while another is open, or too many", img_section_name(kind));
  uint64_t offset =
      w->n_section ? aligned(img_writer_bytes(w)) : aligned(sizeof(struct img_prefix) + sizeof w->section);
  w->section[w->n_section] = (struct img_section){.kind = kind, .offset = offset};
  atomic_store(&w->section_bytes, 0);
  w->open = true;
  return MOE_OK;
}

static enum moe_code write_all(struct img_writer *w, uint64_t at, const void *data, uint64_t bytes,
                               struct moe_error *err) {
  const uint8_t *from = data;
  while (bytes) {
    ssize_t n = pwrite(w->fd, from, bytes > (1u << 30) ? 1u << 30 : bytes, (off_t)at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return moe_fail(err, MOE_FAILED, "%s: cannot write: %s", w->path, n ? strerror(errno) : "nothing was written");
    from += n, at += (uint64_t)n, bytes -= (uint64_t)n;
  }
  return MOE_OK;
}

enum moe_code img_writer_at(struct img_writer *w, uint64_t offset, const void *data, uint64_t bytes,
                            struct moe_error *err) {
  if (!w->open) return moe_fail(err, MOE_USAGE, "no section is open");
  uint64_t end = offset + bytes, seen = atomic_load(&w->section_bytes);
  while (seen < end && !atomic_compare_exchange_weak(&w->section_bytes, &seen, end)) {
  }
  return write_all(w, w->section[w->n_section].offset + offset, data, bytes, err);
}

enum moe_code img_writer_append(struct img_writer *w, const void *data, uint64_t bytes, struct moe_error *err) {
  return img_writer_at(w, atomic_load(&w->section_bytes), data, bytes, err);
}

enum moe_code img_writer_end(struct img_writer *w, struct moe_error *err) {
  if (!w->open) return moe_fail(err, MOE_USAGE, "no section is open");
  w->section[w->n_section].bytes = atomic_load(&w->section_bytes);
  w->open = false;
  w->n_section++;
  return MOE_OK;
}

static enum moe_code write_header(struct img_writer *w, struct moe_error *err) {
  struct {
    struct img_prefix prefix;
    struct img_section section[IMG_MAX_SECTION];
  } header = {.prefix = {.magic = IMG_MAGIC, .major = IMG_MAJOR, .minor = IMG_MINOR}};
  header.prefix.n_section = w->n_section;
  header.prefix.header_bytes = (uint32_t)(sizeof header.prefix + w->n_section * sizeof(struct img_section));
  header.prefix.file_bytes = img_writer_bytes(w);
  memcpy(header.section, w->section, w->n_section * sizeof(struct img_section));
  img_hash_root(&header, header.prefix.header_bytes, header.prefix.root);
  return write_all(w, 0, &header, header.prefix.header_bytes, err);
}

/* Gives the file its name. An unnamed file cannot replace an existing name directly: it gets the hidden name first. */
static enum moe_code publish(struct img_writer *w, struct moe_error *err) {
  if (!w->temporary) {
    char self[64];
    self_path(w, self);
    if (!linkat(AT_FDCWD, self, AT_FDCWD, w->path, AT_SYMLINK_FOLLOW)) return MOE_OK;
    if (errno != EEXIST)
      return moe_fail(err, MOE_FAILED, "%s: cannot name the finished file: %s", w->path, strerror(errno));
    w->temporary = hidden_name(w);
    if (!w->temporary) return moe_fail(err, MOE_FAILED, "out of memory");
    unlink(w->temporary);
    if (linkat(AT_FDCWD, self, AT_FDCWD, w->temporary, AT_SYMLINK_FOLLOW))
      return moe_fail(err, MOE_FAILED, "%s: cannot name the finished file: %s", w->temporary, strerror(errno));
  }
  if (rename(w->temporary, w->path))
    return moe_fail(err, MOE_FAILED, "%s: cannot replace: %s", w->path, strerror(errno));
  free(w->temporary);
  w->temporary = NULL;
  return MOE_OK;
}

enum moe_code img_writer_finish(struct img_writer *w, unsigned n_thread, _Atomic uint64_t *progress,
                                struct moe_error *err) {
  if (w->open)
    return moe_fail(err, MOE_USAGE, "section %s is still open", img_section_name(w->section[w->n_section].kind));
  /* A section that ends in bytes never written, or is empty, must still be there to be read. */
  if (ftruncate(w->fd, (off_t)img_writer_bytes(w)))
    return moe_fail(err, MOE_FAILED, "%s: cannot set its size: %s", w->path, strerror(errno));
  for (uint32_t i = 0; i < w->n_section; i++) {
    struct img_section *s = &w->section[i];
    enum moe_code code = img_hash_file(w->fd, s->offset, s->bytes, n_thread, progress, s->hash, err);
    if (code != MOE_OK) return code;
  }
  enum moe_code code = write_header(w, err);
  if (code != MOE_OK) return code;
  if (fsync(w->fd)) return moe_fail(err, MOE_FAILED, "%s: cannot sync: %s", w->path, strerror(errno));
  code = publish(w, err);
  if (code != MOE_OK) return code;
  int folder = open(w->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    fsync(folder); /* best effort: the data is safe, only the name could be lost to a power cut */
    close(folder);
  }
  return MOE_OK;
}
