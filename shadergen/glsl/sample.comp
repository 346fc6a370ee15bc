/* sample.comp: one workgroup per select record: the done rule, the token, its log-probability, the most likely ids.
 *
 * Log-probabilities are those of the unmodified softmax. Then the logits of the step block's suppressed ids become the lowest there is, so that
 * none of them is sampled.
 * Greedy (temperature 0): largest logit, ties to the lower id. Else, in this order: top_k keeps logits not below the k-th largest; top_p
 * keeps the fewest largest whose softmax mass (among those kept) reaches top_p; min_p keeps p >= min_p * p_max; temperature; then the
 * largest of logit / T + G with Gumbel noise G keyed by (seed, position, id): a sample of the softmax, the same
 * whatever else is in the batch. Ties with a threshold are kept. Thresholds are found by bisection over the logits' bits in an order-preserving
 * form, sums are made in a fixed order. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_sample
#include "prelude.glsl"
#include "group.glsl"
#include "philox.glsl"

shared uint group_id[WG / SUBGROUP];
const float LOWEST = -3.4e38;
/* Logits that an invocation reads at a time. Large vocabularies: several loads in flight, and few iterations (lavapipe ends all loops of an
 * invocation after 65535 in sum). Small ones: little code. */
const uint AT_ONCE = N_VOCAB > 16384 ? 4 : 1;

/* Pairs (value, id): the larger value, ties to the lower id; id -1 is none. All invocations get the best. */
bool better(float v, uint id, float than, uint than_id) {
  return id != ~0u && (than_id == ~0u || v > than || (v == than && id < than_id));
}
void group_best(inout float v, inout uint id) {
  for (uint m = SUBGROUP / 2; m > 0; m /= 2) {
    float other = subgroupShuffleXor(v, m);
    uint other_id = subgroupShuffleXor(id, m);
    if (better(other, other_id, v, id)) v = other, id = other_id;
  }
  if (WG > SUBGROUP) {
    if (TID % SUBGROUP == 0) {
      group_part[TID / SUBGROUP] = v;
      group_id[TID / SUBGROUP] = id;
    }
    barrier();
    for (uint i = 0; i < WG / SUBGROUP; i++)
      if (better(group_part[i], group_id[i], v, id)) v = group_part[i], id = group_id[i];
    barrier();
  }
}

uint select_; /* record */
float logit(uint id) { return ld_logits_float(4 * (uint64_t(select_) * LOGIT_STRIDE + min(id, uint(N_VOCAB - 1)))); }
/* Makes the logits of the suppressed ids the lowest; false: there are none. Each invocation writes those that it alone reads in the loops
 * below (id modulo WG), so that nobody waits for anybody; a lowest logit has no mass, and beats nothing but another one. */
bool suppress() {
  uint n = min(step_word(IMG_STEP_N_SUPPRESS), uint(IMG_MAX_SUPPRESS));
  for (uint i = 0; i < n; i++) {
    uint id = step_word(IMG_STEP_SUPPRESS + i);
    if (id % WG == TID && id < N_VOCAB) st_logits_float(4 * (uint64_t(select_) * LOGIT_STRIDE + id), LOWEST);
  }
  return n > 0;
}
/* Unsigned integers in the order of the floats. */
uint key_of(float v) {
  uint b = floatBitsToUint(v);
  return (b & 0x80000000u) != 0u ? ~b : b | 0x80000000u;
}

/* Best logit after (last, last_id) in the order (value down, id up); any: of all. */
void next_best(bool any, inout float last, inout uint last_id) {
  float v = LOWEST;
  uint id = ~0u;
  [[dont_unroll]] for (uint first = TID; first < N_VOCAB; first += WG * AT_ONCE)
    [[unroll]] for (uint k = 0; k < AT_ONCE; k++) {
      uint i = first + k * WG;
      float l = logit(i);
      bool after = any || l < last || (l == last && i > last_id);
      if (i < N_VOCAB && after && better(l, i, v, id)) v = l, id = i;
    }
  group_best(v, id);
  last = v;
  last_id = id;
}
/* How many keys are not below `key` (mass false), or their sum of exp(logit - top). */
float above(uint key, bool mass, float top) {
  float s = 0;
  [[dont_unroll]] for (uint first = TID; first < N_VOCAB; first += WG * AT_ONCE)
    [[unroll]] for (uint k = 0; k < AT_ONCE; k++) {
      float l = logit(first + k * WG);
      if (first + k * WG < N_VOCAB && key_of(l) >= key) s += mass ? exp(l - top) : 1.0;
    }
  return group_sum(s);
}
/* The largest key, not below `least`, at which `above` still reaches `need`. */
uint threshold(uint least, bool mass, float top, float need) {
  uint key = 0;
  [[dont_unroll]] for (int b = 31; b >= 0; b--) {
    uint t = key | (1u << b);
    if (above(max(t, least), mass, top) >= need) key = t;
  }
  return max(key, least);
}
/* Standard Gumbel noise -log(E), E exponential, exact where E is small: that is where it decides. */
float gumbel(uvec2 seed, uint pos, uint id) {
  float u = min((float(philox(uvec4(pos, id, 0, 0), seed).x) + 0.5) * 2.3283064365386963e-10, 0.99999994);
  float e = u < 0.0625 ? u * (1.0 + u * (0.5 + u * (0.33333333 + u * (0.25 + u * (0.2 + u * 0.16666667))))) : -log(1.0 - u);
  return -log(e);
}

