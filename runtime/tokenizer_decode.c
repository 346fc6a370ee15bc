/* tokenizer_decode.c: from tokens to text, at once or as a stream.
 *
 * Owns: the held beginning of a character in a stream. Does not own: the tokens' bytes (the section's).
 * Invariants: what a stream gives out is valid UTF-8; it holds back at most three bytes. */
#include "tokenizer.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

const char *tokenizer_piece(const struct tokenizer *t, uint32_t id, bool skip_special, size_t *len) {
  const struct img_tokenizer *v = tokenizer_view(t);
  *len = 0;
  if (id >= v->n_vocab || (skip_special && img_token_type(v, id) == IMG_TOKEN_CONTROL)) return "";
  uint32_t n;
  const uint8_t *bytes = img_token_bytes(v, id, &n);
  *len = n;
  return (const char *)bytes;
}

static enum moe_code check_id(const struct tokenizer *t, size_t index, uint32_t id, struct moe_error *err) {
  if (id < tokenizer_view(t)->n_vocab) return MOE_OK;
  return moe_fail(err, MOE_FAILED, "ids[%zu]: token %u, the vocabulary has %u", index, id, tokenizer_view(t)->n_vocab);
}

enum moe_code tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool skip_special, char **text,
                               size_t *len, struct moe_error *err) {
  size_t total = 0, bytes;
  *text = NULL;
  for (size_t i = 0; i < n; i++) {
    enum moe_code c = check_id(t, i, ids[i], err);
    if (c) return c;
    (void)tokenizer_piece(t, ids[i], skip_special, &bytes);
    total += bytes;
  }
  char *out = malloc(total + 1);
  if (!out) return moe_fail(err, MOE_FAILED, "ids: no memory for %zu bytes of text", total);
  *len = 0;
  for (size_t i = 0; i < n; i++) {
    const char *piece = tokenizer_piece(t, ids[i], skip_special, &bytes);
    memcpy(out + *len, piece, bytes);
    *len += bytes;
  }
  out[total] = 0;
  *text = out;
  return MOE_OK;
}

/* Room for `need` bytes of output. */
static enum moe_code stream_reserve(struct tokenizer_stream *s, size_t need, struct moe_error *err) {
  if (need <= s->capacity) return MOE_OK;
  size_t grown = need < 256 ? 256 : need;
  char *moved = realloc(s->text, grown);
  if (!moved) return moe_fail(err, MOE_FAILED, "stream: no memory for %zu bytes of text", grown);
  s->text = moved;
  s->capacity = grown;
  return MOE_OK;
}

enum moe_code tokenizer_stream_add(struct tokenizer_stream *s, const struct tokenizer *t, uint32_t id,
                                   bool skip_special, const char **text, size_t *len, struct moe_error *err) {
  size_t bytes, in = 0, out = 0;
  enum moe_code c = check_id(t, 0, id, err);
  if (c) return c;
  const char *piece = tokenizer_piece(t, id, skip_special, &bytes);
  /* The input stands at the buffer's end and the output grows towards it: a byte becomes at most three. */
  size_t total = s->n_held + bytes, start = total * 2 + 1;
  if ((c = stream_reserve(s, start + total + 1, err))) return c;
  uint8_t *input = (uint8_t *)s->text + start;
  memcpy(input, s->held, s->n_held);
  memcpy(input + s->n_held, piece, bytes);
  s->n_held = 0;
  while (in < total) {
    int k = utf8_next(input + in, total - in);
    if (k == 0) {
      s->n_held = (uint32_t)(total - in);
      memcpy(s->held, input + in, s->n_held);
      break;
    }
    memmove(s->text + out, k > 0 ? (const char *)input + in : replacement, k > 0 ? (size_t)k : 3);
    out += k > 0 ? (size_t)k : 3;
    in += (size_t)(k > 0 ? k : -k);
  }
  s->text[out] = 0;
  *text = s->text;
  *len = out;
  return MOE_OK;
}

enum moe_code tokenizer_stream_finish(struct tokenizer_stream *s, const char **text, size_t *len,
                                      struct moe_error *err) {
  enum moe_code c = stream_reserve(s, sizeof replacement, err);
  if (c) return c;
  *len = s->n_held ? 3 : 0;
  memcpy(s->text, replacement, *len);
  s->text[*len] = 0;
  *text = s->text;
  s->n_held = 0;
  return MOE_OK;
}

void tokenizer_stream_deinit(struct tokenizer_stream *s) {
  free(s->text);
  *s = (struct tokenizer_stream){0};
}
