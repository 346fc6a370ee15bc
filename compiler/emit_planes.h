/* emit_planes.h: the sections PLANES and PLANE_INDEX: a plan's planes, packed by all threads and streamed out.
 *
 * Owns: the split into groups and chunks. Does not own: a plane's layout (pack.h), where planes lie (plan.h).
 * Invariants: memory is one group: EMIT_GROUP_BYTES, or one matrix where that is more; the GGUF's pages are given back
 * chunk by chunk. */
#ifndef COMPILER_EMIT_PLANES_H
#define COMPILER_EMIT_PLANES_H

#include "emit_bytes.h"
#include "img_writer.h"
#include "parallel.h"
#include "plan.h"
#include "progress.h"

/* Writes the bytes of all planes to the open section PLANES; counts written bytes in progress. */
enum moe_code emit_planes(const struct plan *plan, struct img_writer *writer, struct parallel *pool,
                          struct progress *progress, struct moe_error *err);

/* Makes the section PLANE_INDEX. section: empty; owned by the caller also when this fails. */
enum moe_code emit_plane_index(struct emit_bytes *section, const struct plan *plan, struct moe_error *err);

#endif
