/* img_tokenizer.h: the TOKENIZER section's payload: layout, bounds checker, borrowed view, writer.
 *
 * Owns: the byte layout (described in FORMAT-tokenizer.md), the hash functions that its tables are addressed by, and
 * the rule of what a well-formed payload is. Does not own: where the payload comes from (compiler/emit_tokenizer.c) nor
 * what encodes text with it (runtime/tokenizer.c).
 * Invariants: little-endian; a view borrows the mapped payload and copies nothing; after a successful
 * img_tokenizer_open every id in every table is below n_vocab or IMG_TOKEN_NONE where that is allowed, every string
 * lies in its table, every hash table has a free slot (so that probing ends), and a merge's result is exactly as long
 * as its two parts together. */
#ifndef IMAGES_IMG_TOKENIZER_H
#define IMAGES_IMG_TOKENIZER_H

#include "moe_error.h"

/* An id field that names no token. */
#define IMG_TOKEN_NONE UINT32_MAX

/* Most tokens and merges that a payload may have (the largest published vocabularies have some 260,000 tokens). */
#define IMG_TOKENIZER_MAX_VOCAB (1u << 24)
#define IMG_TOKENIZER_MAX_MERGE (1u << 25)
/* Longest token, in bytes; longest normal token of kinds 2 and 3, whose parts are looked up one by one. */
#define IMG_TOKENIZER_MAX_TOKEN 65535u
#define IMG_TOKENIZER_MAX_PIECE 512u
/* Most suppressed tokens. */
#define IMG_TOKENIZER_MAX_SUPPRESS 8u
/* Longest run of occupied slots in a hash table: with these keyed hashes at 5/8 load a run of 200 is not seen even
 * among 2^24 entries, and a lookup never takes longer than such a run. */
#define IMG_TOKENIZER_MAX_RUN 1024u
/* Longest input of a replacement in charsmap, in bytes (SentencePiece's tables have some 20). */
#define IMG_TOKENIZER_MAX_REPLACED 64u
/* Longest output of one, without its NUL (SentencePiece's longest has 33). */
#define IMG_TOKENIZER_MAX_REPLACEMENT 255u

/* Algorithms of encoding. */
enum img_tokenizer_kind {
  IMG_TOKENIZER_BPE = 1,       /* byte-level BPE: any byte string is encodable */
  IMG_TOKENIZER_CHAR_BPE = 2,  /* BPE over characters, spaces are U+2581 in names: SentencePiece's BPE, Gemma 4 */
  IMG_TOKENIZER_UNIGRAM = 3,   /* SentencePiece's unigram model: the most probable of all ways to cut a text */
  IMG_TOKENIZER_LAST_KIND = 3, /* of the above */
};

/* Bits of img_tokenizer.flags. */
enum img_tokenizer_flag {
  IMG_TOKENIZER_ADD_BOS = 1,       /* encode with add_special puts bos_id first */
  IMG_TOKENIZER_ADD_EOS = 2,       /* encode with add_special puts eos_id last */
  IMG_TOKENIZER_NFC = 4,           /* text between added tokens is brought to Unicode NFC first */
  IMG_TOKENIZER_IGNORE_MERGES = 8, /* a chunk that is a token as a whole is that token, merges or not */
  IMG_TOKENIZER_SPACE_PREFIX = 16, /* kinds 2 and 3: a space goes before each text between added tokens */
  IMG_TOKENIZER_FEW_SPACES = 32,   /* kinds 2 and 3: spaces at both ends of a text go, runs of them become one */
  IMG_TOKENIZER_FLAGS = 63,        /* all of the above; any other bit is refused */
};

/* A token's type: the values of GGUF's tokenizer.ggml.token_type. */
enum img_token_type {
  IMG_TOKEN_NORMAL = 1,
  IMG_TOKEN_UNKNOWN = 2,
  IMG_TOKEN_CONTROL = 3,      /* markup of the chat format; never part of the answer's text */
  IMG_TOKEN_USER_DEFINED = 4, /* added vocabulary: split out of the text before BPE, but ordinary text otherwise */
  IMG_TOKEN_UNUSED = 5,
  IMG_TOKEN_BYTE = 6,
};

/* An attribute word is a type in its low byte and these bits above it. */
enum img_token_flag {
  IMG_TOKEN_LSTRIP = 0x100, /* an added token that swallows the white space before it */
  IMG_TOKEN_RSTRIP = 0x200, /* ... after it */
};

/* One slot of the merge table: the pair (left, right) merges into result; the lowest rank goes first.
 * A free slot has left == IMG_TOKEN_NONE. */
struct img_merge {
  uint32_t left, right, rank, result;
};

/* What the hash tables are addressed by; made from the vocabulary, so that no vocabulary can be made for it. */
struct img_tokenizer_key {
  uint8_t token[16];    /* of SipHash */
  uint64_t left, right; /* odd factors */
};

