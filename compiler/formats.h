/* formats.h: the table of weight formats (GGUF tensor types), generated from formats.def.
 *
 * Owns: struct format, lookup by number and by name, row sizes, and the message for a format that moec does not
 * compile. Does not own: the arithmetic of a format (dequant.h), its plane (pack.h, PLANES.md), its GLSL (shadergen).
 * Invariants: the table is constant and sorted by GGUF number; a row's pointers are valid for the life of the program.
 */
#ifndef COMPILER_FORMATS_H
#define COMPILER_FORMATS_H

#include "moe_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* GGUF numbers of every row: FORMAT_F32, FORMAT_Q4_K, ... */
enum format_number {
#define FORMAT_COMPILED(number, name, symbol, elements, bytes, ...) FORMAT_##name = number,
#define FORMAT_NAMED(number, name, elements, bytes) FORMAT_##name = number,
#include "formats.def"
};

#define FORMAT_MAX_SUB 4

/* One sub-plane of a format's plane: its name in PLANES.md and the bytes that one block has in it. */
struct format_sub {
  const char *name;
  uint32_t block_bytes;
};

/* A row of the table.
 * A block holds `elements` consecutive weights of a row (along dim[0], the input dimension) in `bytes` bytes. n_sub is
 * 0 where moec does not compile the format; then the three functions are NULL. The functions work on n_block
 * consecutive blocks; `sub[i]` points at the first block's bytes in sub-plane i. They touch exactly n_block * bytes,
 * n_block * elements floats and n_block * sub[i].block_bytes, need no alignment, and are pure: any threads, disjoint
 * outputs. */
struct format {
  uint32_t number;    /* GGUF type number */
  const char *name;   /* "Q4_K" */
  const char *symbol; /* "q4_k" in symbols, file names and kernel names; NULL where not compiled */
  uint32_t elements, bytes;
  uint32_t n_sub;
  struct format_sub sub[FORMAT_MAX_SUB];
  void (*dequant_row)(const uint8_t *src, float *dst, uint64_t n_block);
  void (*pack_row)(const uint8_t *src, uint8_t *const sub[], uint64_t n_block);
  void (*read_row)(const uint8_t *const sub[], float *dst, uint64_t n_block);
};

/* The row of a GGUF type number, or NULL when the table has none. */
const struct format *format_find(uint32_t number);

/* The row of a name such as "Q4_K" (letter case ignored), or NULL. */
const struct format *format_find_name(const char *name);

/* Rows in order of number: index 0 .. format_count() - 1. */
uint32_t format_count(void);
const struct format *format_at(uint32_t index);

/* Whether moec compiles the format; false for NULL. */
bool format_compiled(const struct format *f);

/* *bytes = n_in / f->elements * f->bytes, the bytes of a row of n_in weights. false when n_in is zero, no multiple of
 * f->elements, or the product overflows; *bytes is then untouched. */
bool format_row_bytes(const struct format *f, uint64_t n_in, uint64_t *bytes);

/* Writes the names of all compiled formats, "F32, F16, Q4_0, ...", into text (cut at capacity, always terminated).
 * Returns text. */
const char *format_list_compiled(char *text, size_t capacity);

/* MOE_OK when moec compiles GGUF type `number`; otherwise MOE_DECLINED with the tensor, the format and the list of what
 * is compiled. tensor_name: for the message only. */
enum moe_code format_require(uint32_t number, const char *tensor_name, struct moe_error *err);

#endif
