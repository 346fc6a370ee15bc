/* progress.h: how far the work is, on standard error, while other threads do it.
 *
 * Owns: one reporting thread. Invariants: on a terminal one line that is redrawn, else a line every few seconds;
 * nothing when quiet. Counting costs one relaxed atomic addition. */
#ifndef COMPILER_PROGRESS_H
#define COMPILER_PROGRESS_H

#include "moe_error.h"

struct progress;

/* total: bytes of all the work that progress_add will count. Never fails: without a thread there are no reports. */
struct progress *progress_create(bool quiet, uint64_t total);
/* NULL is fine, in all of these. Ends the line. */
void progress_destroy(struct progress *p);

/* what: a word or two for the phase that begins; a string that stays. */
void progress_phase(struct progress *p, const char *what);
/* Any thread. */
void progress_add(struct progress *p, uint64_t bytes);
/* A counter that others (img_writer_finish) count in; added to what progress_add counts. */
_Atomic uint64_t *progress_counter(struct progress *p);

#endif