/* A checked payload. All pointers are borrowed from it; sizes are in elements unless said otherwise. */
struct img_tokenizer {
  enum img_tokenizer_kind kind;
  uint32_t flags;                                  /* enum img_tokenizer_flag */
  uint32_t n_vocab, n_merge;                       /* tokens; occupied slots of merges */
  uint32_t bos_id, eos_id, eot_id, pad_id, unk_id; /* IMG_TOKEN_NONE where the model has none */
  const char *pre_name;                            /* pre_name_len bytes: the pre-tokenizer's name, for messages */
  uint32_t pre_name_len;
  const char *patterns; /* n_pattern NUL-terminated PCRE2 patterns (UTF), applied one after the other */
  uint32_t n_pattern;
  const uint32_t *token_start; /* [n_vocab + 1] offsets into token_bytes, ascending */
  const uint8_t *token_bytes;  /* raw bytes of all tokens */
  const uint16_t *token_attr;  /* [n_vocab] type | flags */
  const uint32_t *token_slots; /* [n_token_slot] ids of NORMAL tokens hashed by their bytes, or IMG_TOKEN_NONE */
  uint32_t n_token_slot;       /* a power of two */
  const struct img_merge *merge_slots; /* [n_merge_slot] merges hashed by their pair */
  uint32_t n_merge_slot;               /* a power of two */
  const uint32_t *byte_ids;            /* [256] the token of each single byte, or IMG_TOKEN_NONE */
  const uint32_t *added;               /* [n_added] CONTROL, USER_DEFINED and UNKNOWN tokens, ascending by bytes */
  uint32_t n_added;
  const uint32_t *eog; /* [n_eog] tokens that end a generation, ascending ids */
  uint32_t n_eog;
  const uint32_t *suppress; /* [n_suppress] tokens that are never sampled, ascending ids */
  uint32_t n_suppress;
  const struct img_tokenizer_key *key; /* of the hash tables */
  /* Kind 3, else empty: */
  const float *scores;    /* [n_vocab] natural logarithms of probabilities, finite */
  const uint32_t *sorted; /* [n_sorted] the NORMAL tokens, ascending by bytes, each byte string once */
  uint32_t n_sorted;
  /* Kinds 2 and 3, may be empty: SentencePiece's table of replacements before anything else. */
  const uint32_t *charsmap; /* [n_charsmap] double array (darts-clone) of the inputs */
  uint32_t n_charsmap;
  const char *replacements; /* [replacements_len] the outputs, each with its NUL */
  uint32_t replacements_len;
};

/* Checks a payload completely and fills `view` with borrowed pointers.
 * bytes: the payload, 8-byte aligned (sections of an image are); must outlive the view. len: its bytes.
 * Errors: MOE_FAILED with the field, what was found and what is allowed. Trusts nothing; time O(len); no allocation.
 * Thread rules: none; a view may be read from any number of threads. */
enum moe_code img_tokenizer_open(const void *bytes, uint64_t len, struct img_tokenizer *view, struct moe_error *err);

/* The same check without a view. */
enum moe_code img_tokenizer_check(const void *bytes, uint64_t len, struct moe_error *err);

/* Bytes of token `id` (id < n_vocab), borrowed; *len receives their number. */
static inline const uint8_t *img_token_bytes(const struct img_tokenizer *t, uint32_t id, uint32_t *len) {
  *len = t->token_start[id + 1] - t->token_start[id];
  return t->token_bytes + t->token_start[id];
}

/* Type of token `id` (id < n_vocab). */
static inline enum img_token_type img_token_type(const struct img_tokenizer *t, uint32_t id) {
  return (enum img_token_type)(t->token_attr[id] & 0xff);
}

/* The NORMAL token whose bytes are exactly these, or IMG_TOKEN_NONE. */
uint32_t img_tokenizer_find_normal(const struct img_tokenizer *t, const uint8_t *bytes, uint32_t len);

/* The added token whose bytes are exactly these, or IMG_TOKEN_NONE. */
uint32_t img_tokenizer_find_added(const struct img_tokenizer *t, const uint8_t *bytes, uint32_t len);

/* The longest added token that the text starts with, or IMG_TOKEN_NONE.
 * accept_control: whether CONTROL and UNKNOWN tokens count; USER_DEFINED ones always do.
 * Time O(longest match * log n_added): the candidates are a range of the sorted list, narrowed byte by byte. */
uint32_t img_tokenizer_match_added(const struct img_tokenizer *t, const uint8_t *text, uint64_t len,
                                   bool accept_control);

/* The tokens of `sorted` that the text starts with, shortest first: zero `walk` and call until it returns
 * IMG_TOKEN_NONE; the one returned has walk->depth bytes. Kind 3 only. Time O(log n_sorted) a byte. */
struct img_prefix_walk {
  uint32_t lo, hi, depth;
  bool started;
};
uint32_t img_tokenizer_next_prefix(const struct img_tokenizer *t, struct img_prefix_walk *walk, const uint8_t *text,
                                   uint64_t len);

/* The longest input of charsmap that the text starts with: its length in bytes, and *replacement (NUL-terminated, at
 * most IMG_TOKENIZER_MAX_REPLACEMENT bytes, borrowed); 0 when there is none. */
