/* small_tokenizer.c: see small_tokenizer.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "img_tokenizer.h"
#include "small_tokenizer.h"

static const struct {
  const char *text;
  uint16_t attr;
} more[] = {
    {"ab", IMG_TOKEN_NORMAL},
    {"bc", IMG_TOKEN_NORMAL},
    {"abc", IMG_TOKEN_NORMAL},
    {"aa", IMG_TOKEN_NORMAL},
    {"aaaa", IMG_TOKEN_NORMAL},
    {"xyz", IMG_TOKEN_NORMAL},
    {"<s>", IMG_TOKEN_CONTROL},
    {"</s>", IMG_TOKEN_CONTROL},
    {"<think>", IMG_TOKEN_USER_DEFINED},
    {"<think>ing", IMG_TOKEN_USER_DEFINED},
    {"<s>>", IMG_TOKEN_CONTROL | IMG_TOKEN_LSTRIP | IMG_TOKEN_RSTRIP},
    {"unused", IMG_TOKEN_UNUSED},
};

static const struct img_merge merges[] = {{'b', 'c', 0, SMALL_BC},
                                          {'a', 'b', 1, SMALL_AB},
                                          {'a', SMALL_BC, 2, SMALL_ABC},
                                          {'a', 'a', 3, SMALL_AA},
                                          {SMALL_AA, SMALL_AA, 4, SMALL_AAAA}};

uint8_t *small_tokenizer(uint32_t flags, const char *const *patterns, uint64_t *len) {
  static const char *const space[] = {" ?[^ ]+| +", NULL};
  static const uint32_t eog[] = {SMALL_EOS, SMALL_BOS, SMALL_EOS};
  uint8_t single[256];
  const uint8_t *text[SMALL_N_VOCAB];
  uint32_t text_len[SMALL_N_VOCAB];
  uint16_t attr[SMALL_N_VOCAB];
  for (uint32_t i = 0; i < SMALL_N_VOCAB; i++) {
    if (i < 256) single[i] = (uint8_t)i;
    text[i] = i < 256 ? &single[i] : (const uint8_t *)more[i - 256].text;
    text_len[i] = i < 256 ? 1 : (uint32_t)strlen(more[i - 256].text);
    attr[i] = i < 256 ? IMG_TOKEN_NORMAL : more[i - 256].attr;
  }
  struct img_tokenizer_source source = {
      .kind = IMG_TOKENIZER_BPE,
      .flags = flags,
      .n_vocab = SMALL_N_VOCAB,
      .n_merge = sizeof merges / sizeof *merges,
      .bos_id = SMALL_BOS,
      .eos_id = SMALL_EOS,
      .eot_id = IMG_TOKEN_NONE,
      .pad_id = SMALL_PAD,
      .unk_id = IMG_TOKEN_NONE,
      .pre_name = "small",
      .patterns = patterns ? patterns : space,
      .token_text = text,
      .token_len = text_len,
      .token_attr = attr,
      .merges = merges,
      .eog = eog,
      .n_eog = 3,
  };
  while (source.patterns[source.n_pattern]) source.n_pattern++;
  uint8_t *bytes;
  struct moe_error err = {0};
  if (img_tokenizer_build(&source, &bytes, len, &err) != MOE_OK) fail_msg("%s", err.message);
  return bytes;
}
