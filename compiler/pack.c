/* pack.c: layouts of planes, the walk over rows, and the formats whose plane is the GGUF row itself (F32, F16, BF16).
 * See pack.h and PLANES.md.
 *
 * Owns: sizes, strides and padding of planes. Does not own: the bytes of a block (pack_block32.c, pack_k.c). */
#include "pack.h"

#include "dequant.h"

#include <string.h>

/* Rounds up to a power of two; false on overflow. */
static bool round_up(uint64_t value, uint64_t to, uint64_t *rounded) {
  uint64_t sum;
  if (!moe_add(value, to - 1, &sum)) return false;
  *rounded = sum & ~(to - 1);
  return true;
}

static bool place_subs(struct plane_layout *l) {
  uint64_t end = 0;
  for (uint32_t i = 0; i < l->n_sub; i++) {
    struct plane_sub *sub = &l->sub[i];
    sub->block_bytes = l->format->sub[i].block_bytes;
    uint64_t row, rows;
    if (!moe_mul(l->n_block, sub->block_bytes, &row) || !round_up(row, PACK_ROW_ALIGN, &sub->row_stride)) return false;
    sub->offset = end;
    if (!moe_mul(sub->row_stride, l->n_out, &rows) || !moe_add(end, rows, &rows) || !round_up(rows, PACK_ALIGN, &end))
      return false;
  }
  l->mat_stride = end;
  return moe_mul(l->mat_stride, l->n_mat, &l->bytes);
}

enum moe_code pack_layout(const struct format *f, uint64_t n_in, uint64_t n_out, uint64_t n_mat,
                          struct plane_layout *layout, struct moe_error *err) {
  if (!format_compiled(f))
    return moe_fail(err, MOE_DECLINED, "format %s has no plane", f == NULL ? "(unknown)" : f->name);
  if (n_in == 0 || n_out == 0 || n_mat == 0)
    return moe_fail(err, MOE_FAILED, "a plane of %ju x %ju x %ju weights: no dimension may be zero", (uintmax_t)n_in,
                    (uintmax_t)n_out, (uintmax_t)n_mat);
  if (n_in % f->elements != 0)
    return moe_fail(err, MOE_FAILED, "%ju columns: format %s needs a multiple of %u", (uintmax_t)n_in, f->name,
                    f->elements);
  struct plane_layout l = {
      .format = f, .n_in = n_in, .n_out = n_out, .n_mat = n_mat, .n_block = n_in / f->elements, .n_sub = f->n_sub};
  if (!format_row_bytes(f, n_in, &l.src_row_bytes) || !place_subs(&l))
    return moe_fail(err, MOE_FAILED, "a plane of %ju x %ju x %ju weights in format %s exceeds 2^64 bytes",
                    (uintmax_t)n_in, (uintmax_t)n_out, (uintmax_t)n_mat, f->name);
  *layout = l;
  return MOE_OK;
}

/* Zeroes what lies between the end of sub-plane i's rows and the next sub-plane or matrix. */
static void pad_sub(const struct plane_layout *l, uint32_t i, uint8_t *mat) {
  uint64_t end = l->sub[i].offset + l->n_out * l->sub[i].row_stride;
  uint64_t next = i + 1 < l->n_sub ? l->sub[i + 1].offset : l->mat_stride;
  memset(mat + end, 0, next - end);
}

void pack_matrix(const struct plane_layout *layout, const void *src, uint64_t row, uint64_t n_row, void *dst) {
  const uint8_t *from = src;
  uint8_t *mat = dst;
  for (uint64_t r = row; r < row + n_row; r++, from += layout->src_row_bytes) {
    uint8_t *sub[FORMAT_MAX_SUB];
    for (uint32_t i = 0; i < layout->n_sub; i++) {
      const struct plane_sub *s = &layout->sub[i];
      sub[i] = mat + s->offset + r * s->row_stride;
      uint64_t used = layout->n_block * s->block_bytes;
      memset(sub[i] + used, 0, s->row_stride - used);
    }
    layout->format->pack_row(from, sub, layout->n_block);
  }
  if (n_row != 0 && row + n_row == layout->n_out)
    for (uint32_t i = 0; i < layout->n_sub; i++) pad_sub(layout, i, mat);
}

void pack_plane(const struct plane_layout *layout, const void *src, uint64_t row, uint64_t n_row, void *dst) {
  while (n_row != 0) {
    uint64_t mat = row / layout->n_out, first = row % layout->n_out, left = layout->n_out - first;
    uint64_t n = n_row < left ? n_row : left;
    pack_matrix(layout, (const uint8_t *)src + row * layout->src_row_bytes, first, n,
                (uint8_t *)dst + mat * layout->mat_stride);
    row += n;
    n_row -= n;
  }
}

void pack_read_row(const struct plane_layout *layout, const void *plane, uint64_t mat, uint64_t row, float *dst) {
  const uint8_t *sub[FORMAT_MAX_SUB];
  for (uint32_t i = 0; i < layout->n_sub; i++)
    sub[i] =
        (const uint8_t *)plane + mat * layout->mat_stride + layout->sub[i].offset + row * layout->sub[i].row_stride;
  layout->format->read_row(sub, dst, layout->n_block);
}

void pack_f32_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  memcpy(sub[0], src, 4 * n_block);
}
void pack_f16_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  memcpy(sub[0], src, 2 * n_block);
}
void pack_bf16_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  memcpy(sub[0], src, 2 * n_block);
}

void pack_f32_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  memcpy(dst, sub[0], 4 * n_block);
}

void pack_f16_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++) dst[i] = dequant_f16(dequant_u16(sub[0] + 2 * i));
}

void pack_bf16_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++) dst[i] = dequant_bf16(dequant_u16(sub[0] + 2 * i));
}
