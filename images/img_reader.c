#include "img_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "img_hash.h"

typedef unsigned long long ull;

const char *img_section_name(uint32_t kind) {
  switch (kind) {
#define IMG_SECTION(KIND)                                                                                              \
  case IMG_SECTION_##KIND:                                                                                             \
    return #KIND;
#include "img_sections.def"
#undef IMG_SECTION
  }
  return "unknown";
}

static enum moe_code check_prefix(const struct img *img, struct moe_error *err) {
  const struct img_prefix *p = &img->prefix;
  if (memcmp(p->magic, IMG_MAGIC, sizeof p->magic))
    return moe_fail(err, MOE_FAILED,
                    "%s: not a device image (it does not start with " IMG_MAGIC
                    "); make one with: moec MODEL.gguf -o MODEL.img",
                    img->path);
  if (p->major != IMG_MAJOR)
    return moe_fail(err, MOE_DECLINED,
                    "%s: image format %u.%u, this build reads %u.x; recompile the model with this release's moec",
                    img->path, p->major, p->minor, IMG_MAJOR);
  if (p->file_bytes != img->file_bytes)
    return moe_fail(err, MOE_FAILED,
                    "%s: the file has %llu bytes, its header says %llu; it was truncated or appended to", img->path,
                    (ull)img->file_bytes, (ull)p->file_bytes);
  uint64_t expected = sizeof *p + (uint64_t)p->n_section * sizeof(struct img_section);
  if (p->n_section > IMG_MAX_SECTION || p->header_bytes != expected || p->header_bytes > img->file_bytes || p->reserved)
    return moe_fail(err, MOE_FAILED, "%s: header: %u sections in %u header bytes (expected %llu, at most %u sections)",
                    img->path, p->n_section, p->header_bytes, (ull)expected, IMG_MAX_SECTION);
  uint8_t root[IMG_HASH_BYTES];
  img_hash_root(img->map, p->header_bytes, root);
  if (memcmp(root, p->root, sizeof root))
    return moe_fail(err, MOE_FAILED, "%s: header: the root hash does not match; the file was changed or damaged",
                    img->path);
  return MOE_OK;
}

static enum moe_code check_sections(const struct img *img, struct moe_error *err) {
  uint64_t end = img->prefix.header_bytes;
  uint64_t seen = 0;
  for (uint32_t i = 0; i < img->prefix.n_section; i++) {
    const struct img_section *s = &img->section[i];
    const char *name = img_section_name(s->kind);
    if (s->offset % IMG_ALIGN || s->offset < end || !moe_inside(s->offset, s->bytes, img->file_bytes))
      return moe_fail(
          err, MOE_FAILED,
          "%s: section[%u] %s: [%llu, +%llu) is not aligned to %u, overlaps, or leaves the file of %llu bytes",
          img->path, i, name, (ull)s->offset, (ull)s->bytes, IMG_ALIGN, (ull)img->file_bytes);
    if (s->flags || s->reserved)
      return moe_fail(err, MOE_FAILED, "%s: section[%u] %s: reserved bytes are not zero", img->path, i, name);
    if (s->kind < 64) {
      if (seen >> s->kind & 1) return moe_fail(err, MOE_FAILED, "%s: section[%u] %s: occurs twice", img->path, i, name);
      seen |= 1ull << s->kind;
    }
    end = s->offset + s->bytes;
  }
  if (end != img->file_bytes)
    return moe_fail(err, MOE_FAILED, "%s: the last section ends at %llu, the file at %llu", img->path, (ull)end,
                    (ull)img->file_bytes);
  return MOE_OK;
}

static enum moe_code map_file(struct img *img, struct moe_error *err) {
  struct stat st;
  img->fd = open(img->path, O_RDONLY | O_CLOEXEC);
  if (img->fd < 0) return moe_fail(err, MOE_FAILED, "%s: cannot open: %s", img->path, strerror(errno));
  if (fstat(img->fd, &st)) return moe_fail(err, MOE_FAILED, "%s: cannot stat: %s", img->path, strerror(errno));
  if (!S_ISREG(st.st_mode)) return moe_fail(err, MOE_FAILED, "%s: not a regular file", img->path);
  img->file_bytes = (uint64_t)st.st_size;
  if (img->file_bytes < sizeof img->prefix)
    return moe_fail(err, MOE_FAILED, "%s: %llu bytes, too short for an image's header of %zu", img->path,
                    (ull)img->file_bytes, sizeof img->prefix);
  void *map = mmap(NULL, img->file_bytes, PROT_READ, MAP_SHARED, img->fd, 0);
  if (map == MAP_FAILED) return moe_fail(err, MOE_FAILED, "%s: cannot map: %s", img->path, strerror(errno));
  img->map = map;
  memcpy(&img->prefix, map, sizeof img->prefix);
  return MOE_OK;
}

enum moe_code img_open(const char *path, struct img *img, struct moe_error *err) {
  *img = (struct img){.fd = -1};
  img->path = strdup(path);
  if (!img->path) return moe_fail(err, MOE_FAILED, "out of memory");
  enum moe_code code = map_file(img, err);
  if (code == MOE_OK) code = check_prefix(img, err);
  if (code == MOE_OK) {
    memcpy(img->section, img->map + sizeof img->prefix, img->prefix.n_section * sizeof(struct img_section));
    code = check_sections(img, err);
  }
  if (code != MOE_OK) img_close(img);
  return code;
}

void img_close(struct img *img) {
  if (img->map) munmap((void *)(uintptr_t)img->map, img->file_bytes);
  if (img->fd >= 0) close(img->fd);
  free(img->path);
  *img = (struct img){.fd = -1};
}

const uint8_t *img_section_data(const struct img *img, enum img_section_kind kind, uint64_t *bytes) {
  for (uint32_t i = 0; i < img->prefix.n_section; i++)
    if (img->section[i].kind == (uint32_t)kind) {
      *bytes = img->section[i].bytes;
      return img->map + img->section[i].offset;
    }
  *bytes = 0;
  return NULL;
}

static enum moe_code verify_gap(const struct img *img, uint64_t begin, uint64_t end, struct moe_error *err) {
  for (uint64_t at = begin; at < end; at++)
    if (img->map[at])
      return moe_fail(err, MOE_FAILED, "%s: padding byte %llu is not zero; the file was changed or damaged", img->path,
                      (ull)at);
  return MOE_OK;
}

enum moe_code img_reader_verify(const struct img *img, unsigned n_thread, _Atomic uint64_t *progress,
                                struct moe_error *err) {
  uint64_t end = img->prefix.header_bytes;
  for (uint32_t i = 0; i < img->prefix.n_section; i++) {
    const struct img_section *s = &img->section[i];
    enum moe_code code = verify_gap(img, end, s->offset, err);
    if (code != MOE_OK) return code;
    uint8_t hash[IMG_HASH_BYTES];
    code = img_hash_file(img->fd, s->offset, s->bytes, n_thread, progress, hash, err);
    if (code != MOE_OK) return code;
    if (memcmp(hash, s->hash, sizeof hash))
      return moe_fail(
          err, MOE_FAILED,
          "%s: section[%u] %s: its hash does not match; the file was changed or damaged, copy or compile it again",
          img->path, i, img_section_name(s->kind));
    end = s->offset + s->bytes;
  }
  return MOE_OK;
}
