/* combine.comp: the experts' outputs of a row, weighted and summed in slot order behind the shared expert's row, onto the residual. Four elements an invocation,
 * EXTRA times. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_combine
#include "prelude.glsl"
#include "shared.glsl"

void main() {
  uint r = gl_WorkGroupID.y;
  if (r >= step_word(IMG_STEP_N_ROW)) return;
  [[dont_unroll]] for (uint i = 0; i < EXTRA; i++) {
    uint q = (gl_WorkGroupID.x * EXTRA + i) * WG + TID;
    if (q >= D_MODEL / 4) break;
    uint64_t p = 4 * (uint64_t(r) * D_MODEL + 4 * q);
    vec4 sum = SHARED != 0 ? shared_scale(r) * ld_shared_row_vec4(p) : vec4(0);
    [[dont_unroll]] for (uint slot = 0; slot < N_EXPERT_USED; slot++) {
      uint pair = r * N_EXPERT_USED + slot;
      sum += ld_weights_float(4 * pair) * ld_y_vec4(4 * (uint64_t(pair) * D_MODEL + 4 * q));
    }
    if (SCALE != 1.0) sum *= SCALE;
    st_x_vec4(p, RESIDUAL != 0 ? ld_x_vec4(p) + sum : sum);
  }
}
