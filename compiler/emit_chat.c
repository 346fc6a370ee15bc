/* emit_chat.c: the CHAT payload: which template a model has and what its output looks like.
 *
 * Owns: the fallback to ChatML, the detection of the output's grammar. Does not own: the payload's layout.
 * Invariants: the grammar is valid JSON (its parts are constants of chat_grammars.def without anything to escape). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "emit_chat.h"

#include "src_gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The ChatML turn format, for models that were trained on it and whose file has no template. */
static const char chatml[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

struct span {
  const char *member, *open, *close, *syntax, *needle;
  bool by_needle; /* alone */
};

static const struct span spans[] = {
#define CHAT_SPAN(member, open, close, syntax, needle) {member, open, close, syntax, needle, false},
#define CHAT_SPAN_BY(member, open, close, syntax, needle) {member, open, close, syntax, needle, true},
#include "chat_grammars.def"
};

static bool mentions(const char *text, uint64_t len, const char *needle) {
  return !needle || memmem(text, len, needle, strlen(needle)) != NULL;
}

/* Writes the grammar object of a template into out and returns its length. The room is enough for the longest row of
 * each member; a test writes them all. */
static uint64_t write_grammar(const char *template_text, uint64_t len, char *out, size_t size) {
  size_t at = 0;
  const char *done = NULL;
  at += (size_t)snprintf(out, size, "{");
  for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
    const struct span *s = &spans[i];
    if (done && strcmp(done, s->member) == 0) continue;
    if (!mentions(template_text, len, s->needle)) continue;
    if (!s->by_needle && (!mentions(template_text, len, s->open) || !mentions(template_text, len, s->close))) continue;
    at += (size_t)snprintf(out + at, size - at, "%s\"%s\":{\"open\":\"%s\",\"close\":\"%s\"", done ? "," : "",
                           s->member, s->open, s->close);
    if (s->syntax) at += (size_t)snprintf(out + at, size - at, ",\"syntax\":\"%s\"", s->syntax);
    at += (size_t)snprintf(out + at, size - at, "}");
    done = s->member;
  }
  return at + (size_t)snprintf(out + at, size - at, "}");
}

static bool has_added(const struct img_tokenizer *t, const char *text) {
  return img_tokenizer_find_added(t, (const uint8_t *)text, (uint32_t)strlen(text)) != IMG_TOKEN_NONE;
}

/* The text of a token that may be IMG_TOKEN_NONE. */
static const char *token_text(const struct img_tokenizer *t, uint32_t id, uint64_t *len) {
  uint32_t n = 0;
  const char *text = id == IMG_TOKEN_NONE ? "" : (const char *)img_token_bytes(t, id, &n);
  *len = n;
  return text;
}

enum moe_code emit_chat(const struct gguf *g, const struct img_tokenizer *t, uint8_t **bytes, uint64_t *len,
                        struct moe_error *err) {
  char grammar[1024];
  struct img_chat chat = {.origin = IMG_CHAT_NONE, .template_text = "", .grammar = grammar};
  struct gguf_string own = {"", 0};
  if (gguf_has(g, "tokenizer.chat_template")) {
    enum moe_code c = gguf_get_string(g, "tokenizer.chat_template", &own, err);
    if (c) return c;
  }
  if (own.bytes > 0)
    chat.origin = IMG_CHAT_MODEL, chat.template_text = own.data, chat.template_len = own.bytes;
  else if (has_added(t, "<|im_start|>") && has_added(t, "<|im_end|>"))
    chat.origin = IMG_CHAT_CHATML, chat.template_text = chatml, chat.template_len = sizeof chatml - 1;
  chat.bos = token_text(t, t->bos_id, &chat.bos_len);
  chat.eos = token_text(t, t->eos_id, &chat.eos_len);
  chat.grammar_len = write_grammar(chat.template_text, chat.template_len, grammar, sizeof grammar);
  return img_chat_build(&chat, bytes, len, err);
}
