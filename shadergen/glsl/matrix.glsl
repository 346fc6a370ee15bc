/* matrix.glsl: a tile of a product on subgroup matrices (VK_KHR_cooperative_matrix): up to TM rows of activations times TN rows of weights.
 *
 * Owns: staging in shared memory as f16, the products, what keeps f16 in range. Does not own: which rows a tile has and where its results
 * go: a kernel defines K_SIZE and N_SIZE (columns and rows of the weights), FIELD_X, FIELD_0 and FMT_0, with PLANES 2 also FIELD_1 and FMT_1 (gate
 * and up: two planes over the same rows), includes this after formats.glsl, and gives `put`.
 *
 * A step takes K_STEP columns: LANES parts of 64 that subgroups share out among them. What a step needs is loaded into registers one step
 * ahead, while the present one is multiplied from shared memory. Matrices are 16x16x16, or 8x8x8 where subgroups are of 8; sums are f32, and those of
 * the parts are added in order. Weights beyond N_SIZE or K_SIZE are those of the last row and unit: their results are not stored, their activations
 * are zero.
 *
 * Range. f16 ends at 65504 and loses bits below 2^-14. The pass over K notes of each row whether a value exceeds F16_MOST and whether one
 * reaches F16_LEAST. When a row has the former or lacks the latter, the tile is multiplied once more, that row scaled by the power of two that
 * brings its largest value into [2^14, 2^15), and its results are scaled back. The scale is a function of the row alone: no row depends on those
 * that share its tile. Weights have to be below 65504 / GAIN.
 *
 * F32 weights (routers, whose choices must not move) and their activations are sums of two f16 each (PARTS 2) and take three products, which
 * are exact to some 2^-22. */
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require

#include "half.glsl"

#ifndef PLANES
#define PLANES 1
#endif
#if FMT_USED(0)
#define PARTS 2
#else
#define PARTS 1
#endif
#define TN EXTRA
#define NO_ROW 0xffffffffu
const float F16_MOST = 65504.0, F16_LEAST = 0.000244140625; /* 2^-12 */

const uint SIDE = NARROW ? 8 : 16;
const uint K_STEP = 64 * LANES, STRIDE = K_STEP / 4 + 2; /* rows in f16vec4, 16 bytes apart from a multiple of 128 against bank conflicts */
const uint N_GROUPS = WG / SUBGROUP / LANES;             /* subgroups over TN */
const uint M_PARTS = TM / SIDE, N_PARTS = TN / SIDE / N_GROUPS, N_SUMS = M_PARTS * N_PARTS, N_ALL = PLANES * N_SUMS; /* matrices of a subgroup */
const uint X_COUNT = TM * K_STEP / 4, X_LOADS = (X_COUNT + WG - 1) / WG;   /* loads of 4 activations a step */
const uint W_COUNT = TN * K_STEP / 32, W_LOADS = (W_COUNT + WG - 1) / WG;  /* loads of a unit of weights a step and plane */

shared f16vec4 tile_x[PARTS * TM * STRIDE];
shared f16vec4 tile_w[PLANES * PARTS * TN * STRIDE];
shared uint row_at[TM]; /* where a row's activations begin, in floats; NO_ROW: the tile has no such row */
shared float row_scale[TM];
shared uint row_most[TM], row_over[TM], row_seen[TM]; /* bits of the largest |x|, when asked for; whether one is beyond F16_MOST; whether one reaches F16_LEAST */
shared uint astray, rescale;                          /* whether a row strays; whether a row has got a scale */

#define MATRIX(TYPE, USE) coopmat<TYPE, gl_ScopeSubgroup, SIDE, SIDE, USE>
#define MATRIX_X MATRIX(float16_t, gl_MatrixUseA)
#define MATRIX_W MATRIX(float16_t, gl_MatrixUseB)
#define MATRIX_Y MATRIX(float, gl_MatrixUseAccumulator)

/* Takes the results of row r of the tile and output o, a number below N_SIZE: one a plane. */
void put(uint r, uint o, float y[PLANES]);

/* Lanes of a narrow subgroup go in step; the compiler still has to keep the order. */
void tile_barrier() {
  if (NARROW && WG == SUBGROUP)
    subgroupMemoryBarrierShared();
  else
    barrier();
}

/* Says where row r < TM of the tile is; every row once, before matrix_run. */
void tile_row(uint r, uint at) {
  row_at[r] = at;
  row_scale[r] = 1.0;
  row_most[r] = row_over[r] = row_seen[r] = 0;
  if (r == 0) astray = rescale = 0;
}

