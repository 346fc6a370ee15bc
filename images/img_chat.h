/* img_chat.h: the CHAT section's payload: layout, bounds checker, borrowed view, writer.
 *
 * Owns: the byte layout (described in FORMAT-tokenizer.md). Does not own: running the template (runtime/chat.c), the
 * choice of template and grammar (compiler/emit_chat.c), parsing the grammar's JSON (runtime).
 * Invariants: little-endian; a view borrows the mapped payload; every text of a view is followed by a NUL byte and has
 * none inside, so that it may be used as a C string. */
#ifndef IMAGES_IMG_CHAT_H
#define IMAGES_IMG_CHAT_H

#include "moe_error.h"

/* Longest text in a CHAT payload, in bytes. */
#define IMG_CHAT_MAX_TEXT (4u << 20)

/* Where the chat template came from. */
enum img_chat_origin {
  IMG_CHAT_NONE = 0,   /* there is none: chat requests are declined */
  IMG_CHAT_MODEL = 1,  /* the model file's own */
  IMG_CHAT_CHATML = 2, /* the model file has none, but its vocabulary has ChatML's markers */
};

/* A checked payload; the texts are borrowed, valid UTF-8 is not promised. */
struct img_chat {
  enum img_chat_origin origin;
  const char *template_text; /* Jinja source; empty exactly when origin is IMG_CHAT_NONE */
  const char *bos, *eos;     /* texts of the tokens, as the template's bos_token and eos_token; may be empty */
  const char *grammar;       /* JSON object that declares the output's syntax: see FORMAT-tokenizer.md */
  uint64_t template_len, bos_len, eos_len, grammar_len;
};

/* Checks a payload completely and fills `view` with borrowed pointers.
 * bytes: 8-byte aligned, must outlive the view. len: its bytes.
 * Errors: MOE_FAILED with the field, what was found and what is allowed. No allocation, time O(len). */
enum moe_code img_chat_open(const void *bytes, uint64_t len, struct img_chat *view, struct moe_error *err);

/* The same check without a view. */
enum moe_code img_chat_check(const void *bytes, uint64_t len, struct moe_error *err);

/* Writes a payload from a view's fields (a function of them alone).
 * *bytes: receives a malloc'd buffer that the caller frees; *len: its bytes.
 * Errors: MOE_FAILED for texts that would not pass img_chat_open, for no memory. */
enum moe_code img_chat_build(const struct img_chat *chat, uint8_t **bytes, uint64_t *len, struct moe_error *err);

/* The layout's fixed header; texts in the order template, bos, eos, grammar. */
struct img_chat_header {
  uint32_t layout;       /* IMG_CHAT_LAYOUT */
  uint32_t header_bytes; /* sizeof(struct img_chat_header) */
  uint32_t origin;       /* enum img_chat_origin */
  uint32_t reserved;     /* zero */
  struct {
    uint64_t offset, bytes; /* from the payload's start; without the NUL that follows */
  } texts[4];
};

#define IMG_CHAT_LAYOUT 1u

_Static_assert(sizeof(struct img_chat_header) == 16 + 4 * 16, "no padding");

#endif
