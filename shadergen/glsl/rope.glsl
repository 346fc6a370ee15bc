/* rope.glsl: quads of a head's elements, their rotation, and their way into the state; for kernels that define a quad's place:
 * ROTATED, the dimensions that are rotated, NEOX, ROPE_MUL, KV, and a field `rope`. A lane owns four elements at a time, both
 * members of two pairs, so that nothing is read after it was written. */
#include "turns.glsl"

const uint ROTATED_QUADS = ROTATED / 4;

/* Elements of quad t: two pairs (.x, .z) and (.y, .w) of neox order, (.x, .y) and (.z, .w) of normal order. first: index of
 * .x, second: index of .z; .y and .w follow them. */
uvec2 quad_elements(uint t) {
  if (NEOX != 0 && t < ROTATED_QUADS) return uvec2(2 * t, 2 * t + ROTATED / 2);
  return uvec2(4 * t, 4 * t + 2);
}
vec4 load4(uint field, uint64_t head, uvec2 e) {
  return vec4(mem_ld_vec2(field, head + 4 * e.x), mem_ld_vec2(field, head + 4 * e.y));
}
/* The quad's pairs turned by the angles of position pos. */
vec4 rotate(vec4 v, uint t, uint pos) {
  if (t >= ROTATED_QUADS) return v;
  uvec4 f = uvec4(ld_rope_uvec2(16 * t), ld_rope_uvec2(16 * t + 8));
  vec2 a = ROPE_MUL * turns_cos_sin(turns_of(f.xy, pos)), b = ROPE_MUL * turns_cos_sin(turns_of(f.zw, pos));
  if (NEOX != 0)
    return vec4(v.x * a.x - v.z * a.y, v.y * b.x - v.w * b.y, v.x * a.y + v.z * a.x, v.y * b.y + v.w * b.x);
  return vec4(v.x * a.x - v.y * a.y, v.x * a.y + v.y * a.x, v.z * b.x - v.w * b.y, v.z * b.y + v.w * b.x);
}
/* Two neighbouring elements into the state. row: of the page's layer. */
void store_pair(uint64_t row, uint e, vec2 v) {
  if (KV != 0)
    st_state_vec2(row + 4 * e, v);
  else
    st_state_uint(row + 2 * e, packHalf2x16(v));
}
