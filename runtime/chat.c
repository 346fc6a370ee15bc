/* chat.c: runs chat templates in QuickJS.
 *
 * Owns: the engine of one struct chat, its limits, the conversion of its exceptions. Does not own: the template engine
 * (embedded as chat_jinja_js, see cmake/jinja.sh) and how requests become template variables (chat_glue.js).
 * Invariants: every value of the engine is freed on every path; the engine has no module loader and no system calls. */
#include "chat.h"

#include <quickjs.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern const char chat_jinja_js[], chat_jinja_js_end[], chat_glue_js[], chat_glue_js_end[];

struct chat {
  JSRuntime *runtime;
  JSContext *js;
  JSValue template, render; /* the compiled template; chat_glue.js's function render */
  JSValue bos, eos;
  int64_t deadline_ms; /* of the call in progress, on used_ms's clock */
  bool late;           /* the call in progress was stopped at its deadline */
};

/* Processor time of this thread: a busy machine must not fail requests. */
static int64_t used_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* QuickJS calls this every so many instructions; 1 ends the script with an exception that it cannot catch. */
static int stop_when_late(JSRuntime *runtime, void *opaque) {
  struct chat *chat = opaque;
  (void)runtime;
  if (used_ms() <= chat->deadline_ms) return 0;
  chat->late = true;
  return 1;
}

/* Starts the clock of a call and tells the engine how deep this thread's stack is. */
static void begin(struct chat *chat) {
  JS_UpdateStackTop(chat->runtime);
  chat->late = false;
  chat->deadline_ms = used_ms() + CHAT_TIME_LIMIT_MS;
}

/* Bytes of a text that a message of at most `max` bytes can hold without cutting a character. */
static int message_bytes(const char *text, size_t max) {
  size_t n = strnlen(text, max + 1);
  if (n <= max) return (int)n;
  for (n = max; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;) n--;
  return (int)n;
}

/* Turns the pending exception into an error. */
static enum moe_code fail_with_exception(struct chat *chat, struct moe_error *err) {
  JSValue exception = JS_GetException(chat->js);
  if (chat->late) {
    JS_FreeValue(chat->js, exception);
    return moe_fail(err, MOE_FAILED, "chat template: stopped after %d ms; the conversation is too large for it",
                    CHAT_TIME_LIMIT_MS);
  }
  JSValue message = JS_IsObject(exception) ? JS_GetPropertyStr(chat->js, exception, "message") : JS_UNDEFINED;
  const char *text = JS_IsString(message) ? JS_ToCString(chat->js, message) : NULL;
  if (!text || strstr(text, "out of memory"))
    moe_fail(err, MOE_FAILED, "chat template: needs more than %u MiB; the conversation is too large for it",
             CHAT_MEMORY_LIMIT >> 20);
  else
    moe_fail(err, MOE_FAILED, "%.*s", message_bytes(text, sizeof err->message - 1), text);
  JS_FreeCString(chat->js, text);
  JS_FreeValue(chat->js, message);
  JS_FreeValue(chat->js, exception);
  return MOE_FAILED;
}

/* Evaluates an embedded script (a zero byte follows it). The result is the caller's; an exception when it failed. */
static JSValue evaluate(struct chat *chat, const char *script, const char *end, const char *name) {
  return JS_Eval(chat->js, script, (size_t)(end - script), name, JS_EVAL_TYPE_GLOBAL);
}

static enum moe_code compile(struct chat *chat, const struct img_chat *section, struct moe_error *err) {
  JSContext *js = chat->js;
  JSValue engine = evaluate(chat, chat_jinja_js, chat_jinja_js_end, "jinja.js");
  JSValue glue = evaluate(chat, chat_glue_js, chat_glue_js_end, "chat_glue.js");
  JSValue function = JS_IsException(glue) ? JS_UNDEFINED : JS_GetPropertyStr(js, glue, "compile");
  JSValue source = JS_NewStringLen(js, section->template_text, section->template_len);
  if (!JS_IsException(glue)) chat->render = JS_GetPropertyStr(js, glue, "render");
  chat->bos = JS_NewStringLen(js, section->bos, section->bos_len);
  chat->eos = JS_NewStringLen(js, section->eos, section->eos_len);
  bool ready = !JS_IsException(engine) && !JS_IsException(glue) && !JS_IsException(source) &&
               !JS_IsException(chat->bos) && !JS_IsException(chat->eos);
  if (ready) chat->template = JS_Call(js, function, JS_UNDEFINED, 1, &source);
  enum moe_code c = ready && !JS_IsException(chat->template) ? MOE_OK : fail_with_exception(chat, err);
  JS_FreeValue(js, source);
  JS_FreeValue(js, function);
  JS_FreeValue(js, glue);
  JS_FreeValue(js, engine);
  return c;
}

