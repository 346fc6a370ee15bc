/* src_gguf_split.c: models that stand in several files: finds, opens and joins the parts. See src_gguf.h.
 *
 * Owns: the parts' names (STEM-00001-of-00003.gguf), their keys split.no, split.count and split.tensors.count, and what
 * parts of one model must agree on. Does not own: the checks of a part as a file (src_gguf.c opens each like a whole
 * one). Invariants after gguf_split_join: the parts are all there, each once, in order; tensor names are unique over
 * all of them; keys are those of part 1. Source: llama.cpp, tools/gguf-split (the keys and the pattern of names). */
#include "src_gguf_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  NUMBER_DIGITS = 5,
  SUFFIX_BYTES = 20, /* "-00001-of-00003.gguf" */
  MAX_PART = 65535,  /* split.count is a u16 */
  MAX_TENSOR = 1 << 20,
};

/* What a file says of itself. */
struct split {
  uint32_t no, count, n_tensor; /* no from 0; n_tensor over all parts */
};

static bool digits(const char *text, uint32_t *value) {
  *value = 0;
  for (int i = 0; i < NUMBER_DIGITS; i++) {
    if (text[i] < '0' || text[i] > '9') return false;
    *value = *value * 10 + (uint32_t)(text[i] - '0');
  }
  return true;
}

/* Whether path ends like a part; the numbers count from 1. */
static bool split_name(const char *path, uint32_t *number, uint32_t *count) {
  size_t n = strlen(path);
  if (n <= SUFFIX_BYTES) return false;
  const char *suffix = path + n - SUFFIX_BYTES;
  return suffix[-1] != '/' && suffix[0] == '-' && digits(suffix + 1, number) && memcmp(suffix + 6, "-of-", 4) == 0 &&
         digits(suffix + 10, count) && strcmp(suffix + 15, ".gguf") == 0;
}

size_t gguf_stem_bytes(const char *path) {
  uint32_t number, count;
  size_t n = strlen(path);
  if (split_name(path, &number, &count)) return n - SUFFIX_BYTES;
  return n > 5 && strcmp(path + n - 5, ".gguf") == 0 ? n - 5 : n;
}

/* The path of part `no` of the model of which path is a part; the caller frees it. */
static char *part_path(const char *path, uint32_t no, uint32_t count) {
  char *text = NULL;
  int n = asprintf(&text, "%.*s-%05u-of-%05u.gguf", (int)(strlen(path) - SUFFIX_BYTES), path, no + 1, count);
  return n < 0 ? NULL : text;
}

static enum moe_code read_split(const struct gguf *g, struct split *s, struct moe_error *err) {
  *s = (struct split){.count = 1};
  enum moe_code code = gguf_get_u32_or(g, "split.count", 1, &s->count, err);
  if (code != MOE_OK || s->count <= 1) return code;
  code = gguf_get_u32(g, "split.no", &s->no, err);
  if (code == MOE_OK) code = gguf_get_u32(g, "split.tensors.count", &s->n_tensor, err);
  if (code != MOE_OK) return code;
  if (s->count > MAX_PART)
    return moe_fail(err, MOE_FAILED, "%.300s: split.count is %u, allowed 1 to %d", g->path, s->count, MAX_PART);
  if (s->no >= s->count)
    return moe_fail(err, MOE_FAILED, "%.300s: split.no is %u, allowed 0 to split.count - 1, which is %u", g->path,
                    s->no, s->count - 1);
  if (s->n_tensor > MAX_TENSOR)
    return moe_fail(err, MOE_FAILED, "%.300s: split.tensors.count is %u, allowed 0 to %d", g->path, s->n_tensor,
                    MAX_TENSOR);
  return MOE_OK;
}

/* The name a part was opened by must be the one its keys give: the other parts are found by it. */
static enum moe_code check_name(const struct gguf *g, const struct split *s, struct moe_error *err) {
  uint32_t number, count;
  if (!split_name(g->path, &number, &count))
    return moe_fail(err, MOE_FAILED,
                    "%.300s: its keys say that it is part %u of %u of a model; its name must then end in "
                    "-%05u-of-%05u.gguf, and the other parts must stand beside it under names alike",
                    g->path, s->no + 1, s->count, s->no + 1, s->count);
  if (number != s->no + 1 || count != s->count)
    return moe_fail(err, MOE_FAILED,
                    "%.300s: its name says part %u of %u, its keys (split.no, split.count) say part %u of %u; give the "
                    "parts back the names that they were made with, or fetch this one again",
                    g->path, number, count, s->no + 1, s->count);
  return MOE_OK;
}

/* Opens part `no` by its name and compares what it says with what part 1 says. */
static enum moe_code open_part(const char *path, uint32_t no, const struct split *first, struct gguf **part,
                               struct moe_error *err) {
  struct split s = {0};
  *part = NULL;
  if (access(path, F_OK) != 0)
    return moe_fail(err, MOE_FAILED,
                    "%.300s: part %u of %u of the model is missing; all parts belong into one folder, and the first is "
                    "the one to give",
                    path, no + 1, first->count);
  enum moe_code code = gguf_open_file(path, part, err);
  if (code == MOE_OK) code = read_split(*part, &s, err);
  if (code != MOE_OK) return code;
  if (s.count == 1)
    return moe_fail(err, MOE_FAILED,
                    "%.300s: named as part %u of %u of a model, but it has no split.count: it is a whole model or "
                    "foreign; fetch the part again",
                    path, no + 1, first->count);
  return check_name(*part, &s, err);
}