uint sample_id(float top, float temperature) {
  uint k = step_select(select_, IMG_SELECT_TOP_K), key = 0;
  float p = uintBitsToFloat(step_select(select_, IMG_SELECT_TOP_P)), min_p = uintBitsToFloat(step_select(select_, IMG_SELECT_MIN_P));
  if (k > 0 && k < N_VOCAB) key = threshold(0, false, top, float(k));
  if (p < 1.0) key = threshold(key, true, top, p * above(key, true, top));
  uvec2 seed = uvec2(step_select(select_, IMG_SELECT_SEED_LO), step_select(select_, IMG_SELECT_SEED_HI));
  uint pos = step_select(select_, IMG_SELECT_POS), id = ~0u;
  float v = LOWEST;
  [[dont_unroll]] for (uint i = TID; i < N_VOCAB; i += WG) {
    float l = logit(i);
    if (key_of(l) < key || exp(l - top) < min_p) continue;
    float noisy = l / temperature + gumbel(seed, pos, i);
    if (better(noisy, i, v, id)) v = noisy, id = i;
  }
  group_best(v, id);
  return id;
}

uint64_t result_word(uint word) { return 4 * uint64_t(IMG_RESULT_HEAD_WORDS + select_ * IMG_RESULT_WORDS + word); }

void main() {
  select_ = gl_WorkGroupID.x;
  if (select_ == 0 && TID == 0) st_result_uint(4 * IMG_RESULT_NUMBER, step_word(IMG_STEP_NUMBER));
  if (select_ >= step_word(IMG_STEP_N_SELECT)) return;
  uint row = step_select(select_, IMG_SELECT_ROW);
  uint64_t slot = 4 * uint64_t(step_select(select_, IMG_SELECT_SLOT) * IMG_SLOT_WORDS);
  bool own_token = int(step_row_token(row)) >= 0;
  if (!own_token && ld_slot_uint(slot + 4 * IMG_SLOT_DONE) != 0) {
    if (TID == 0) {
      st_result_uint(result_word(IMG_RESULT_TOKEN), ~0u);
      st_result_uint(result_word(IMG_RESULT_DONE), 1);
      st_result_float(result_word(IMG_RESULT_LOGPROB), 0.0);
    }
    return;
  }

  float top;
  uint best;
  next_best(true, top, best);
  float unmodified_top = top, log_total = log(above(0, true, top)); /* of exp(logit - top) */
  uint n_top = min(step_select(select_, IMG_SELECT_N_TOP), uint(IMG_MAX_TOP));
  float last = top;
  uint last_id = best;
  for (uint i = 0; i < min(n_top, uint(N_VOCAB)); i++) {
    if (i > 0) next_best(false, last, last_id);
    if (TID == 0) {
      st_result_uint(result_word(IMG_RESULT_TOP_ID + i), last_id);
      st_result_float(result_word(IMG_RESULT_TOP_LOGPROB + i), last - top - log_total);
    }
  }

  if (suppress()) next_best(true, top, best);
  float temperature = uintBitsToFloat(step_select(select_, IMG_SELECT_TEMPERATURE));
  uint id = temperature > 0.0 ? sample_id(top, temperature) : best;
  id = min(id == ~0u ? best : id, uint(N_VOCAB - 1)); /* NaN compares with nothing: still a valid id */

  bool stop = false;
  for (uint i = 0; i < min(step_word(IMG_STEP_N_STOP), uint(IMG_MAX_STOP)); i++)
    stop = stop || step_word(IMG_STEP_STOP + i) == id;
  if ((step_select(select_, IMG_SELECT_FLAGS) & IMG_SELECT_FLAG_IGNORE_STOP) != 0) stop = false;
  if (TID == 0) {
    st_slot_uint(slot + 4 * IMG_SLOT_TOKEN, id);
    st_slot_uint(slot + 4 * IMG_SLOT_DONE, stop ? 1 : 0);
    st_result_uint(result_word(IMG_RESULT_TOKEN), id);
    st_result_uint(result_word(IMG_RESULT_DONE), stop ? 1 : 0);
    st_result_float(result_word(IMG_RESULT_LOGPROB), logit(id) - unmodified_top - log_total);
  }
}
