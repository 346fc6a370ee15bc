/* half.glsl: the weights of a unit as f16, for kernels on matrices: <name>_lo16(unit, k) and <name>_hi16(unit, k) are <name>_lo and <name>_hi times
 * GAIN, of four elements in the order 0, 2, 1, 3.
 *
 * Where quants are bytes of a word, they become f16 two at a time: a byte or'ed into 0x6400 is 1024 plus the byte, exactly; scale and offset are rounded
 * to f16 first. The other formats are converted from f32. GAIN keeps small scales out of f16's subnormals; whoever multiplies divides it out again.
 * A format without a line here has the way by f32. */
const float GAIN = 64.0;

/* The bytes of w, each less n, a whole number up to 1024. */
f16vec4 half_bytes(uint w, float n) {
  f16vec2 even = unpackFloat2x16((w & 0x00ff00ffu) | 0x64006400u), odd = unpackFloat2x16(((w >> 8) & 0x00ff00ffu) | 0x64006400u);
  return f16vec4(even - float16_t(1024.0 + n), odd - float16_t(1024.0 + n));
}
f16vec4 half_affine(uint w, float n, float d, float m) { return half_bytes(w, n) * float16_t(d * GAIN) - float16_t(m * GAIN); }
f16vec4 half_scaled(uint w, float n, float d) { return half_bytes(w, n) * float16_t(d * GAIN); }
f16vec4 half_signed(uint w, float d) { return half_scaled(w ^ 0x80808080u, 128.0, d); }

#define HALF_NIBBLES(W) ((W) & 0x0f0f0f0fu)
#define HALF_BY_FLOAT(NAME)                                                                                            \
  f16vec4 NAME##_lo16(NAME##_unit w, uint k) { return f16vec4(NAME##_lo(w, k).xzyw * GAIN); }                          \
  f16vec4 NAME##_hi16(NAME##_unit w, uint k) { return f16vec4(NAME##_hi(w, k).xzyw * GAIN); }
#define HALF(NAME, LO, HI)                                                                                             \
  f16vec4 NAME##_lo16(NAME##_unit w, uint k) { return LO; }                                                            \
  f16vec4 NAME##_hi16(NAME##_unit w, uint k) { return HI; }

#if FMT_USED(0)
HALF_BY_FLOAT(f32)
#endif
#if FMT_USED(1)
HALF_BY_FLOAT(f16)
#endif
#if FMT_USED(2)
HALF(q4_0, half_scaled(HALF_NIBBLES(w.q[k]), 8.0, w.d), half_scaled(HALF_NIBBLES(w.q[k] >> 4), 8.0, w.d))
#endif
#if FMT_USED(3)
HALF(q4_1, half_affine(HALF_NIBBLES(w.q[k]), 0.0, w.d.x, -w.d.y), half_affine(HALF_NIBBLES(w.q[k] >> 4), 0.0, w.d.x, -w.d.y))
#endif
#if FMT_USED(6)
HALF(q5_0, half_scaled(HALF_NIBBLES(w.q[k]) | (((w.high >> k) & 0x01010101u) << 4), 16.0, w.d),
     half_scaled(HALF_NIBBLES(w.q[k] >> 4) | (((w.high >> (4 + k)) & 0x01010101u) << 4), 16.0, w.d))
#endif
#if FMT_USED(7)
HALF(q5_1, half_affine(HALF_NIBBLES(w.q[k]) | (((w.high >> k) & 0x01010101u) << 4), 0.0, w.d.x, -w.d.y),
     half_affine(HALF_NIBBLES(w.q[k] >> 4) | (((w.high >> (4 + k)) & 0x01010101u) << 4), 0.0, w.d.x, -w.d.y))
#endif
#if FMT_USED(8)
HALF(q8_0, half_signed(w.lo[k], w.d), half_signed(w.hi[k], w.d))
#endif
#if FMT_USED(10)
HALF(q2_k, half_affine(bits2(w.q.x, k), 0.0, w.d.x, w.d.y), half_affine(bits2(w.q.y, k), 0.0, w.d.z, w.d.w))
#endif
#if FMT_USED(11)
HALF(q3_k, half_scaled(bits2(w.q.x, k) | (((w.high >> k) & 0x01010101u) << 2), 4.0, w.d_lo),
     half_scaled(bits2(w.q.y, k) | (((w.high >> (4 + k)) & 0x01010101u) << 2), 4.0, w.d_hi))
