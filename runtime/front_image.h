/* front_image.h: the front's side of an image: tokenizer, chat template, name.
 *
 * Owns: the mapping of the file, the tokenizer and the chat template made from it. Does not own: weights (the engine
 * maps the same file). Thread rules: front_model.h's. */
#ifndef RUNTIME_FRONT_IMAGE_H
#define RUNTIME_FRONT_IMAGE_H

#include "front_model.h"

struct front_image;

/* Opens an image for front_image_get_model. alias: the name to show, or NULL for the image's own.
 * Errors: what img_open, the manifest, the tokenizer and the chat template refuse. A model without a chat template
 * opens; its chat requests are refused. */
enum moe_code front_image_open(const char *path, const char *alias, struct front_image **out, struct moe_error *err);
void front_image_close(struct front_image *image);
const struct front_model *front_image_get_model(const struct front_image *image);

#endif
