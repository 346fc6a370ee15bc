#include "front_journal.h"

#include <stdlib.h>
#include <string.h>

struct journal_entry *journal_add(struct journal *j, const struct request *request, const struct journal_sink *sink) {
  struct journal_entry *entry = calloc(1, sizeof *entry);
  if (!entry) return NULL;
  entry->capacity = request->n_prompt + 64;
  entry->token = malloc((size_t)entry->capacity * sizeof *entry->token);
  if (!entry->token) {
    free(entry);
    return NULL;
  }
  memcpy(entry->token, request->prompt, (size_t)request->n_prompt * sizeof *entry->token);
  entry->id = ++j->last_id;
  entry->n_prompt = entry->n_token = request->n_prompt;
  entry->n_predict = request->n_predict;
  entry->sampling = request->sampling;
  entry->n_logprob = request->n_logprob;
  entry->ignore_eos = request->ignore_eos;
  entry->sink = *sink;
  entry->previous = j->last;
  if (j->last)
    j->last->next = entry;
  else
    j->first = entry;
  j->last = entry;
  j->n_entry++;
  return entry;
}

void journal_remove(struct journal *j, struct journal_entry *entry) {
  if (entry->previous)
    entry->previous->next = entry->next;
  else
    j->first = entry->next;
  if (entry->next)
    entry->next->previous = entry->previous;
  else
    j->last = entry->previous;
  if (entry->state != JOURNAL_CANCELLED) j->n_entry--;
  free(entry->token);
  free(entry);
}

void journal_cancel(struct journal *j, struct journal_entry *entry) {
  if (entry->state == JOURNAL_WAITING) {
    journal_remove(j, entry);
  } else if (entry->state == JOURNAL_SENT) {
    entry->state = JOURNAL_CANCELLED;
    j->n_entry--;
  }
}

struct journal_entry *journal_find(struct journal *j, uint64_t id) {
  for (struct journal_entry *entry = j->first; entry; entry = entry->next)
    if (entry->id == id) return entry;
  return NULL;
}

struct journal_entry *journal_first(struct journal *j, enum journal_state state) {
  for (struct journal_entry *entry = j->first; entry; entry = entry->next)
    if (entry->state == state) return entry;
  return NULL;
}

bool journal_emit(struct journal_entry *entry, int32_t token, bool is_end) {
  if (entry->n_token == entry->capacity) {
    uint32_t capacity = entry->capacity * 2;
    int32_t *grown = realloc(entry->token, (size_t)capacity * sizeof *grown);
    if (!grown) return false;
    entry->token = grown;
    entry->capacity = capacity;
  }
  entry->token[entry->n_token++] = token;
  entry->ended = is_end;
  entry->progressed = true;
  return true;
}

void journal_requeue(struct journal *j) {
  for (struct journal_entry *entry = j->first, *next; entry; entry = next) {
    next = entry->next;
    if (entry->state == JOURNAL_CANCELLED) {
      journal_remove(j, entry);
      continue;
    }
    if (entry->state == JOURNAL_SENT) entry->n_lost = entry->progressed ? 1 : entry->n_lost + 1;
    entry->progressed = false;
    entry->state = JOURNAL_WAITING;
  }
}

bool journal_is_guarded(const struct journal *j) {
  bool suspect = false, unproven = false;
  for (const struct journal_entry *entry = j->first; entry; entry = entry->next) {
    if (entry->progressed) continue;
    suspect = suspect || (entry->n_lost >= JOURNAL_MAX_LOST - 1 && entry->state != JOURNAL_CANCELLED);
    unproven = unproven || entry->state != JOURNAL_WAITING;
  }
  return suspect && unproven;
}

bool journal_is_complete(const struct journal_entry *entry, uint32_t n_ctx, enum finish_reason *reason) {
  uint32_t n_emitted = entry->n_token - entry->n_prompt;
  *reason = entry->ended ? FINISH_STOP : FINISH_LENGTH;
  return entry->ended || (n_emitted > 0 && (n_emitted >= entry->n_predict || entry->n_token >= n_ctx));
}