/* Load j of this invocation: row of the tile, column of the step; row of the tile, unit of the step. */
uint x_row(uint j) { return (TID + j * WG) / (K_STEP / 4); }
uint x_column(uint j) { return (TID + j * WG) % (K_STEP / 4) * 4; }
bool x_has(uint j) { return X_COUNT % WG == 0 || TID + j * WG < X_COUNT; }
uint w_row(uint j) { return (TID + j * WG) / (K_STEP / 32); }
uint w_unit(uint j) { return (TID + j * WG) % (K_STEP / 32); }
bool w_has(uint j) { return W_COUNT % WG == 0 || TID + j * WG < W_COUNT; }

/* What f16 has exactly of f32 values in its range: by bits, since drivers take the difference to a converted and widened value for zero. */
vec4 f16_part(vec4 v) { return uintBitsToFloat(floatBitsToUint(v) & 0xffffe000u); }

/* ---- activations ---- */

vec4 x_load(uint64_t x, uint at, uint k, uint j) {
  k += x_column(j);
  return at != NO_ROW && (K_SIZE % K_STEP == 0 || k < K_SIZE) ? mem_ld_vec4(FIELD_X, x + 4 * (uint64_t(at) + k)) : vec4(0);
}
/* Four elements as f16, in the order 0, 2, 1, 3 (half.glsl), which weights have too. */
f16vec4 x_stage(uint j, vec4 v) {
  uint to = x_row(j) * STRIDE + x_column(j) / 4;
  v = v.xzyw;
  f16vec4 high = f16vec4(PARTS == 2 ? f16_part(v) : v);
  tile_x[to] = high;
  if (PARTS == 2) tile_x[to + TM * STRIDE] = f16vec4(v - f16_part(v));
  return high;
}
f16vec2 x_most(f16vec4 v) { return max(abs(v.xy), abs(v.zw)); }
/* Notes what f16 has made of values of row r: infinity, of those beyond its range. */
void x_note(uint r, f16vec2 most) {
  float m = float(max(most.x, most.y));
  if (m >= F16_LEAST) row_seen[r] = 1;
  if (m > F16_MOST) row_over[r] = 1;
}
bool x_strays(uint r) { return row_at[r] != NO_ROW && (row_seen[r] == 0 || row_over[r] != 0); }
/* NARROW: loads and stages at once, in as little code as can be. */
void x_narrow(uint64_t x, uint k) {
  for (uint j = 0; j < ROLLED(X_LOADS); j++) {
    uint r = x_row(j);
    if (row_at[r] != NO_ROW) x_note(r, x_most(x_stage(j, x_load(x, row_at[r], k, j) * row_scale[r])));
  }
}

/* After a pass over K: gives rows that stray a scale; whether one has got one. */
bool find_scales(uint64_t x) {
  tile_barrier();
  for (uint r = TID; r < TM; r += WG)
    if (x_strays(r)) astray = 1;
  tile_barrier();
  if (astray == 0) return false;
  [[dont_unroll]] for (uint i = TID; i < TM * (K_SIZE / 4); i += WG) {
    uint r = i / (K_SIZE / 4);
    if (!x_strays(r)) continue;
    vec4 v = abs(mem_ld_vec4(FIELD_X, x + 4 * (uint64_t(row_at[r]) + i % (K_SIZE / 4) * 4)));
    atomicMax(row_most[r], floatBitsToUint(max(max(v.x, v.y), max(v.z, v.w))));
  }
  tile_barrier();
  for (uint r = TID; r < TM; r += WG)
    if (row_most[r] != 0) {
      row_scale[r] = uintBitsToFloat(min(268 - (row_most[r] >> 23), 253u) << 23); /* 2^14 over the largest's power of two */
      rescale = 1;
    }
  tile_barrier();
  return rescale != 0;
}

/* ---- weights ---- */

