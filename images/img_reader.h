/* img_reader.h: opens an image: maps it and gives its sections.
 *
 * Owns: the file descriptor and the read-only mapping. Does not own: the meaning of a section (img_check), the
 * sections' hashes (img_reader_verify compares them; opening compares the root hash over the header only). Invariants:
 * after img_open every section lies inside the file, at an aligned offset, in ascending order, without overlap; a known
 * kind occurs once; unknown kinds are kept and ignored (a newer minor version may add some). */
#ifndef IMAGES_IMG_READER_H
#define IMAGES_IMG_READER_H

#include "img_format.h"
#include "moe_error.h"

struct img {
  char *path;
  int fd;
  const uint8_t *map; /* file_bytes bytes, read only */
  uint64_t file_bytes;
  struct img_prefix prefix;
  struct img_section section[IMG_MAX_SECTION];
};

/* Maps `path` and checks prefix, root hash and section table.
 * img: filled on success; release it with img_close. Errors: MOE_FAILED (not an image, truncated, changed, broken
 * table, I/O), MOE_DECLINED (a major version this build does not read). Afterwards any thread may read. */
enum moe_code img_open(const char *path, struct img *img, struct moe_error *err);
void img_close(struct img *img);

/* The section of a kind: its first byte, and *bytes; NULL and 0 when the image has none. Borrowed from img. */
const uint8_t *img_section_data(const struct img *img, enum img_section_kind kind, uint64_t *bytes);

/* The section's name for messages ("PLANES"), "unknown" for kinds of newer versions. */
const char *img_section_name(uint32_t kind);

/* Compares every section's hash, and that all bytes between sections are zero, reading the file with n_thread threads.
 * progress: NULL or a counter of bytes done. Errors: MOE_FAILED naming the section, or the offset of the gap, that
 * differs. */
enum moe_code img_reader_verify(const struct img *img, unsigned n_thread, _Atomic uint64_t *progress,
                                struct moe_error *err);

#endif
