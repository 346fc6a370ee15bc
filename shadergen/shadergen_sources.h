/* shadergen_sources.h: the GLSL sources that the build puts into the library. Internal to shadergen. */
#ifndef SHADERGEN_SHADERGEN_SOURCES_H
#define SHADERGEN_SHADERGEN_SOURCES_H

#include <stddef.h>

/* The NUL-terminated text of the file called `name` ("gemv.comp", "prelude.glsl", "kernels.def"), or NULL. *bytes, when
 * not NULL: its length. Any thread; valid for the life of the process. */
const char *shadergen_source(const char *name, size_t *bytes);

#endif
