#include "emit_planes.h"

#include "dequant.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define EMIT_GROUP_BYTES (64ull << 20)  /* packed together: matrices of small experts keep all threads busy */
#define EMIT_CHUNK_BYTES (256ull << 10) /* of the GGUF, packed by one thread at a time */
#define EMIT_WRITE_BYTES (4ull << 20)

/* A group of whole matrices of one plane on its way. */
struct emit_group {
  const struct gguf *gguf;
  const struct plan_plane *plane;
  struct img_writer *writer;
  struct progress *progress;
  uint8_t *buffer; /* n_mat * mat_stride */
  uint64_t first_mat, n_mat, bytes;
  uint64_t chunk_rows, chunks; /* of a matrix */
  pthread_mutex_t mutex;
  struct moe_error err; /* the first one; under mutex */
  enum moe_code code;
};

static void emit_pack_item(void *context, uint64_t item, unsigned thread) {
  (void)thread;
  const struct emit_group *g = context;
  const struct plane_layout *l = &g->plane->layout;
  uint64_t mat = item / g->chunks, row = item % g->chunks * g->chunk_rows;
  uint64_t n = l->n_out - row < g->chunk_rows ? l->n_out - row : g->chunk_rows;
  for (uint64_t end = row + n, run; row < end; row += run) {
    uint64_t at = (g->first_mat + mat) * l->n_out + row;
    const uint8_t *src = gguf_row(g->plane->tensor, at);
    run = gguf_row_run(g->plane->tensor, at);
    if (run > end - row) run = end - row;
    pack_matrix(l, src, row, run, g->buffer + mat * l->mat_stride);
    gguf_release_range(g->gguf, src, run * l->src_row_bytes);
  }
}

static void emit_write_item(void *context, uint64_t item, unsigned thread) {
  (void)thread;
  struct emit_group *g = context;
  uint64_t at = item * EMIT_WRITE_BYTES, n = g->bytes - at < EMIT_WRITE_BYTES ? g->bytes - at : EMIT_WRITE_BYTES;
  struct moe_error err = {0};
  pthread_mutex_lock(&g->mutex);
  bool failed = g->code != MOE_OK; /* a full disk: nothing after the first failed write */
  pthread_mutex_unlock(&g->mutex);
  if (failed) return;
  uint64_t offset = g->plane->offset + g->first_mat * g->plane->layout.mat_stride + at;
  enum moe_code code = img_writer_at(g->writer, offset, g->buffer + at, n, &err);
  progress_add(g->progress, n);
  if (!code) return;
  pthread_mutex_lock(&g->mutex);
  if (!g->code) {
    g->code = code;
    g->err = err;
  }
  pthread_mutex_unlock(&g->mutex);
}

/* A norm weight or bias that the file has in another format than F32. */
static enum moe_code emit_widened(const struct plan_plane *p, struct img_writer *writer, struct moe_error *err) {
  uint64_t n = p->layout.n_in * p->layout.n_out * p->layout.n_mat;
  float *values = malloc(n * sizeof *values);
  uint8_t *plane = malloc(p->layout.bytes);
  enum moe_code code = values && plane ? MOE_OK : moe_fail(err, MOE_FAILED, "out of memory: %s", p->tensor->name);
  if (!code) {
    for (uint64_t row = 0; row < n / p->layout.n_in; row++)
      dequant_row(p->tensor->format, gguf_row(p->tensor, row), values + row * p->layout.n_in, p->layout.n_in);
    pack_plane(&p->layout, values, 0, p->layout.n_out * p->layout.n_mat, plane);
    code = img_writer_at(writer, p->offset, plane, p->layout.bytes, err);
  }
  free(values);
  free(plane);
  return code;
}

static enum moe_code emit_plane(const struct plan *plan, const struct plan_plane *p, struct img_writer *writer,
                                struct parallel *pool, struct progress *progress, struct moe_error *err) {
  const struct plane_layout *l = &p->layout;
  if (p->widened) {
    progress_add(progress, l->bytes);
    return emit_widened(p, writer, err);
  }
  struct emit_group g = {.gguf = plan->graph->gguf, .plane = p, .writer = writer, .progress = progress};
  uint64_t group = EMIT_GROUP_BYTES / l->mat_stride ? EMIT_GROUP_BYTES / l->mat_stride : 1;
  if (group > l->n_mat) group = l->n_mat;
  g.chunk_rows = EMIT_CHUNK_BYTES / l->src_row_bytes ? EMIT_CHUNK_BYTES / l->src_row_bytes : 1;
  g.chunks = (l->n_out + g.chunk_rows - 1) / g.chunk_rows;
  g.buffer = malloc(group * l->mat_stride);
  if (!g.buffer)
    return moe_fail(err, MOE_FAILED, "%s: out of memory: a buffer of %llu bytes", p->tensor->name,
                    (unsigned long long)(group * l->mat_stride));
  pthread_mutex_init(&g.mutex, NULL);
  for (; g.first_mat < l->n_mat && !g.code; g.first_mat += g.n_mat) {
    g.n_mat = l->n_mat - g.first_mat < group ? l->n_mat - g.first_mat : group;
    g.bytes = g.n_mat * l->mat_stride;
    parallel_for(pool, g.n_mat * g.chunks, emit_pack_item, &g);
    parallel_for(pool, (g.bytes + EMIT_WRITE_BYTES - 1) / EMIT_WRITE_BYTES, emit_write_item, &g);
  }
  pthread_mutex_destroy(&g.mutex);
  free(g.buffer);
  return g.code ? moe_fail(err, g.code, "%s", g.err.message) : MOE_OK;
}

enum moe_code emit_planes(const struct plan *plan, struct img_writer *writer, struct parallel *pool,
                          struct progress *progress, struct moe_error *err) {
  enum moe_code code = MOE_OK;
  for (uint32_t i = 0; i < plan->n_plane && !code; i++)
    code = emit_plane(plan, &plan->plane[i], writer, pool, progress, err);
  return code;
}

enum moe_code emit_plane_index(struct emit_bytes *section, const struct plan *plan, struct moe_error *err) {
  struct emit_bytes names = {0};
  struct img_planes head = {.n_plane = plan->n_plane, .n_carried = plan->n_carried, .plane_offset = sizeof head};
  head.name_offset = head.plane_offset + plan->n_plane * sizeof(struct img_plane);
  emit_bytes_append(section, &head, sizeof head);
  for (uint32_t i = 0; i < plan->n_plane; i++) {
    const struct plan_plane *p = &plan->plane[i];
    const struct img_plane plane = {.offset = p->offset,
                                    .bytes = p->layout.bytes,
                                    .name_offset = (uint32_t)emit_bytes_text(&names, p->tensor->name),
                                    .format = p->layout.format->number,
                                    .n_in = p->layout.n_in,
                                    .n_out = p->layout.n_out,
                                    .n_mat = p->layout.n_mat};
    emit_bytes_append(section, &plane, sizeof plane);
  }
  emit_bytes_append(section, names.data, names.n);
  section->failed |= names.failed;
  if (!section->failed) ((struct img_planes *)(void *)section->data)->name_bytes = names.n;
  emit_bytes_deinit(&names);
  return emit_bytes_check(section, "the section PLANE_INDEX", err);
}
