/* gated_norm.comp: RMS norm of each group of columns, then a SiLU gate. A team of LANES invocations takes one group of one row. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_gated_norm
#include "prelude.glsl"

void main() {
  uint group = gl_WorkGroupID.x * (WG / LANES) + TID / LANES, r = gl_WorkGroupID.y, lane = TID % LANES;
  if (r >= step_word(IMG_STEP_N_ROW)) return;
  bool inside = group < WIDTH / GROUP;
  uint64_t at = 4 * (uint64_t(r) * WIDTH + min(group, uint(WIDTH / GROUP - 1)) * GROUP);
  float squares = 0;
  [[dont_unroll]] for (uint i = 4 * lane; i < GROUP; i += 4 * LANES) {
    vec4 v = ld_x_vec4(at + 4 * i);
    squares += dot(v, v);
  }
  float scale = inversesqrt(lanes_sum(squares) / float(GROUP) + EPS);
  [[dont_unroll]] for (uint i = 4 * lane; inside && i < GROUP; i += 4 * LANES) {
    vec4 z = ld_gate_vec4(at + 4 * i);
    st_y_vec4(at + 4 * i, z / (1 + exp(-z)) * (ld_x_vec4(at + 4 * i) * scale * ld_weight_vec4(4 * i)));
  }
}
