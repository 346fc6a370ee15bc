/* pack.h: weight planes, the form in which kernels read a weight matrix. PLANES.md is the same in prose, with every
 * formula.
 *
 * Owns: struct plane_layout, packing of rows, and the reference reader of a plane. Does not own: formats (formats.h),
 * where planes lie in an image (the emitter), their decode in GLSL (shadergen). Invariants: packing is lossless:
 * pack_read_row of a packed row gives the bits that dequant_row gives of the GGUF row. Every byte of a plane is
 * defined: padding is zero, so equal inputs give equal planes. */
#ifndef COMPILER_PACK_H
#define COMPILER_PACK_H

#include "formats.h"

#include <stdint.h>

#define PACK_ALIGN 256u    /* planes, matrices and sub-planes start at multiples of it */
#define PACK_ROW_ALIGN 16u /* rows of sub-planes start at multiples of it: one 16-byte load */

/* One sub-plane of one matrix, in bytes: block b of row r of matrix m starts at
 * plane + m * mat_stride + offset + r * row_stride + b * block_bytes. */
struct plane_sub {
  uint64_t offset;      /* from the matrix's start; multiple of PACK_ALIGN */
  uint64_t row_stride;  /* n_block * block_bytes rounded up to PACK_ROW_ALIGN */
  uint32_t block_bytes; /* of formats.def */
};

/* A plane of n_mat matrices (1, or n_expert) of n_out rows by n_in columns. All numbers follow from the format and the
 * shape. */
struct plane_layout {
  const struct format *format;
  uint64_t n_in, n_out, n_mat;
  uint64_t n_block;       /* blocks a row: n_in / format->elements */
  uint64_t src_row_bytes; /* bytes of a row in the GGUF */
  uint64_t mat_stride;    /* bytes from matrix to matrix; multiple of PACK_ALIGN */
  uint64_t bytes;         /* the whole plane: n_mat * mat_stride */
  uint32_t n_sub;
  struct plane_sub sub[FORMAT_MAX_SUB];
};

/* Fills *layout. A vector (norm weight, bias) is a matrix of one row.
 * Errors: MOE_DECLINED for a format that is not compiled; MOE_FAILED for a zero dimension, n_in that is no multiple of
 * the format's block, or sizes beyond 64 bits. */
enum moe_code pack_layout(const struct format *f, uint64_t n_in, uint64_t n_out, uint64_t n_mat,
                          struct plane_layout *layout, struct moe_error *err);

/* Packs rows of one matrix.
 * src: the first of these rows in the GGUF (n_row * src_row_bytes bytes). row: its index in the matrix; row + n_row <=
 * n_out. dst: the matrix's start (mat_stride bytes), aligned as the caller likes. Writes these rows in every sub-plane
 * and their padding, and with the last row also the padding behind each sub-plane. Threads: calls on disjoint rows
 * write disjoint bytes. */
void pack_matrix(const struct plane_layout *layout, const void *src, uint64_t row, uint64_t n_row, void *dst);

/* Packs rows of a whole plane, counted through all matrices: row m * n_out + r is row r of matrix m.
 * src: the tensor's first byte (not the first row's). dst: the plane's first byte (layout->bytes). Threads: as
 * pack_matrix. */
void pack_plane(const struct plane_layout *layout, const void *src, uint64_t row, uint64_t n_row, void *dst);

/* Dequantizes row `row` of matrix `mat` from a plane by the formulas of PLANES.md: the reference for kernels. dst: n_in
 * floats. */
void pack_read_row(const struct plane_layout *layout, const void *plane, uint64_t mat, uint64_t row, float *dst);

/* struct format's pack_row and read_row of every compiled format: pack_q4_k_row, pack_q4_k_read_row, ... */
#define FORMAT_COMPILED(number, name, symbol, elements, bytes, ...)                                                    \
  void pack_##symbol##_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block);                                \
  void pack_##symbol##_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block);
#define FORMAT_NAMED(number, name, elements, bytes)
#include "formats.def"

#endif
