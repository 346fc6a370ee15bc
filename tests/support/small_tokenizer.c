/* small_tokenizer.c: see small_tokenizer.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
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

static const uint32_t eog[] = {SMALL_EOS, SMALL_BOS, SMALL_EOS};
static const uint32_t suppress[] = {SMALL_XYZ, SMALL_AA, SMALL_XYZ};

/* The tokens of a payload, as img_tokenizer_source wants them. */
struct tokens {
  uint8_t single[256];
  const uint8_t *text[SMALL_N_VOCAB_OF_CHARS];
  uint32_t len[SMALL_N_VOCAB_OF_CHARS];
  uint16_t attr[SMALL_N_VOCAB_OF_CHARS];
};

static void fill(struct tokens *t, uint16_t single_type) {
  for (uint32_t i = 0; i < SMALL_N_VOCAB_OF_CHARS; i++) {
    bool byte = i < 256, character = i >= SMALL_CHAR;
    if (byte) t->single[i] = (uint8_t)i;
    t->text[i] = byte ? &t->single[i] : character ? &t->single[i - SMALL_CHAR] : (const uint8_t *)more[i - 256].text;
    t->len[i] = byte || character ? 1 : (uint32_t)strlen(more[i - 256].text);
    t->attr[i] = byte ? single_type : character ? IMG_TOKEN_NORMAL : more[i - 256].attr;
  }
}

static uint8_t *build(struct img_tokenizer_source *source, const struct tokens *t, uint64_t *len) {
  source->bos_id = SMALL_BOS;
  source->eos_id = SMALL_EOS;
  source->eot_id = source->unk_id = IMG_TOKEN_NONE;
  source->pad_id = SMALL_PAD;
  source->pre_name = "small";
  source->token_text = t->text;
  source->token_len = t->len;
  source->token_attr = t->attr;
  source->eog = eog;
  source->n_eog = sizeof eog / sizeof *eog;
  source->suppress = suppress;
  source->n_suppress = sizeof suppress / sizeof *suppress;
  uint8_t *bytes;
  struct moe_error err = {0};
  if (img_tokenizer_build(source, &bytes, len, &err) != MOE_OK) fail_msg("%s", err.message);
  return bytes;
}

uint8_t *small_tokenizer(uint32_t flags, const char *const *patterns, uint64_t *len) {
  static const char *const space[] = {" ?[^ ]+| +", NULL};
  struct tokens t;
  struct img_tokenizer_source source = {.kind = IMG_TOKENIZER_BPE,
                                        .flags = flags,
                                        .n_vocab = SMALL_N_VOCAB,
                                        .n_merge = sizeof merges / sizeof *merges,
                                        .merges = merges,
                                        .patterns = patterns ? patterns : space};
  while (source.patterns[source.n_pattern]) source.n_pattern++;
  fill(&t, IMG_TOKEN_NORMAL);
  return build(&source, &t, len);
}

uint8_t *small_pieces(int kind, uint32_t flags, uint64_t *len) {
  static const float piece_scores[] = {-7, -6, -10, -7.5f, -16, -13};
  /* darts-clone's units for the one input "Q": the root's children at 1 ^ label; its unit, whose value is at 1. */
  uint32_t units[256] = {[0] = 1u << 10, [1 ^ 'Q'] = (1u << 10 | 0x100 | 'Q')};
  units[(1 ^ 'Q') ^ 1] = 1u << 31; /* the value: the replacement at byte 0 */
  struct img_merge chars[sizeof merges / sizeof *merges];
  float scores[SMALL_N_VOCAB_OF_CHARS];
  struct tokens t;
  for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
    chars[i] = merges[i];
    if (chars[i].left < 256) chars[i].left += SMALL_CHAR;
    if (chars[i].right < 256) chars[i].right += SMALL_CHAR;
  }
  for (uint32_t i = 0; i < SMALL_N_VOCAB_OF_CHARS; i++)
    scores[i] = i >= SMALL_AB && i <= SMALL_XYZ ? piece_scores[i - SMALL_AB] : -4;
  struct img_tokenizer_source source = {.kind = (enum img_tokenizer_kind)kind,
                                        .flags = flags,
                                        .n_vocab = SMALL_N_VOCAB_OF_CHARS,
                                        .charsmap = units,
                                        .n_charsmap = sizeof units / sizeof *units,
                                        .replacements = "a a",
                                        .replacements_len = 4};
  if (kind == IMG_TOKENIZER_CHAR_BPE) source.merges = chars, source.n_merge = sizeof chars / sizeof *chars;
  if (kind == IMG_TOKENIZER_UNIGRAM) source.scores = scores;
  fill(&t, IMG_TOKEN_BYTE);
  return build(&source, &t, len);
}
