/* rope_store.comp: a team of LANES invocations takes one head of one row: query heads (norm, rotation, in place), key heads (norm,
 * rotation, into the page), value heads (into the page). A lane owns four elements at a time, both members of two pairs, so that
 * nothing is read after it was written. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_rope_store
#include "prelude.glsl"
#include "turns.glsl"

const uint N_QUAD = D_HEAD / 4, N_ROT_QUAD = N_ROT / 4;

/* Elements of quad t: two pairs (.x, .z) and (.y, .w) of neox order, (.x, .y) and (.z, .w) of normal order. first: index of
 * .x, second: index of .z; .y and .w follow them. */
uvec2 quad_elements(uint t) {
  if (NEOX != 0 && t < N_ROT_QUAD) return uvec2(2 * t, 2 * t + N_ROT / 2);
  return uvec2(4 * t, 4 * t + 2);
}
vec4 load4(uint field, uint64_t head, uvec2 e) {
  return vec4(mem_ld_vec2(field, head + 4 * e.x), mem_ld_vec2(field, head + 4 * e.y));
}
/* The quad's pairs turned by the angles of position pos. */
vec4 rotate(vec4 v, uint t, uint pos) {
  if (t >= N_ROT_QUAD) return v;
  uvec4 f = uvec4(ld_rope_uvec2(16 * t), ld_rope_uvec2(16 * t + 8));
  vec2 a = ROPE_MUL * turns_cos_sin(turns_of(f.xy, pos)), b = ROPE_MUL * turns_cos_sin(turns_of(f.zw, pos));
  if (NEOX != 0)
    return vec4(v.x * a.x - v.z * a.y, v.y * b.x - v.w * b.y, v.x * a.y + v.z * a.x, v.y * b.y + v.w * b.x);
  return vec4(v.x * a.x - v.y * a.y, v.x * a.y + v.y * a.x, v.z * b.x - v.w * b.y, v.z * b.y + v.w * b.x);
}
/* Two neighbouring elements into the state. row: of the page's layer, in heads * 64 + position. */
void store_pair(uint64_t row, uint e, vec2 v) {
  if (KV_F32 != 0)
    st_state_vec2(row + 4 * e, v);
  else
    st_state_uint(row + 2 * e, packHalf2x16(v));
}

void main() {
  uint head = gl_WorkGroupID.x * (WG / LANES) + TID / LANES, r = gl_WorkGroupID.y, lane = TID % LANES;
  if (r >= step_word(IMG_STEP_N_ROW)) return;
  bool inside = head < N_HEAD + 2 * N_KV_HEAD;
  head = min(head, uint(N_HEAD + 2 * N_KV_HEAD - 1));
  bool is_q = head < N_HEAD, is_v = head >= N_HEAD + N_KV_HEAD;
  uint field = is_q ? F_q : is_v ? F_v : F_k;
  uint64_t from = is_q   ? pc.q + 4 * (uint64_t(r) * Q_STRIDE + head * D_HEAD)
                  : is_v ? pc.v + 4 * (uint64_t(r) * V_STRIDE + (head - N_HEAD - N_KV_HEAD) * D_HEAD)
                         : pc.k + 4 * (uint64_t(r) * K_STRIDE + (head - N_HEAD) * D_HEAD);
  uint pos = step_row_pos(r);
  uint64_t page = uint64_t(step_page(step_row_slot(r), pos)) * PAGE_BYTES;
  uint64_t row = page + uint64_t((head - N_HEAD) * 64 + pos % 64) * (D_HEAD * (KV_F32 != 0 ? 4 : 2));

  float scale = 1;
  if (QK_NORM != 0) {
    float squares = 0;
    [[dont_unroll]] for (uint t = lane; t < N_QUAD; t += LANES) {
      vec4 v = load4(field, from, quad_elements(t));
      squares += dot(v, v);
    }
    scale = inversesqrt(lanes_sum(squares) / float(D_HEAD) + EPS);
  }
  [[dont_unroll]] for (uint t = lane; t < N_QUAD; t += LANES) {
    uvec2 e = quad_elements(t);
    vec4 v = load4(field, from, e);
    if (!is_v) {
      if (QK_NORM != 0) v *= scale * (is_q ? load4(F_q_norm, pc.q_norm, e) : load4(F_k_norm, pc.k_norm, e));
      v = rotate(v, t, pos);
    }
    if (!inside) continue;
    if (is_q) {
      mem_st_vec2(F_q, from + 4 * e.x, v.xy);
      mem_st_vec2(F_q, from + 4 * e.y, v.zw);
    } else {
      store_pair(row, e.x, v.xy);
      store_pair(row, e.y, v.zw);
    }
  }
}
