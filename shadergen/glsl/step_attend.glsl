/* step_attend.glsl: attention of one row for `step`; included twice: HEADS query heads of a key/value head taken together by a workgroup,
 * and LANES_ of them a position, and NAME, of the function. An item is such a group of heads and a split of the positions; a split takes every n_split'th page, tile by tile:
 * scores: LANES_ invocations a position; values: D_HEAD / 8 invocations a position. The tile's keys and values are loaded before they
 * are needed, those of the first tile before the queries are there. */
void NAME(uint item, uint n_split, uint n_pos, uint slot) {
  const uint PER_KV = N_HEAD / N_KV_HEAD, KEY_WORDS = D_HEAD / 8 / LANES_; /* 16 bytes each */
  uint group = item / n_split, split = item % n_split, h0 = group * HEADS, kv = h0 / PER_KV, pos = n_pos - 1;
  uint window = uint(cell(CELL_WINDOW)), begin = window > 0 && n_pos > window ? n_pos - window : 0, page0 = begin / 64;
  uint64_t layer = cell(CELL_STATE);
  uint n_page = pos / 64 + 1 - page0, n_mine = (n_page + n_split - 1 - split) / n_split * 64; /* positions, at most */
  uint part = TID % LANES_, dl = TID % VALUE_LANES, side = TID / VALUE_LANES;
  uvec4 keys[KEY_WORDS], values[VALUES_];
  float acc[HEADS][8];
  [[unroll]] for (uint h = 0; h < HEADS; h++)
    [[unroll]] for (uint k = 0; k < 8; k++) acc[h][k] = 0;
/* Position i of the split; n_pos and more: none. */
#define POSITION(I) (64 * (page0 + split + (I) / 64 * n_split) + (I) % 64)
#define PAGE(P) (layer + page_at(slot, P))
#define KEYS(I0)                                                                                                       \
  {                                                                                                                    \
    uint p = min(POSITION((I0) + TID / LANES_), pos);                                                            \
    uint64_t row = PAGE(p) + (kv * 64 + p % 64) * (2 * D_HEAD);                                                \
    [[unroll]] for (uint k = 0; k < KEY_WORDS; k++) keys[k] = mem_ld_uvec4(F_state, row + 16 * (part + k * LANES_)); \
  }
#define VALUES(I0)                                                                                                     \
  [[unroll]] for (uint k = 0; k < VALUES_; k++) {                                                                  \
    uint p = min(POSITION((I0) + min(side + k * VALUE_SIDES, TILE_ - 1)), pos);                                         \
    uint64_t row = PAGE(p) + ((N_KV_HEAD + kv) * 64 + p % 64) * (2 * D_HEAD);      \
    values[k] = mem_ld_uvec4(F_state, row + 16 * dl);                                                                  \
  }
  KEYS(0)
  VALUES(0)
  attend_heads(h0, HEADS, kv);
  group_barrier();
  uvec4 newest = head_half(head_v[2 * dl], head_v[2 * dl + 1]);
  if (split == 0 && h0 % PER_KV == 0) attend_store(PAGE(pos), kv, pos);
  [[dont_unroll]] for (uint i0 = 0; i0 < n_mine; i0 += TILE_) {
    uint p = POSITION(i0 + TID / LANES_);
    bool live = i0 + TID / LANES_ < n_mine && p < n_pos && p >= begin;
    if (p == pos)
      [[unroll]] for (uint k = 0; k < KEY_WORDS; k++)
        keys[k] = head_half(head_k[2 * (part + k * LANES_)], head_k[2 * (part + k * LANES_) + 1]);
    [[unroll]] for (uint h = 0; h < HEADS; h++) {
      float z = 0;
      [[unroll]] for (uint k = 0; k < KEY_WORDS; k++) {
        uint d = h * (D_HEAD / 4) + 2 * (part + k * LANES_);
        z += dot(head_q[d], halves(keys[k].xy)) + dot(head_q[d + 1], halves(keys[k].zw));
      }
      [[unroll]] for (uint m = 1; m < LANES_; m *= 2) z += subgroupShuffleXor(z, m);
      if (part == 0) tile_score[h * TILE_ + TID / LANES_] = live ? z * SCALE : LOWEST;
    }
    group_barrier();
    attend_softmax(HEADS, TILE_);
    group_barrier();
    if (i0 + TILE_ < n_mine) KEYS(i0 + TILE_)
    [[unroll]] for (uint h = 0; h < HEADS; h++)
      [[unroll]] for (uint k = 0; k < 8; k++) acc[h][k] *= head_fade[h];
    [[unroll]] for (uint k = 0; k < VALUES_; k++) {
      uint i = side + k * VALUE_SIDES;
      if (i >= TILE_ || side >= VALUE_SIDES) continue;
      /* Behind the step's position the weight is 0, and the memory anything. */
      if (POSITION(i0 + i) >= pos) values[k] = newest;
      vec4 a = halves(values[k].xy), b = halves(values[k].zw);
      [[unroll]] for (uint h = 0; h < HEADS; h++) {
        float w = tile_score[h * TILE_ + i];
        [[unroll]] for (uint j = 0; j < 4; j++) {
          acc[h][j] += w * a[j];
          acc[h][j + 4] += w * b[j];
        }
      }
    }
    if (i0 + TILE_ < n_mine) VALUES(i0 + TILE_)
    group_barrier();
  }
  [[unroll]] for (uint h = 0; h < HEADS; h++) {
    if (side < VALUE_SIDES)
      [[unroll]] for (uint j = 0; j < 2; j++)
        xs[2 * (side * VALUE_LANES + dl) + j] = floatBitsToUint(vec4(acc[h][4 * j], acc[h][4 * j + 1], acc[h][4 * j + 2], acc[h][4 * j + 3]));
    group_barrier();
    attend_put(h0 + h, h, split, n_split);
    group_barrier();
  }
}
#undef POSITION
#undef PAGE
#undef KEYS
#undef VALUES
