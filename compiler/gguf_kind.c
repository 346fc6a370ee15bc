/* gguf_kind.c: see gguf_kind.h. */
#include "gguf_kind.h"

#include <stdio.h>
#include <string.h>

#define VECTORS "it gives vectors, and moec compiles models that generate text"

static const struct {
  const char *key, *value, *what, *advice;
} kinds[] = {
#define GGUF_KIND(key, value, what, advice) {key, value, what, advice},
#include "gguf_kind.def"
};

/* How a model pools its last layer into one vector, by the key's number; 0, none, is what generators have.
 * Source: llama.cpp, enum llama_pooling_type. */
static const char *const poolings[] = {"none", "mean", "first token", "last token", "rank"};

static bool text_is(const struct gguf *g, const char *key, const char *value) {
  struct gguf_string s;
  return gguf_get_string(g, key, &s, NULL) == MOE_OK && s.bytes == strlen(value) && memcmp(s.data, value, s.bytes) == 0;
}

/* An embedding model or a reranker of a family that also generates: told by its pooling alone. */
static bool is_pooled(const struct gguf *g, struct gguf_kind *kind) {
  struct gguf_string family;
  char key[128];
  uint32_t pooling = 0;
  if (gguf_get_string(g, "general.architecture", &family, NULL) != MOE_OK || family.bytes > 64) return false;
  snprintf(key, sizeof key, "%.*s.pooling_type", (int)family.bytes, family.data);
  if (gguf_get_u32(g, key, &pooling, NULL) != MOE_OK || pooling == 0) return false;
  bool named = pooling < sizeof poolings / sizeof *poolings;
  *kind = (struct gguf_kind){.what = pooling == 4 ? "a reranker" : "an embedding model", .advice = VECTORS};
  if (pooling == 4) kind->advice = "it gives scores, and moec compiles models that generate text";
  snprintf(kind->because, sizeof kind->because, "%s is %u%s%s%s", key, pooling, named ? " (" : "",
           named ? poolings[pooling] : "", named ? ")" : "");
  return true;
}

static bool is_empty(const struct gguf *g, struct gguf_kind *kind) {
  if (gguf_n_tensor(g) != 0) return false;
  *kind =
      gguf_has(g, "tokenizer.ggml.tokens")
          ? (struct gguf_kind){.what = "a vocabulary without weights", .advice = "give the model of that vocabulary"}
          : (struct gguf_kind){.what = "a header without weights", .advice = "fetch the model again"};
  snprintf(kind->because, sizeof kind->because, "it has no tensors");
  return true;
}

void gguf_kind_find(const struct gguf *g, struct gguf_kind *kind) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (!text_is(g, kinds[i].key, kinds[i].value)) continue;
    *kind = (struct gguf_kind){.what = kinds[i].what, .advice = kinds[i].advice};
    snprintf(kind->because, sizeof kind->because, "%s is '%s'", kinds[i].key, kinds[i].value);
    return;
  }
  if (is_pooled(g, kind) || is_empty(g, kind)) return;
  *kind = (struct gguf_kind){.what = "a model that generates text"};
}

enum moe_code gguf_kind_require(const struct gguf *g, struct moe_error *err) {
  struct gguf_kind kind;
  gguf_kind_find(g, &kind);
  if (kind.advice == NULL) return MOE_OK;
  return moe_fail(err, MOE_DECLINED, "%.300s: %s: it is %s; %s", gguf_path(g), kind.because, kind.what, kind.advice);
}
