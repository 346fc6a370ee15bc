/* step_exchange.glsl: how the resident workgroups of `step` hand vectors to each other, without barriers.
 *
 * A word of 64 bits carries its own tag: it is stored at once, and whoever waits for it reads it again until the tag is the awaited one. So
 * there is one trip through the device's cache from the one to the other, where a barrier takes three (store and fence, arrival,
 * release). Two forms:
 *   pair   two floats rounded to 24 bits (16 of mantissa), tag 16 bits
 *   float  one f32, tag 32 bits
 * A tag is the step's serial number plus the number of the phase that stored the word (step_phase.glsl). Every word of a place is stored anew each time
 * that the place is used, and a place is used again only when all its readers have handed on what they made of it, so that an old tag never fits.
 * Waits are bounded: after WAIT_LIMIT reads the step is lost, which the result block says; then nothing waits any more.
 * Source of the idea: the "LL" protocol of NVIDIA's NCCL (a flag beside the data in one store). */
layout(buffer_reference, std430, buffer_reference_align = 16) buffer mem_words4 { volatile devicecoherent uvec4 v; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer mem_words2 { volatile devicecoherent uvec2 v; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer mem_word64 { volatile devicecoherent uint64_t v; };

const uint WAIT_LIMIT = 1u << 20;
uint wait_left = WAIT_LIMIT;

/* Two words. Narrow subgroups' drivers take vectors apart; a 64-bit word stays whole. */
uvec4 words_load2(uint64_t offset) {
  uint64_t a = pc.exchange + offset;
  if (!mem_ok(F_exchange, a, 16)) return uvec4(0);
  if (NARROW) return uvec4(unpackUint2x32(mem_word64(a).v), unpackUint2x32(mem_word64(a + 8).v));
  return mem_words4(a).v;
}
uvec2 words_load(uint64_t offset) {
  uint64_t a = pc.exchange + offset;
  if (!mem_ok(F_exchange, a, 8)) return uvec2(0);
  return NARROW ? unpackUint2x32(mem_word64(a).v) : mem_words2(a).v;
}
void words_store(uint64_t offset, uvec2 w) {
  uint64_t a = pc.exchange + offset;
  if (!mem_ok(F_exchange, a, 8)) return;
  if (NARROW)
    mem_word64(a).v = packUint2x32(w);
  else
    mem_words2(a).v = w;
}

/* ---- pairs ---- */
uint float24(float f) { return (floatBitsToUint(f) + 0x80u) >> 8; }
void pair_store(uint64_t offset, float a, float b, uint tag) {
  uint x = float24(a), y = float24(b);
  words_store(offset, uvec2(x | (y << 24), (y >> 8) | (tag << 16)));
}
vec2 pair_of(uvec2 w) { return vec2(uintBitsToFloat(w.x << 8), uintBitsToFloat((w.y << 16) | ((w.x >> 24) << 8))); }
bool pairs_there(uvec4 w, uint tag) { return (w.y >> 16) == (tag & 0xffffu) && (w.w >> 16) == (tag & 0xffffu); }
/* Four values, from value 4c on. */
vec4 pairs_wait(uint64_t offset, uint tag) {
  uvec4 w = words_load2(offset);
  [[dont_unroll]] while (!pairs_there(w, tag) && wait_left > 0) {
    wait_left--;
    w = words_load2(offset);
  }
  return vec4(pair_of(w.xy), pair_of(w.zw));
}

/* ---- floats ---- */
void float_store(uint64_t offset, float v, uint tag) { words_store(offset, uvec2(floatBitsToUint(v), tag)); }
float float_wait(uint64_t offset, uint tag) {
  uvec2 w = words_load(offset);
  [[dont_unroll]] while (w.y != tag && wait_left > 0) {
    wait_left--;
    w = words_load(offset);
  }
  return uintBitsToFloat(w.x);
}
