/* sample_scan.comp: the sampler's first half, over the whole vocabulary on as many workgroups as it takes: per select record and cell
 * what sampling.glsl says. LANES invocations share a cell. Where the record samples without a filter (temperature alone), its noisy logits are
 * made here, so that no single workgroup goes over the vocabulary; sample.comp does the rest.
 * A cell's sum has the order of its quads of ids: it depends on shapes and tuning only. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_sample_scan
#include "prelude.glsl"
#include "sampling.glsl"

float lanes_max(float v) {
  FOLD(LANES, max)
  return v;
}

void main() {
  select_ = gl_WorkGroupID.y;
  /* A template of one record: nothing to wait for, what is read and left is that record's own. */
  if (gl_NumWorkGroups.y > 1 && select_ >= step_word(IMG_STEP_N_SELECT)) return;
  float temperature = select_temperature();
  bool noise = temperature > 0.0 && unfiltered(select_top_k(), select_top_p(), select_min_p());
  uvec2 seed = select_seed();
  uint pos = step_select(select_, IMG_SELECT_POS), n_hidden = hidden_count();
  [[dont_unroll]] for (uint e = 0; e < EXTRA; e++) {
    uint cell = (gl_WorkGroupID.x * EXTRA + e) * (WG / LANES) + TID / LANES;
    float m = LOWEST, s = 0, score = LOWEST;
    uint best = ~0u;
    [[dont_unroll]] for (uint q = TID % LANES; q < CELL / 4; q += LANES) {
      uint first = cell * CELL + 4 * q;
      vec4 v = logits4(first);
      bvec4 in_ = lessThan(uvec4(first) + uvec4(0, 1, 2, 3), uvec4(N_VOCAB));
      uint mask = hidden4(first, n_hidden);
      [[unroll]] for (uint k = 0; k < 4; k++) in_[k] = in_[k] && (mask >> k & 1u) == 0;
      float now = m;
      [[unroll]] for (uint k = 0; k < 4; k++) now = in_[k] ? max(now, v[k]) : now;
      s *= exp(m - now);
      [[unroll]] for (uint k = 0; k < 4; k++) s += in_[k] ? exp(v[k] - now) : 0.0;
      m = now;
      if (noise)
        [[dont_unroll]] for (uint k = 0; k < 4; k++) v[k] = v[k] / temperature + gumbel(seed, pos, first + k);
      [[unroll]] for (uint k = 0; k < 4; k++)
        if (in_[k] && better(v[k], first + k, score, best)) score = v[k], best = first + k;
    }
    float top = lanes_max(m);
    s = lanes_sum(s * exp(m - top));
    for (uint d = LANES / 2; d > 0; d /= 2) {
      float other = subgroupShuffleXor(score, d);
      uint other_id = subgroupShuffleXor(best, d);
      if (better(other, other_id, score, best)) score = other, best = other_id;
    }
    if (TID % LANES == 0 && cell < N_CELL && select_ < step_word(IMG_STEP_N_SELECT))
      st_cells_uvec4(16 * (uint64_t(select_) * N_CELL + cell),
                     uvec4(floatBitsToUint(top), floatBitsToUint(s), floatBitsToUint(score), best));
  }
}
