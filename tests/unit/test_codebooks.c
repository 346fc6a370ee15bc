/* test_codebooks.c: the grids of the codebook formats against checksums of the published ones, and the formats'
 * definitions against blocks made by hand. (Planes and random blocks: test_formats.c.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "codebooks.h"
#include "dequant.h"
#include "formats.h"
#include "shadergen.h"

/* FNV-1a over the published form of a grid: one byte a component, as ggml-common.h has it. */
static uint32_t checksum(const uint16_t *entry, int count, int n, const int8_t *value) {
  uint32_t h = 2166136261u;
  for (int i = 0; i < count; i++)
    for (int j = 0; j < n; j++) {
      unsigned code = n == 8 ? codebooks_code2(entry[i], j) : codebooks_code4(entry[i], j);
      assert_true(code < (n == 8 ? 3 : 8));
      h = (h ^ (uint8_t)value[code]) * 16777619u;
    }
  return h;
}

static void test_grids(void **state) {
  (void)state;
  static const int8_t iq2[] = {8, 25, 43}, iq3_xxs[] = {4, 12, 20, 28, 36, 44, 52, 62},
                      iq3_s[] = {1, 3, 5, 7, 9, 11, 13, 15}, iq1[] = {-1, 0, 1};
  assert_int_equal(checksum(codebooks.iq2_xxs, 256, 8, iq2), 0x3db4a16eu);
  assert_int_equal(checksum(codebooks.iq2_xs, 512, 8, iq2), 0xebeb17ddu);
  assert_int_equal(checksum(codebooks.iq2_s, 1024, 8, iq2), 0x82981110u);
  assert_int_equal(checksum(codebooks.iq3_xxs, 256, 4, iq3_xxs), 0x49a45035u);
  assert_int_equal(checksum(codebooks.iq3_s, 512, 4, iq3_s), 0x71cc6c89u);
  assert_int_equal(checksum(codebooks.iq1, 2048, 8, iq1), 0x2fe8cbceu);
  assert_int_equal(shadergen_codebooks_bytes(), sizeof codebooks);
}

/* Dequantizes one block. */
static const float *weights(uint32_t format, const uint8_t *block) {
  static float w[256];
  dequant_row(format_find(format), block, w, 256);
  return w;
}

static void assert_eight(const float *got, const float want[8]) {
  for (int j = 0; j < 8; j++)
    if (got[j] != want[j]) fail_msg("element %d: %g, expected %g", j, (double)got[j], (double)want[j]);
}

/* All: d = 2. Grid entries used: iq2_xxs 4 = 43 43 8 .. 8, iq2_xs 511, iq2_s 1023 and so on, as published. */
static void test_iq2_definitions(void **state) {
  (void)state;
  uint8_t xxs[66] = {0x00, 0x40};
  xxs[2 + 8 * 7 + 3] = 4;                                        /* group 7, last eight: entry 4 */
  memcpy(xxs + 2 + 8 * 7 + 4, (uint8_t[]){0, 0, 0x20, 0x30}, 4); /* its seven signs: bit 0; scale 3 */
  const float *w = weights(FORMAT_IQ2_XXS, xxs);
  assert_eight(w, (float[]){2, 2, 2, 2, 2, 2, 2, 2}); /* 2 * 0.5 * 0.25 * 8 */
  assert_eight(w + 248, (float[]){-75.25, 75.25, 14, 14, 14, 14, 14, -14});

  uint8_t xs[74] = {0x00, 0x40};
  xs[2 + 2 * 31] = 0xff, xs[3 + 2 * 31] = 0x07; /* last eight: index 511, signs of elements 0 and 1 */
  xs[66 + 7] = 0x1f;                            /* group 7: scales 15 and 1 */
  w = weights(FORMAT_IQ2_XS, xs);
  assert_eight(w + 248, (float[]){-32.25, -32.25, 32.25, 32.25, 32.25, 32.25, 32.25, 32.25});
  assert_true(w[224] == 2 * 15.5f * 0.25f * 8);

  uint8_t s[82] = {0x00, 0x40};
  s[2 + 30] = 0xff, s[34 + 30] = 0x81, s[66 + 7] = 0x30, s[74 + 7] = 0x20; /* third eight of group 7: index 1023 */
  w = weights(FORMAT_IQ2_S, s);
  assert_eight(w + 240, (float[]){-53.75, 53.75, 53.75, 53.75, 53.75, 53.75, 53.75, -53.75});
  assert_true(w[224] == 2 && w[248] == 2 * 2.5f * 0.25f * 8);
}

static void test_iq3_definitions(void **state) {
  (void)state;
  uint8_t xxs[98] = {0x00, 0x40};
  xxs[2 + 63] = 255;
  memcpy(xxs + 66 + 28, (uint8_t[]){0, 0, 0x80, 0x12}, 4); /* last seven signs: bits 2 and 4, scale 1 */
  const float *w = weights(FORMAT_IQ3_XXS, xxs);
  assert_eight(w + 248, (float[]){6, 6, -6, 6, -6, 42, 78, 93});

  uint8_t s[110] = {0x00, 0x40};
  s[2 + 63] = 255, s[66 + 7] = 0x80, s[74 + 31] = 0x90, s[106 + 3] = 0x71; /* index 511; scales 1 and 7 */
  w = weights(FORMAT_IQ3_S, s);
  assert_eight(w + 248, (float[]){30, 30, 30, 30, -30, 30, 450, -450});
  assert_true(w[192] == 2 * 3);
}

static void test_iq1_definitions(void **state) {
  (void)state;
  uint8_t s[50] = {0x00, 0x40};
  s[2 + 31] = 255, s[34 + 14] = 0x00, s[34 + 15] = 0xbe; /* group 7: last index 2047, scale 3, delta down */
  const float *w = weights(FORMAT_IQ1_S, s);
  assert_eight(w + 248, (float[]){12.25, 12.25, 12.25, 12.25, 12.25, 12.25, 12.25, 12.25});
  assert_true(w[0] == 2 * (-1 + 0.125f) && w[224] == 2 * 7 * (-1 - 0.125f));

  uint8_t m[56] = {0};
  m[31] = 255, m[32 + 15] = 0x78; /* last index 2047, delta up; the one before has delta down */
  m[48 + 7] = 0x4e;               /* d = 2 (the top nibble of four); scale 7 for the last 16 weights */
  w = weights(FORMAT_IQ1_M, m);
  assert_eight(w + 248, (float[]){33.75, 33.75, 33.75, 33.75, 33.75, 33.75, 33.75, 33.75});
  assert_true(w[0] == 2 * (-1 + 0.125f) && w[240] == 2 * 15 * (-1 - 0.125f));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_grids),
      cmocka_unit_test(test_iq2_definitions),
      cmocka_unit_test(test_iq3_definitions),
      cmocka_unit_test(test_iq1_definitions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