uint32_t img_tokenizer_replace(const struct img_tokenizer *t, const uint8_t *text, uint64_t len,
                               const char **replacement);

/* The merge of the pair, or NULL. */
const struct img_merge *img_tokenizer_find_merge(const struct img_tokenizer *t, uint32_t left, uint32_t right);

/* What the writer needs; every pointer is borrowed for the call. */
struct img_tokenizer_source {
  enum img_tokenizer_kind kind;
  uint32_t flags;
  uint32_t n_vocab, n_merge;
  uint32_t bos_id, eos_id, eot_id, pad_id, unk_id;
  const char *pre_name;        /* NUL-terminated */
  const char *const *patterns; /* [n_pattern] NUL-terminated */
  uint32_t n_pattern;
  const uint8_t *const *token_text; /* [n_vocab] raw bytes */
  const uint32_t *token_len;        /* [n_vocab] */
  const uint16_t *token_attr;       /* [n_vocab] */
  const struct img_merge *merges;   /* [n_merge] in any order, pairs unique */
  const uint32_t *eog;              /* [n_eog] in any order, may repeat */
  uint32_t n_eog;
  const uint32_t *suppress; /* [n_suppress] in any order, may repeat; at most IMG_TOKENIZER_MAX_SUPPRESS */
  uint32_t n_suppress;
  const float *scores;      /* [n_vocab], kind 3 only */
  const uint32_t *charsmap; /* [n_charsmap] or none; kinds 2 and 3 */
  uint32_t n_charsmap;
  const char *replacements; /* [replacements_len] */
  uint32_t replacements_len;
};

/* Writes a payload: a function of its arguments alone (equal source, equal bytes).
 * *bytes: receives a malloc'd buffer that the caller frees; *len: its bytes.
 * Two NORMAL tokens of equal bytes: lookups give the lower id. Of two equal added tokens the lower id is listed.
 * Errors: MOE_FAILED for a source that would not pass img_tokenizer_open, for no memory, for over 4 GiB of tokens. */
enum moe_code img_tokenizer_build(const struct img_tokenizer_source *source, uint8_t **bytes, uint64_t *len,
                                  struct moe_error *err);

/* Address in a table of `slots` (a power of two) entries; the next candidate is the following slot, cyclically.
 * merge: h = (left * key.left + right * key.right) mod 2^64. token: h = SipHash-2-4(key.token, bytes), read
 * little-endian. slot = h >> (64 - log2 slots). Sources: Dietzfelbinger et al. 1997 (multiply-shift hashing);
 * Aumasson, Bernstein 2012 (SipHash). */
uint32_t img_merge_slot(const struct img_tokenizer_key *key, uint32_t left, uint32_t right, uint32_t slots);
uint32_t img_token_slot(const struct img_tokenizer_key *key, const uint8_t *bytes, uint32_t len, uint32_t slots);

/* The layout's fixed header; the order of img_tokenizer_table is the order of the entries in `tables`. */
enum img_tokenizer_table {
  IMG_TOKENIZER_T_PRE_NAME,
  IMG_TOKENIZER_T_PATTERNS,
  IMG_TOKENIZER_T_TOKEN_START,
  IMG_TOKENIZER_T_TOKEN_BYTES,
  IMG_TOKENIZER_T_TOKEN_ATTR,
  IMG_TOKENIZER_T_TOKEN_SLOTS,
  IMG_TOKENIZER_T_MERGE_SLOTS,
  IMG_TOKENIZER_T_BYTE_IDS,
  IMG_TOKENIZER_T_ADDED,
  IMG_TOKENIZER_T_EOG,
  IMG_TOKENIZER_T_SCORES,
  IMG_TOKENIZER_T_SORTED,
  IMG_TOKENIZER_T_CHARSMAP,
  IMG_TOKENIZER_T_REPLACEMENTS,
  IMG_TOKENIZER_T_SUPPRESS,
  IMG_TOKENIZER_T_COUNT,
};

struct img_tokenizer_header {
  uint32_t layout;       /* IMG_TOKENIZER_LAYOUT */
  uint32_t header_bytes; /* sizeof(struct img_tokenizer_header) */
  uint32_t kind, flags;
  uint32_t n_vocab, n_merge;
  uint32_t bos_id, eos_id, eot_id, pad_id, unk_id;
  uint32_t n_pattern, n_added, n_eog, n_token_slot, n_merge_slot;
  struct img_tokenizer_key key;
  struct {
    uint64_t offset, bytes; /* from the payload's start; offset is a multiple of 16 */
  } tables[IMG_TOKENIZER_T_COUNT];
};

#define IMG_TOKENIZER_LAYOUT 3u

_Static_assert(sizeof(struct img_tokenizer_header) == 16 * 4 + 32 + 16 * IMG_TOKENIZER_T_COUNT, "no padding");
_Static_assert(sizeof(struct img_merge) == 16, "no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "images are mapped as they are: little-endian hosts only");

#endif
