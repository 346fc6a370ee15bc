/* src_gguf.h: a memory-mapped reader of GGUF models, versions 2 and 3, little-endian, in one file or split into
 * several. Every byte of the files is untrusted.
 *
 * Owns: struct gguf, its key-value pairs and tensor records, the mappings, the source hash. Does not own: what keys and
 * tensors mean (model_*.c), what formats are (formats.h). Invariants after a successful gguf_open: all names are
 * unique, valid UTF-8 without control characters; every array, string and tensor lies inside its file; tensor data do
 * not overlap and are aligned; a split model has all its parts, its keys are those of the first; every dimension is 1
 * .. 2^31 - 1 and rows are whole blocks of their format. A struct gguf does not change after gguf_open: any threads may
 * read it. The file must not shrink while it is open (the mapping would fault); moec reads files that nobody is
 * writing. Source: the GGUF specification (github.com/ggml-org/ggml, docs/gguf.md). */
#ifndef COMPILER_SRC_GGUF_H
#define COMPILER_SRC_GGUF_H

#include "formats.h"
#include "moe_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GGUF_MAX_DIM 4
#define GGUF_HASH_BYTES 32

struct gguf;

/* Value types of the specification. */
enum gguf_type {
  GGUF_U8 = 0,
  GGUF_I8 = 1,
  GGUF_U16 = 2,
  GGUF_I16 = 3,
  GGUF_U32 = 4,
  GGUF_I32 = 5,
  GGUF_F32 = 6,
  GGUF_BOOL = 7,
  GGUF_STRING = 8,
  GGUF_ARRAY = 9,
  GGUF_U64 = 10,
  GGUF_I64 = 11,
  GGUF_F64 = 12,
};

/* Bytes of a string in the mapping: not NUL-terminated, valid until gguf_close, not checked to be UTF-8. */
struct gguf_string {
  const char *data;
  size_t bytes;
};

/* A value that is an array. data points into the mapping, unaligned. */
struct gguf_array {
  enum gguf_type type; /* of the elements; never GGUF_ARRAY */
  uint64_t count;
  const uint8_t *data;
  uint64_t bytes; /* of all elements, length words of strings included */
};

/* A tensor. dim[0] is the row length (n_in), dim[1] the rows (n_out), dim[2] the matrices (n_expert); unused ones
 * are 1. */
struct gguf_tensor {
  const char *name; /* NUL-terminated, owned by the struct gguf */
  uint32_t n_dim;
  uint64_t dim[GGUF_MAX_DIM];
  uint32_t format_number;       /* as in the file */
  const struct format *format;  /* its row, or NULL for a number that the table lacks */
  uint64_t n_element;           /* product of dim */
  const uint8_t *data;          /* in the mapping; any alignment that is a divisor of general.alignment */
  uint64_t bytes;               /* 0 when format is NULL */
  uint64_t offset;              /* of data in its file */
  uint32_t part;                /* the file, from 0; 0 in a model that is not split */
  const struct gguf_rows *rows; /* of a row view (ir_view); NULL: the tensor lies in the file as it is */
};

/* Which rows of another tensor a row view has: row r of a matrix is the whole's row first + r / run * period + r % run
 * of the same matrix. 0 < run <= period (run only, where there is one run). */
struct gguf_rows {
  const struct gguf_tensor *whole;
  uint64_t first, run, period;
};

/* Opens, maps and checks a model. path: its file, or any part of a split one (STEM-00001-of-00003.gguf), of which all
 * parts are then opened. *g is owned by the caller (gguf_close); NULL on failure.
 * Errors: MOE_FAILED for what cannot be read or breaks the format, a truncated file included (the message names the
 * tensor, the bytes needed and the bytes there are), and for a part that is missing or does not belong to the others;
 * MOE_DECLINED for what is well formed but not read: version 1, big-endian, other ggml containers. */
enum moe_code gguf_open(const char *path, struct gguf **g, struct moe_error *err);
void gguf_close(struct gguf *g);

/* Of the first file. */
const char *gguf_path(const struct gguf *g);
uint32_t gguf_version(const struct gguf *g);
uint32_t gguf_alignment(const struct gguf *g);
/* Of all files together. */
uint64_t gguf_file_bytes(const struct gguf *g);
/* The files: 1, or the parts of a split model. part: 0 .. gguf_n_part - 1. */
uint32_t gguf_n_part(const struct gguf *g);
const char *gguf_part_path(const struct gguf *g, uint32_t part);
uint64_t gguf_part_bytes(const struct gguf *g, uint32_t part);
/* The bytes of path up to ".gguf" or "-00001-of-00003.gguf", or all of it. */
size_t gguf_stem_bytes(const char *path);

/* ---- Key-value pairs ---- */

