#include "front_image.h"

#include "chat.h"
#include "img_manifest.h"
#include "img_reader.h"
#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct front_image {
  struct img img;
  struct img_manifest manifest;
  struct img_chat chat_section;
  struct tokenizer *tokenizer;
  struct chat *chat; /* NULL: the model has no template */
  struct front_model model;
  char name[256];
};

static enum moe_code front_image_encode(void *user, const char *text, size_t bytes, bool add_special, size_t max_id,
                                        int32_t **ids, size_t *n, struct moe_error *err) {
  const struct front_image *image = user;
  unsigned flags = TOKENIZER_PARSE_SPECIAL | (add_special ? TOKENIZER_ADD_SPECIAL : 0);
  uint32_t *unsigned_ids = NULL;
  enum moe_code code = tokenizer_encode(image->tokenizer, text, bytes, flags, max_id, &unsigned_ids, n, err);
  *ids = (int32_t *)unsigned_ids; /* ids are far below 2^31 */
  return code;
}

static const char *front_image_piece(void *user, int32_t token, bool skip_special, size_t *bytes) {
  const struct front_image *image = user;
  return tokenizer_piece(image->tokenizer, (uint32_t)token, skip_special, bytes);
}

static enum moe_code front_image_render(void *user, const json_t *messages, const json_t *variables, char **text,
                                        size_t *bytes, struct moe_error *err) {
  struct front_image *image = user;
  enum moe_code code = chat_served(&image->chat_section, err);
  if (code) return code;
  char *messages_text = json_dumps(messages, JSON_COMPACT);
  char *variables_text = variables ? json_dumps(variables, JSON_COMPACT) : NULL;
  if (!messages_text || (variables && !variables_text))
    code = moe_fail(err, MOE_FAILED, "out of memory");
  else
    code = chat_render(image->chat, messages_text, NULL, variables_text, text, bytes, err);
  free(messages_text);
  free(variables_text);
  return code;
}

/* A section's payload, or an error that names it. */
static enum moe_code front_image_section(const struct front_image *image, enum img_section_kind kind, const void **data,
                                         uint64_t *bytes, struct moe_error *err) {
  *data = img_section_data(&image->img, kind, bytes);
  if (*data) return MOE_OK;
  return moe_fail(err, MOE_FAILED, "%s: section %s is missing; compile the image again", image->img.path,
                  img_section_name(kind));
}

static enum moe_code front_image_load(struct front_image *image, struct moe_error *err) {
  const void *data = NULL;
  uint64_t bytes = 0;
  enum moe_code code = front_image_section(image, IMG_SECTION_MANIFEST, &data, &bytes, err);
  if (!code) code = img_manifest_parse(data, bytes, &image->manifest, err);
  if (!code) code = front_image_section(image, IMG_SECTION_TOKENIZER, &data, &bytes, err);
  if (!code) code = tokenizer_create(data, bytes, &image->tokenizer, err);
  if (!code) code = front_image_section(image, IMG_SECTION_CHAT, &data, &bytes, err);
  if (!code) code = img_chat_open(data, bytes, &image->chat_section, err);
  if (!code && image->chat_section.origin != IMG_CHAT_NONE) code = chat_create(&image->chat_section, &image->chat, err);
  return code;
}

/* The file's name without folders and ".img", for images whose model has no name. */
static void front_image_set_name(struct front_image *image, const char *path, const char *alias) {
  const char *slash = strrchr(path, '/');
  const char *name = alias                           ? alias
                     : image->manifest.model_name[0] ? image->manifest.model_name
                     : slash                         ? slash + 1
                                                     : path;
  snprintf(image->name, sizeof image->name, "%s", name);
  size_t length = strlen(image->name);
  if (!alias && length > 4 && !strcmp(image->name + length - 4, ".img")) image->name[length - 4] = 0;
}

enum moe_code front_image_open(const char *path, const char *alias, struct front_image **out, struct moe_error *err) {
  *out = NULL;
  struct front_image *image = calloc(1, sizeof *image);
  if (!image) return moe_fail(err, MOE_FAILED, "out of memory");
  enum moe_code code = img_open(path, &image->img, err);
  if (code) {
    free(image);
    return code;
  }
  if ((code = front_image_load(image, err))) {
    front_image_close(image);
    return code;
  }
  struct stat info;
  front_image_set_name(image, path, alias);
  image->model = (struct front_model){
      .user = image,
      .name = image->name,
      .created = stat(path, &info) ? 0 : (int64_t)info.st_mtime,
      .n_vocab = image->manifest.model_n_vocab,
      .encode = front_image_encode,
      .piece = front_image_piece,
      .render = front_image_render,
  };
  *out = image;
  return MOE_OK;
}

void front_image_close(struct front_image *image) {
  if (!image) return;
  chat_destroy(image->chat);
  tokenizer_destroy(image->tokenizer);
  img_close(&image->img);
  free(image);
}

const struct front_model *front_image_get_model(const struct front_image *image) {
  return &image->model;
}
