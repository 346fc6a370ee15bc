/* attention.comp: online softmax attention over the paged state. A workgroup takes HEADS query heads that share a key/value head, one row
 * and one split, so that keys and values are read once for all of them; attention_narrow.glsl and attention_wide.glsl are the two
 * manners. With more than one split in use the last one to arrive combines the partial results in split order.
 *
 * The grid has a fixed number of splits. How many a row uses, and which pages each has, follows from the row's position alone:
 * one for up to SPLIT_PAGES pages (combining costs as much as two pages), else one a page; page i of those in sight belongs to split
 * i % live; the others return at once and are not combined. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_attention
#include "prelude.glsl"
#include "kv.glsl"
#include "softcap.glsl"

/* EXTRA: ATTENTION_EXTRA of kernels.def. */
const uint HEADS = EXTRA & 255u, N_GROUP = N_HEAD / HEADS;
const uint N_QUAD = D_HEAD_V / 4; /* groups of four dimensions of a value */
const uint VALUE_D = LATENT != 0 ? D_HEAD : D_HEAD_V; /* elements of a position of the head that has the values */
const float LOWEST = -3.0e38;

/* What a workgroup does. */
uint row, head, split, splits, live; /* head: the first of HEADS */
uint n_pos, begin, page, n_page;     /* positions begin .. n_pos - 1 are in sight, in n_page pages from `page` on */

void store_y(uint h, uint quad, vec4 v) { st_y_vec4(4 * (uint64_t(row) * Y_STRIDE + h * D_HEAD_V + 4 * quad), v); }
/* A split's sums of a head: D_HEAD_V floats, the largest logit, the sum of exponentials relative to it. */
uint64_t partial_of(uint h, uint split) {
  return pc.partial + 4 * (((uint64_t(row) * N_HEAD + h) * splits + split) * (D_HEAD_V + 4));
}

/* A head's sink: below all logits where there is none. */
float sink_of(uint h) { return SINKS != 0 ? ld_sinks_float(4 * h) : LOWEST; }
/* What it adds to a sum of exponentials relative to `top`. */
float sink_weight(uint h, float top) { return SINKS != 0 ? exp(sink_of(h) - top) : 0.0; }

float logit(float s) {
  float z = s * SCALE;
  return SOFTCAP > 0 ? softcap(z) : z;
}

/* Where the keys and the values of this head's page are. */
uint64_t keys_of(uint page) {
  return pc.state + uint64_t(page) * PAGE_BYTES + (head / (N_HEAD / N_KV_HEAD)) * kv_head_bytes(D_HEAD);
}
uint64_t values_of(uint64_t keys) {
  uint kv = head / (N_HEAD / N_KV_HEAD);
  if (LATENT != 0) return keys;
  return keys + (N_KV_HEAD - kv) * kv_head_bytes(D_HEAD) + kv * kv_head_bytes(D_HEAD_V);
}

#include "attention_narrow.glsl"
#include "attention_wide.glsl"

void main() {
  uint group = gl_WorkGroupID.x % N_GROUP;
  row = gl_WorkGroupID.y;
  split = gl_WorkGroupID.x / N_GROUP;
  splits = gl_NumWorkGroups.x / N_GROUP;
  head = group * HEADS;
  uint n_row = step_word(IMG_STEP_N_ROW), slot = step_row_slot(row);
  n_pos = step_row_pos(row) + 1;
  if (row >= n_row) return;
  begin = WINDOW > 0 && n_pos > WINDOW ? n_pos - WINDOW : 0;
  page = begin / 64;
  n_page = (n_pos + 63) / 64 - page;
  live = n_page > SPLIT_PAGES ? min(splits, n_page) : 1;
  if (split >= live) return;
  if (SUBGROUP <= 8)
    attend_narrow(slot);
  else
    attend_wide(slot);
}
