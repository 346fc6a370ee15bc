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

void verbs_progress(void *user, const char *phase, uint64_t done, uint64_t total) {
  (void)user;
  static double last_ms = -1e9;
  double now = verbs_now_ms();
  if (!isatty(STDERR_FILENO) || (done < total && now - last_ms < 100)) return;
  last_ms = now;
  fprintf(stderr, "\r%s %.1f of %.1f MiB%s", phase, (double)done / (1 << 20), (double)total / (1 << 20),
          done < total ? "" : "\n");
}

enum moe_code verbs_flush(struct moe_error *err) {
  if (fflush(stdout) || ferror(stdout))
    return moe_fail(err, MOE_FAILED, "standard output: %s", strerror(errno ? errno : EIO));
  return MOE_OK;
}
