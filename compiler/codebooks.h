/* codebooks.h: the grids that the codebook formats (IQ2_*, IQ3_*, IQ1_*) choose from, packed.
 *
 * Owns: the entries, as one table: the one that an image has in TABLES and that kernels read, and the one that the
 * definitions (dequant_codebook.c) read. Does not own: where a codebook lies in the table (shadergen/codebooks.def).
 * Invariants: constant; little-endian words as in the image; no code that an entry has is beyond its format's values.
 *
 * Source: iq2xxs_grid, iq2xs_grid, iq2s_grid, iq3xxs_grid, iq3s_grid and iq1s_grid of ggml-common.h
 * (github.com/ggml-org/ggml). Their components take 3 values (8, 25, 43, or -1, 0, 1) or 8 (4, 12 .. 52, 62, or 1, 3 ..
 * 15) and are stored here as which of them. */
#ifndef COMPILER_CODEBOOKS_H
#define COMPILER_CODEBOOKS_H

#include <stdint.h>

/* uint16_t iq2_xxs[256]; ... in the order of the table. */
struct codebooks {
#define CODEBOOK(name, first, count) uint16_t name[count];
#define CODEBOOK_FORMAT(number, name)
#include "codebooks.def"
};

extern const struct codebooks codebooks;

/* Code of component j: 0..7 of an entry of the two-bit codebooks (iq2_*, iq1), 0..3 of the four-bit ones (iq3_*). */
static inline unsigned codebooks_code2(uint16_t entry, int j) {
  return (entry >> (2 * j)) & 3u;
}
static inline unsigned codebooks_code4(uint16_t entry, int j) {
  return (entry >> (4 * j)) & 15u;
}

#endif
