#include "keys.h"

#include "gguf_text.h"

#include <stdio.h>
#include <string.h>

static const char *const keys_table[] = {
#define KEY(key, why) key,
#include "keys.def"
#undef KEY
#define HPARAM(field, key, fallback, min, max) key,
#define HPARAM_REAL(field, key, fallback, min, max) key,
#define HPARAM_EACH(field, key, fallback, min, max) key,
#define HPARAM_OPTION(key, min, max, a, b) key,
#include "hparams.def"
#undef HPARAM
#undef HPARAM_REAL
};

bool keys_known(const char *key) {
  for (size_t i = 0; i < sizeof keys_table / sizeof *keys_table; i++)
    if (!strcmp(keys_table[i], key)) return true;
  return false;
}

const char *keys_unknown(const struct gguf *g, uint64_t index) {
  struct gguf_string family;
  enum gguf_type type;
  const char *key = gguf_key(g, index, &type);
  if (gguf_get_string(g, "general.architecture", &family, NULL) || family.bytes == 0) return NULL;
  if (strlen(key) <= family.bytes || memcmp(key, family.data, family.bytes) || key[family.bytes] != '.') return NULL;
  key += family.bytes + 1;
  return keys_known(key) ? NULL : key;
}

uint64_t keys_list_unknown(const struct gguf *g, char *text, size_t capacity) {
  size_t at = 0;
  uint64_t n = 0;
  char shown[128];
  enum gguf_type type;
  text[0] = 0;
  for (uint64_t i = 0; i < gguf_n_key(g); i++) {
    if (!keys_unknown(g, i)) continue;
    const char *key = gguf_key(g, i, &type);
    gguf_text_printable(shown, sizeof shown, key, strlen(key));
    if (at < capacity) at += (size_t)snprintf(text + at, capacity - at, "%s%s", n ? ", " : "", shown);
    n++;
  }
  return n;
}
