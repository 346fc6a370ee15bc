/* sample_slow.glsl: the sampler's exact way over the whole vocabulary, by one workgroup, for what the candidates (sample.comp) cannot decide: flat
 * logits under top_p alone, very large top_k, more ties than there is room for. Thresholds are found by bisection over the logits' keys. Call in uniform
 * control flow. CPU drivers end all loops of an invocation after 65535 iterations in sum, so they are few: SAMPLE_WG. */
const uint AT_ONCE = N_VOCAB > 16384 ? 4 : 1; /* quads of logits that an invocation has in flight */
uint n_hidden;

/* Over all ids of the vocabulary: the block between the two sees each `id`, its logit `l`, and `mask`: its quad's suppressed ids. (No `continue`: CPU
 * drivers would not unroll, and count each turn.) */
#define OVER_ALL                                                                                                       \
  [[dont_unroll]] for (uint first = 4 * TID; first < N_VOCAB; first += 4 * WG * AT_ONCE) {                             \
    vec4 quad[AT_ONCE];                                                                                                \
    [[unroll]] for (uint a = 0; a < AT_ONCE; a++) quad[a] = logits4(first + 4 * WG * a);                               \
    [[unroll]] for (uint a = 0; a < AT_ONCE; a++) {                                                                    \
      uint mask = hidden4(first + 4 * WG * a, n_hidden);                                                               \
      [[unroll]] for (uint k = 0; k < 4; k++) {                                                                        \
        float l = quad[a][k];                                                                                          \
        uint id = first + 4 * WG * a + k;                                                                              \
        if (id < N_VOCAB)
#define OVER_ALL_END                                                                                                   \
      }                                                                                                                \
    }                                                                                                                  \
  }

/* Best logit after (last, last_id) in the order (value down, id up); any: of all. Suppressed ids too. */
void next_best(bool any, inout float last, inout uint last_id) {
  float best = LOWEST;
  uint best_id = ~0u;
  OVER_ALL {
    bool after = any || l < last || (l == last && id > last_id);
    if (after && better(l, id, best, best_id)) best = l, best_id = id;
  }
  OVER_ALL_END
  group_best(best, best_id);
  last = best;
  last_id = best_id;
}
/* How many keys are not below `key` (mass false), or their sum of exp(logit - top); without suppressed ids. */
float above(uint key, bool mass, float top) {
  float s = 0;
  OVER_ALL {
    if (key_of(l) >= key && (mask >> k & 1u) == 0) s += mass ? exp(l - top) : 1.0;
  }
  OVER_ALL_END
  return group_sum(s);
}
/* The least key that top_k, then top_p, keep: the largest, not below that of the filter before, at which `above` still reaches what is needed. Bits
 * that low, a key not above the top_k-th largest, and top decide cost no pass. Bit 32: the mass that there is. */
uint slow_threshold(float top, uint top_k, float top_p, uint low) {
  uint key = 0, high = key_of(top);
  [[dont_unroll]] for (uint pass = 0; pass < 2; pass++) {
    bool mass = pass == 1;
    if (mass ? !(top_p < 1.0) : top_k == 0) continue;
    uint least = key;
    float need = float(top_k);
    key = 0;
    [[dont_unroll]] for (int b = mass ? 32 : 31; b >= 0; b--) {
      uint t = b == 32 ? least : key | (1u << b);
      if (b < 32 && t > high) continue;
      bool known = b < 32 && t <= (mass ? least : low);
      float got = known ? need : above(t, mass, top);
      if (b == 32)
        need = top_p * got;
      else if (got >= need)
        key = t;
    }
    key = max(key, least);
  }
  return key;
}

uint slow_sample(float top, float temperature, uint top_k, float top_p, float min_p, uint low) {
  uint key = slow_threshold(top, top_k, top_p, low), best = ~0u, pos = step_select(select_, IMG_SELECT_POS);
  uvec2 seed = select_seed();
  float v = LOWEST;
  [[dont_unroll]] for (uint id = TID; id < N_VOCAB; id += WG) {
    float l = logit(id);
    if (key_of(l) < key || exp(l - top) < min_p || (hidden4(id, n_hidden) & 1u) != 0) continue;
    float noisy = l / temperature + gumbel(seed, pos, id);
    if (better(noisy, id, v, best)) v = noisy, best = id;
  }
  group_best(v, best);
  return best;
}

/* The n most likely ids. */
void slow_list(uint n, float top, float log_total) {
  float last = 0;
  uint last_id = 0;
  [[dont_unroll]] for (uint i = 0; i < n; i++) {
    next_best(i == 0, last, last_id);
    if (TID == 0) list_store(i, last_id, last - top - log_total);
  }
}
