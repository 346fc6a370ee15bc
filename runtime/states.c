#include "states.h"

#include <stdlib.h>

struct states {
  uint32_t n_slot, page_stride, page_tok;
  uint32_t n_free_page, n_free_slot;
  uint32_t *free_page, *free_slot; /* stacks */
  uint32_t *held;                  /* [n_slot] pages that a slot holds */
  uint32_t *table;                 /* [n_slot][page_stride] */
};

enum moe_code states_create(uint32_t n_slot, uint32_t page_stride, uint32_t page_tok, uint32_t n_page,
                            struct states **out, struct moe_error *err) {
  *out = NULL;
  if ((uint64_t)n_slot * page_stride + 1 > n_page)
    return moe_fail(err, MOE_FAILED, "%u pages are too few for %u slots of %u", n_page, n_slot, page_stride);
  struct states *s = calloc(1, sizeof *s);
  if (!s) return moe_fail(err, MOE_FAILED, "out of memory");
  *s = (struct states){.n_slot = n_slot, .page_stride = page_stride, .page_tok = page_tok};
  s->free_page = calloc(n_page, sizeof *s->free_page);
  s->free_slot = calloc(n_slot, sizeof *s->free_slot);
  s->held = calloc(n_slot, sizeof *s->held);
  s->table = calloc((size_t)n_slot * page_stride, sizeof *s->table);
  if (!s->free_page || !s->free_slot || !s->held || !s->table) {
    states_destroy(s);
    return moe_fail(err, MOE_FAILED, "out of memory for %u pages", n_page);
  }
  /* stacks: the lowest number is on top */
  for (uint32_t page = n_page - 1; page > 0; page--) s->free_page[s->n_free_page++] = page;
  for (uint32_t slot = n_slot; slot > 0; slot--) s->free_slot[s->n_free_slot++] = slot - 1;
  *out = s;
  return MOE_OK;
}

void states_destroy(struct states *s) {
  if (!s) return;
  free(s->free_page);
  free(s->free_slot);
  free(s->held);
  free(s->table);
  free(s);
}

uint32_t states_take(struct states *s) {
  return s->n_free_slot ? s->free_slot[--s->n_free_slot] : STATES_NO_SLOT;
}

void states_give(struct states *s, uint32_t slot) {
  uint32_t *pages = s->table + (size_t)slot * s->page_stride;
  while (s->held[slot]) s->free_page[s->n_free_page++] = pages[--s->held[slot]];
  s->free_slot[s->n_free_slot++] = slot;
}

void states_reach(struct states *s, uint32_t slot, uint32_t n_pos) {
  uint32_t *pages = s->table + (size_t)slot * s->page_stride;
  while ((uint64_t)s->held[slot] * s->page_tok < n_pos) pages[s->held[slot]++] = s->free_page[--s->n_free_page];
}

const uint32_t *states_pages(const struct states *s, uint32_t slot, uint32_t *n) {
  *n = s->held[slot];
  return s->table + (size_t)slot * s->page_stride;
}

uint32_t states_free_pages(const struct states *s) {
  return s->n_free_page;
}
uint32_t states_free_slots(const struct states *s) {
  return s->n_free_slot;
}
