/* scripted_main.c: moert with the scripted engine and a toy model, for tests of the server over real HTTP. */
#include "engine_process.h"
#include "front_params.h"
#include "front_run.h"
#include "scripted_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum moe_code scripted_encode(void *user, const char *text, size_t bytes, bool add_special, size_t max_id,
                                     int32_t **ids, size_t *n, struct moe_error *err) {
  (void)user, (void)add_special, (void)err;
  *n = bytes < max_id ? bytes : max_id;
  *ids = malloc((*n + 1) * sizeof **ids);
  for (size_t i = 0; i < *n; i++) (*ids)[i] = (unsigned char)text[i];
  return MOE_OK;
}

static const char *scripted_piece(void *user, int32_t token, bool skip_special, size_t *bytes) {
  (void)user;
  static char piece[256];
  *bytes = 0;
  if (token == SCRIPTED_END && !skip_special) {
    *bytes = 5;
    return "<end>";
  }
  if (token < 0 || token > 255) return "";
  piece[token] = (char)token;
  *bytes = 1;
  return &piece[token];
}

/* The last message's content and '|'. Refuses a first message by the assistant, as strict templates do. A content with
 * render:MS takes so long. */
static enum moe_code scripted_render(void *user, const json_t *messages, const json_t *variables, char **text,
                                     size_t *bytes, struct moe_error *err) {
  (void)user, (void)variables;
  const char *role = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
  if (!strcmp(role, "assistant"))
    return moe_fail(err, MOE_FAILED, "chat template: the first message must be the user's");
  const char *content =
      json_string_value(json_object_get(json_array_get(messages, json_array_size(messages) - 1), "content"));
  const char *pause = strstr(content, "render:");
  if (pause) usleep((useconds_t)atol(pause + 7) * 1000);
  *bytes = strlen(content) + 1;
  *text = malloc(*bytes + 1);
  memcpy(*text, content, *bytes);
  strcpy(*text + *bytes - 1, "|");
  return MOE_OK;
}

static enum moe_code scripted_serve(int argc, char **argv, struct moe_error *err) {
  struct serve_options options;
  struct option_result result;
  struct front_model model = {
      .name = "scripted",
      .created = 1,
      .n_vocab = SCRIPTED_VOCAB,
      .encode = scripted_encode,
      .piece = scripted_piece,
      .render = scripted_render,
  };
  enum moe_code code = options_parse(&front_run_table, argc, argv, &options, &result, err);
  return code ? code : front_run_serve(result.positional[0], &model, &options, err);
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "--markdown")) { /* the tables that runtime/API.md must hold */
    options_print_markdown(&front_run_table, stdout);
    putchar('\n');
    front_params_print_markdown(stdout);
    return 0;
  }
  struct moe_error err = {0};
  enum moe_code code = argc > 1 && !strcmp(argv[1], "engine") ? engine_process_run(argc - 2, argv + 2, &err)
                                                              : scripted_serve(argc - 1, argv + 1, &err);
  if (code && err.message[0]) fprintf(stderr, "moert: error: %s\n", err.message);
  return (int)code;
}
