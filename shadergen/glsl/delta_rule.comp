/* delta_rule.comp: the gated delta rule (Gated Delta Networks, arXiv 2412.06464, equation 10), row after row. A team of LANES invocations takes
 * EXTRA value columns of one head of one run: lane l has the keys' quads l, l + LANES, ... of each column's state, in registers over the whole
 * run. Loops of an invocation: one iteration a row. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_delta_rule
#include "prelude.glsl"

#define COLUMNS EXTRA
#define QUADS (D_HEAD / 4 / LANES)
#define PARTS ((COLUMNS + LANES - 1) / LANES) /* columns by lane: column c is in part c / LANES of lane c % LANES */

vec4 S[COLUMNS][QUADS];

float softplus(float x) { return x > 20 ? x : log(1 + exp(x)); }

/* Address of quad i of this lane in column `column` (counted through all heads) of a slot. */
uint64_t state_at(uint slot, uint column, uint lane, uint i) {
  return pc.state + uint64_t(slot) * BLOCK_BYTES + 4 * (uint64_t(column) * D_HEAD + 4 * (lane + i * LANES));
}

void main() {
  uint lane = TID % LANES, base = TID % SUBGROUP / LANES * LANES; /* of the team in its subgroup */
  uint column = (gl_WorkGroupID.x * (WG / LANES) + TID / LANES) * COLUMNS, run = gl_WorkGroupID.y;
  if (run >= step_word(IMG_STEP_N_RUN)) return;
  bool inside = column < N_HEAD * D_HEAD;
  column = min(column, uint(N_HEAD * D_HEAD - COLUMNS));
  uint first = step_run(run, IMG_RUN_ROW), n = step_run(run, IMG_RUN_COUNT);
  uint head = column / D_HEAD, key = TILED != 0 ? head % N_KEY_HEAD : head / (N_HEAD / N_KEY_HEAD);
  uint slot = step_row_slot(first);
  bool fresh = step_row_pos(first) == 0;
  float a = ld_a_float(4 * head), dt = ld_dt_float(4 * head);
  [[unroll]] for (uint c = 0; c < COLUMNS; c++)
    [[unroll]] for (uint i = 0; i < QUADS; i++)
      S[c][i] = fresh ? vec4(0) : mem_ld_vec4(F_state, state_at(slot, column + c, lane, i));

  [[dont_unroll]] for (uint r = first; r < first + n; r++) {
    uint64_t at = 4 * ((uint64_t(r) * N_KEY_HEAD + key) * D_HEAD + 4 * lane);
    vec4 k[QUADS], q[QUADS];
    float kk = 0, qq = 0, mine[PARTS];
    [[unroll]] for (uint i = 0; i < QUADS; i++) {
      k[i] = ld_k_vec4(at + 16 * i * LANES);
      q[i] = ld_q_vec4(at + 16 * i * LANES);
      kk += dot(k[i], k[i]);
      qq += dot(q[i], q[i]);
    }
    uint64_t values = 4 * (uint64_t(r) * N_HEAD * D_HEAD + column);
    [[unroll]] for (uint p = 0; p < PARTS; p++) mine[p] = ld_v_float(values + 4 * min(lane + p * LANES, COLUMNS - 1));
    float k_scale = inversesqrt(lanes_sum(kk) + EPS), q_scale = inversesqrt((lanes_sum(qq) + EPS) * float(D_HEAD));
    float decay = exp(a * softplus(ld_alpha_float(4 * (r * N_HEAD + head)) + dt));
    float b = 1 / (1 + exp(-ld_beta_float(4 * (r * N_HEAD + head))));
    [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
      float sum = 0;
      [[unroll]] for (uint i = 0; i < QUADS; i++) sum += dot(S[c][i], k[i]);
      float v = subgroupShuffle(mine[c / LANES], base + c % LANES);
      float change = (v - decay * k_scale * lanes_sum(sum)) * b * k_scale;
      sum = 0;
      [[unroll]] for (uint i = 0; i < QUADS; i++) {
        S[c][i] = decay * S[c][i] + change * k[i];
        sum += dot(S[c][i], q[i]);
      }
      sum = q_scale * lanes_sum(sum);
      if (lane == c % LANES) mine[c / LANES] = sum;
    }
    [[unroll]] for (uint p = 0; p < PARTS; p++)
      if (inside && lane + p * LANES < COLUMNS) st_y_float(values + 4 * (lane + p * LANES), mine[p]);
  }
  if (!inside) return;
  [[unroll]] for (uint c = 0; c < COLUMNS; c++)
    [[unroll]] for (uint i = 0; i < QUADS; i++) mem_st_vec4(F_state, state_at(slot, column + c, lane, i), S[c][i]);
}
