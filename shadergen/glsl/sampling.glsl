/* sampling.glsl: what the two kernels of the sampler share: reading logits, their order, cells, which filters a record has, noise.
 *
 * The vocabulary is dealt out in cells of CELL neighbouring ids. sample_scan leaves, of each cell of each record, without suppressed ids:
 *   word 0  m, the largest logit
 *   word 1  the sum of exp(logit - m)
 *   word 2  the best score, word 3 its id (~0: none): the score is the noisy logit where the record samples without a filter, else the logit
 * Invariants: suppressed ids are strictly ascending; m is not below LOWEST; a tie is won by the lower id. */
#include "philox.glsl"

const float LOWEST = -3.4e38;
const uint CELL = SAMPLE_CELL(N_VOCAB), N_CELL = SAMPLE_N_CELL(N_VOCAB);

uint select_; /* record */

/* Pairs (value, id): the larger value, ties to the lower id; id ~0 is none. */
bool better(float v, uint id, float than, uint than_id) {
  return id != ~0u && (than_id == ~0u || v > than || (v == than && id < than_id));
}
/* Unsigned integers in the order of the floats (both zeros alike), and back. */
uint key_of(float v) {
  uint b = v == 0.0 ? 0u : floatBitsToUint(v);
  return (b & 0x80000000u) != 0u ? ~b : b | 0x80000000u;
}
float key_value(uint key) { return uintBitsToFloat((key & 0x80000000u) != 0u ? key & 0x7fffffffu : ~key); }

uint64_t logit_at(uint id) { return 4 * (uint64_t(select_) * LOGIT_STRIDE + min(id, uint(N_VOCAB - 1))); }
float logit(uint id) { return ld_logits_float(logit_at(id)); }
/* The logits of four ids, the first a multiple of 4; what is beyond the vocabulary means nothing. */
vec4 logits4(uint id) {
  if (LOGIT_STRIDE % 4 == 0) return ld_logits_vec4(logit_at(min(id, uint(N_VOCAB - 1) / 4 * 4)));
  return vec4(logit(id), logit(id + 1), logit(id + 2), logit(id + 3));
}

/* ---- the record's filters ---- */
float select_temperature() { return uintBitsToFloat(step_select(select_, IMG_SELECT_TEMPERATURE)); }
float select_top_p() { return uintBitsToFloat(step_select(select_, IMG_SELECT_TOP_P)); }
float select_min_p() { return uintBitsToFloat(step_select(select_, IMG_SELECT_MIN_P)); }
/* How many top_k keeps; 0: all. */
uint select_top_k() {
  uint k = step_select(select_, IMG_SELECT_TOP_K);
  return k < N_VOCAB ? k : 0u;
}
bool unfiltered(uint top_k, float top_p, float min_p) { return top_k == 0 && !(top_p < 1.0) && !(min_p > 0.0); }

/* ---- suppressed ids ---- */
uint hidden_count() { return min(step_word(IMG_STEP_N_SUPPRESS), uint(IMG_MAX_SUPPRESS)); }
/* Which of the four ids from `first` on are among n suppressed ones: bits. */
uint hidden4(uint first, uint n) {
  uint mask = 0;
  [[dont_unroll]] for (uint i = 0; i < n; i++) {
    uint at = step_word(IMG_STEP_SUPPRESS + i) - first;
    mask |= at < 4 ? 1u << at : 0u;
  }
  return mask;
}

/* ---- noise ---- */
/* Standard Gumbel noise -log(E), E exponential, exact where E is small: that is where it decides. */
float gumbel(uvec2 seed, uint pos, uint id) {
  float u = min((float(philox(uvec4(pos, id, 0, 0), seed).x) + 0.5) * 2.3283064365386963e-10, 0.99999994);
  float e = u < 0.0625 ? u * (1.0 + u * (0.5 + u * (0.33333333 + u * (0.25 + u * (0.2 + u * 0.16666667))))) : -log(1.0 - u);
  return -log(e);
}
uvec2 select_seed() { return uvec2(step_select(select_, IMG_SELECT_SEED_LO), step_select(select_, IMG_SELECT_SEED_HI)); }
