#include "family.h"

#include "gguf_kind.h"
#include "gguf_text.h"
#include "model_blocks.h"

#include <string.h>

#define FAMILY(architecture, symbol, what) void model_##symbol##_build(struct blocks *b);
#include "families.def"
#undef FAMILY

static const struct family {
  const char *architecture;
  void (*build)(struct blocks *b);
} families[] = {
#define FAMILY(architecture, symbol, what) {architecture, model_##symbol##_build},
#include "families.def"
#undef FAMILY
};
enum { FAMILY_COUNT = sizeof families / sizeof *families };

static const struct family *family_find(const char *name, size_t bytes) {
  for (size_t i = 0; i < FAMILY_COUNT; i++)
    if (strlen(families[i].architecture) == bytes && !memcmp(families[i].architecture, name, bytes))
      return &families[i];
  return NULL;
}

bool family_served(const char *architecture) {
  return family_find(architecture, strlen(architecture)) != NULL;
}

const char *family_list(char *text, size_t capacity) {
  size_t at = 0;
  text[0] = 0;
  for (size_t i = 0; i < FAMILY_COUNT && at < capacity; i++)
    at += (size_t)snprintf(text + at, capacity - at, "%s%s", i ? ", " : "", families[i].architecture);
  return text;
}

enum moe_code family_build(const struct gguf *gguf, struct ir_graph *graph, struct moe_error *err) {
  struct gguf_string name;
  enum moe_code code = gguf_kind_require(gguf, err);
  if (!code) code = gguf_get_string(gguf, "general.architecture", &name, err);
  if (code) return code;
  const struct family *family = family_find(name.data, name.bytes);
  if (!family) {
    char list[640], shown[64];
    gguf_text_printable(shown, sizeof shown, name.data, name.bytes);
    return moe_fail(err, MOE_DECLINED, "general.architecture: '%s' is not served; moec compiles %s", shown,
                    family_list(list, sizeof list));
  }
  ir_init(graph, gguf);
  struct blocks b;
  blocks_init(&b, graph, gguf, err);
  if (!b.code) family->build(&b); /* else its loops would run over numbers that are out of bounds */
  if ((code = blocks_finish(&b))) ir_deinit(graph);
  return code;
}
