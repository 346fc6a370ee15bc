/* glu.comp: act(a) * b of whole rows. Four elements an invocation, EXTRA times. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_glu
#include "prelude.glsl"
#include "glu.glsl"

void main() {
  uint r = gl_WorkGroupID.y;
  if (r >= step_word(IMG_STEP_N_ROW)) return;
  [[dont_unroll]] for (uint i = 0; i < EXTRA; i++) {
    uint q = (gl_WorkGroupID.x * EXTRA + i) * WG + TID;
    if (q >= N_COL / 4) break;
    uint64_t p = 4 * (uint64_t(r) * N_COL + 4 * q);
    vec4 a = A_ONE != 0 ? vec4(ld_a_float(4 * r)) : ld_a_vec4(p), b = ld_b_vec4(p);
    st_y_vec4(p, vec4(glu(a.x, b.x), glu(a.y, b.y), glu(a.z, b.z), glu(a.w, b.w)));
  }
}