/* The row of a plane's matrix and the unit of a row that load j reads for the step from column k on. */
uint w_from(uint n0, uint j) { return N_SIZE % TN == 0 ? n0 + w_row(j) : min(n0 + w_row(j), uint(N_SIZE - 1)); }
uint w_at(uint k, uint j) { return min(k / 32 + w_unit(j), uint(K_SIZE / 32 - 1)); }
void w_stage_parts(uint to, vec4 v) {
  v = v.xzyw * GAIN;
  tile_w[to] = f16vec4(f16_part(v));
  tile_w[to + TN * STRIDE] = f16vec4(v - f16_part(v));
}
#if PARTS == 2
#define W_STAGE_FOUR(FMT_N, RUN, TO, UNIT, K) w_stage_parts(TO, DECODE(FMT_N, RUN)(UNIT, K));
#else
#define W_STAGE_FOUR(FMT_N, RUN, TO, UNIT, K) tile_w[TO] = DECODE(FMT_N, RUN##16)(UNIT, K);
#endif
#define W_OPEN(FMT_N, FIELD, MAT, K, J) DECODE(FMT_N, open)(FIELD, MAT, K_SIZE, N_SIZE, w_from(n0, J), w_at(K, J))
#define W_LOAD(FMT_N, FIELD, MAT, BLOCK, K, J) DECODE(FMT_N, load)(BLOCK, FIELD, MAT, K_SIZE, N_SIZE, w_from(n0, J), w_at(K, J))
#define W_STAGE(FMT_N, PLANE, UNIT, K, J)                                                                              \
  if (w_has(J)) {                                                                                                      \
    uint to_ = (PLANE * PARTS * TN + w_row(J)) * STRIDE + (DECODE(FMT_N, base)((K) / 32 + w_unit(J)) - (K)) / 4;       \
    for (uint k_ = 0; k_ < ROLLED(4); k_++) {                                                                          \
      W_STAGE_FOUR(FMT_N, lo, to_ + k_, UNIT, k_)                                                                      \
      W_STAGE_FOUR(FMT_N, hi, to_ + DECODE(FMT_N, STEP) / 4 + k_, UNIT, k_)                                            \
    }                                                                                                                  \
  }
#define W_NARROW(FMT_N, FIELD, MAT, PLANE, K)                                                                          \
  for (uint j = 0; j < ROLLED(W_LOADS); j++) {                                                                         \
    DECODE(FMT_N, unit) unit_ = W_LOAD(FMT_N, FIELD, MAT, W_OPEN(FMT_N, FIELD, MAT, K, j), K, j);                      \
    W_STAGE(FMT_N, PLANE, unit_, K, j)                                                                                 \
  }

/* ---- products ---- */

/* sums[plane][m part][n part] += the step in shared memory. */
void multiply(inout MATRIX_Y sums[N_ALL]) {
  uint part = TID / SUBGROUP % LANES, n = TID / SUBGROUP / LANES * N_PARTS * SIDE;
  [[unroll]] for (uint k = 0; k < ROLLED(64); k += SIDE) {
    uint at = (part * 64 + k) / 4;
    MATRIX_W w[PLANES * PARTS * N_PARTS];
    [[unroll]] for (uint i = 0; i < PLANES * PARTS * N_PARTS; i++)
      coopMatLoad(w[i], tile_w, (i / N_PARTS * TN + n + i % N_PARTS * SIDE) * STRIDE + at, STRIDE,
                  gl_CooperativeMatrixLayoutColumnMajor);
    [[unroll]] for (uint m = 0; m < M_PARTS; m++) {
      MATRIX_X x, x_low; /* of rows that the tile lacks: whatever is there, for sums that nobody reads */
      coopMatLoad(x, tile_x, m * SIDE * STRIDE + at, STRIDE, gl_CooperativeMatrixLayoutRowMajor);
      if (PARTS == 2)
        coopMatLoad(x_low, tile_x, (TM + m * SIDE) * STRIDE + at, STRIDE, gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint i = 0; i < PLANES * N_PARTS; i++) {
        uint to = (i / N_PARTS * M_PARTS + m) * N_PARTS + i % N_PARTS, from = i / N_PARTS * PARTS * N_PARTS + i % N_PARTS;
        if (PARTS == 2) {
          sums[to] = coopMatMulAdd(x_low, w[from], sums[to]);
          sums[to] = coopMatMulAdd(x, w[from + N_PARTS], sums[to]);
        }
        sums[to] = coopMatMulAdd(x, w[from], sums[to]);
      }
    }
  }
}

/* Hands the sums to `put`, by way of tile_w: [plane][subgroup][SIDE][SIDE] f32, two of them an element. */
float sum_at(uint plane, uint subgroup, uint e) {
  f16vec4 pair = tile_w[((plane * (WG / SUBGROUP) + subgroup) * SIDE * SIDE + e) / 2];
  return uintBitsToFloat(packFloat2x16((e & 1) != 0 ? pair.zw : pair.xy));
}
void put_sums(MATRIX_Y sums[N_ALL], uint n0, uint n_row) {
  uint subgroup = TID / SUBGROUP, group = subgroup / LANES;
  [[unroll]] for (uint i = 0; i < N_SUMS; i++) {
    if (i / N_PARTS * SIDE >= n_row) break;
    tile_barrier();
    [[unroll]] for (uint plane = 0; plane < PLANES; plane++)
      coopMatStore(sums[plane * N_SUMS + i], tile_w, (plane * (WG / SUBGROUP) + subgroup) * SIDE * SIDE / 2, SIDE / 2,
                   gl_CooperativeMatrixLayoutRowMajor);
    tile_barrier();
    for (uint e = TID % (SUBGROUP * LANES); e < ROLLED(SIDE * SIDE); e += SUBGROUP * LANES) {
      uint r = i / N_PARTS * SIDE + e / SIDE, o = n0 + (group * N_PARTS + i % N_PARTS) * SIDE + e % SIDE;
      if (r >= n_row || o >= N_SIZE) continue;
      float y[PLANES], back = uintBitsToFloat(0x7f000000u - floatBitsToUint(row_scale[r])) / GAIN; /* 1 / scale is exact */
      [[unroll]] for (uint plane = 0; plane < PLANES; plane++) {
        y[plane] = 0;
        [[unroll]] for (uint part = 0; part < LANES; part++) y[plane] += sum_at(plane, group * LANES + part, e);
        y[plane] *= back;
      }
      put(r, o, y);
    }
  }
}

