/* front_model.h: what the front needs of a model: its name, text to tokens, tokens to text, messages to prompt.
 *
 * Owns: the interface only. front_image.c implements it over an image; tests implement it over a toy. All strings are
 * borrowed for the life of the model unless said otherwise. Thread rules: encode and render are called by one thread
 * (front_prompt.c), piece by another. */
#ifndef RUNTIME_FRONT_MODEL_H
#define RUNTIME_FRONT_MODEL_H

#include "moe_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct front_model {
  void *user;
  const char *name;
  int64_t created; /* seconds since 1970, for /v1/models */
  uint32_t n_vocab;

  /* Text to token ids, special tokens written out in it recognized. add_special: with BOS where the model wants one.
   * max_id: encoding stops at that many. *ids: malloc'd, the caller frees it; *n may be 0. */
  enum moe_code (*encode)(void *user, const char *text, size_t bytes, bool add_special, size_t max_id, int32_t **ids,
                          size_t *n, struct moe_error *err);

  /* The bytes of one token, borrowed; possibly part of a character. skip_special: a control token has no bytes. */
  const char *(*piece)(void *user, int32_t token, bool skip_special, size_t *bytes);

  /* The chat template over messages (JSON array), with the prompt for the answer at its end.
   * variables: further template variables (JSON object) or NULL. *text: malloc'd, the caller frees it.
   * Errors: MOE_FAILED with the template's own words (a strict template refuses), MOE_DECLINED: there is no template.
   */
  enum moe_code (*render)(void *user, const json_t *messages, const json_t *variables, char **text, size_t *bytes,
                          struct moe_error *err);
};

#endif
