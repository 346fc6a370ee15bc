/* test_formats.c: the format table, the dequantizers against hand-made blocks, and every plane against the
 * dequantizers, bit for bit.
 *
 * Runs over the table: a new row of formats.def is tested here without a change, but for its hand-made block. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dequant.h"
#include "formats.h"
#include "pack.h"

enum { GUARD = 64, POISON = 0xa5 };

/* A small generator of its own, so that cases are the same everywhere (Marsaglia's xorshift64). */
static uint64_t random_state;
static uint64_t random_next(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

static void random_fill(uint8_t *p, size_t n) {
  for (size_t i = 0; i < n; i++) p[i] = (uint8_t)(random_next() >> 32);
}

static uint32_t bits_of(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

static bool is_nan_bits(uint32_t b) {
  return (b & 0x7fffffffu) > 0x7f800000u;
}

/* The same bits; of two NaNs that arithmetic made, only that both are NaN (which operand's payload survives is not
 * defined). */
static void assert_same_floats(const float *a, const float *b, uint64_t n, const char *what) {
  for (uint64_t i = 0; i < n; i++) {
    uint32_t x = bits_of(a[i]), y = bits_of(b[i]);
    if (x != y && !(is_nan_bits(x) && is_nan_bits(y)))
      fail_msg("%s: element %ju: %a (%08x) against %a (%08x)", what, (uintmax_t)i, (double)a[i], x, (double)b[i], y);
  }
}

/* ---- The table ---- */

static void test_table_is_sorted_and_complete(void **state) {
  (void)state;
  assert_int_equal(format_count(), 43);
  for (uint32_t i = 0; i < format_count(); i++) {
    const struct format *f = format_at(i);
    assert_int_equal(f->number, i);
    assert_ptr_equal(format_find(i), f);
    assert_ptr_equal(format_find_name(f->name), f);
    if (!format_compiled(f)) {
      assert_null(f->symbol);
      continue;
    }
    uint32_t plane_bytes = 0;
    for (uint32_t s = 0; s < f->n_sub; s++) plane_bytes += f->sub[s].block_bytes;
    assert_int_equal(plane_bytes, f->bytes); /* nothing lost, nothing added */
    assert_non_null(f->dequant_row);
    assert_non_null(f->pack_row);
    assert_non_null(f->read_row);
  }
  assert_null(format_find(43));
  assert_null(format_find(UINT32_MAX));
  assert_null(format_find_name("Q9_K"));
  assert_ptr_equal(format_find_name("q4_k"), format_find(FORMAT_Q4_K));
  assert_false(format_compiled(NULL));
}

static void test_row_bytes(void **state) {
  (void)state;
  const struct format *q4_k = format_find(FORMAT_Q4_K);
  uint64_t bytes = 7;
  assert_true(format_row_bytes(q4_k, 2048, &bytes));
  assert_int_equal(bytes, 1152);
  bytes = 7;
  assert_false(format_row_bytes(q4_k, 0, &bytes));
  assert_false(format_row_bytes(q4_k, 1408, &bytes));
  assert_false(format_row_bytes(format_find(FORMAT_F32), UINT64_MAX / 2, &bytes));
  assert_int_equal(bytes, 7);
}

static void test_decline_names_tensor_format_and_choices(void **state) {
  (void)state;
  struct moe_error err = {0};
  assert_int_equal(format_require(FORMAT_Q4_K, "x", &err), MOE_OK);
  assert_int_equal(format_require(FORMAT_Q1_0, "blk.0.ffn_up.weight", &err), MOE_DECLINED);
  char all[512], want[640];
  format_list_compiled(all, sizeof all);
  snprintf(want, sizeof want, "format Q1_0 of tensor blk.0.ffn_up.weight is not compiled yet; supported: %s", all);
  assert_string_equal(err.message, want); /* whole: the list fits the message */
  for (uint32_t i = 0; i < format_count(); i++)
    if (format_compiled(format_at(i))) assert_non_null(strstr(all, format_at(i)->name));
  err = (struct moe_error){0};
  assert_int_equal(format_require(999, "t", &err), MOE_DECLINED);
  assert_non_null(strstr(err.message, "format number 999 of tensor t is unknown"));
  char small[8];
  assert_string_equal(format_list_compiled(small, sizeof small), "F32, F1");
}

/* ---- Definitions, on blocks made by hand ---- */

static void test_f16_values(void **state) {
  (void)state;
  static const struct {
    uint16_t half;
    uint32_t bits;
  } cases[] = {{0x0000, 0x00000000}, {0x8000, 0x80000000}, {0x3c00, 0x3f800000}, {0xc000, 0xc0000000},
               {0x7bff, 0x477fe000}, {0x0400, 0x38800000}, {0x0001, 0x33800000}, {0x83ff, 0xb87fc000},
               {0x0200, 0x38000000}, {0x7c00, 0x7f800000}, {0xfc00, 0xff800000}, {0x7e00, 0x7fc00000},
               {0xfc01, 0xff802000}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    assert_int_equal(bits_of(dequant_f16(cases[i].half)), cases[i].bits);
  for (uint32_t h = 0; h < 65536; h++) /* rounding back is the identity */
    if ((h & 0x7c00) != 0x7c00) assert_true(dequant_f16((uint16_t)h) == (float)(_Float16)dequant_f16((uint16_t)h));
  assert_int_equal(bits_of(dequant_bf16(0x3f80)), 0x3f800000);
}

static void test_block32_definitions(void **state) {
  (void)state;
  float w[32];
  uint8_t q4[18] = {0x00, 0x40}; /* d = 2 */
  q4[2] = 0xf0, q4[3] = 0x1a;
  dequant_row(format_find(FORMAT_Q4_0), q4, w, 32);
  assert_true(w[0] == -16.0f && w[16] == 14.0f && w[1] == 4.0f && w[17] == -14.0f && w[2] == -16.0f);

  uint8_t q5[22] = {0x00, 0x38, 0x01, 0x00, 0x02, 0x80}; /* d = 0.5; high bits of weights 0, 17, 31 */
  q5[6] = 0x21, q5[7] = 0xc0, q5[21] = 0xf0;
  dequant_row(format_find(FORMAT_Q5_0), q5, w, 32);
  assert_true(w[0] == 0.5f && w[16] == -7.0f && w[1] == -8.0f && w[17] == 6.0f && w[31] == 7.5f && w[15] == -8.0f);

  uint8_t q41[20] = {0x00, 0x38, 0x00, 0xc1}; /* d = 0.5, m = -2.5 */
  q41[4] = 0x21, q41[19] = 0xf3;
  dequant_row(format_find(FORMAT_Q4_1), q41, w, 32);
  assert_true(w[0] == -2.0f && w[16] == -1.5f && w[15] == -1.0f && w[31] == 5.0f && w[1] == -2.5f);

  uint8_t q51[24] = {0x00, 0x38, 0x00, 0xc1, 0x01, 0x00, 0x02, 0x80}; /* high bits as above */
  q51[8] = 0x21, q51[9] = 0xc0, q51[23] = 0xf0;
  dequant_row(format_find(FORMAT_Q5_1), q51, w, 32);
  assert_true(w[0] == 6.0f && w[16] == -1.5f && w[1] == -2.5f && w[17] == 11.5f && w[31] == 13.0f && w[15] == -2.5f);

  uint8_t q8[34] = {0x00, 0xc0}; /* d = -2 */
  q8[2] = 0x80, q8[33] = 3;
  dequant_row(format_find(FORMAT_Q8_0), q8, w, 32);
  assert_true(w[0] == 256.0f && w[31] == -6.0f && w[1] == 0.0f);
}

/* Packs eight 6-bit scales and minimums as ggml's quantizer does. */
static void put_k_scales(uint8_t s[12], const int scale[8], const int minimum[8]) {
  memset(s, 0, 12);
  for (int j = 0; j < 8; j++) {
    if (j < 4) {
      s[j] |= (uint8_t)scale[j];
      s[j + 4] |= (uint8_t)minimum[j];
    } else {
      s[j + 4] = (uint8_t)((scale[j] & 15) | (minimum[j] & 15) << 4);
      s[j - 4] |= (uint8_t)((scale[j] >> 4) << 6);
      s[j] |= (uint8_t)((minimum[j] >> 4) << 6);
    }
  }
}

static void test_k_definitions(void **state) {
  (void)state;
  static const int scale[8] = {1, 63, 17, 32, 48, 9, 63, 20}, minimum[8] = {0, 63, 5, 40, 33, 16, 62, 1};
  uint8_t q4[144] = {0x00, 0x38, 0x00, 0x34}, q5[176] = {0x00, 0x38, 0x00, 0x34}; /* d = 0.5, dmin = 0.25 */
  put_k_scales(q4 + 4, scale, minimum);
  memcpy(q5 + 4, q4 + 4, 12);
  int quant[256];
  for (int e = 0; e < 256; e++) { /* element e: group of 64, half of 32, place k */
    int group = e / 64, up = e / 32 % 2, k = e % 32;
    quant[e] = (e * 7 + e / 16) % 32;
    q4[16 + 32 * group + k] |= (uint8_t)((quant[e] & 15) << (4 * up));
    q5[48 + 32 * group + k] |= (uint8_t)((quant[e] & 15) << (4 * up));
    q5[16 + k] |= (uint8_t)((quant[e] >> 4) << (e / 32));
  }
  float w4[256], w5[256];
  dequant_row(format_find(FORMAT_Q4_K), q4, w4, 256);
  dequant_row(format_find(FORMAT_Q5_K), q5, w5, 256);
  for (int e = 0; e < 256; e++) { /* exact in f32 */
    float s = 0.5f * (float)scale[e / 32], m = 0.25f * (float)minimum[e / 32];
    assert_true(w4[e] == s * (float)(quant[e] & 15) - m);
    assert_true(w5[e] == s * (float)quant[e] - m);
  }
}

static void test_q6_k_definition(void **state) {
  (void)state;
  uint8_t block[210] = {0};
  int quant[256], scale[16];
  block[209] = 0x34; /* d = 0.25 */
  for (int j = 0; j < 16; j++) {
    scale[j] = j * 17 - 128;
    block[192 + j] = (uint8_t)scale[j];
  }
  for (int e = 0; e < 256; e++) {
    /* each half of 128: quarters 0 and 1 in the low nibbles of 64 bytes, 2 and 3 in the high ones; two high bits a
     * quarter */
    int half = e / 128, quarter = e / 32 % 4, k = e % 32;
    quant[e] = (e * 11 + e / 32) % 64;
    block[64 * half + 32 * (quarter % 2) + k] |= (uint8_t)((quant[e] & 15) << (quarter < 2 ? 0 : 4));
    block[128 + 32 * half + k] |= (uint8_t)((quant[e] >> 4) << (2 * quarter));
  }
  float w[256];
  dequant_row(format_find(FORMAT_Q6_K), block, w, 256);
  for (int e = 0; e < 256; e++) assert_true(w[e] == 0.25f * (float)(scale[e / 16] * (quant[e] - 32)));
}

static void test_q2_k_q3_k_definitions(void **state) {
  (void)state;
  uint8_t q2[84] = {0}, q3[110] = {0};
  int scale[16], minimum[16], quant[256];
  q2[81] = 0x38, q2[83] = 0x34; /* d = 0.5, dmin = 0.25 */
  q3[109] = 0x38;
  for (int i = 0; i < 16; i++) {
    scale[i] = (i * 29 + 5) % 64;
    minimum[i] = (i * 7 + 3) % 16;
    q2[i] = (uint8_t)((scale[i] & 15) | minimum[i] << 4);
    q3[96 + i % 8] |= (uint8_t)((scale[i] & 15) << (i < 8 ? 0 : 4));
    q3[104 + i % 4] |= (uint8_t)((scale[i] >> 4) << (i / 4 * 2));
  }
  for (int e = 0; e < 256; e++) { /* each half of 128: four quarters at two bits of the same 32 bytes */
    int half = e / 128, quarter = e / 32 % 4, k = e % 32;
    quant[e] = (e * 5 + e / 16) % 8;
    q2[16 + 32 * half + k] |= (uint8_t)((quant[e] & 3) << (2 * quarter));
    q3[32 + 32 * half + k] |= (uint8_t)((quant[e] & 3) << (2 * quarter));
    q3[k] |= (uint8_t)((quant[e] >> 2) << (e / 32));
  }
  float w2[256], w3[256];
  dequant_row(format_find(FORMAT_Q2_K), q2, w2, 256);
  dequant_row(format_find(FORMAT_Q3_K), q3, w3, 256);
  for (int e = 0; e < 256; e++) {
    int i = e / 16;
    assert_true(w2[e] == 0.5f * (float)((scale[i] & 15) * (quant[e] & 3)) - 0.25f * (float)minimum[i]);
    assert_true(w3[e] == 0.5f * (float)((scale[i] - 32) * (quant[e] - 4)));
  }
}

static void test_ternary_definitions(void **state) {
  (void)state;
  int digit[256];
  uint8_t tq1[54] = {0}, tq2[66] = {0};
  tq1[53] = 0x38, tq2[65] = 0x38; /* d = 0.5 */
  for (int e = 0; e < 256; e++) {
    digit[e] = (e * 7 + e / 5) % 3;
    tq2[32 * (e / 128) + e % 32] |= (uint8_t)(digit[e] << (e / 32 % 4 * 2));
  }
  for (int byte = 0; byte < 52;
       byte++) { /* five digits, the first most significant, as a fraction of 256, rounded up */
    int value = 0;
    for (int n = 0; n < 5; n++) {
      int e = byte < 32 ? 32 * n + byte : byte < 48 ? 160 + 16 * n + byte - 32 : n < 4 ? 240 + 4 * n + byte - 48 : -1;
      value = 3 * value + (e < 0 ? 0 : digit[e]);
    }
    tq1[byte] = (uint8_t)((value * 256 + 242) / 243);
  }
  float w1[256], w2[256];
  dequant_row(format_find(FORMAT_TQ1_0), tq1, w1, 256);
  dequant_row(format_find(FORMAT_TQ2_0), tq2, w2, 256);
  for (int e = 0; e < 256; e++) {
    assert_true(w1[e] == 0.5f * (float)(digit[e] - 1));
    assert_true(w2[e] == 0.5f * (float)(digit[e] - 1));
  }
}

static void test_iq4_definitions(void **state) {
  (void)state;
  static const float value[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  uint8_t nl[18] = {0x00, 0xb8}, xs[136] = {0x00, 0xb8}; /* d = -0.5 */
  float w[256];
  for (int q = 0; q < 16; q++) nl[2 + q] = (uint8_t)(q | (15 - q) << 4);
  dequant_row(format_find(FORMAT_IQ4_NL), nl, w, 32);
  for (int q = 0; q < 16; q++) assert_true(w[q] == -0.5f * value[q] && w[16 + q] == -0.5f * value[15 - q]);

  static const int scale[8] = {0, 63, 17, 32, 48, 9, 31, 20};
  for (int j = 0; j < 8; j++) {
    xs[2 + j / 4] |= (uint8_t)((scale[j] >> 4) << (2 * (j % 4)));
    xs[4 + j / 2] |= (uint8_t)((scale[j] & 15) << (4 * (j % 2)));
    for (int k = 0; k < 16; k++) xs[8 + 16 * j + k] = (uint8_t)((j + k) % 16 | (3 * k + j) % 16 << 4);
  }
  dequant_row(format_find(FORMAT_IQ4_XS), xs, w, 256);
  for (int j = 0; j < 8; j++)
    for (int k = 0; k < 16; k++) {
      float d = -0.5f * (float)(scale[j] - 32);
      assert_true(w[32 * j + k] == d * value[(j + k) % 16] && w[32 * j + 16 + k] == d * value[(3 * k + j) % 16]);
    }
}

static void test_fp4_definitions(void **state) {
  (void)state;
  static const float value[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  uint8_t block[17];
  float w[32];
  for (int q = 0; q < 16; q++) block[1 + q] = (uint8_t)(q | (15 - q) << 4);
  for (int e = 0; e < 255; e++) { /* 2^(e - 127) by the exponent; what is below 2^-149 rounds to even */
    block[0] = (uint8_t)e;
    dequant_row(format_find(FORMAT_MXFP4), block, w, 32);
    for (int q = 0; q < 16; q++) {
      assert_int_equal(bits_of(w[q]), bits_of((float)ldexp((double)value[q], e - 127)));
      assert_int_equal(bits_of(w[16 + q]), bits_of((float)ldexp((double)value[15 - q], e - 127)));
    }
  }
  block[0] = 255; /* no NaN */
  dequant_row(format_find(FORMAT_MXFP4), block, w, 32);
  assert_true(w[0] == 0 && w[8] == 0 && w[1] == 0x1p127f && w[9] == -0x1p127f && w[7] == HUGE_VALF &&
              w[15] == -HUGE_VALF);

  uint8_t nv[36];
  float y[64];
  for (int j = 0; j < 4; j++)
    for (int k = 0; k < 8; k++) nv[4 + 8 * j + k] = (uint8_t)(k | (k + 8) << 4);
  for (int e = 0; e < 128;
       e++) { /* UE4M3: bias 7, denormals at exponent 0; 127 is zero, and bit 7 counts for nothing */
    double scale = e == 127 ? 0 : e < 8 ? ldexp(e, -9) : ldexp(8 + e % 8, e / 8 - 10);
    nv[0] = nv[2] = (uint8_t)e, nv[1] = 0, nv[3] = (uint8_t)(e == 127 ? e : e + 128);
    dequant_row(format_find(FORMAT_NVFP4), nv, y, 64);
    for (int q = 0; q < 16; q++) {
      float want = (float)((double)value[q] * scale);
      assert_true(y[q] == want && y[16 + q] == 0 && y[32 + q] == want && y[48 + q] == want);
    }
  }
}

/* ---- Layouts ---- */

static void test_layout_numbers(void **state) {
  (void)state;
  struct plane_layout l;
  assert_int_equal(pack_layout(format_find(FORMAT_Q6_K), 768, 5, 3, &l, NULL), MOE_OK);
  assert_int_equal(l.n_block, 3);
  assert_int_equal(l.src_row_bytes, 630);
  assert_int_equal(l.n_sub, 4);
  assert_int_equal(l.sub[0].row_stride, 384);
  assert_int_equal(l.sub[1].row_stride, 192);
  assert_int_equal(l.sub[2].row_stride, 48);
  assert_int_equal(l.sub[3].row_stride, 16); /* 6 bytes, padded */
  assert_int_equal(l.sub[1].offset, 2048);   /* 1920, rounded */
  assert_int_equal(l.sub[2].offset, 3072);   /* + 960, rounded */
  assert_int_equal(l.sub[3].offset, 3328);   /* + 240, rounded */
  assert_int_equal(l.mat_stride, 3584);
  assert_int_equal(l.bytes, 3 * 3584);
}

static void test_layout_errors(void **state) {
  (void)state;
  struct plane_layout l = {.bytes = 42};
  struct moe_error err = {0};
  const struct format *q4_k = format_find(FORMAT_Q4_K);
  assert_int_equal(pack_layout(q4_k, 1408, 1, 1, &l, &err), MOE_FAILED);
  assert_string_equal(err.message, "1408 columns: format Q4_K needs a multiple of 256");
  assert_int_equal(pack_layout(q4_k, 256, 0, 1, &l, NULL), MOE_FAILED);
  assert_int_equal(pack_layout(q4_k, 0, 1, 1, &l, NULL), MOE_FAILED);
  assert_int_equal(pack_layout(q4_k, 256, 1, 0, &l, NULL), MOE_FAILED);
  assert_int_equal(pack_layout(q4_k, 1ull << 40, 1ull << 40, 1, &l, NULL), MOE_FAILED);
  assert_int_equal(pack_layout(format_find(FORMAT_F32), UINT64_MAX / 2, 1, 1, &l, NULL), MOE_FAILED);
  assert_int_equal(pack_layout(q4_k, 256, 1ull << 30, 1ull << 40, &l, NULL), MOE_FAILED);
  assert_int_equal(pack_layout(format_find(FORMAT_Q1_0), 256, 1, 1, &l, NULL), MOE_DECLINED);
  assert_int_equal(pack_layout(NULL, 256, 1, 1, &l, NULL), MOE_DECLINED);
  assert_int_equal(l.bytes, 42);
}

/* ---- Planes against the definitions ---- */

/* Where a block has an f16 scale, or any byte of other scales; one of them where there are several. */
static uint32_t f16_place(const struct format *f) {
  switch (f->number) {
  case FORMAT_Q4_1:
  case FORMAT_Q5_1:
  case FORMAT_Q4_K:
  case FORMAT_Q5_K:
    return 2 * (uint32_t)(random_next() % 2);
  case FORMAT_Q2_K:
    return 80 + 2 * (uint32_t)(random_next() % 2);
  case FORMAT_Q3_K:
    return 108;
  case FORMAT_Q6_K:
    return 208;
  case FORMAT_TQ1_0:
    return 52;
  case FORMAT_TQ2_0:
    return 64;
  default:
    return 0;
  }
}

/* Random blocks, with every third block's 16-bit words at the places of f16 scales made infinite, NaN or denormal. All
 * places are hit in time: the word is drawn anew for each block. */
static void random_blocks(const struct format *f, uint8_t *src, uint64_t n_block) {
  static const uint16_t special[] = {0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7c01, 0x0001, 0x83ff, 0x0000, 0x8000, 0x7bff};
  random_fill(src, n_block * f->bytes);
  if (f->elements == 1) return; /* random 16 or 32 bits have all classes themselves */
  for (uint64_t i = 0; i < n_block; i += 3) {
    uint32_t place = f16_place(f);
    uint16_t word = special[random_next() % (sizeof special / sizeof special[0])];
    memcpy(src + i * f->bytes + place, &word, sizeof word);
  }
}

/* Packs a whole tensor in pieces of `step` rows into a poisoned, fenced buffer. The caller frees it; the plane starts
 * GUARD bytes in. */
static uint8_t *packed(const struct plane_layout *l, const uint8_t *src, uint64_t step) {
  uint8_t *buffer = malloc(l->bytes + 2 * GUARD);
  assert_non_null(buffer);
  memset(buffer, POISON, l->bytes + 2 * GUARD);
  uint64_t rows = l->n_out * l->n_mat;
  for (uint64_t row = 0; row < rows; row += step) {
    uint64_t n = rows - row < step ? rows - row : step;
    pack_plane(l, src, row, n, buffer + GUARD);
  }
  for (int i = 0; i < GUARD; i++) {
    assert_int_equal(buffer[i], POISON);
    assert_int_equal(buffer[GUARD + l->bytes + (uint64_t)i], POISON);
  }
  return buffer;
}

/* Every byte outside blocks is zero. */
static void assert_padding_is_zero(const struct plane_layout *l, const uint8_t *plane) {
  uint8_t *used = calloc(1, l->mat_stride);
  assert_non_null(used);
  for (uint32_t s = 0; s < l->n_sub; s++)
    for (uint64_t r = 0; r < l->n_out; r++)
      memset(used + l->sub[s].offset + r * l->sub[s].row_stride, 1, l->n_block * l->sub[s].block_bytes);
  for (uint64_t m = 0; m < l->n_mat; m++)
    for (uint64_t i = 0; i < l->mat_stride; i++)
      if (!used[i]) assert_int_equal(plane[m * l->mat_stride + i], 0);
  free(used);
}

static void check_plane(const struct format *f, uint64_t n_block, uint64_t n_out, uint64_t n_mat) {
  struct plane_layout l;
  assert_int_equal(pack_layout(f, n_block * f->elements, n_out, n_mat, &l, NULL), MOE_OK);
  uint64_t rows = n_out * n_mat;
  uint8_t *src = malloc(rows * l.src_row_bytes + 1);
  float *expected = malloc(l.n_in * sizeof *expected), *found = malloc(l.n_in * sizeof *found);
  assert_true(src != NULL && expected != NULL && found != NULL);
  uint8_t *unaligned = src + 1; /* tensors may lie anywhere */
  random_blocks(f, unaligned, rows * n_block);
  uint8_t *whole = packed(&l, unaligned, rows), *pieces = packed(&l, unaligned, 2);
  assert_memory_equal(whole, pieces, l.bytes + 2 * GUARD);
  assert_padding_is_zero(&l, whole + GUARD);
  for (uint64_t row = 0; row < rows; row++) {
    dequant_row(f, unaligned + row * l.src_row_bytes, expected, l.n_in);
    memset(found, POISON, l.n_in * sizeof *found);
    pack_read_row(&l, whole + GUARD, row / n_out, row % n_out, found);
    assert_same_floats(expected, found, l.n_in, f->name);
  }
  free(src), free(expected), free(found), free(whole), free(pieces);
}

static void test_planes_bit_for_bit(void **state) {
  (void)state;
  random_state = 0x9e3779b97f4a7c15u;
  static const uint64_t n_outs[] = {1, 3, 129};
  for (uint32_t i = 0; i < format_count(); i++) {
    const struct format *f = format_at(i);
    if (!format_compiled(f)) continue;
    for (uint64_t n_block = 1; n_block <= 5; n_block++)
      for (size_t o = 0; o < sizeof n_outs / sizeof n_outs[0]; o++)
        for (uint64_t n_mat = 1; n_mat <= 3; n_mat += 2) check_plane(f, n_block, n_outs[o], n_mat);
    check_plane(f, 48, 7, 2);
  }
}

/* The other way: every bit of a block matters. Flipping any bit of a GGUF block changes the packed plane (nothing is
 * dropped). */
static void test_no_bit_is_dropped(void **state) {
  (void)state;
  random_state = 12345;
  for (uint32_t i = 0; i < format_count(); i++) {
    const struct format *f = format_at(i);
    if (!format_compiled(f)) continue;
    struct plane_layout l;
    assert_int_equal(pack_layout(f, f->elements, 1, 1, &l, NULL), MOE_OK);
    uint8_t *src = malloc(f->bytes), *a = malloc(l.bytes), *b = malloc(l.bytes);
    assert_true(src != NULL && a != NULL && b != NULL);
    random_fill(src, f->bytes);
    pack_plane(&l, src, 0, 1, a);
    for (uint32_t bit = 0; bit < 8 * f->bytes; bit++) {
      src[bit / 8] ^= (uint8_t)(1u << (bit % 8));
      pack_plane(&l, src, 0, 1, b);
      uint32_t differing = 0;
      for (uint64_t j = 0; j < l.bytes; j++) differing += (uint32_t)__builtin_popcount(a[j] ^ b[j]);
      assert_int_equal(differing, 1);
      src[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    free(src), free(a), free(b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_table_is_sorted_and_complete),
      cmocka_unit_test(test_row_bytes),
      cmocka_unit_test(test_decline_names_tensor_format_and_choices),
      cmocka_unit_test(test_f16_values),
      cmocka_unit_test(test_block32_definitions),
      cmocka_unit_test(test_k_definitions),
      cmocka_unit_test(test_q6_k_definition),
      cmocka_unit_test(test_q2_k_q3_k_definitions),
      cmocka_unit_test(test_ternary_definitions),
      cmocka_unit_test(test_iq4_definitions),
      cmocka_unit_test(test_fp4_definitions),
      cmocka_unit_test(test_layout_numbers),
      cmocka_unit_test(test_layout_errors),
      cmocka_unit_test(test_planes_bit_for_bit),
      cmocka_unit_test(test_no_bit_is_dropped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
