/* shadergen_sources.c: lookup of embedded GLSL sources by file name. The list is made by CMakeLists.txt. */
#include "shadergen_sources.h"

#include <string.h>

#define SHADERGEN_SOURCE(NAME, SYMBOL) extern const unsigned char SYMBOL[], SYMBOL##_end[];
#include "shadergen_sources.inc"
#undef SHADERGEN_SOURCE

static const struct {
  const char *name;
  const unsigned char *begin, *end;
} sources[] = {
#define SHADERGEN_SOURCE(NAME, SYMBOL) {NAME, SYMBOL, SYMBOL##_end},
#include "shadergen_sources.inc"
#undef SHADERGEN_SOURCE
};

const char *shadergen_source(const char *name, size_t *bytes) {
  for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
    if (strcmp(sources[i].name, name)) continue;
    if (bytes) *bytes = (size_t)(sources[i].end - sources[i].begin);
    return (const char *)sources[i].begin;
  }
  return NULL;
}
