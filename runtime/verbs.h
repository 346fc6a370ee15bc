/* verbs.h: the verbs of moert (verbs.def), and what they share.
 *
 * Owns: their common signature, timing, progress on standard error, random tokens. Does not own: any verb (verb_*.c).
 * A verb gets its arguments without program name and verb, prints results to standard output and progress to standard
 * error, and returns the exit code; moert_main.c prints the error. */
#ifndef RUNTIME_VERBS_H
#define RUNTIME_VERBS_H

#include "engine.h"
#include "moe_error.h"
#include "options.h"

#define VERB(NAME, FUNCTION, SUMMARY) enum moe_code FUNCTION(int argc, char *const *argv, struct moe_error *err);
#include "verbs.def"
#undef VERB

/* Milliseconds of the monotonic clock since moert_main began. */
double verbs_now_ms(void);
/* Called once, first thing. */
void verbs_start(void);

/* An engine_progress_fn: one line on standard error that rewrites itself, when that is a terminal. user: unused. */
void verbs_progress(void *user, const char *phase, uint64_t done, uint64_t total);

/* The same for things that are counted: "repetition 2 of 5". */
void verbs_progress_count(const char *what, uint64_t done, uint64_t total);

/* The next of a row of random numbers (splitmix64; Steele, Lea, Flood 2014). state: begins anywhere. */
uint64_t verbs_random(uint64_t *state);

/* Writes all of standard output out. Errors: MOE_FAILED (full disk, closed pipe). */
enum moe_code verbs_flush(struct moe_error *err);

#endif
