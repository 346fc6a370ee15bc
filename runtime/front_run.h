/* front_run.h: the front process, as `moert MODEL.img` starts it. */
#ifndef RUNTIME_FRONT_RUN_H
#define RUNTIME_FRONT_RUN_H

#include "front_model.h"
#include "moe_error.h"
#include "options.h"

struct serve_options {
#define OPTION OPTION_FIELD
#include "serve_options.def"
#undef OPTION
};

/* The command line of `moert MODEL.img`, for moert's own help. */
extern const struct option_table front_run_table;

/* Serves an image with a model's front side until SIGTERM or SIGINT: starts the engine process (this program's own verb
 * `engine`), listens, and returns when the last reply is on its way.
 * Errors: MOE_FAILED (cannot listen, engine lost before it ever served), or the code with which the first engine ended
 * (MOE_DECLINED: this box cannot serve the image). */
enum moe_code front_run_serve(const char *image_path, const struct front_model *model,
                              const struct serve_options *options, struct moe_error *err);

/* `moert MODEL.img [options]`: parses argv (without the program's name), opens the image's front side, serves.
 * Errors: MOE_USAGE, and those of front_image_open and front_run_serve. */
enum moe_code front_run(int argc, char *const *argv, struct moe_error *err);

#endif
