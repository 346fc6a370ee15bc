/* softcap.comp: logits brought softly below a bound. An invocation takes EXTRA elements of a row. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_softcap
#include "prelude.glsl"
#include "softcap.glsl"

void main() {
  uint r = gl_WorkGroupID.y;
  if (r >= step_word(IMG_STEP_N_SELECT)) return;
  [[dont_unroll]] for (uint e = 0; e < EXTRA; e++) {
    uint i = (gl_WorkGroupID.x * EXTRA + e) * WG + TID;
    uint64_t at = 4 * (uint64_t(r) * WIDTH + i);
    if (i < WIDTH) st_x_float(at, softcap(ld_x_float(at)));
  }
}
