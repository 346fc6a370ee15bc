#include "progress.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct progress {
  uint64_t total;
  _Atomic uint64_t done, counter;
  bool tty, threaded;
  /* Under mutex. The time left follows the pace since the phase began. */
  const char *phase;
  bool stop;
  struct timespec start;
  uint64_t start_done;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
};

static uint64_t progress_done(struct progress *p) {
  return atomic_load(&p->done) + atomic_load(&p->counter);
}

static double progress_seconds(const struct progress *p) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)(now.tv_sec - p->start.tv_sec) + (double)(now.tv_nsec - p->start.tv_nsec) / 1e9;
}

static void progress_print(struct progress *p) {
  uint64_t done = progress_done(p), since = done - p->start_done;
  if (done > p->total) done = p->total;
  double share = p->total ? (double)done / (double)p->total : 1, passed = progress_seconds(p);
  char left[32] = "";
  if (since > 0 && passed > 1)
    snprintf(left, sizeof left, ", %.0f s left", passed * (double)(p->total - done) / (double)since);
  if (p->tty) {
    enum { WIDTH = 30 };
    char bar[WIDTH + 1];
    for (int i = 0; i < WIDTH; i++) bar[i] = i < share * WIDTH ? '#' : '.';
    bar[WIDTH] = 0;
    fprintf(stderr, "\r\033[K[%s] %3.0f%% %s, %.2f of %.2f GB%s", bar, share * 100, p->phase, (double)done / 1e9,
            (double)p->total / 1e9, left);
  } else {
    fprintf(stderr, "moec: %3.0f%% %s, %.2f of %.2f GB%s\n", share * 100, p->phase, (double)done / 1e9,
            (double)p->total / 1e9, left);
  }
}

static void *progress_main(void *argument) {
  struct progress *p = argument;
  pthread_mutex_lock(&p->mutex);
  while (!p->stop) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += p->tty ? 200000000 : 0;
    until.tv_sec += until.tv_nsec / 1000000000 + (p->tty ? 0 : 5);
    until.tv_nsec %= 1000000000;
    if (!pthread_cond_timedwait(&p->wake, &p->mutex, &until) || p->stop) continue;
    progress_print(p);
  }
  pthread_mutex_unlock(&p->mutex);
  return NULL;
}

struct progress *progress_create(bool quiet, uint64_t total) {
  struct progress *p = quiet ? NULL : calloc(1, sizeof *p);
  if (!p) return NULL;
  p->total = total;
  p->tty = isatty(STDERR_FILENO);
  p->phase = "starting";
  clock_gettime(CLOCK_MONOTONIC, &p->start);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_mutex_init(&p->mutex, NULL);
  pthread_cond_init(&p->wake, &attr);
  pthread_condattr_destroy(&attr);
  p->threaded = !pthread_create(&p->thread, NULL, progress_main, p);
  return p;
}

void progress_destroy(struct progress *p) {
  if (!p) return;
  pthread_mutex_lock(&p->mutex);
  p->stop = true;
  pthread_cond_signal(&p->wake);
  pthread_mutex_unlock(&p->mutex);
  if (p->threaded) pthread_join(p->thread, NULL);
  if (p->tty) fprintf(stderr, "\r\033[K");
  pthread_cond_destroy(&p->wake);
  pthread_mutex_destroy(&p->mutex);
  free(p);
}

void progress_phase(struct progress *p, const char *what) {
  if (!p) return;
  pthread_mutex_lock(&p->mutex);
  p->phase = what;
  p->start_done = progress_done(p);
  clock_gettime(CLOCK_MONOTONIC, &p->start);
  pthread_mutex_unlock(&p->mutex);
}

void progress_add(struct progress *p, uint64_t bytes) {
  if (p) atomic_fetch_add_explicit(&p->done, bytes, memory_order_relaxed);
}

_Atomic uint64_t *progress_counter(struct progress *p) {
  return p ? &p->counter : NULL;
}
