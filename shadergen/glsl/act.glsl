/* act.glsl: activations of one unit of 32 (formats.glsl), as the invocations of a team of LANES read them.
 *
 * Two ways. Wide: every invocation loads what it multiplies, 16 bytes at a time, when it needs it. SPREAD (narrow subgroups with one lane a
 * row, so that all 8 lanes need the same 32 values): each lane loads 4 of them beforehand, and shuffles hand them round.
 * The subgroup must be in uniform control flow. */
#define SPREAD (NARROW && LANES == 1)

struct act {
  uint64_t row; /* wide: address of the low run's first element */
  vec4 spread;  /* SPREAD: elements 2 * lane and 2 * lane + 1 of the low run (.xy) and of the high run (.zw) */
};

act act_load(uint field, uint64_t x, uint base, uint step) {
  act a;
  a.row = x + 4 * base;
  if (SPREAD) {
    uint64_t p = a.row + 8 * (TID % 8);
    a.spread = vec4(mem_ld_vec2(field, p), mem_ld_vec2(field, p + 4 * step));
  }
  return a;
}
/* Elements 4k .. 4k + 3 of 16 values that 8 lanes hold in pairs. */
vec4 act_hand(vec2 v, uint k) {
  return vec4(subgroupShuffle(v.x, 2 * k), subgroupShuffle(v.y, 2 * k), subgroupShuffle(v.x, 2 * k + 1),
              subgroupShuffle(v.y, 2 * k + 1));
}
/* Elements 4k .. 4k + 3 of the low run, and of the high run. */
vec4 act_lo(act a, uint field, uint step, uint k) {
  return SPREAD ? act_hand(a.spread.xy, k) : mem_ld_vec4(field, a.row + 16 * k);
}
vec4 act_hi(act a, uint field, uint step, uint k) {
  return SPREAD ? act_hand(a.spread.zw, k) : mem_ld_vec4(field, a.row + 4 * step + 16 * k);
}
