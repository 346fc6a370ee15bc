/* states.h: who holds which pages of the STATE arena, and which slots are free.
 *
 * Owns: the free lists of pages and slots, each slot's page table on the host. Does not own: the arena's memory
 * (arenas.h), the copies of the tables in step blocks (step.h).
 * Invariants: a page belongs to one slot or to the free list; page 0 to nobody (rows of no sequence may point there);
 * there are enough pages for every slot to be full (memory_plan.h), so that a sequence in a slot never lacks one.
 * Nothing is allocated after states_create. Thread rules: one thread. */
#ifndef RUNTIME_STATES_H
#define RUNTIME_STATES_H

#include "moe_error.h"

#define STATES_NO_SLOT UINT32_MAX

struct states;

/* n_slot slots of up to page_stride pages of page_tok positions, from a pool of n_page pages (page 0 included).
 * Errors: MOE_FAILED (memory; too few pages for all slots). */
enum moe_code states_create(uint32_t n_slot, uint32_t page_stride, uint32_t page_tok, uint32_t n_page,
                            struct states **out, struct moe_error *err);
void states_destroy(struct states *states);

/* A free slot without pages, or STATES_NO_SLOT. */
uint32_t states_take(struct states *states);
/* Gives a slot and all its pages back. They may be handed out at once: the queue runs steps in order, so that what a
 * step in flight still writes to them is overwritten before anybody reads it. */
void states_give(struct states *states, uint32_t slot);

/* Makes positions below n_pos of a slot have pages. n_pos <= page_stride * page_tok. */
void states_reach(struct states *states, uint32_t slot, uint32_t n_pos);

/* A slot's pages, [*n], in order of position. Borrowed until the next call for this slot. */
const uint32_t *states_pages(const struct states *states, uint32_t slot, uint32_t *n);

/* For accounting: free pages, page 0 not counted; free slots. */
uint32_t states_free_pages(const struct states *states);
uint32_t states_free_slots(const struct states *states);

#endif
