/* emit_chat.h: from a GGUF's chat template to the payload of the CHAT section.
 *
 * Owns: the choice of the template, the grammar of the output (chat_grammars.def). Does not own: the payload's layout
 * (images/img_chat.h), running the template (the runtime). Invariants: the payload is a function of its inputs alone.
 */
#ifndef COMPILER_EMIT_CHAT_H
#define COMPILER_EMIT_CHAT_H

#include "img_chat.h"
#include "img_tokenizer.h"
#include "moe_error.h"

struct gguf;

/* Writes the CHAT payload of a model file: its own template; else ChatML where the vocabulary has ChatML's markers as
 * added tokens; else a payload without template, with which a server declines chat requests.
 * g: an open file. tokenizer: the view of its TOKENIZER payload, for the texts of BOS and EOS and the markers.
 * *bytes: receives a malloc'd payload that the caller frees; *len: its bytes.
 * Errors: MOE_FAILED for a template that holds a NUL or has over 4 MiB, a key of the wrong type, no memory. */
enum moe_code emit_chat(const struct gguf *g, const struct img_tokenizer *tokenizer, uint8_t **bytes, uint64_t *len,
                        struct moe_error *err);

#endif
