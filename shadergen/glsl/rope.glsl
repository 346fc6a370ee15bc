/* rope.glsl: quads of a head's elements, their rotation, and their way into the state; for kernels that define a quad's place:
 * ROTATED, the dimensions that are rotated, NEOX, ROPE_MUL, KV, STATE_D (the most elements of a head of the state), and fields `rope` and
 * `state`. A team of LANES invocations has a head. A lane owns four elements at a time, both members of two pairs, so that nothing
 * is read after it was written. */
#include "kv.glsl"
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

/* ---- Into the state. head: offset of the page's head, of d elements a position; pos: in the page ---- */

/* Q8_0: the team's head, until all of its lanes are done. */
const uint STAGE_D = KV == KV_Q8_0 ? STATE_D : 1;
shared float state_stage[WG / LANES][STAGE_D];

/* Two neighbouring elements. store_finish must follow. */
void store_pair(uint64_t head, uint d, uint pos, uint e, vec2 v) {
  if (KV == KV_F32) {
    st_state_vec2(kv_at(head, d, pos, e), v);
  } else if (KV == KV_F16) {
    st_state_uint(kv_at(head, d, pos, e), packHalf2x16(v));
  } else {
    state_stage[TID / LANES][e] = v.x;
    state_stage[TID / LANES][e + 1] = v.y;
  }
}

/* The f16 scale of a block of 32 of the stage: the largest magnitude is 127 of it. */
float stage_scale(uint block) {
  float most = 0;
  for (uint i = 0; i < 32; i++) most = max(most, abs(state_stage[TID / LANES][32 * block + i]));
  return unpackHalf2x16(packHalf2x16(vec2(min(most / 127, 65504.0), 0))).x;
}
uint stage_byte(uint e, float scale) {
  float v = scale > 0 ? roundEven(clamp(state_stage[TID / LANES][e] / scale, -127, 127)) : 0;
  return uint(int(v)) & 255u;
}
/* After a head's last store_pair, in uniform control flow. stores: this team has a head of the state. */
void store_finish(bool stores, uint64_t head, uint d, uint pos) {
  if (KV != KV_Q8_0) return;
  group_barrier();
  if (!stores) return;
  [[dont_unroll]] for (uint w = TID % LANES; w < d / 4; w += LANES) {
    float scale = stage_scale(w / 8);
    uint word = stage_byte(4 * w, scale) | stage_byte(4 * w + 1, scale) << 8 | stage_byte(4 * w + 2, scale) << 16 |
                stage_byte(4 * w + 3, scale) << 24;
    st_state_uint(kv_at(head, d, pos, 4 * w), word);
  }
  [[dont_unroll]] for (uint j = TID % LANES; j < kv_scale_words(d); j += LANES) {
    bool two = 64 * j + 32 < d;
    float second = stage_scale(two ? 2 * j + 1 : 2 * j);
    st_state_uint(kv_scale_at(head, d, pos, 64 * j), packHalf2x16(vec2(stage_scale(2 * j), two ? second : 0)));
  }
}
