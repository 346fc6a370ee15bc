/* blocks_rope.c: rotary positions: how the file scales them, and the ROPE node.
 *
 * Source: RoFormer (arXiv 2104.09864); YaRN (arXiv 2309.00071); what GGUF's keys mean: llama.cpp, llama-context.cpp and
 * ggml's rope. */
#include "gguf_text.h"
#include "model_blocks_impl.h"

#include "dequant.h"

#include <math.h>
#include <string.h>

#define BLOCKS_MIN_ROPE_FACTOR 0.25 /* a pair turns less than once from one position to the next */
#define BLOCKS_PI 3.14159265358979323846

/* Rotations in sections over the parts of an image: text has the same position in the first three, and 0 in the fourth
 * (llama.cpp, llama-graph.cpp), whose pairs would not turn. The sections are the pairs, all of them. */
static void blocks_check_sections(struct blocks *b) {
  char name[192];
  struct gguf_array a;
  int64_t sum = 0, first_two[2] = {0, 0};
  if (b->code || !gguf_has(b->gguf, blocks_key(b, "rope.dimension_sections", name, sizeof name))) return;
  b->code = gguf_get_array_of(b->gguf, name, GGUF_I64, &a, b->err);
  if (!b->code && a.count != 3 && a.count != 4)
    blocks_fail(b, MOE_FAILED, "%s: %llu sections; allowed: 3 or 4", name, (unsigned long long)a.count);
  for (uint64_t i = 0; !b->code && i < a.count; i++) {
    int64_t n = gguf_array_i64(&a, i);
    if (n < 0 || n > b->h.n_rot / 2)
      blocks_fail(b, MOE_FAILED, "%s[%llu]: %lld pairs; allowed: 0 to %u", name, (unsigned long long)i, (long long)n,
                  b->h.n_rot / 2);
    else if (i == 3 && n != 0)
      blocks_fail(b, MOE_DECLINED, "%s[3]: %lld pairs that text does not turn; moec has models without them", name,
                  (long long)n);
    sum += n;
    if (i < 2) first_two[i] = n;
  }
  if (!b->code && sum == 0) return; /* none */
  b->sections = true;
  b->sections_halves = first_two[0] > 0 && first_two[1] > 0;
  if (!b->code && sum != b->h.n_rot / 2)
    blocks_fail(b, MOE_FAILED, "%s: %lld pairs in all; %u are rotated", name, (long long)sum, b->h.n_rot / 2);
}

enum ir_rope_pairs blocks_sections_pairs(struct blocks *b, enum ir_rope_pairs plain) {
  b->sections_asked = true;
  return b->sections_halves ? IR_ROPE_HALVES : plain;
}

/* As in llama.cpp, a factor without a type is linear, 0 is no scaling, and rope.scale_linear is the factor's older
 * name. */
void blocks_read_rope(struct blocks *b) {
  char name[192], shown[64];
  struct gguf_string type = {"linear", 6};
  if (b->code) return;
  if (!gguf_has(b->gguf, blocks_key(b, "rope.scaling.factor", name, sizeof name)))
    blocks_read_real(b, "rope.scale_linear", 1, 0, 1e6, &b->h.rope_factor);
  if (!b->code && gguf_has(b->gguf, blocks_key(b, "rope.scaling.type", name, sizeof name)))
    b->code = gguf_get_string(b->gguf, name, &type, b->err);
  if (b->code) return;
  bool none = type.bytes == 4 && !memcmp(type.data, "none", 4);
  bool linear = type.bytes == 6 && !memcmp(type.data, "linear", 6);
  b->yarn = type.bytes == 4 && !memcmp(type.data, "yarn", 4);
  if (!none && !linear && !b->yarn)
    blocks_fail(b, MOE_DECLINED, "%s: '%s'; moec has none, linear, yarn", name,
                gguf_text_printable(shown, sizeof shown, type.data, type.bytes));
  if (none || b->h.rope_factor == 0) b->h.rope_factor = 1;
  if (b->h.rope_factor < BLOCKS_MIN_ROPE_FACTOR)
    blocks_fail(b, MOE_FAILED, "%s.rope.scaling.factor: %g; allowed: 0 for none, or %g to 1e+06", b->graph->family,
                b->h.rope_factor, BLOCKS_MIN_ROPE_FACTOR);
  if (b->h.n_ctx_original == 0) b->h.n_ctx_original = b->h.n_ctx;
  blocks_check_sections(b);
}