#endif
#if FMT_USED(12)
HALF(q4_k, half_affine(HALF_NIBBLES(w.q[k]), 0.0, w.s.d_lo, w.s.m_lo), half_affine(HALF_NIBBLES(w.q[k] >> 4), 0.0, w.s.d_hi, w.s.m_hi))
#endif
#if FMT_USED(13)
HALF(q5_k, half_affine(HALF_NIBBLES(w.q[k]) | (((w.high >> k) & 0x01010101u) << 4), 0.0, w.s.d_lo, w.s.m_lo),
     half_affine(HALF_NIBBLES(w.q[k] >> 4) | (((w.high >> (4 + k)) & 0x01010101u) << 4), 0.0, w.s.d_hi, w.s.m_hi))
#endif
#if FMT_USED(14)
HALF(q6_k, half_scaled(HALF_NIBBLES(w.q[k]) | (((w.high.x >> (2 * k)) & 0x03030303u) << 4), 32.0, w.d_lo),
     half_scaled(HALF_NIBBLES(w.q[k] >> 4) | (((w.high.y >> (2 * k)) & 0x03030303u) << 4), 32.0, w.d_hi))
#endif
#if FMT_USED(16)
HALF(iq2_xxs, half_signed(codes_iq2_bytes(w.e.x >> (8 * k), w.signs >> (4 * k)), w.d),
     half_signed(codes_iq2_bytes(w.e.y >> (8 * k), w.signs >> (16 + 4 * k)), w.d))
#endif
#if FMT_USED(17)
HALF(iq2_xs, half_signed(codes_iq2_bytes(w.e.x >> (8 * k), w.signs >> (4 * k)), w.d_lo),
     half_signed(codes_iq2_bytes(w.e.y >> (8 * k), w.signs >> (16 + 4 * k)), w.d_hi))
#endif
#if FMT_USED(18)
HALF_BY_FLOAT(iq3_xxs)
#endif
#if FMT_USED(19)
HALF_BY_FLOAT(iq1_s)
#endif
#if FMT_USED(20)
HALF_BY_FLOAT(iq4_nl)
#endif
#if FMT_USED(21)
HALF_BY_FLOAT(iq3_s)
#endif
#if FMT_USED(22)
HALF(iq2_s, half_signed(codes_iq2_bytes(w.e.x >> (8 * k), w.signs >> (4 * k)), w.d_lo),
     half_signed(codes_iq2_bytes(w.e.y >> (8 * k), w.signs >> (16 + 4 * k)), w.d_hi))
#endif
#if FMT_USED(23)
HALF_BY_FLOAT(iq4_xs)
#endif
#if FMT_USED(29)
HALF_BY_FLOAT(iq1_m)
#endif
#if FMT_USED(30)
HALF_BY_FLOAT(bf16)
#endif
#if FMT_USED(34)
HALF_BY_FLOAT(tq1_0)
#endif
#if FMT_USED(35)
HALF(tq2_0, half_scaled(bits2(w.q.x, k), 1.0, w.d), half_scaled(bits2(w.q.y, k), 1.0, w.d))
#endif
#if FMT_USED(39)
HALF(mxfp4, half_scaled(fp4_bytes(w.q[k] & 0x0f0f0f0fu), 16.0, w.d), half_scaled(fp4_bytes((w.q[k] >> 4) & 0x0f0f0f0fu), 16.0, w.d))
#endif
#if FMT_USED(40)
HALF(nvfp4, half_scaled(fp4_bytes(w.q[k] & 0x0f0f0f0fu), 16.0, w.d_lo),
     half_scaled(fp4_bytes((w.q[k] >> 4) & 0x0f0f0f0fu), 16.0, w.d_hi))
#endif
