/* verb_profile.c: `moert profile`: where the time of a step goes, as tables, JSON or a picture.
 *
 * Owns: the options, opening the image for them, where results go. Does not own: measuring (profile.h). VERBS.md says
 * what is printed. */
#include "profile.h"
#include "verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct profile_verb_options {
#define OPTION OPTION_FIELD
#include "verb_profile_options.def"
#undef OPTION
};

static const struct option_row profile_rows[] = {
#define OPTION(...) OPTION_ROW(struct profile_verb_options, __VA_ARGS__)
#include "verb_profile_options.def"
#undef OPTION
};

static enum moe_code profile_write_svg(const struct profile *p, const char *path, struct moe_error *err) {
  FILE *file = fopen(path, "w");
  if (!file) return moe_fail(err, MOE_FAILED, "--svg %s: %s", path, strerror(errno));
  profile_svg(p, file);
  bool ok = !ferror(file);
  ok = !fclose(file) && ok;
  return ok ? MOE_OK : moe_fail(err, MOE_FAILED, "--svg %s: %s", path, strerror(errno ? errno : EIO));
}

static enum moe_code profile_write_json(const struct profile *p, struct moe_error *err) {
  json_t *object = profile_json(p);
  if (!object) return moe_fail(err, MOE_FAILED, "the model's or the device's name is not UTF-8, or out of memory");
  json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
  putchar('\n');
  json_decref(object);
  return MOE_OK;
}

static enum moe_code profile_open(const char *path, const struct profile_verb_options *o,
                                  const struct profile_options *step, struct scheduler **out, struct moe_error *err) {
  uint32_t rows = step->batch ? 1 : step->window;
  const struct engine_options options = {.image_path = path,
                                         .device = o->device,
                                         .n_ctx = o->n_ctx ? (uint32_t)o->n_ctx : step->depth + rows + 1,
                                         .n_slot = o->n_slot     ? (uint32_t)o->n_slot
                                                   : step->batch ? step->batch
                                                                 : 1,
                                         .cache_dir = o->cache_dir,
                                         .tier = o->tier,
                                         .patient = true};
  return engine_open(&options, verbs_progress, NULL, out, err);
}

enum moe_code verb_profile(int argc, char *const *argv, struct moe_error *err) {
  static const struct option_table table = {.command = "moert profile",
                                            .summary = "Where the time of a step goes.",
                                            .positionals = "MODEL.img",
                                            .min_positional = 1,
                                            .max_positional = 1,
                                            .rows = profile_rows,
                                            .n_row = sizeof profile_rows / sizeof *profile_rows};
  struct profile_verb_options o;
  struct option_result r;
  enum moe_code code = options_command(&table, argc, argv, &o, &r, err);
  if (code || r.help) return code;
  if (o.batch && o.prompt)
    return moe_fail(err, MOE_USAGE, "-b %lld -p %lld: a step decodes or reads a prompt; give one of them",
                    (long long)o.batch, (long long)o.prompt);
  const struct profile_options step = {.batch = o.prompt  ? 0
                                                : o.batch ? (uint32_t)o.batch
                                                          : 1,
                                       .window = (uint32_t)o.prompt,
                                       .depth = (uint32_t)o.depth,
                                       .repeat = (uint32_t)o.repeat};
  struct scheduler *engine = NULL;
  struct profile *p = calloc(1, sizeof *p);
  if (!p) return moe_fail(err, MOE_FAILED, "out of memory");
  code = profile_open(r.positional[0], &o, &step, &engine, err);
  if (!code) code = profile_measure(engine, &step, p, err);
  if (!code && o.svg) code = profile_write_svg(p, o.svg, err);
  if (!code && o.json) code = profile_write_json(p, err);
  if (!code && !o.json) profile_print(p, stdout);
  engine_close(engine);
  free(p);
  return code;
}
