/* step_weight.glsl: 64 columns of a row of a weight (a piece, formats.glsl) as a lane of `step` loads them, some time before it multiplies them with
 * the vector. What is loaded of a format, its raw words, lies in a struct that all formats share: layers differ in formats, and registers for each would
 * be too many. Formats without integers (f32, f16, bf16, tq1_0) are decoded when they are multiplied: right, but each waits for its own loads. */
#define WEIGHT_WIDE FMT_USED(8) /* 64 bytes of quants */
struct weight {
  uvec4 a, b, c;
#if WEIGHT_WIDE
  uvec4 d;
#endif
  uvec2 e, f;
};
weight weight_none() {
  weight w;
  w.a = w.b = w.c = uvec4(0);
#if WEIGHT_WIDE
  w.d = uvec4(0);
#endif
  w.e = w.f = uvec2(0);
  return w;
}

/* Per format: WEIGHT_PUT puts the raw words R into W, WEIGHT_GET gives them back. */
#define WEIGHT_PUT_2(W, R) W.a = R.q[0]; W.b = R.q[1]; W.e.x = R.s;
#define WEIGHT_GET_2(W) q4_0_raw(uvec4[2](W.a, W.b), W.e.x)
#define WEIGHT_PUT_3(W, R) W.a = R.q[0]; W.b = R.q[1]; W.e.xy = R.s;
#define WEIGHT_GET_3(W) q4_1_raw(uvec4[2](W.a, W.b), W.e.xy)
#define WEIGHT_PUT_6(W, R) W.a = R.q[0]; W.b = R.q[1]; W.e.xy = R.high; W.f.x = R.s;
#define WEIGHT_GET_6(W) q5_0_raw(uvec4[2](W.a, W.b), W.e.xy, W.f.x)
#define WEIGHT_PUT_7(W, R) W.a = R.q[0]; W.b = R.q[1]; W.e.xy = R.high; W.f.xy = R.s;
#define WEIGHT_GET_7(W) q5_1_raw(uvec4[2](W.a, W.b), W.e.xy, W.f.xy)
#define WEIGHT_PUT_8(W, R) W.a = R.q[0]; W.b = R.q[1]; W.c = R.q[2]; W.d = R.q[3]; W.e.x = R.s;
#define WEIGHT_GET_8(W) q8_0_raw(uvec4[4](W.a, W.b, W.c, W.d), W.e.x)
#define WEIGHT_PUT_10(W, R) W.a = R.q; W.e.x = R.s; W.e.y = R.d;
#define WEIGHT_GET_10(W) q2_k_raw(W.a, W.e.x, W.e.y)
#define WEIGHT_PUT_11(W, R) W.a = R.q; W.b.xy = R.high; W.b.z = R.s.x; W.b.w = R.s.y; W.e.x = R.s.z; W.e.y = R.d;
#define WEIGHT_GET_11(W) q3_k_raw(W.a, W.b.xy, uvec3(W.b.z, W.b.w, W.e.x), W.e.y)
#define WEIGHT_PUT_12(W, R) W.a = R.q[0]; W.b = R.q[1]; W.c = R.s;
#define WEIGHT_GET_12(W) q4_k_raw(uvec4[2](W.a, W.b), W.c)
#define WEIGHT_PUT_13(W, R) W.a = R.q[0]; W.b = R.q[1]; W.c = R.s; W.e.xy = R.high;
#define WEIGHT_GET_13(W) q5_k_raw(uvec4[2](W.a, W.b), W.c, W.e.xy)
#define WEIGHT_PUT_14(W, R) W.a = R.q[0]; W.b = R.q[1]; W.c = R.high; W.e.x = R.s; W.e.y = R.d;
#define WEIGHT_GET_14(W) q6_k_raw(uvec4[2](W.a, W.b), W.c, W.e.x, W.e.y)
#define WEIGHT_PUT_16(W, R) W.a = R.q; W.e.x = R.d;
#define WEIGHT_GET_16(W) iq2_xxs_raw(W.a, W.e.x)
#define WEIGHT_PUT_17(W, R) W.a = R.q; W.e.x = R.s; W.e.y = R.d;
#define WEIGHT_GET_17(W) iq2_xs_raw(W.a, W.e.x, W.e.y)
#define WEIGHT_PUT_18(W, R) W.a = R.q; W.e.xy = R.signs; W.f.x = R.d;
#define WEIGHT_GET_18(W) iq3_xxs_raw(W.a, W.e.xy, W.f.x)
#define WEIGHT_PUT_19(W, R) W.e.xy = R.q; W.f.x = R.high; W.f.y = R.d;
#define WEIGHT_GET_19(W) iq1_s_raw(W.e.xy, W.f.x, W.f.y)
#define WEIGHT_PUT_20(W, R) W.a = R.q[0]; W.b = R.q[1]; W.e.x = R.s;
#define WEIGHT_GET_20(W) iq4_nl_raw(uvec4[2](W.a, W.b), W.e.x)
#define WEIGHT_PUT_21(W, R) W.a = R.q; W.b.xy = R.signs; W.b.z = R.high; W.b.w = R.s; W.e.x = R.d;
#define WEIGHT_GET_21(W) iq3_s_raw(W.a, W.b.xy, W.b.z, W.b.w, W.e.x)
#define WEIGHT_PUT_22(W, R) W.a = R.q; W.e.x = R.s; W.e.y = R.d;
#define WEIGHT_GET_22(W) iq2_s_raw(W.a, W.e.x, W.e.y)
#define WEIGHT_PUT_23(W, R) W.a = R.q[0]; W.b = R.q[1]; W.e.xy = R.s;
#define WEIGHT_GET_23(W) iq4_xs_raw(uvec4[2](W.a, W.b), W.e.xy)
#define WEIGHT_PUT_29(W, R) W.a.xy = R.q; W.a.zw = R.s; W.e.x = R.high;
#define WEIGHT_GET_29(W) iq1_m_raw(W.a.xy, W.a.zw, W.e.x)
#define WEIGHT_PUT_35(W, R) W.a = R.q; W.e.x = R.d;
#define WEIGHT_GET_35(W) tq2_0_raw(W.a, W.e.x)
#define WEIGHT_PUT_39(W, R) W.a = R.q[0]; W.b = R.q[1]; W.e.x = R.s;
#define WEIGHT_GET_39(W) mxfp4_raw(uvec4[2](W.a, W.b), W.e.x)
#define WEIGHT_PUT_40(W, R) W.a = R.q[0]; W.b = R.q[1]; W.e.x = R.s;
#define WEIGHT_GET_40(W) nvfp4_raw(uvec4[2](W.a, W.b), W.e.x)

