/* nextn.h: the blocks behind a model's trunk that predict further tokens (NextN, multi-token prediction).
 *
 * Owns: which of a file's blocks are such, and whether each is whole. Does not own: what becomes of them: the trunk
 * compiles without them; whole ones travel in the image (blocks_nextn), for speculation to use. Source: DeepSeek-V3
 * (arXiv 2412.19437, section 2.2); in GGUF files they are the last <architecture>.nextn_predict_layers of block_count,
 * present, in parts, or not at all. */
#ifndef COMPILER_NEXTN_H
#define COMPILER_NEXTN_H

#include "src_gguf.h"

enum { NEXTN_MAX = 64 };

struct nextn {
  uint32_t n_trunk, n_block;   /* blocks n_trunk .. n_trunk + n_block - 1 are NextN blocks */
  uint32_t n_whole, n_partial; /* the others are absent */
  bool whole[NEXTN_MAX];
};

/* n_layer: block_count; n_block: nextn_predict_layers, below n_layer and at most NEXTN_MAX. A block is whole when it
 * has all that the trunk's last block has and its own projection and norms, in formats that have planes. */
void nextn_find(const struct gguf *g, uint32_t n_layer, uint32_t n_block, struct nextn *n);

/* The block that a tensor's name is of ("blk.<block>.<rest>"), or -1; *rest: behind the second dot. */
int64_t nextn_block_of(const char *name, const char **rest);

#endif