enum moe_code chat_served(const struct img_chat *section, struct moe_error *err) {
  if (section->origin != IMG_CHAT_NONE) return MOE_OK;
  return moe_fail(err, MOE_DECLINED,
                  "this model has no chat template and no ChatML markers in its vocabulary, so it cannot serve chat; "
                  "use /v1/completions with a prompt in the format that it was trained on");
}

enum moe_code chat_create(const struct img_chat *section, struct chat **out, struct moe_error *err) {
  *out = NULL;
  enum moe_code c = chat_served(section, err);
  if (c) return c;
  struct chat *chat = calloc(1, sizeof *chat);
  if (!chat) return moe_fail(err, MOE_FAILED, "chat template: no memory");
  chat->template = chat->render = chat->bos = chat->eos = JS_UNDEFINED;
  chat->runtime = JS_NewRuntime();
  if (chat->runtime) {
    JS_SetMemoryLimit(chat->runtime, CHAT_MEMORY_LIMIT);
    JS_SetMaxStackSize(chat->runtime, 1 << 20);
    JS_SetInterruptHandler(chat->runtime, stop_when_late, chat);
    chat->js = JS_NewContext(chat->runtime);
  }
  if (chat->js) {
    begin(chat);
    c = compile(chat, section, err);
  } else {
    c = moe_fail(err, MOE_FAILED, "chat template: no memory for the script engine");
  }
  if (c) {
    chat_destroy(chat);
    return c;
  }
  *out = chat;
  return MOE_OK;
}

void chat_destroy(struct chat *chat) {
  if (!chat) return;
  if (chat->js) {
    JS_FreeValue(chat->js, chat->template);
    JS_FreeValue(chat->js, chat->render);
    JS_FreeValue(chat->js, chat->bos);
    JS_FreeValue(chat->js, chat->eos);
    JS_FreeContext(chat->js);
  }
  if (chat->runtime) JS_FreeRuntime(chat->runtime);
  free(chat);
}

/* A C string or, for NULL, null. */
static JSValue string_or_null(JSContext *js, const char *text) {
  return text ? JS_NewString(js, text) : JS_NULL;
}

static enum moe_code copy_out(struct chat *chat, JSValue result, char **text, size_t *len, struct moe_error *err) {
  const char *rendered = JS_ToCStringLen(chat->js, len, result);
  if (!rendered) return fail_with_exception(chat, err);
  *text = malloc(*len + 1);
  if (*text) memcpy(*text, rendered, *len + 1);
  JS_FreeCString(chat->js, rendered);
  return *text ? MOE_OK : moe_fail(err, MOE_FAILED, "chat template: no memory for a prompt of %zu bytes", *len);
}

enum moe_code chat_render(struct chat *chat, const char *messages, const char *tools, const char *extra, char **text,
                          size_t *len, struct moe_error *err) {
  JSContext *js = chat->js;
  *text = NULL;
  *len = 0;
  begin(chat);
  JSValue args[] = {
      chat->template,           chat->bos, chat->eos, string_or_null(js, messages), string_or_null(js, tools),
      string_or_null(js, extra)};
  bool ready = !JS_IsException(args[3]) && !JS_IsException(args[4]) && !JS_IsException(args[5]);
  JSValue result = ready ? JS_Call(js, chat->render, JS_UNDEFINED, 6, args) : JS_EXCEPTION;
  enum moe_code c = JS_IsException(result) ? fail_with_exception(chat, err) : copy_out(chat, result, text, len, err);
  JS_FreeValue(js, result);
  for (int i = 3; i < 6; i++) JS_FreeValue(js, args[i]);
  return c;
}