#define WEIGHT_LOAD(NUMBER)                                                                                            \
  if (format == NUMBER) {                                                                                              \
    DECODE(NUMBER, raw) r = DECODE(NUMBER, fetch)(F_table, matrix, n_in, n_out, row, g);                               \
    WEIGHT_PUT_##NUMBER(w, r)                                                                                          \
  }
#define WEIGHT_DOT(NUMBER)                                                                                             \
  if (format == NUMBER) {                                                                                              \
    DECODE(NUMBER, raw) r = WEIGHT_GET_##NUMBER(w);                                                                    \
    vec4 d, m, run;                                                                                                    \
    DECODE(NUMBER, dm)(r, g, d, m);                                                                                    \
    [[unroll]] for (uint k = 0; k < 4; k++) run[k] = vector_run(x, DECODE(NUMBER, q8)(r, k), k);                       \
    y = dot(d * vector_scales(x), run);                                                                                \
    if (DECODE(NUMBER, MIN)) y -= dot(m, vector_sums(x));                                                              \
  }
/* Columns 4c .. 4c + 3 of the row where the vector's group x begins. */
#define WEIGHT_FLOAT(NUMBER)                                                                                           \
  if (format == NUMBER)                                                                                                \
    [[dont_unroll]] for (uint u = 2 * g; u < 2 * g + 2; u++) {                                                         \
      DECODE(NUMBER, block) b = DECODE(NUMBER, open)(F_table, matrix, n_in, n_out, row, u);                            \
      DECODE(NUMBER, unit) v = DECODE(NUMBER, load)(b, F_table, matrix, n_in, n_out, row, u);                          \
      uint c = 16 * (x - g) + DECODE(NUMBER, base)(u) / 4;                                                             \
      [[dont_unroll]] for (uint k = 0; k < 4; k++)                                                                     \
        y += dot(DECODE(NUMBER, lo)(v, k), vector_floats(c + k)) +                                                     \
             dot(DECODE(NUMBER, hi)(v, k), vector_floats(c + DECODE(NUMBER, STEP) / 4 + k));                           \
    }

