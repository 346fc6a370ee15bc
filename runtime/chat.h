/* chat.h: from a chat request's messages to the prompt text, by the model's own chat template.
 *
 * Owns: a JavaScript engine (QuickJS) with the template compiled in it (@huggingface/jinja). Does not own: the CHAT
 * section (images/img_chat.h), tokenizing the prompt (tokenizer.h), parsing the model's output. Invariants: a template
 * has no access to anything but its arguments and the date; its memory and time are bounded; an error in it leaves the
 * chat usable. */
#ifndef RUNTIME_CHAT_H
#define RUNTIME_CHAT_H

#include "img_chat.h"
#include "moe_error.h"

/* Bounds of one chat_create or chat_render: the engine's whole heap, and the thread's processor time. */
#define CHAT_MEMORY_LIMIT (256u << 20)
#define CHAT_TIME_LIMIT_MS 2000

struct chat;

/* Whether chat requests can be served: MOE_OK, or MOE_DECLINED with a message for the client when the model has neither
 * a chat template nor ChatML's markers. */
enum moe_code chat_served(const struct img_chat *section, struct moe_error *err);

/* Compiles the section's template; some 15 ms, most of them for reading the template engine.
 * section: borrowed for the call. *chat: owned by the caller (chat_destroy).
 * Errors: what chat_served declines; MOE_FAILED for a template that does not parse (with the parser's message), memory.
 * Thread rules: a chat belongs to one thread at a time; render in several threads with one chat for each.
 * The thread needs 2 MiB of stack (the engine uses at most 1). */
enum moe_code chat_create(const struct img_chat *section, struct chat **chat, struct moe_error *err);
void chat_destroy(struct chat *chat);

/* Renders a prompt.
 * messages: JSON array of messages as in OpenAI's chat API: role, content (a string, null, or an array of text parts,
 *   which are joined by newlines), tool_calls (arguments given as a JSON string reach the template as the object in
 * it), and whatever else the template reads. tools: JSON array as in that API, or NULL. extra: JSON object of further
 * template variables (enable_thinking, add_generation_prompt, ...), or NULL; add_generation_prompt is true unless it
 * says otherwise. messages, tools, bos_token, eos_token cannot be replaced. *text: malloc'd UTF-8, *len bytes and a NUL
 * after them; the caller frees it. Encode it with TOKENIZER_PARSE_SPECIAL and without TOKENIZER_ADD_SPECIAL: a template
 * writes BOS itself. Errors: MOE_FAILED, the client's fault (a 400): JSON that does not parse, a message without a
 * role, content that is not text, the template's own message when it refuses (raise_exception), the bounds above.
 * Source: OpenAI API reference, chat completions; Hugging Face transformers, chat templating. */
enum moe_code chat_render(struct chat *chat, const char *messages, const char *tools, const char *extra, char **text,
                          size_t *len, struct moe_error *err);

#endif
