/* moert_main.c: the program moert: finds the verb, prints its error, exits with its code.
 *
 * Owns: the list of verbs as help, the exit. Does not own: any verb (verbs.def). */
#include "engine_process.h"
#include "front_run.h"
#include "verbs.h"

#include "img_format.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static void print_help(FILE *out) {
  fprintf(out, "usage: moert MODEL.img [options]        serve it over HTTP (moert --serve-help lists the options)\n"
               "       moert VERB [arguments]           each verb has --help\n\nverbs:\n");
#define VERB(NAME, FUNCTION, SUMMARY) fprintf(out, "  %-10s %s\n", NAME, SUMMARY);
#include "verbs.def"
#undef VERB
  fprintf(out, "\n  --version, --help\n\nexit codes: 0 done, 1 failed, 2 wrong usage, 3 declined (this box or image "
               "cannot; the message says why)\n");
}

int main(int argc, char **argv) {
  verbs_start();
  signal(SIGPIPE, SIG_IGN);
  const char *name = argc > 1 ? argv[1] : NULL;
  if (!name) {
    print_help(stderr);
    return MOE_USAGE;
  }
  if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
    print_help(stdout);
    return MOE_OK;
  }
  if (!strcmp(name, "--serve-help")) {
    options_print_help(&front_run_table, stdout);
    return MOE_OK;
  }
  if (!strcmp(name, "--version")) {
    printf("moert %s, image format %d.%d\n", MOE_VERSION, IMG_MAJOR, IMG_MINOR);
    return MOE_OK;
  }
  struct moe_error err = {0};
  enum moe_code code = MOE_USAGE;
  bool found = false;
#define VERB(NAME, FUNCTION, SUMMARY)                                                                                  \
  if (!found && !strcmp(name, NAME)) {                                                                                 \
    found = true;                                                                                                      \
    code = FUNCTION(argc - 2, argv + 2, &err);                                                                         \
  }
#include "verbs.def"
#undef VERB
  if (!found && !strcmp(name, "engine"))
    code = engine_process_run(argc - 2, argv + 2, &err);
  else if (!found && access(name, F_OK) && name[0] != '-' && !strpbrk(name, "./"))
    code = moe_fail(&err, MOE_USAGE, "'%s' is neither a verb (moert --help lists them) nor an image", name);
  else if (!found)
    code = front_run(argc - 1, argv + 1, &err);
  if (!code) code = verbs_flush(&err);
  if (code && err.message[0]) fprintf(stderr, "moert: error: %s\n", err.message);
  return (int)code;
}
