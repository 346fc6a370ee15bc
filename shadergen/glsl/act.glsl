/* act.glsl: activations of one unit of 32 (formats.glsl), as the invocations of a team of LANES hold them.
 *
 * Two ways. Wide: every invocation loads what it multiplies, 16 bytes at a time. SPREAD (narrow subgroups with one lane a row, so
 * that all 8 lanes need the same 32 values): each lane loads 4 of them, and broadcasts hand them round; there, loads cost per lane.
 * The subgroup must be in uniform control flow. */
#define SPREAD (NARROW && LANES == 1)

struct act {
  vec4 v[8];   /* wide: low run, high run */
  vec4 spread; /* SPREAD: elements lane and 8 + lane of the low run, then of the high run */
};

act act_load(uint field, uint64_t row, uint base, uint step) {
  act a;
  if (SPREAD) {
    uint64_t p = row + 4 * (base + TID % 8);
    a.spread = vec4(mem_ld_float(field, p), mem_ld_float(field, p + 32), mem_ld_float(field, p + 4 * step),
                    mem_ld_float(field, p + 4 * step + 32));
  } else {
    uint64_t p = row + 4 * base;
    [[unroll]] for (uint k = 0; k < 4; k++) a.v[k] = mem_ld_vec4(field, p + 16 * k);
    [[unroll]] for (uint k = 0; k < 4; k++) a.v[4 + k] = mem_ld_vec4(field, p + 4 * step + 16 * k);
  }
  return a;
}
/* Elements 4k .. 4k + 3 of 8 values that 8 lanes hold. */
vec4 act_hand(float v, uint k) {
  return vec4(subgroupBroadcast(v, 4 * k), subgroupBroadcast(v, 4 * k + 1), subgroupBroadcast(v, 4 * k + 2),
              subgroupBroadcast(v, 4 * k + 3));
}
vec4 act_lo(act a, uint k) {
  if (SPREAD) return act_hand(k < 2 ? a.spread.x : a.spread.y, k & 1);
  return a.v[k];
}
vec4 act_hi(act a, uint k) {
  if (SPREAD) return act_hand(k < 2 ? a.spread.z : a.spread.w, k & 1);
  return a.v[4 + k];
}
/* a *= b, element by element. */
void act_mul(inout act a, act b) {
  if (SPREAD) {
    a.spread *= b.spread;
  } else {
    [[unroll]] for (uint k = 0; k < 8; k++) a.v[k] *= b.v[k];
  }
}
/* This invocation's part of the sum of squares; act_total adds the parts of a row. */
float act_squares(act a) {
  if (SPREAD) return dot(a.spread, a.spread);
  float s = 0;
  [[unroll]] for (uint k = 0; k < 8; k++) s += dot(a.v[k], a.v[k]);
  return s;
}
float act_total(float part) { return SPREAD ? subgroup_sum(part) : lanes_sum(part); }
