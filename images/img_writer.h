/* img_writer.h: writes an image, section by section, and publishes it in one step.
 *
 * Owns: the unnamed (O_TMPFILE) or hidden temporary file. Does not own: the sections' contents.
 * Invariants: nothing appears under the output's name before img_writer_finish has written, hashed and fsynced all of
 * it; a process killed at any time leaves the old file, or none, under that name. Same calls, same bytes. */
#ifndef IMAGES_IMG_WRITER_H
#define IMAGES_IMG_WRITER_H

#include "img_format.h"
#include "moe_error.h"

struct img_writer;

/* Starts an image that will be published as `path`. Errors: MOE_FAILED (no such folder, no permission). */
enum moe_code img_writer_create(const char *path, struct img_writer **writer, struct moe_error *err);

/* Fails when the output's file system has not `bytes` free, with both numbers. */
enum moe_code img_writer_need(const struct img_writer *writer, uint64_t bytes, struct moe_error *err);

/* Drops what is not published; NULL is fine. */
void img_writer_destroy(struct img_writer *writer);

/* Begins the next section at the next aligned offset; each kind once. */
enum moe_code img_writer_begin(struct img_writer *writer, enum img_section_kind kind, struct moe_error *err);

/* Appends to the open section. One thread. */
enum moe_code img_writer_append(struct img_writer *writer, const void *data, uint64_t bytes, struct moe_error *err);

/* Writes at an offset of the open section (which grows to hold it; bytes never written are zero). Several threads may
 * call it at once, each with its own err, on ranges that do not overlap. */
enum moe_code img_writer_at(struct img_writer *writer, uint64_t offset, const void *data, uint64_t bytes,
                            struct moe_error *err);

/* Ends the open section. */
enum moe_code img_writer_end(struct img_writer *writer, struct moe_error *err);

/* Hashes all sections with n_thread threads, writes the header, fsyncs, and gives the file its name (replacing an older
 * one). progress: NULL or a counter of bytes hashed. Afterwards only img_writer_destroy may be called. */
enum moe_code img_writer_finish(struct img_writer *writer, unsigned n_thread, _Atomic uint64_t *progress,
                                struct moe_error *err);

/* Bytes of the file so far. */
uint64_t img_writer_bytes(const struct img_writer *writer);

#endif
