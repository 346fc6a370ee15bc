/* concat_store.comp: a team of LANES invocations takes one head of one row: of q (both parts, the second rotated, into q), of k (the
 * same, into the page), of v (into the page). */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_concat_store
#include "prelude.glsl"
#define ROTATED D_B
#include "rope.glsl"

const uint ELEMENT = KV != 0 ? 4 : 2, D_HEAD = D_A + D_B, N_ALL = N_HEAD + (D_HEAD_V != 0 ? 2 : 1) * N_KV_HEAD;

/* Elements e.x, e.x + 1 and e.y, e.y + 1 of this head: of q (q: where it begins), or of the page's row. */
void store4(bool is_q, uint64_t q, uint64_t row, uvec2 e, vec4 v) {
  if (is_q) {
    mem_st_vec2(F_q, q + 4 * e.x, v.xy);
    mem_st_vec2(F_q, q + 4 * e.y, v.zw);
  } else {
    store_pair(row, e.x, v.xy);
    store_pair(row, e.y, v.zw);
  }
}

void main() {
  uint head = gl_WorkGroupID.x * (WG / LANES) + TID / LANES, r = gl_WorkGroupID.y, lane = TID % LANES;
  if (r >= step_word(IMG_STEP_N_ROW) || head >= N_ALL) return;
  bool is_q = head < N_HEAD, is_v = head >= N_HEAD + N_KV_HEAD;
  uint kv = head - (is_q ? 0 : is_v ? N_HEAD + N_KV_HEAD : N_HEAD), pos = step_row_pos(r);
  uint64_t row = uint64_t(step_page(step_row_slot(r), pos)) * PAGE_BYTES;
  row += ELEMENT * (is_v ? N_KV_HEAD * 64 * D_HEAD + (kv * 64 + pos % 64) * D_HEAD_V : (kv * 64 + pos % 64) * D_HEAD);
  uint64_t q = pc.q + 4 * (uint64_t(r) * N_HEAD + head) * D_HEAD;

  uint field = is_q ? F_qa : is_v ? F_v : F_ka, d_a = is_v ? D_HEAD_V : D_A;
  uint64_t from = is_q   ? pc.qa + 4 * (uint64_t(r) * N_HEAD + head) * D_A
                  : is_v ? pc.v + 4 * (uint64_t(r) * N_KV_HEAD + kv) * D_HEAD_V
                         : pc.ka + 4 * (uint64_t(r) * N_KV_HEAD + kv) * D_A;
  [[dont_unroll]] for (uint t = lane; t < d_a / 4; t += LANES) {
    uvec2 e = uvec2(4 * t, 4 * t + 2);
    store4(is_q, q, row, e, load4(field, from, e));
  }
  if (is_v) return;
  field = is_q ? F_qb : F_kb;
  from = is_q ? pc.qb + 4 * (uint64_t(r) * N_HEAD + head) * D_B
              : pc.kb + 4 * (uint64_t(r) * N_KB_HEAD + (N_KB_HEAD == 1 ? 0 : kv)) * D_B;
  [[dont_unroll]] for (uint t = lane; t < ROTATED_QUADS; t += LANES) {
    uvec2 e = quad_elements(t);
    store4(is_q, q, row, D_A + e, rotate(load4(field, from, e), t, pos));
  }
}
