/* concat_store.comp: a team of LANES invocations takes one head of one row: of q (both parts, the second rotated, into q), of k (the
 * same, into the page), of v (into the page). */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_concat_store
#include "prelude.glsl"
#define ROTATED D_B
const uint D_HEAD = D_A + D_B, STATE_D = D_HEAD > D_HEAD_V ? D_HEAD : D_HEAD_V;
#include "rope.glsl"

const uint N_ALL = N_HEAD + (D_HEAD_V != 0 ? 2 : 1) * N_KV_HEAD;

void main() {
  uint head = gl_WorkGroupID.x * (WG / LANES) + TID / LANES, r = gl_WorkGroupID.y, lane = TID % LANES;
  if (r >= step_word(IMG_STEP_N_ROW)) return;
  bool inside = head < N_ALL;
  head = min(head, N_ALL - 1);
  bool is_q = head < N_HEAD, is_v = head >= N_HEAD + N_KV_HEAD;
  uint kv = head - (is_q ? 0 : is_v ? N_HEAD + N_KV_HEAD : N_HEAD), pos = step_row_pos(r), d = is_v ? D_HEAD_V : D_HEAD;
  uint64_t page = uint64_t(step_page(step_row_slot(r), pos)) * PAGE_BYTES;
  page += is_v ? N_KV_HEAD * kv_head_bytes(D_HEAD) + kv * kv_head_bytes(D_HEAD_V) : kv * kv_head_bytes(D_HEAD);
  uint64_t q = pc.q + 4 * (uint64_t(r) * N_HEAD + head) * D_HEAD;

  uint field = is_q ? F_qa : is_v ? F_v : F_ka, quads = (is_v ? D_HEAD_V : D_A) / 4;
  uint64_t from = is_q   ? pc.qa + 4 * (uint64_t(r) * N_HEAD + head) * D_A
                  : is_v ? pc.v + 4 * (uint64_t(r) * N_KV_HEAD + kv) * D_HEAD_V
                         : pc.ka + 4 * (uint64_t(r) * N_KV_HEAD + kv) * D_A;
  uint64_t rotated = is_q ? pc.qb + 4 * (uint64_t(r) * N_HEAD + head) * D_B
                          : pc.kb + 4 * (uint64_t(r) * N_KB_HEAD + (N_KB_HEAD == 1 ? 0 : kv)) * D_B;
  [[dont_unroll]] for (uint i = lane; i < quads + (is_v ? 0 : ROTATED_QUADS); i += LANES) {
    uvec2 e = uvec2(4 * i, 4 * i + 2);
    vec4 v;
    if (i < quads) {
      v = load4(field, from, e);
    } else {
      e = quad_elements(i - quads);
      v = rotate(load4(is_q ? F_qb : F_kb, rotated, e), i - quads, pos);
      e += D_A;
    }
    if (!inside) continue;
    if (is_q) {
      mem_st_vec2(F_q, q + 4 * e.x, v.xy);
      mem_st_vec2(F_q, q + 4 * e.y, v.zw);
    } else {
      store_pair(page, d, pos % 64, e.x, v.xy);
      store_pair(page, d, pos % 64, e.y, v.zw);
    }
  }
  store_finish(inside && !is_q, page, d, pos % 64);
}
