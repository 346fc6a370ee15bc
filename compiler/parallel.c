#include "parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { PARALLEL_MAX_THREAD = 256 };

struct parallel {
  unsigned n_thread; /* the caller's included */
  pthread_t thread[PARALLEL_MAX_THREAD];
  pthread_mutex_t mutex;
  pthread_cond_t start, done;
  uint64_t generation; /* of the loop that runs; under mutex, like all that follows but next */
  unsigned n_started, n_busy;
  bool stop;
  parallel_fn fn;
  void *context;
  uint64_t n_item;
  _Atomic uint64_t next;
};

static void parallel_work(struct parallel *pool, unsigned thread) {
  for (uint64_t item; (item = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed)) < pool->n_item;)
    pool->fn(pool->context, item, thread);
}

static void *parallel_main(void *argument) {
  struct parallel *pool = argument;
  pthread_mutex_lock(&pool->mutex);
  unsigned thread = ++pool->n_started;
  for (uint64_t seen = 0;;) {
    while (!pool->stop && pool->generation == seen) pthread_cond_wait(&pool->start, &pool->mutex);
    if (pool->stop) break;
    seen = pool->generation;
    pthread_mutex_unlock(&pool->mutex);
    parallel_work(pool, thread);
    pthread_mutex_lock(&pool->mutex);
    if (--pool->n_busy == 0) pthread_cond_signal(&pool->done);
  }
  pthread_mutex_unlock(&pool->mutex);
  return NULL;
}

static unsigned parallel_cores(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) ? 1 : (unsigned)CPU_COUNT(&set);
}

enum moe_code parallel_create(unsigned n_thread, struct parallel **out, struct moe_error *err) {
  *out = NULL;
  struct parallel *pool = calloc(1, sizeof *pool);
  if (!pool) return moe_fail(err, MOE_FAILED, "out of memory: a pool of threads");
  if (n_thread == 0) n_thread = parallel_cores();
  if (n_thread > PARALLEL_MAX_THREAD) n_thread = PARALLEL_MAX_THREAD;
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->start, NULL);
  pthread_cond_init(&pool->done, NULL);
  pool->n_thread = 1;
  for (; pool->n_thread < n_thread; pool->n_thread++)
    if (pthread_create(&pool->thread[pool->n_thread], NULL, parallel_main, pool)) {
      unsigned started = pool->n_thread;
      parallel_destroy(pool);
      return moe_fail(err, MOE_FAILED, "thread %u of %u could not be started; -j takes fewer", started, n_thread);
    }
  *out = pool;
  return MOE_OK;
}

void parallel_destroy(struct parallel *pool) {
  if (!pool) return;
  pthread_mutex_lock(&pool->mutex);
  pool->stop = true;
  pthread_cond_broadcast(&pool->start);
  pthread_mutex_unlock(&pool->mutex);
  for (unsigned i = 1; i < pool->n_thread; i++) pthread_join(pool->thread[i], NULL);
  pthread_cond_destroy(&pool->done);
  pthread_cond_destroy(&pool->start);
  pthread_mutex_destroy(&pool->mutex);
  free(pool);
}

unsigned parallel_n_thread(const struct parallel *pool) {
  return pool->n_thread;
}

void parallel_for(struct parallel *pool, uint64_t n_item, parallel_fn fn, void *context) {
  pthread_mutex_lock(&pool->mutex);
  pool->fn = fn;
  pool->context = context;
  pool->n_item = n_item;
  atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
  bool alone = n_item < 2 || pool->n_thread == 1;
  if (!alone) {
    pool->n_busy = pool->n_thread - 1;
    pool->generation++;
    pthread_cond_broadcast(&pool->start);
  }
  pthread_mutex_unlock(&pool->mutex);
  parallel_work(pool, 0);
  if (alone) return;
  pthread_mutex_lock(&pool->mutex);
  while (pool->n_busy) pthread_cond_wait(&pool->done, &pool->mutex);
  pthread_mutex_unlock(&pool->mutex);
}
