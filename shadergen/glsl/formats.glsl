/* formats.glsl: weight formats by number. A kernel defines FMT (or FMT_GATE and FMT_UP) as a GGUF type number and calls
 * DECODE(FMT, load)(...), which is q4_k_load for 12. A new format is one fmt_<name>.glsl, and here one name and one include.
 *
 * Every fmt file works in units of 32 weights of a row (PLANES.md): unit u has the elements base(u) + 0 .. 15 (low run) and
 * base(u) + STEP + 0 .. 15 (high run). It defines
 *   const uint <name>_STEP, <name>_UNITS                                     and how many units a block has
 *   uint <name>_base(u)
 *   uint64_t <name>_mat_stride(n_in, n_out)                                  bytes from matrix to matrix of a plane
 *   struct <name>_block  <name>_open(field, matrix, n_in, n_out, row, u)     what the units of the block of unit u share: scales
 *   struct <name>_unit   <name>_load(block, field, matrix, n_in, n_out, row, u)
 *   vec4 <name>_lo(unit, k), <name>_hi(unit, k)                              elements 4k .. 4k + 3 of the low and the high run
 * matrix: address of the matrix in its plane.
 *
 * Most formats also give weights as integers, for packed dot products (kernels that define DOT8; a 1 in shadergen_formats.def). These work in
 * pieces of 64 weights, units 2p and 2p + 1, in runs k = 0 .. 3 of 16 in their order. The last piece of a row may have one unit alone: its
 * other runs are then any weights of the row, and the caller's activations for them zero. A fmt file defines
 *   const bool <name>_MIN                                                    whether m below is not zero
 *   struct <name>_raw  <name>_fetch(field, matrix, n_in, n_out, row, p)      loads alone: nothing in it waits for one
 *   uvec4 <name>_q8(raw, k)                                                  run k as signed bytes q, in order
 *   void <name>_dm(raw, p, out d, out m)                                     weight = d[k] * q - m[k]
 * k is a literal after unrolling.
 * main begins with codebook_stage() (codebook.glsl). */
#include "plane.glsl"

#ifndef SHADERGEN_PARAMS
#ifdef KERNEL_router
#define FMT 0
#endif
#ifndef FMT
#define FMT 12
#endif
#ifndef FMT_GATE
#define FMT_GATE 12
#endif
#ifndef FMT_UP
#define FMT_UP 12
#endif
#ifdef KERNEL_gemv_dot
#define FMT_2 FMT
#define FMT_3 FMT
#endif
#endif
#ifndef FMT
#define FMT -1
#endif
#ifndef FMT_GATE
#define FMT_GATE -1
#endif
#ifndef FMT_UP
#define FMT_UP -1
#endif
#ifndef FMT_2
#define FMT_2 -1
#endif
#ifndef FMT_3
#define FMT_3 -1
#endif
#ifndef FMT_USED /* a kernel of many matrices says itself */
#define FMT_USED(N) (FMT == N || FMT_GATE == N || FMT_UP == N || FMT_2 == N || FMT_3 == N)
#endif

#define FMT_NAME_0 f32
#define FMT_NAME_1 f16
#define FMT_NAME_2 q4_0
#define FMT_NAME_3 q4_1
#define FMT_NAME_6 q5_0
#define FMT_NAME_7 q5_1
#define FMT_NAME_8 q8_0
#define FMT_NAME_10 q2_k
#define FMT_NAME_11 q3_k
#define FMT_NAME_12 q4_k
#define FMT_NAME_13 q5_k
#define FMT_NAME_14 q6_k
#define FMT_NAME_16 iq2_xxs
#define FMT_NAME_17 iq2_xs
#define FMT_NAME_18 iq3_xxs
#define FMT_NAME_19 iq1_s
#define FMT_NAME_20 iq4_nl
#define FMT_NAME_21 iq3_s
#define FMT_NAME_22 iq2_s
#define FMT_NAME_23 iq4_xs
#define FMT_NAME_29 iq1_m
#define FMT_NAME_30 bf16
#define FMT_NAME_34 tq1_0
#define FMT_NAME_35 tq2_0
#define FMT_NAME_39 mxfp4
#define FMT_NAME_40 nvfp4

#include "codebook.glsl"
#if FMT_USED(0)
#include "fmt_f32.glsl"
#endif
#if FMT_USED(1)
#include "fmt_f16.glsl"
#endif
#if FMT_USED(2)
#include "fmt_q4_0.glsl"
#endif
#if FMT_USED(3)
#include "fmt_q4_1.glsl"
#endif
#if FMT_USED(6)
#include "fmt_q5_0.glsl"
#endif
#if FMT_USED(7)
#include "fmt_q5_1.glsl"
#endif
#if FMT_USED(8)
#include "fmt_q8_0.glsl"
#endif
#if FMT_USED(10)
#include "fmt_q2_k.glsl"
#endif
#if FMT_USED(11)
#include "fmt_q3_k.glsl"
#endif
#if FMT_USED(12)
#include "fmt_q4_k.glsl"
#endif
#if FMT_USED(13)
#include "fmt_q5_k.glsl"
#endif
#if FMT_USED(14)
#include "fmt_q6_k.glsl"
#endif
#if FMT_USED(16)
#include "fmt_iq2_xxs.glsl"
#endif
#if FMT_USED(17)
#include "fmt_iq2_xs.glsl"
#endif
#if FMT_USED(18)
#include "fmt_iq3_xxs.glsl"
#endif
#if FMT_USED(19)
#include "fmt_iq1_s.glsl"
#endif
#if FMT_USED(20)
#include "fmt_iq4_nl.glsl"
#endif
#if FMT_USED(21)
#include "fmt_iq3_s.glsl"
#endif
#if FMT_USED(22)
#include "fmt_iq2_s.glsl"
#endif
#if FMT_USED(23)
#include "fmt_iq4_xs.glsl"
#endif
#if FMT_USED(29)
#include "fmt_iq1_m.glsl"
#endif
#if FMT_USED(30)
#include "fmt_bf16.glsl"
#endif
#if FMT_USED(34)
#include "fmt_tq1_0.glsl"
#endif
#if FMT_USED(35)
#include "fmt_tq2_0.glsl"
#endif
#if FMT_USED(39)
#include "fmt_mxfp4.glsl"
#endif
#if FMT_USED(40)
#include "fmt_nvfp4.glsl"
#endif

#define DECODE_PASTE2(NAME, WHAT) NAME##_##WHAT
#define DECODE_PASTE(NAME, WHAT) DECODE_PASTE2(NAME, WHAT)
#define DECODE_NAME2(NUMBER) FMT_NAME_##NUMBER
#define DECODE_NAME(NUMBER) DECODE_NAME2(NUMBER)
#define DECODE(NUMBER, WHAT) DECODE_PASTE(DECODE_NAME(NUMBER), WHAT)