/* ---- the tile ---- */

#define EACH_X [[unroll]] for (uint j = 0; j < X_LOADS; j++)
#define EACH_W [[unroll]] for (uint j = 0; j < W_LOADS; j++)
/* What a step needs, into registers: the units, with blocks loaded a step before, and the next step's blocks. */
#define LOAD(K)                                                                                                        \
  {                                                                                                                    \
  EACH_X held[j] = x_load(x, at[j], K, j);                                                                             \
  EACH_W {                                                                                                             \
    unit0[j] = W_LOAD(FMT_0, FIELD_0, w0, block0[j], K, j);                                                            \
    block0[j] = W_OPEN(FMT_0, FIELD_0, w0, (K) + K_STEP, j);                                                           \
    LOAD_SECOND(K)                                                                                                     \
  }                                                                                                                    \
  }
#if PLANES == 2
#define LOAD_SECOND(K)                                                                                                 \
  unit1[j] = W_LOAD(FMT_1, FIELD_1, w1, block1[j], K, j);                                                              \
  block1[j] = W_OPEN(FMT_1, FIELD_1, w1, (K) + K_STEP, j);
#else
#define LOAD_SECOND(K)
#endif

/* The tile: rows as tile_row has said, the first n_row of them, outputs n0 to n0 + TN - 1 of the matrices at w0 (and w1). Call in uniform
 * control flow. */
void matrix_run(uint64_t x, uint64_t w0, uint64_t w1, uint n0, uint n_row) {
  MATRIX_Y sums[N_ALL];
  DECODE(FMT_0, block) block0[W_LOADS];
  DECODE(FMT_0, unit) unit0[W_LOADS];
#if PLANES == 2
  DECODE(FMT_1, block) block1[W_LOADS];
  DECODE(FMT_1, unit) unit1[W_LOADS];
#endif
  vec4 held[X_LOADS];
  f16vec2 most[X_LOADS];
  uint at[X_LOADS];
  tile_barrier();
  if (!NARROW) EACH_X at[j] = x_has(j) ? row_at[x_row(j)] : NO_ROW;
  [[dont_unroll]] for (uint pass = 0; pass < ROLLED(2); pass++) {
    [[unroll]] for (uint i = 0; i < N_ALL; i++) sums[i] = MATRIX_Y(0.0);
    if (!NARROW) {
      EACH_X most[j] = f16vec2(0);
      EACH_W {
        block0[j] = W_OPEN(FMT_0, FIELD_0, w0, 0, j);
#if PLANES == 2
        block1[j] = W_OPEN(FMT_1, FIELD_1, w1, 0, j);
#endif
      }
      LOAD(0)
    }
    [[dont_unroll]] for (uint k0 = 0; k0 < ROLLED(K_SIZE); k0 += K_STEP) {
      tile_barrier();
      if (NARROW) {
        x_narrow(x, k0);
        W_NARROW(FMT_0, FIELD_0, w0, 0, k0)
#if PLANES == 2
        W_NARROW(FMT_1, FIELD_1, w1, 1, k0)
#endif
      } else {
        if (pass != 0) EACH_X if (x_has(j)) held[j] *= row_scale[x_row(j)];
        EACH_X if (at[j] != NO_ROW) most[j] = max(most[j], x_most(x_stage(j, held[j])));
        EACH_W {
          W_STAGE(FMT_0, 0, unit0[j], k0, j)
#if PLANES == 2
          W_STAGE(FMT_1, 1, unit1[j], k0, j)
#endif
        }
      }
      tile_barrier();
      if (!NARROW && k0 + K_STEP < K_SIZE) LOAD(k0 + K_STEP)
      multiply(sums);
    }
    if (pass != 0) break;
    if (!NARROW) EACH_X if (at[j] != NO_ROW) x_note(x_row(j), most[j]);
    if (!find_scales(x)) break;
  }
  put_sums(sums, n0, n_row);
}
