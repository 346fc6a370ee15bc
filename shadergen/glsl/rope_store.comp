/* rope_store.comp: a team of LANES invocations takes one head of one row: query heads (norm, rotation, in place), key heads (norm,
 * rotation, into the page), value heads (norm, into the page). */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_rope_store
#include "prelude.glsl"
#define ROTATED N_ROT
const uint STATE_D = D_HEAD > D_HEAD_V ? D_HEAD : D_HEAD_V;
#include "rope.glsl"

void main() {
  uint head = gl_WorkGroupID.x * (WG / LANES) + TID / LANES, r = gl_WorkGroupID.y, lane = TID % LANES;
  if (r >= step_word(IMG_STEP_N_ROW)) return;
  bool inside = head < N_HEAD + 2 * N_KV_HEAD;
  head = min(head, uint(N_HEAD + 2 * N_KV_HEAD - 1));
  bool is_q = head < N_HEAD, is_v = head >= N_HEAD + N_KV_HEAD;
  uint field = is_q ? F_q : is_v ? F_v : F_k, kv = head - (is_q ? 0 : is_v ? N_HEAD + N_KV_HEAD : N_HEAD);
  uint64_t from = is_q   ? pc.q + 4 * (uint64_t(r) * Q_STRIDE + head * D_HEAD)
                  : is_v ? pc.v + 4 * (uint64_t(r) * V_STRIDE + kv * D_HEAD_V)
                         : pc.k + 4 * (uint64_t(r) * K_STRIDE + kv * D_HEAD);
  uint pos = step_row_pos(r), n_quad = (is_v ? D_HEAD_V : D_HEAD) / 4;
  /* K, then V, head by head */
  uint64_t page = uint64_t(step_page(step_row_slot(r), pos)) * PAGE_BYTES;
  page += is_v ? N_KV_HEAD * kv_head_bytes(D_HEAD) + kv * kv_head_bytes(D_HEAD_V) : kv * kv_head_bytes(D_HEAD);

  bool normed = is_v ? V_NORM != 0 : QK_NORM != 0;
  float scale = 1;
  if (QK_NORM != 0 || V_NORM != 0) {
    float squares = 0;
    [[dont_unroll]] for (uint t = lane; t < n_quad; t += LANES) {
      vec4 v = load4(field, from, is_v ? uvec2(4 * t, 4 * t + 2) : quad_elements(t));
      if (QK_NORM == 2 && !is_v && t < ROTATED_QUADS) v *= ROPE_MUL; /* a rotation keeps lengths but for this */
      squares += dot(v, v);
    }
    if (normed) scale = inversesqrt(lanes_sum(squares) / float(4 * n_quad) + EPS);
  }
  [[dont_unroll]] for (uint t = lane; t < n_quad; t += LANES) {
    uvec2 e = is_v ? uvec2(4 * t, 4 * t + 2) : quad_elements(t);
    vec4 v = load4(field, from, e) * scale;
    if (!is_v) {
      vec4 w = vec4(1);
      if (QK_NORM != 0) w = is_q ? load4(F_q_norm, pc.q_norm, e) : load4(F_k_norm, pc.k_norm, e);
      if (QK_NORM == 1) v *= w;
      v = rotate(v, t, pos);
      if (QK_NORM == 2) v *= w;
    }
    if (!inside) continue;
    if (is_q) {
      mem_st_vec2(F_q, from + 4 * e.x, v.xy);
      mem_st_vec2(F_q, from + 4 * e.y, v.zw);
    } else {
      store_pair(page, 4 * n_quad, pos % 64, e.x, v.xy);
      store_pair(page, 4 * n_quad, pos % 64, e.y, v.zw);
    }
  }
  store_finish(inside && !is_q, page, 4 * n_quad, pos % 64);
}
