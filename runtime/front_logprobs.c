#include "front_logprobs.h"

#include "front_reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const front_logprobs_keys[FRONT_LOGPROBS_COLUMN] = {"tokens", "token_logprobs", "top_logprobs",
                                                                       "text_offset"};

static size_t front_logprobs_columns(const struct front_logprobs *l) {
  return l->chat ? 1 : FRONT_LOGPROBS_COLUMN;
}

void front_logprobs_deinit(struct front_logprobs *l) {
  for (size_t k = 0; k < FRONT_LOGPROBS_COLUMN; k++) free(l->column[k].text);
  free(l->token);
}

/* Appends a value and a comma to a column. */
static bool front_column_add(struct front_column *column, const json_t *value) {
  char *text = json_dumps(value, REPLY_DUMP_FLAGS | JSON_ENCODE_ANY);
  size_t n = text ? strlen(text) + 1 : 0;
  if (text && column->capacity - column->n < n) {
    size_t capacity = (column->n + n) * 2;
    char *grown = realloc(column->text, capacity);
    if (!grown) {
      free(text);
      return false;
    }
    column->text = grown;
    column->capacity = capacity;
  }
  if (text) {
    memcpy(column->text + column->n, text, n - 1);
    column->text[column->n + n - 1] = ',';
    column->n += n;
  }
  free(text);
  return n > 0;
}

bool front_logprobs_add(struct front_logprobs *l, json_t *token, size_t start) {
  bool ok = token != NULL;
  if (ok && l->n_token == l->capacity) {
    size_t capacity = l->capacity * 2 + 16;
    struct front_logprobs_token *grown = realloc(l->token, capacity * sizeof *grown);
    ok = grown != NULL;
    if (ok) {
      l->token = grown;
      l->capacity = capacity;
    }
  }
  for (size_t k = 0; ok && k < front_logprobs_columns(l); k++) {
    ok = front_column_add(&l->column[k], l->chat ? token : json_object_get(token, front_logprobs_keys[k]));
    l->token[l->n_token].end[k] = l->column[k].n;
  }
  if (ok) l->token[l->n_token++].start = start;
  json_decref(token);
  return ok;
}

void front_logprobs_advance(struct front_logprobs *l, size_t end, bool all) {
  while (l->n_ready < l->n_token && (all || l->token[l->n_ready].start < end)) l->n_ready++;
}

char *front_logprobs_text(const struct front_logprobs *l) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  if (!out) return NULL;
  for (size_t k = 0; k < front_logprobs_columns(l); k++) {
    fprintf(out, "%c\"%s\":[", k ? ',' : '{', l->chat ? "content" : front_logprobs_keys[k]);
    if (l->n_ready) fwrite(l->column[k].text, 1, l->token[l->n_ready - 1].end[k] - 1, out);
    fputc(']', out);
  }
  fputs(l->chat ? ",\"refusal\":null}" : "}", out);
  bool broken = ferror(out) != 0;
  if (!fclose(out) && !broken) return text;
  free(text);
  return NULL;
}

void front_logprobs_drop(struct front_logprobs *l) {
  if (!l->n_ready) return;
  const struct front_logprobs_token last = l->token[l->n_ready - 1];
  l->n_token -= l->n_ready;
  memmove(l->token, l->token + l->n_ready, l->n_token * sizeof *l->token);
  l->n_ready = 0;
  for (size_t k = 0; k < front_logprobs_columns(l); k++) {
    l->column[k].n -= last.end[k];
    memmove(l->column[k].text, l->column[k].text + last.end[k], l->column[k].n);
    for (size_t i = 0; i < l->n_token; i++) l->token[i].end[k] -= last.end[k];
  }
}
