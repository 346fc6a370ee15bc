/* gemv.comp: matrix times few vectors. A team of LANES invocations takes EXTRA outputs, two at a time when it is even, its lanes the units
 * of the rows in turn. The norm is folded in: sum W (x * norm) and sum x^2 in one pass, scaled at the end. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_gemv
#include "prelude.glsl"
#include "formats.glsl"
#include "act.glsl"
#include "weight.glsl"

#define PAIRED (EXTRA % 2 == 0)
uint64_t x_row[N_ROW], matrix; /* addresses */
uint y_column;                  /* of the matrix's first output */

float acc[N_ROW], acc2[N_ROW], squares[N_ROW];

/* Adds the products of a unit, or of the same unit in two rows of the weight. */
void add_unit(DECODE(FMT, unit) w, DECODE(FMT, unit) w2, uint base) {
  const uint STEP = DECODE(FMT, STEP);
  act n, a[N_ROW];
  if (NORM != 0) n = act_load(F_norm, pc.norm, base, STEP);
  [[unroll]] for (uint r = 0; r < N_ROW; r++) {
    a[r] = act_load(F_x, x_row[r], base, STEP);
    if (NORM != 0 && SPREAD) {
      squares[r] += dot(a[r].spread, a[r].spread);
      a[r].spread *= n.spread;
    }
  }
  for (uint k = 0; k < ROLLED(4); k++) {
    vec4 lo = DECODE(FMT, lo)(w, k), hi = DECODE(FMT, hi)(w, k), lo2, hi2;
    if (PAIRED) {
      lo2 = DECODE(FMT, lo)(w2, k);
      hi2 = DECODE(FMT, hi)(w2, k);
    }
    [[unroll]] for (uint r = 0; r < N_ROW; r++) {
      vec4 xl = act_lo(a[r], F_x, STEP, k), xh = act_hi(a[r], F_x, STEP, k);
      if (NORM != 0 && !SPREAD) {
        squares[r] += dot(xl, xl) + dot(xh, xh);
        xl *= act_lo(n, F_norm, STEP, k);
        xh *= act_hi(n, F_norm, STEP, k);
      }
      acc[r] += dot(lo, xl) + dot(hi, xh);
      if (PAIRED) acc2[r] += dot(lo2, xl) + dot(hi2, xh);
    }
  }
}

void store(float sum[N_ROW], float scale[N_ROW], uint o, uint n_live) {
  [[unroll]] for (uint r = 0; r < N_ROW; r++) {
    float y = lanes_sum(sum[r]) * scale[r];
    if (TID % LANES == 0 && o < N_OUT && r < n_live) {
      uint64_t p = 4 * (uint64_t(r) * Y_STRIDE + y_column + o);
      if (BIAS != 0) y += ld_bias_float(4 * o);
      if (SCALE != 1.0) y *= SCALE;
      if (RESIDUAL != 0) y += ld_y_float(p);
      st_y_float(p, y);
    }
  }
}

/* Output o, and o2 when PAIRED. */
void outputs(uint o, uint o2, uint n_live) {
  uint row = min(o, uint(N_OUT - 1)), row2 = min(o2, uint(N_OUT - 1));
  [[unroll]] for (uint r = 0; r < N_ROW; r++) acc[r] = acc2[r] = squares[r] = 0;
  UNIT_BLOCKS(FMT, u0, N_IN / 32) {
    DECODE(FMT, block) b = DECODE(FMT, open)(F_weight, matrix, N_IN, N_OUT, row, u0), b2;
    if (PAIRED) b2 = DECODE(FMT, open)(F_weight, matrix, N_IN, N_OUT, row2, u0);
    UNIT_EACH(FMT, u, u0) {
      DECODE(FMT, unit) w = DECODE(FMT, load)(b, F_weight, matrix, N_IN, N_OUT, row, u), w2;
      if (PAIRED) w2 = DECODE(FMT, load)(b2, F_weight, matrix, N_IN, N_OUT, row2, u);
      add_unit(w, w2, DECODE(FMT, base)(u));
    }
  }
  float scale[N_ROW];
  [[unroll]] for (uint r = 0; r < N_ROW; r++) {
    scale[r] = 1;
    if (NORM != 0)
      scale[r] = inversesqrt((SPREAD ? subgroup_sum(squares[r]) : lanes_sum(squares[r])) / float(N_IN) + EPS);
  }
  store(acc, scale, o, n_live);
  if (PAIRED) store(acc2, scale, o2, n_live);
}

void main() {
  codebook_stage();
  uint n_live = min(step_word(ROWSEL != 0 ? IMG_STEP_N_SELECT : IMG_STEP_N_ROW), uint(N_ROW));
  if (n_live == 0) return;
  uint mat = N_MAT > 1 ? gl_WorkGroupID.z : 0;
  matrix = pc.weight + mat * DECODE(FMT, mat_stride)(N_IN, N_OUT);
  y_column = mat * N_OUT;
  [[unroll]] for (uint r = 0; r < N_ROW; r++) {
    uint live = min(r, n_live - 1);
    uint from = ROWSEL != 0 ? step_select(live, IMG_SELECT_ROW) : live;
    x_row[r] = pc.x + 4 * (uint64_t(from) * X_STRIDE + mat * N_IN);
  }
  uint teams = WG / LANES, first = gl_WorkGroupID.x * teams * EXTRA + TID / LANES;
  for (uint e = 0; e < EXTRA; e += PAIRED ? 2 : 1) outputs(first + e * teams, first + (e + 1) * teams, n_live);
}
