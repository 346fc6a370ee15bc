/* img_chat.c: checks and writes a CHAT payload.
 *
 * Owns: what a well-formed payload is. Does not own: the meaning of its texts.
 * Invariants: nothing of the payload is used before it was checked. */
#include "img_chat.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const text_names[4] = {"template", "bos", "eos", "grammar"};

static enum moe_code check_text(const void *bytes, uint64_t len, int which, struct moe_error *err) {
  const struct img_chat_header *h = bytes;
  uint64_t offset = h->texts[which].offset, n = h->texts[which].bytes;
  if (n > IMG_CHAT_MAX_TEXT)
    return moe_fail(err, MOE_FAILED, "CHAT %s: %" PRIu64 " bytes, at most %u allowed", text_names[which], n,
                    IMG_CHAT_MAX_TEXT);
  if (offset < sizeof *h || !moe_inside(offset, n + 1, len))
    return moe_fail(err, MOE_FAILED,
                    "CHAT %s: offset %" PRIu64 " and %" PRIu64 " bytes with terminator are not between the header's "
                    "%zu and the payload's %" PRIu64 " bytes",
                    text_names[which], offset, n + 1, sizeof *h, len);
  const char *text = (const char *)bytes + offset, *nul = memchr(text, 0, n + 1);
  if (nul != text + n)
    return moe_fail(err, MOE_FAILED, "CHAT %s: its first NUL is not at byte %" PRIu64 " where it must end",
                    text_names[which], n);
  return MOE_OK;
}

enum moe_code img_chat_open(const void *bytes, uint64_t len, struct img_chat *view, struct moe_error *err) {
  const struct img_chat_header *h = bytes;
  if ((uintptr_t)bytes % 8 != 0) return moe_fail(err, MOE_FAILED, "CHAT payload: not mapped on 8 bytes");
  if (len < sizeof *h)
    return moe_fail(err, MOE_FAILED, "CHAT payload: %" PRIu64 " bytes, its header alone has %zu", len, sizeof *h);
  if (h->layout != IMG_CHAT_LAYOUT || h->header_bytes != sizeof *h)
    return moe_fail(err, MOE_FAILED,
                    "CHAT header: layout %u of %u bytes, this program reads layout %u of %zu; compile the model again "
                    "with the moec of this version",
                    h->layout, h->header_bytes, IMG_CHAT_LAYOUT, sizeof *h);
  if (h->origin > IMG_CHAT_CHATML || h->reserved != 0)
    return moe_fail(err, MOE_FAILED, "CHAT header: origin %u and reserved %u, allowed are 0 to %d and 0", h->origin,
                    h->reserved, IMG_CHAT_CHATML);
  for (int i = 0; i < 4; i++) {
    enum moe_code c = check_text(bytes, len, i, err);
    if (c) return c;
  }
  if ((h->origin == IMG_CHAT_NONE) != (h->texts[0].bytes == 0))
    return moe_fail(err, MOE_FAILED, "CHAT template: %" PRIu64 " bytes with origin %u; empty exactly with origin %d",
                    h->texts[0].bytes, h->origin, IMG_CHAT_NONE);
  const char *base = bytes;
  *view = (struct img_chat){
      .origin = (enum img_chat_origin)h->origin,
      .template_text = base + h->texts[0].offset,
      .bos = base + h->texts[1].offset,
      .eos = base + h->texts[2].offset,
      .grammar = base + h->texts[3].offset,
      .template_len = h->texts[0].bytes,
      .bos_len = h->texts[1].bytes,
      .eos_len = h->texts[2].bytes,
      .grammar_len = h->texts[3].bytes,
  };
  return MOE_OK;
}

enum moe_code img_chat_check(const void *bytes, uint64_t len, struct moe_error *err) {
  struct img_chat view;
  return img_chat_open(bytes, len, &view, err);
}

enum moe_code img_chat_build(const struct img_chat *chat, uint8_t **bytes, uint64_t *len, struct moe_error *err) {
  const char *const text[4] = {chat->template_text, chat->bos, chat->eos, chat->grammar};
  const uint64_t size[4] = {chat->template_len, chat->bos_len, chat->eos_len, chat->grammar_len};
  struct img_chat_header h = {.layout = IMG_CHAT_LAYOUT, .header_bytes = sizeof h, .origin = chat->origin};
  *bytes = NULL;
  uint64_t at = sizeof h;
  for (int i = 0; i < 4; i++) {
    if (size[i] > IMG_CHAT_MAX_TEXT)
      return moe_fail(err, MOE_FAILED, "CHAT %s: %" PRIu64 " bytes, at most %u allowed", text_names[i], size[i],
                      IMG_CHAT_MAX_TEXT);
    h.texts[i].offset = at;
    h.texts[i].bytes = size[i];
    at += size[i] + 1;
  }
  at = (at + 15) & ~UINT64_C(15);
  uint8_t *out = calloc(1, at);
  if (!out) return moe_fail(err, MOE_FAILED, "CHAT: no memory for %" PRIu64 " bytes", at);
  memcpy(out, &h, sizeof h);
  for (int i = 0; i < 4; i++)
    if (size[i]) memcpy(out + h.texts[i].offset, text[i], size[i]);
  enum moe_code c = img_chat_check(out, at, err);
  if (c) {
    free(out);
    return c;
  }
  *bytes = out;
  *len = at;
  return MOE_OK;
}
