/* verb_inspect.c: `moert inspect`: what is in an image, as text (img_print). */
#include "img_print.h"
#include "load.h"
#include "verbs.h"

struct inspect_options {
#define OPTION OPTION_FIELD
#include "verb_inspect_options.def"
#undef OPTION
};

static const struct option_row inspect_rows[] = {
#define OPTION(...) OPTION_ROW(struct inspect_options, __VA_ARGS__)
#include "verb_inspect_options.def"
#undef OPTION
};

enum moe_code verb_inspect(int argc, char *const *argv, struct moe_error *err) {
  static const struct option_table table = {.command = "moert inspect",
                                            .summary = "What is in an image: manifest and sections; more by option.",
                                            .positionals = "MODEL.img",
                                            .min_positional = 1,
                                            .max_positional = 1,
                                            .rows = inspect_rows,
                                            .n_row = sizeof inspect_rows / sizeof *inspect_rows};
  struct inspect_options o;
  struct option_result r;
  enum moe_code code = options_command(&table, argc, argv, &o, &r, err);
  if (code || r.help) return code;
  struct load load;
  code = load_image(r.positional[0], &load, err);
  if (!code) {
    img_print_summary(&load.image, &load.view, stdout);
    if (o.modules || o.all) img_print_modules(&load.view.modules, stdout);
    if (o.templates || o.all) img_print_templates(&load.view, stdout);
    if (o.planes || o.all) img_print_planes(&load.view.planes, stdout);
  }
  load_close(&load);
  return code;
}
