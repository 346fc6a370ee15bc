/* parallel.h: a pool of threads that runs the items of a loop.
 *
 * Owns: the threads. Does not own: what an item does. Invariants: items are handed out in ascending order, one at a
 * time; parallel_for returns when all are done; results must not depend on which thread ran an item. */
#ifndef COMPILER_PARALLEL_H
#define COMPILER_PARALLEL_H

#include "moe_error.h"

struct parallel;

/* One item of a loop. thread: 0 .. n_thread - 1, for scratch memory that belongs to a thread. */
typedef void (*parallel_fn)(void *context, uint64_t item, unsigned thread);

/* n_thread: 0 takes the number of cores this process may use (at most 256 are taken in any case); 1 starts none.
 * Errors: MOE_FAILED when threads cannot be started. */
enum moe_code parallel_create(unsigned n_thread, struct parallel **pool, struct moe_error *err);
/* NULL is fine. */
void parallel_destroy(struct parallel *pool);
unsigned parallel_n_thread(const struct parallel *pool);

/* Runs fn(context, 0 .. n_item - 1) on all threads, the caller's included. Not from within an item; one caller at a
 * time. */
void parallel_for(struct parallel *pool, uint64_t n_item, parallel_fn fn, void *context);

#endif