uint64_t gguf_n_key(const struct gguf *g);
/* The key at index 0 .. gguf_n_key - 1, in file order, and its type (may be NULL). */
const char *gguf_key(const struct gguf *g, uint64_t index, enum gguf_type *type);
bool gguf_has(const struct gguf *g, const char *key);
/* "u32", "string", ... for messages. */
const char *gguf_type_name(enum gguf_type type);

/* Typed values by key. Integers of any width and bools of their own type convert when the value fits; f32 also takes
 * f64 (rounded). Errors: MOE_FAILED with the key when it is missing, has another type, or its value does not fit;
 * *value is then untouched. */
enum moe_code gguf_get_u32(const struct gguf *g, const char *key, uint32_t *value, struct moe_error *err);
enum moe_code gguf_get_u64(const struct gguf *g, const char *key, uint64_t *value, struct moe_error *err);
enum moe_code gguf_get_i64(const struct gguf *g, const char *key, int64_t *value, struct moe_error *err);
enum moe_code gguf_get_f32(const struct gguf *g, const char *key, float *value, struct moe_error *err);
enum moe_code gguf_get_bool(const struct gguf *g, const char *key, bool *value, struct moe_error *err);
enum moe_code gguf_get_string(const struct gguf *g, const char *key, struct gguf_string *value, struct moe_error *err);
enum moe_code gguf_get_array(const struct gguf *g, const char *key, struct gguf_array *value, struct moe_error *err);
/* An array whose elements are all of kind: GGUF_STRING, GGUF_F32 (f32 or f64), GGUF_BOOL, or GGUF_I64 (any integer). */
enum moe_code gguf_get_array_of(const struct gguf *g, const char *key, enum gguf_type kind, struct gguf_array *value,
                                struct moe_error *err);

/* The same, where a missing key means `fallback`; a key of another type is still an error. */
enum moe_code gguf_get_u32_or(const struct gguf *g, const char *key, uint32_t fallback, uint32_t *value,
                              struct moe_error *err);
enum moe_code gguf_get_f32_or(const struct gguf *g, const char *key, float fallback, float *value,
                              struct moe_error *err);
enum moe_code gguf_get_bool_or(const struct gguf *g, const char *key, bool fallback, bool *value,
                               struct moe_error *err);

/* A per-layer hyperparameter: a single integer, given to all n layers, or an array of exactly n integers. values: n
 * words. */
enum moe_code gguf_get_u32_each(const struct gguf *g, const char *key, uint32_t n, uint32_t *values,
                                struct moe_error *err);

/* Element `index` (< count) of an array of numbers. i64: any integer or bool type (u64 above 2^63 - 1 gives INT64_MAX);
 * f32: f32 or f64. */
int64_t gguf_array_i64(const struct gguf_array *a, uint64_t index);
float gguf_array_f32(const struct gguf_array *a, uint64_t index);

/* Walks an array of strings in order. *cursor starts at 0 and is a byte position, not an index; false at the end. */
bool gguf_array_next(const struct gguf_array *a, uint64_t *cursor, struct gguf_string *s);

/* ---- Tensors ---- */

uint64_t gguf_n_tensor(const struct gguf *g);
/* The tensor at index 0 .. gguf_n_tensor - 1, in file order, part by part. */
const struct gguf_tensor *gguf_tensor(const struct gguf *g, uint64_t index);
/* By name; NULL when there is none. */
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/* The bytes of row `row` of a tensor or a view, counted through all matrices: row m * dim[1] + r is row r of matrix m.
 */
const uint8_t *gguf_row(const struct gguf_tensor *t, uint64_t row);
/* How many rows from `row` on, in the same matrix, follow each other without a gap. At least 1. */
uint64_t gguf_row_run(const struct gguf_tensor *t, uint64_t row);

/* Gives the resident pages of a tensor, or of any range of its data, back to the system: call it when done with them,
 * so that memory does not grow with the file. The data stay readable (they are read again). Threads: any. */
void gguf_release(const struct gguf *g, const struct gguf_tensor *t);
void gguf_release_range(const struct gguf *g, const void *data, uint64_t bytes);

/* ---- Source hash ---- */

/* Called between chunks with the bytes done so far; may be NULL. Returns false to stop. */
typedef bool (*gguf_progress_fn)(void *context, uint64_t done, uint64_t total);

/* hash = BLAKE2b-256 of the whole file (what `b2sum -l 256` prints), or of all parts one after another in their order
 * (`cat STEM-*-of-*.gguf | b2sum -l 256`). Reads in order by its own descriptors, 1 MiB of memory; may run in a thread
 * of its own beside everything else. Errors: MOE_FAILED on I/O errors, when a file has shrunk, or when it was stopped.
 */
enum moe_code gguf_hash(const struct gguf *g, uint8_t hash[GGUF_HASH_BYTES], gguf_progress_fn progress, void *context,
                        struct moe_error *err);

#endif
