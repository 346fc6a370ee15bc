/* pack_iq4.c: planes of the formats with the sixteen values of IQ4_NL.
 *
 * Owns: IQ4_NL, IQ4_XS. Does not own: their definitions (dequant_iq4.c), strides (pack.c). Formulas: PLANES.md.
 */
#include "pack.h"

#include "dequant.h"
#include "pack_unit.h"

#include <math.h>

/* A unit's weights, all of scale d, by the formula that kernels use. */
static void read_unit(const uint8_t *unit, float d, float *dst) {
  uint8_t q[PACK_UNIT];
  pack_get_nibbles(unit, q);
  for (int e = 0; e < PACK_UNIT; e++) {
    float x = (float)q[e] - 8.0f;
    dst[e] = d * rintf((((0.0015f * x + 0.082f) * x - 0.011f) * x + 11.43f) * x + 1.38f);
  }
}

void pack_iq4_nl_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 18) {
    memcpy(sub[0] + 16 * i, src + 2, 16); /* the GGUF's order is a unit's */
    memcpy(sub[1] + 2 * i, src, 2);
  }
}

void pack_iq4_nl_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++)
    read_unit(sub[0] + 16 * i, dequant_f16(dequant_u16(sub[1] + 2 * i)), dst + 32 * i);
}

void pack_iq4_xs_row(const uint8_t *src, uint8_t *const sub[], uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++, src += 136) {
    memcpy(sub[0] + 128 * i, src + 8, 128); /* the GGUF's order is that of units */
    memcpy(sub[1] + 8 * i, src, 8);
  }
}

void pack_iq4_xs_read_row(const uint8_t *const sub[], float *dst, uint64_t n_block) {
  for (uint64_t i = 0; i < n_block; i++) {
    uint32_t high = dequant_u32(sub[1] + 8 * i), low = dequant_u32(sub[1] + 8 * i + 4);
    float d = dequant_f16((uint16_t)high);
    for (int u = 0; u < 8; u++, dst += PACK_UNIT) {
      int scale = (int)((low >> (4 * u)) & 15) | (int)((high >> (16 + 2 * u)) & 3) << 4;
      read_unit(sub[0] + 128 * i + 16 * u, d * (float)(scale - 32), dst);
    }
  }
}
