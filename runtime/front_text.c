#include "front_text.h"

#include "utf8.h"

#include <stdlib.h>
#include <string.h>

static const char front_text_replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

void front_text_init(struct front_text *t, char **stop, size_t n_stop) {
  memset(t, 0, sizeof *t);
  t->n_stop = n_stop;
  for (size_t i = 0; i < n_stop; i++) {
    t->stop[i] = stop[i];
    stop[i] = NULL;
  }
}

void front_text_deinit(struct front_text *t) {
  for (size_t i = 0; i < t->n_stop; i++) free(t->stop[i]);
  free(t->held);
  memset(t, 0, sizeof *t);
}

static bool front_text_append(struct front_text *t, const void *bytes, size_t n) {
  if (t->capacity - t->n_held < n) {
    size_t capacity = (t->n_held + n) * 2 + 64;
    char *held = realloc(t->held, capacity);
    if (!held) return false;
    t->held = held;
    t->capacity = capacity;
  }
  memcpy(t->held + t->n_held, bytes, n);
  t->n_held += n;
  return true;
}

/* Moves whole characters from half + bytes into held. */
static bool front_text_decode(struct front_text *t, const char *bytes, size_t n) {
  while (n || t->n_half) {
    /* A window of at most 8 bytes over what waits and what is new: the longest sequence has 4. */
    uint8_t window[8];
    size_t n_new = sizeof window - t->n_half < n ? sizeof window - t->n_half : n;
    memcpy(window, t->half, t->n_half);
    if (n_new) memcpy(window + t->n_half, bytes, n_new);
    size_t n_window = t->n_half + n_new;
    int k = utf8_next(window, n_window);
    if (k == 0) { /* all of it is the beginning of a character, so there is nothing beyond the window either */
      memcpy(t->half, window, n_window);
      t->n_half = n_window;
      return true;
    }
    size_t used = (size_t)(k > 0 ? k : -k);
    if (!(k > 0 ? front_text_append(t, window, used) : front_text_append(t, front_text_replacement, 3))) return false;
    size_t from_half = used < t->n_half ? used : t->n_half;
    memmove(t->half, t->half + from_half, t->n_half - from_half);
    t->n_half -= from_half;
    bytes += used - from_half;
    n -= used - from_half;
  }
  return true;
}

/* Cuts at the first stop string, or finds how much of held cannot be the beginning of one. */
static void front_text_match(struct front_text *t) {
  size_t first = SIZE_MAX, hold = 0;
  for (size_t i = 0; i < t->n_stop; i++) {
    size_t length = strlen(t->stop[i]);
    const char *found = t->n_held ? memmem(t->held, t->n_held, t->stop[i], length) : NULL;
    if (found && (size_t)(found - t->held) < first) first = (size_t)(found - t->held);
    size_t longest = length - 1 < t->n_held ? length - 1 : t->n_held;
    for (size_t n = longest; n > hold; n--)
      if (!memcmp(t->held + t->n_held - n, t->stop[i], n)) hold = n;
  }
  if (first != SIZE_MAX) {
    t->stopped = true;
    t->n_held = first;
    hold = 0;
  }
  t->n_ready = t->n_held - hold;
}

bool front_text_add(struct front_text *t, const char *bytes, size_t n) {
  if (t->stopped) return true;
  if (!front_text_decode(t, bytes, n)) return false;
  front_text_match(t);
  return true;
}

bool front_text_finish(struct front_text *t) {
  if (t->stopped) return true;
  if (t->n_half && !front_text_append(t, front_text_replacement, 3)) return false;
  t->n_half = 0;
  front_text_match(t);
  t->n_ready = t->n_held;
  return true;
}

const char *front_text_ready(const struct front_text *t, size_t *n) {
  *n = t->n_ready;
  return t->n_ready ? t->held : "";
}

void front_text_drop(struct front_text *t) {
  if (!t->n_ready) return;
  memmove(t->held, t->held + t->n_ready, t->n_held - t->n_ready);
  t->n_held -= t->n_ready;
  t->n_taken += t->n_ready;
  t->n_ready = 0;
}

size_t front_text_end(const struct front_text *t) {
  return t->n_taken + t->n_held;
}
