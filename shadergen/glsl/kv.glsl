/* kv.glsl: keys and values as they lie in a page (images/FORMAT.md, "State pages"). Includers have the parameter KV.
 *
 * A head's 64 positions stand together: [64][d] f16 (KV 0) or f32 (KV 1), or (KV 2, Q8_0) [64][d] signed bytes, then [64][scales] f16
 * scales, one for 32 bytes, an even number a position. Functions take a head's address and a position's number in the page. */
#define KV_F16 0
#define KV_F32 1
#define KV_Q8_0 2

/* Words of a position's scales. */
uint kv_scale_words(uint d) { return (d + 63) / 64; }
/* Bytes of a head of d elements a position. */
uint kv_head_bytes(uint d) {
  return KV == KV_Q8_0 ? 64 * d + 256 * kv_scale_words(d) : 64 * d * (KV == KV_F32 ? 4 : 2);
}
/* Address of element e; of the word that has its scale, e / 32 % 2 says in which half. */
uint64_t kv_at(uint64_t head, uint d, uint pos, uint e) {
  return head + (pos * d + e) * (KV == KV_Q8_0 ? 1 : KV == KV_F32 ? 4 : 2);
}
uint64_t kv_scale_at(uint64_t head, uint d, uint pos, uint e) {
  return head + 64 * d + 4 * (pos * kv_scale_words(d) + e / 64);
}

vec4 kv_halves(uvec2 v) { return vec4(unpackHalf2x16(v.x), unpackHalf2x16(v.y)); }
/* The four signed bytes of a word. Put into the mantissa of 2^23, since a GPU converts integers at a quarter of its other operations' rate. */
vec4 kv_bytes(uint w) {
  uint u = w ^ 0x80808080u;
  uvec4 b = uvec4(u & 255u, (u >> 8) & 255u, (u >> 16) & 255u, u >> 24);
  return uintBitsToFloat(b | 0x4b000000u) - 8388736.0;
}

/* Elements e .. e + chunk - 1 (chunk 4 or 8, e a multiple of it) as they are loaded, and their values. What a kind does not use is not
 * defined. */
struct kv_raw {
  uvec4 a, b;
  uint scale;
};
kv_raw kv_load(uint64_t head, uint d, uint chunk, uint pos, uint e) {
  kv_raw w;
  uint64_t at = kv_at(head, d, pos, e);
  if (KV == KV_F32) {
    w.a = mem_ld_uvec4(F_state, at);
    if (chunk == 8) w.b = mem_ld_uvec4(F_state, at + 16);
  } else if (KV == KV_F16) {
    if (chunk == 8)
      w.a = mem_ld_uvec4(F_state, at);
    else
      w.a.xy = mem_ld_uvec2(F_state, at);
  } else {
    if (chunk == 8)
      w.a.xy = mem_ld_uvec2(F_state, at);
    else
      w.a.x = mem_ld_uint(F_state, at);
    w.scale = mem_ld_uint(F_state, kv_scale_at(head, d, pos, e));
  }
  return w;
}
/* high: of the second four. */
vec4 kv_quad(kv_raw w, uint e, bool high) {
  if (KV == KV_F32) return uintBitsToFloat(high ? w.b : w.a);
  if (KV == KV_F16) return kv_halves(high ? w.a.zw : w.a.xy);
  vec2 scales = unpackHalf2x16(w.scale);
  return kv_bytes(high ? w.a.y : w.a.x) * (e / 32 % 2 != 0 ? scales.y : scales.x);
}