const struct gguf_tensor *blocks_rope_factors(struct blocks *b, uint32_t n_rot) {
  return blocks_optional_tensor(b, IR_NO_LAYER, "rope_freqs.weight", n_rot / 2, 1, 1);
}

/* factor[j] of n pairs; all must be numbers above zero. */
static void blocks_read_factors(struct blocks *b, const struct gguf_tensor *t, uint32_t n, float *factor) {
  for (uint32_t j = 0; j < n; j++) factor[j] = 1;
  if (!t || b->code) return;
  if (t->dim[0] != n) {
    blocks_fail(b, MOE_FAILED, "%s: %llu factors; %u pairs are rotated", t->name, (unsigned long long)t->dim[0], n);
    return;
  }
  dequant_row(t->format, gguf_row(t, 0), factor, n);
  for (uint32_t j = 0; j < n && !b->code; j++)
    if (!(factor[j] >= (float)BLOCKS_MIN_ROPE_FACTOR))
      blocks_fail(b, MOE_FAILED, "%s[%u]: %g; allowed: at least %g", t->name, j, (double)factor[j],
                  BLOCKS_MIN_ROPE_FACTOR);
}

/* The pair that turns `turns` times in the original context. */
static double blocks_yarn_pair(const struct blocks *b, uint32_t n_rot, double base, double turns) {
  return n_rot * log(b->h.n_ctx_original / (turns * 2 * BLOCKS_PI)) / (2 * log(base));
}

/* How much of pair j keeps its frequency: 1 for the fast ones, 0 for the slow ones. */
static double blocks_yarn_kept(const struct blocks *b, uint32_t n_rot, double base, uint32_t j) {
  double low = fmax(0, floor(blocks_yarn_pair(b, n_rot, base, b->h.rope_beta_fast)));
  double high = fmin(n_rot - 1, ceil(blocks_yarn_pair(b, n_rot, base, b->h.rope_beta_slow)));
  double ramp = (j - low) / fmax(0.001, high - low);
  return 1 - fmin(1, fmax(0, ramp));
}

/* What yarn multiplies cosine and sine by. */
static double blocks_yarn_scale(const struct blocks *b, const struct blocks_rope_kind *kind) {
  bool none = !b->yarn || kind->unscaled || kind->mscale || b->h.rope_factor <= 1;
  return none ? 1 : 0.1 * log(b->h.rope_factor) + 1;
}

int blocks_rope(struct blocks *b, int layer, int x, uint32_t n_head, uint32_t d_head, enum ir_rope_pairs pairs,
                const struct blocks_rope_kind *kind) {
  if (b->code || kind->none) return b->code ? IR_NONE : x;
  const struct hparams *h = &b->h;
  double inv_freq[BLOCKS_MAX_HEAD / 2], base = kind->base > 0 ? kind->base : h->rope_base;
  float factor[BLOCKS_MAX_HEAD / 2];
  uint32_t n_rot = kind->n_rot ? kind->n_rot : h->n_rot, index = 0;
  if (n_rot > d_head || n_rot % 2 || n_rot > BLOCKS_MAX_HEAD)
    return blocks_fail(b, MOE_FAILED, "layer %d: %u rotated columns; allowed: even, at most a head's %u", layer, n_rot,
                       d_head);
  blocks_read_factors(b, kind->factors, n_rot / 2, factor);
  for (uint32_t j = 0; j < n_rot / 2 && !b->code; j++) {
    double f = pow(base, -2.0 * j / n_rot) / (double)factor[j], slow = f / h->rope_factor;
    double kept = b->yarn ? blocks_yarn_kept(b, n_rot, base, j) : 0;
    inv_freq[j] = kind->unscaled ? f : slow * (1 - kept) + f * kept;
    if (!(inv_freq[j] < 2 * BLOCKS_PI))
      blocks_fail(b, MOE_FAILED,
                  "layer %d: rope factors and scaling turn pair %u by %g from one position to the next; "
                  "allowed: less than 2 pi",
                  layer, j, inv_freq[j]);
  }
  const struct ir_rope rope = {pairs, n_rot, blocks_yarn_scale(b, kind) * h->rope_attention_factor, inv_freq};
  if (!b->code) b->code = ir_add_rope(b->graph, &rope, &index, b->err);
  return blocks_node(
      b, &(struct ir_node){
             .op = IR_ROPE, .layer = layer, .in = {x}, .a = {.n_head = n_head, .d_head = d_head, .rope = index}});
}