/* A part that is well formed and rightly named, but of another model. */
static enum moe_code check_same_model(const struct gguf *first, const struct gguf *part, const struct split *of_first,
                                      struct moe_error *err) {
  struct split s;
  struct gguf_string a, b;
  enum moe_code code = read_split(part, &s, err);
  if (code != MOE_OK) return code;
  if (s.n_tensor != of_first->n_tensor)
    return moe_fail(err, MOE_FAILED,
                    "%.300s: part of another model: its split.tensors.count is %u, that of %.300s is %u", part->path,
                    s.n_tensor, first->path, of_first->n_tensor);
  if (gguf_get_string(part, "general.architecture", &b, NULL) != MOE_OK) return MOE_OK; /* the usual case */
  if (gguf_get_string(first, "general.architecture", &a, NULL) != MOE_OK || a.bytes != b.bytes ||
      memcmp(a.data, b.data, a.bytes) != 0)
    return moe_fail(err, MOE_FAILED, "%.300s: part of another model: its general.architecture is not that of %.300s",
                    part->path, first->path);
  return MOE_OK;
}

/* ---- Joining ---- */

/* The part's tensors behind those of the parts before it. */
static enum moe_code join_tensors(struct gguf *g, struct gguf *part, uint32_t no, const struct split *first,
                                  struct moe_error *err) {
  if (part->n_tensor > first->n_tensor - g->n_tensor)
    return moe_fail(
        err, MOE_FAILED,
        "%.300s: with its %ju tensors the parts up to %u have %ju, more than the %u of split.tensors.count; "
        "it is of another model: fetch it again",
        part->path, (uintmax_t)part->n_tensor, no + 1, (uintmax_t)(g->n_tensor + part->n_tensor), first->n_tensor);
  for (uint64_t i = 0, other; i < part->n_tensor; i++) {
    g->tensor[g->n_tensor] = part->tensor[i];
    g->tensor[g->n_tensor].part = no;
    if (!gguf_index_add(&g->tensor_index, g->hash_key, g->n_tensor, &other))
      return moe_fail(err, MOE_FAILED,
                      "%.300s: tensor[%ju] %s: duplicate tensor name, already in part %u; one of the two parts is of "
                      "another model",
                      part->path, (uintmax_t)i, part->tensor[i].name, g->tensor[other].part + 1);
    g->n_tensor++;
  }
  gguf_index_deinit(&part->tensor_index);
  free(part->tensor);
  part->tensor = NULL;
  part->n_tensor = 0;
  return MOE_OK;
}

/* Makes room for the tensors of all parts, with those of part 1 in it. */
static enum moe_code make_room(struct gguf *g, const struct split *s, struct moe_error *err) {
  if (g->n_tensor > s->n_tensor)
    return moe_fail(err, MOE_FAILED, "%.300s: has %ju tensors, more than the %u of split.tensors.count", g->path,
                    (uintmax_t)g->n_tensor, s->n_tensor);
  struct gguf_tensor *tensor = realloc(g->tensor, (s->n_tensor + 1) * sizeof *tensor);
  if (tensor != NULL) g->tensor = tensor;
  gguf_index_deinit(&g->tensor_index);
  g->part = calloc(s->count, sizeof *g->part);
  if (tensor == NULL || g->part == NULL || !gguf_index_init(&g->tensor_index, tensor, sizeof *tensor, s->n_tensor))
    return moe_fail(err, MOE_FAILED, "%.300s: out of memory for %u tensors of %u parts", g->path, s->n_tensor,
                    s->count);
  for (uint64_t i = 0, other; i < g->n_tensor; i++) gguf_index_add(&g->tensor_index, g->hash_key, i, &other);
  return MOE_OK;
}

static enum moe_code join_parts(struct gguf *g, const struct split *s, struct moe_error *err) {
  enum moe_code code = make_room(g, s, err);
  for (uint32_t no = 1; no < s->count && code == MOE_OK; no++) {
    char *path = part_path(g->path, no, s->count);
    if (path == NULL) return moe_fail(err, MOE_FAILED, "%.300s: out of memory for the names of its parts", g->path);
    code = open_part(path, no, s, &g->part[no], err);
    if (code == MOE_OK) code = check_same_model(g, g->part[no], s, err);
    if (code == MOE_OK) code = join_tensors(g, g->part[no], no, s, err);
    g->n_part = no + 1;
    free(path);
  }
  if (code == MOE_OK && g->n_tensor != s->n_tensor)
    code =
        moe_fail(err, MOE_FAILED,
                 "%.300s: its %u parts have %ju tensors together, its split.tensors.count is %u; a part is of another "
                 "model: fetch them again",
                 g->path, s->count, (uintmax_t)g->n_tensor, s->n_tensor);
  return code;
}

enum moe_code gguf_split_join(struct gguf **g, struct moe_error *err) {
  struct split s;
  enum moe_code code = read_split(*g, &s, err);
  if (code != MOE_OK || s.count <= 1) return code;
  code = check_name(*g, &s, err);
  if (code != MOE_OK || s.no == 0) return code != MOE_OK ? code : join_parts(*g, &s, err);
  char *path = part_path((*g)->path, 0, s.count);
  if (path == NULL) return moe_fail(err, MOE_FAILED, "%.300s: out of memory for the first part's name", (*g)->path);
  gguf_close(*g);
  code = open_part(path, 0, &s, g, err);
  free(path);
  if (code == MOE_OK) code = read_split(*g, &s, err);
  return code != MOE_OK ? code : join_parts(*g, &s, err);
}