/* Group g of a row. All but format, matrix, row and g are literals where this is called, and so fold away. */
weight weight_load(uint format, uint64_t matrix, uint n_in, uint n_out, uint row, uint g) {
  weight w = weight_none();
#if FMT_USED(2)
  WEIGHT_LOAD(2)
#endif
#if FMT_USED(3)
  WEIGHT_LOAD(3)
#endif
#if FMT_USED(6)
  WEIGHT_LOAD(6)
#endif
#if FMT_USED(7)
  WEIGHT_LOAD(7)
#endif
#if FMT_USED(8)
  WEIGHT_LOAD(8)
#endif
#if FMT_USED(10)
  WEIGHT_LOAD(10)
#endif
#if FMT_USED(11)
  WEIGHT_LOAD(11)
#endif
#if FMT_USED(12)
  WEIGHT_LOAD(12)
#endif
#if FMT_USED(13)
  WEIGHT_LOAD(13)
#endif
#if FMT_USED(14)
  WEIGHT_LOAD(14)
#endif
#if FMT_USED(16)
  WEIGHT_LOAD(16)
#endif
#if FMT_USED(17)
  WEIGHT_LOAD(17)
#endif
#if FMT_USED(18)
  WEIGHT_LOAD(18)
#endif
#if FMT_USED(19)
  WEIGHT_LOAD(19)
#endif
#if FMT_USED(20)
  WEIGHT_LOAD(20)
#endif
#if FMT_USED(21)
  WEIGHT_LOAD(21)
#endif
#if FMT_USED(22)
  WEIGHT_LOAD(22)
#endif
#if FMT_USED(23)
  WEIGHT_LOAD(23)
#endif
#if FMT_USED(29)
  WEIGHT_LOAD(29)
#endif
#if FMT_USED(35)
  WEIGHT_LOAD(35)
#endif
#if FMT_USED(39)
  WEIGHT_LOAD(39)
#endif
#if FMT_USED(40)
  WEIGHT_LOAD(40)
#endif
  return w;
}
/* Its product with the vector's group x. */
float weight_dot(uint format, weight w, uint64_t matrix, uint n_in, uint n_out, uint row, uint g, uint x) {
  float y = 0;
#if FMT_USED(2)
  WEIGHT_DOT(2)
#endif
#if FMT_USED(3)
  WEIGHT_DOT(3)
#endif
#if FMT_USED(6)
  WEIGHT_DOT(6)
#endif
#if FMT_USED(7)
  WEIGHT_DOT(7)
#endif
#if FMT_USED(8)
  WEIGHT_DOT(8)
#endif
#if FMT_USED(10)
  WEIGHT_DOT(10)
#endif
#if FMT_USED(11)
  WEIGHT_DOT(11)
#endif
#if FMT_USED(12)
  WEIGHT_DOT(12)
#endif
#if FMT_USED(13)
  WEIGHT_DOT(13)
#endif
#if FMT_USED(14)
  WEIGHT_DOT(14)
#endif
#if FMT_USED(16)
  WEIGHT_DOT(16)
#endif
#if FMT_USED(17)
  WEIGHT_DOT(17)
#endif
#if FMT_USED(18)
  WEIGHT_DOT(18)
#endif
#if FMT_USED(19)
  WEIGHT_DOT(19)
#endif
#if FMT_USED(20)
  WEIGHT_DOT(20)
#endif
#if FMT_USED(21)
  WEIGHT_DOT(21)
#endif
#if FMT_USED(22)
  WEIGHT_DOT(22)
#endif
#if FMT_USED(23)
  WEIGHT_DOT(23)
#endif
#if FMT_USED(29)
  WEIGHT_DOT(29)
#endif
#if FMT_USED(35)
  WEIGHT_DOT(35)
#endif
#if FMT_USED(39)
  WEIGHT_DOT(39)
#endif
#if FMT_USED(40)
  WEIGHT_DOT(40)
#endif
#if FMT_USED(0)
  WEIGHT_FLOAT(0)
#endif
#if FMT_USED(1)
  WEIGHT_FLOAT(1)
#endif
#if FMT_USED(30)
  WEIGHT_FLOAT(30)
#endif
#if FMT_USED(34)
  WEIGHT_FLOAT(34)
#endif
  return y;
}
/* Bytes from matrix to matrix. */
uint64_t weight_matrix(uint format, uint n_in, uint n_out) {
#if FMT_USED(0)
  if (format == 0) return DECODE(0, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(1)
  if (format == 1) return DECODE(1, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(2)
  if (format == 2) return DECODE(2, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(3)
  if (format == 3) return DECODE(3, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(6)
  if (format == 6) return DECODE(6, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(7)
  if (format == 7) return DECODE(7, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(8)
  if (format == 8) return DECODE(8, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(10)
  if (format == 10) return DECODE(10, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(11)
  if (format == 11) return DECODE(11, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(12)
  if (format == 12) return DECODE(12, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(13)
  if (format == 13) return DECODE(13, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(14)
  if (format == 14) return DECODE(14, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(16)
  if (format == 16) return DECODE(16, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(17)
  if (format == 17) return DECODE(17, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(18)
  if (format == 18) return DECODE(18, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(19)
  if (format == 19) return DECODE(19, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(20)
  if (format == 20) return DECODE(20, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(21)
  if (format == 21) return DECODE(21, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(22)
  if (format == 22) return DECODE(22, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(23)
  if (format == 23) return DECODE(23, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(29)
  if (format == 29) return DECODE(29, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(30)
  if (format == 30) return DECODE(30, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(34)
  if (format == 34) return DECODE(34, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(35)
  if (format == 35) return DECODE(35, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(39)
  if (format == 39) return DECODE(39, mat_stride)(n_in, n_out);
#endif
#if FMT_USED(40)
  if (format == 40) return DECODE(40, mat_stride)(n_in, n_out);
#endif
  return 0;
}
