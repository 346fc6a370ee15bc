/* model_blocks_impl.h: what the files of the building blocks share, and families do not see.
 *
 * Owns: reading keys, adding nodes. Invariants: as in model_blocks.h. */
#ifndef COMPILER_MODEL_BLOCKS_IMPL_H
#define COMPILER_MODEL_BLOCKS_IMPL_H

#include "model_blocks.h"

/* "<architecture>.<key>", cut at capacity. Returns text. */
const char *blocks_key(const struct blocks *b, const char *key, char *text, size_t capacity);

/* A key's number within its bounds. fallback below 0: it must be there. */
void blocks_read_u32(struct blocks *b, const char *key, double fallback, uint32_t min, uint32_t max, uint32_t *value);
void blocks_read_real(struct blocks *b, const char *key, double fallback, double min, double max, double *value);

/* A row HPARAM_EACH: into *value (the first that is not 0) and b->each; declined when layers differ and nobody has
 * asked by layer; freed. */
void blocks_read_each(struct blocks *b, enum blocks_each row, double fallback, uint32_t min, uint32_t max,
                      uint32_t *value);
void blocks_check_each(struct blocks *b);
void blocks_free_each(struct blocks *b);

/* Reads how rotary positions are scaled into b->h and b->yarn. */
void blocks_read_rope(struct blocks *b);

/* "<name>.<kind>". Returns text. */
const char *blocks_name(const char *name, const char *kind, char text[96]);

#endif
