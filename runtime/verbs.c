#include "verbs.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double verbs_epoch_ms;

static double verbs_clock_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

void verbs_start(void) {
  verbs_epoch_ms = verbs_clock_ms();
}
double verbs_now_ms(void) {
  return verbs_clock_ms() - verbs_epoch_ms;
}

/* Whether the line is due: not too often, but the last one always. */
static bool verbs_progress_due(uint64_t done, uint64_t total) {
  static double last_ms = -1e9;
  double now = verbs_now_ms();
  if (!isatty(STDERR_FILENO) || (done < total && now - last_ms < 100)) return false;
  last_ms = now;
  return true;
}

void verbs_progress(void *user, const char *phase, uint64_t done, uint64_t total) {
  (void)user;
  if (!verbs_progress_due(done, total)) return;
  fprintf(stderr, "\r%s %.1f of %.1f MiB%s", phase, (double)done / (1 << 20), (double)total / (1 << 20),
          done < total ? "" : "\n");
}

void verbs_progress_count(const char *what, uint64_t done, uint64_t total) {
  if (!verbs_progress_due(done, total)) return;
  fprintf(stderr, "\r%s %llu of %llu%s", what, (unsigned long long)done, (unsigned long long)total,
          done < total ? "" : "\n");
}

uint64_t verbs_random(uint64_t *state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

enum moe_code verbs_flush(struct moe_error *err) {
  if (fflush(stdout) || ferror(stdout))
    return moe_fail(err, MOE_FAILED, "standard output: %s", strerror(errno ? errno : EIO));
  return MOE_OK;
}
