/* norm.comp: root mean square norm of rows. One workgroup a row. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_norm
#include "prelude.glsl"
#include "group.glsl"

void main() {
  uint r = gl_WorkGroupID.x;
  if (r >= step_word(ROWSEL != 0 ? IMG_STEP_N_SELECT : IMG_STEP_N_ROW)) return;
  uint from = ROWSEL != 0 ? step_select(r, IMG_SELECT_ROW) : r;
  uint64_t x = 4 * uint64_t(from) * D_MODEL, y = 4 * uint64_t(r) * D_MODEL;
  float squares = 0;
  [[dont_unroll]] for (uint i = 4 * TID; i < D_MODEL; i += 4 * WG) {
    vec4 v = ld_x_vec4(x + 4 * i);
    squares += dot(v, v);
  }
  float scale = inversesqrt(group_sum(squares) / float(D_MODEL) + EPS);
  float gain = GAIN != 0 ? ld_gain_float(0) : 1.0;
  [[dont_unroll]] for (uint i = 4 * TID; i < D_MODEL; i += 4 * WG) {
    vec4 v = ld_x_vec4(x + 4 * i) * (scale * SCALE) * ld_weight_vec4(4 * i);
    if (RESIDUAL != 0) v += ld_y_vec4(y + 4 * i);
    st_y_vec4(y + 4 * i, GAIN != 0 ? v * gain : v);
  }
}
