/* step_product.glsl: rows of matrices times the vector, for `step`. A subgroup takes an item, a row or one of the equal parts that a short
 * row count is cut into, and then the one WG / SUBGROUP further; its lanes take the groups of 64 columns in turn. Three groups a lane are
 * loaded ahead of their use, the first ones before the workgroup waits for its vector.
 * KIND is a literal wherever a function is called with it: each call becomes code of its own, with shapes as literals. */
const uint KIND_QKV = 0;    /* rows of q, k and v, handed on */
const uint KIND_OUTPUT = 1; /* into the residual stream, which is handed on */
const uint KIND_GLU = 2;    /* rows 2p and 2p + 1: output p of gate and of up; of the chosen experts, then of the shared one */
const uint KIND_DOWN = 3;   /* columns of all chosen experts' outputs, then of the shared one's; into the stream */
const uint KIND_HEAD = 4;   /* logits */

uint kind_rows(uint kind) {
  return kind == KIND_QKV ? Q_COLUMNS + 2 * K_COLUMNS : kind == KIND_GLU ? 2 * N_HIDDEN : kind == KIND_HEAD ? N_VOCAB : D_MODEL;
}
/* Groups of 64 columns. */
uint kind_groups(uint kind) { return (kind == KIND_OUTPUT ? Q_COLUMNS : kind == KIND_DOWN ? N_HIDDEN : D_MODEL) / 64; }
/* log2 of the parts that a row is cut into. */
uint kind_parts(uint kind) { return (PARTS >> (4 * kind)) & 15; }
/* Groups that a lane takes of a part. */
uint kind_take(uint kind) { return (kind_groups(kind) + (SUBGROUP << kind_parts(kind)) - 1) / (SUBGROUP << kind_parts(kind)); }
uint kind_unit(uint kind) { return kind == KIND_HEAD ? 1 : kind == KIND_GLU ? 4 : 2; }

const uint ROUTED_FF = D_FF > 0 ? D_FF : 64;
const uint ROUTED_ROWS = N_EXPERT_USED * D_FF;

/* The only format of a phase's matrices, in all layers; 0: there are several. */
uint kind_format(uint kind) {
  if (kind == KIND_QKV) return ONE_Q == ONE_K && ONE_Q == ONE_V ? ONE_Q : 0;
  if (kind == KIND_OUTPUT) return ONE_O;
  if (kind == KIND_HEAD) return ONE_HEAD;
  const uint ROUTED = ONE_GATE == ONE_UP ? ONE_GATE : 0, SHARED = ONE_SHARED_GATE == ONE_SHARED_UP ? ONE_SHARED_GATE : 0;
  uint routed = kind == KIND_GLU ? ROUTED : ONE_DOWN, shared_one = kind == KIND_GLU ? SHARED : ONE_SHARED_DOWN;
  return D_FF_SHARED == 0 ? routed : N_EXPERT_USED == 0 ? shared_one : routed == shared_one ? routed : 0;
}

uint format_of(uint kind, uint which) { return kind_format(kind) != 0 ? kind_format(kind) : cell_format(which); }

/* Where a lane's group of an item is. */
struct place {
  uint64_t matrix;
  uint row, g, xg; /* row and group in the matrix; group of the vector */
  uint n_in, n_out, format;
  float factor; /* 0: this lane has none */
};

/* A phase's matrices and formats, read from the table once. Which they are: place_of. */
struct planes { uint64_t at[4]; uint format[4]; };
planes planes_of(uint kind) {
  planes m;
  [[unroll]] for (uint i = 0; i < 4; i++) {
    const uint NONE = N_CELL;
    uint at = NONE, f = 0;
    if (kind == KIND_QKV && i < 3) at = i == 0 ? CELL_Q : i == 1 ? CELL_K : CELL_V, f = i == 0 ? FORMAT_Q : i == 1 ? FORMAT_K : FORMAT_V;
    if (kind == KIND_OUTPUT && i == 0) at = CELL_O, f = FORMAT_O;
    if (kind == KIND_HEAD && i == 0) at = CELL_Q, f = FORMAT_Q;
    if (kind == KIND_GLU && i < 2 && N_EXPERT_USED > 0) at = i == 0 ? CELL_GATE : CELL_UP, f = i == 0 ? FORMAT_GATE : FORMAT_UP;
    if (kind == KIND_GLU && i >= 2 && D_FF_SHARED > 0)
      at = i == 2 ? CELL_SHARED_GATE : CELL_SHARED_UP, f = i == 2 ? FORMAT_SHARED_GATE : FORMAT_SHARED_UP;
    if (kind == KIND_DOWN && i == 0 && N_EXPERT_USED > 0) at = CELL_DOWN, f = FORMAT_DOWN;
    if (kind == KIND_DOWN && i == 2 && D_FF_SHARED > 0) at = CELL_SHARED_DOWN, f = FORMAT_SHARED_DOWN;
    m.at[i] = at == NONE ? uint64_t(0) : cell(at);
    m.format[i] = at == NONE ? 0 : format_of(kind, f);
  }
  return m;
}

/* Row `row` of the phase, group gi. */
place place_of(uint kind, planes m, uint row, uint gi) {
  place p;
  p.row = row;
  p.g = p.xg = min(gi, kind_groups(kind) - 1);
  p.factor = gi < kind_groups(kind) ? 1.0 : 0.0;
  p.n_in = 64 * kind_groups(kind);
  p.n_out = kind_rows(kind);
  p.matrix = m.at[0];
  p.format = m.format[0];
  if (kind == KIND_QKV) {
    bool k = row >= Q_COLUMNS, v = row >= Q_COLUMNS + K_COLUMNS;
    if (k) p.matrix = v ? m.at[2] : m.at[1];
    if (k) p.format = v ? m.format[2] : m.format[1];
    p.row -= v ? Q_COLUMNS + K_COLUMNS : k ? Q_COLUMNS : 0;
    p.n_out = k ? K_COLUMNS : Q_COLUMNS;
  } else if (kind == KIND_GLU) {
    uint pair = row / 2;
    bool up = (row & 1) != 0;
    if (D_FF_SHARED == 0 || pair < ROUTED_ROWS) {
      p.format = up ? m.format[1] : m.format[0];
      p.row = pair % ROUTED_FF;
      p.n_out = ROUTED_FF;
      p.matrix = (up ? m.at[1] : m.at[0]) + chosen[pair / ROUTED_FF] * weight_matrix(p.format, D_MODEL, ROUTED_FF);
    } else {
      p.format = up ? m.format[3] : m.format[2];
      p.row = pair - ROUTED_ROWS;
      p.n_out = D_FF_SHARED;
      p.matrix = up ? m.at[3] : m.at[2];
    }
  } else if (kind == KIND_DOWN) { /* lanes of a subgroup are at different experts */
    if (D_FF_SHARED == 0 || p.xg < ROUTED_ROWS / 64) {
      uint k = p.xg / (ROUTED_FF / 64);
      p.g = p.xg % (ROUTED_FF / 64);
      p.factor *= chosen_weight[k];
      p.n_in = ROUTED_FF;
      p.matrix += chosen[k] * weight_matrix(p.format, ROUTED_FF, D_MODEL);
    } else {
      p.g = p.xg - ROUTED_ROWS / 64;
      p.factor *= shared_weight;
      p.n_in = D_FF_SHARED;
      p.format = m.format[2];
      p.matrix = m.at[2];
    }
  }
  return p;
}

/* ---- what becomes of the rows ---- */
const uint OUT_MAX = 512;
shared float outs[OUT_MAX + WG / SUBGROUP]; /* and what subgroups without an item leave */
shared float stream[STREAM_ROWS];

/* Row i of the piece at hand, row `row` of the phase: its parts in order, the norm's scale, its bias. */
float out_row(uint kind, uint i, uint row) {
  float y = outs[i << kind_parts(kind)];
  [[dont_unroll]] for (uint k = 1; k < 1u << kind_parts(kind); k++) y += outs[(i << kind_parts(kind)) + k];
  y *= norm_scale;
  if (kind == KIND_QKV && (BIASES & BIAS_QKV) != 0) {
    bool k = row >= Q_COLUMNS, v = row >= Q_COLUMNS + K_COLUMNS;
    uint which = v ? CELL_V_BIAS : k ? CELL_K_BIAS : CELL_Q_BIAS;
    if (cell(which) != 0) y += bias_at(which, row - (v ? Q_COLUMNS + K_COLUMNS : k ? Q_COLUMNS : 0));
  }
  if (kind == KIND_OUTPUT && (BIASES & BIAS_OUTPUT) != 0) y += bias_at(CELL_O_BIAS, row);
  if (kind == KIND_DOWN && (BIASES & BIAS_DOWN) != 0)
    [[dont_unroll]] for (uint k = 0; k < N_EXPERT_USED; k++)
      y += chosen_weight[k] * bias_at(CELL_DOWN_BIAS, chosen[k] * ((D_MODEL + 3) / 4 * 4) + row);
  return y;
}
float out_glu(uint i, uint pair) {
  float a = out_row(KIND_GLU, 2 * i, 0), b = out_row(KIND_GLU, 2 * i + 1, 0);
  if ((BIASES & BIAS_GLU) != 0 && pair < ROUTED_ROWS) {
    uint at = chosen[pair / ROUTED_FF] * ((ROUTED_FF + 3) / 4 * 4) + pair % ROUTED_FF;
    a += bias_at(CELL_GATE_BIAS, at);
    b += bias_at(CELL_UP_BIAS, at);
  }
  return glu(a, b);
}

/* Rows first .. first + n - 1. */
void put_out(uint kind, uint first, uint n) {
  if (kind == KIND_HEAD) {
    [[dont_unroll]] for (uint i = TID; i < n; i += WG) st_logits_float(4 * (first + i), out_row(kind, i, first + i));
  } else if (kind == KIND_GLU) { /* two pairs of rows a word */
    [[dont_unroll]] for (uint i = TID; i < n / 4; i += WG) {
      uint p = first / 2 + 2 * i;
      pair_store(PLACE_HIDDEN + 4 * p, out_glu(2 * i, p), out_glu(2 * i + 1, p + 1), tag_out());
    }
  } else {
    [[dont_unroll]] for (uint i = TID; i < n / 2; i += WG) {
      uint r = first + 2 * i;
      vec2 y = vec2(out_row(kind, 2 * i, r), out_row(kind, 2 * i + 1, r + 1));
      if (kind != KIND_QKV) {
        uint at = r - gl_WorkGroupID.x * STREAM_ROWS;
        y += vec2(stream[at], stream[at + 1]);
        stream[at] = y.x;
        stream[at + 1] = y.y;
      }
      pair_store((kind == KIND_QKV ? PLACE_QKV : kind == KIND_OUTPUT ? PLACE_MIDDLE : PLACE_END) + 4 * r, y.x, y.y, tag_out());
    }
  }
}

/* ---- the phase ---- */
/* What is kept of a loaded slot's place: the vector's group, the low bits of the group in its row (what a scale is picked by), and the format. */
struct loaded { weight w; uint note; float factor; };

loaded slot_load(uint kind, planes m, uint row, uint gi) {
  place p = place_of(kind, m, row, gi);
  loaded l;
  l.w = weight_load(p.format, p.matrix, p.n_in, p.n_out, p.row, p.g);
  l.note = (p.xg << 13) | ((p.g & 31) << 8) | p.format;
  l.factor = p.factor;
  return l;
}
float slot_dot(uint kind, planes m, loaded l, uint row, uint gi) {
  uint format = kind_format(kind) != 0 ? kind_format(kind) : l.note & 255u;
#if FLOAT_FORMATS
  place p = place_of(kind, m, row, gi);
  return weight_dot(format, l.w, p.matrix, p.n_in, p.n_out, p.row, p.g, p.xg);
#else
  return weight_dot(format, l.w, 0, 0, 0, 0, (l.note >> 8) & 31, l.note >> 13);
#endif
}

void stage(uint kind) {
  if (kind == KIND_GLU && N_EXPERT_USED > 0) return; /* the router has staged it */
  if (kind == KIND_OUTPUT || kind == KIND_DOWN) {
    stage_plain(kind == KIND_OUTPUT ? PLACE_ATTENTION : PLACE_HIDDEN, kind_groups(kind));
    norm_scale = 1;
    group_barrier();
    return;
  }
  vec4 x[MODEL_QUADS];
  stage_model(kind == KIND_GLU ? PLACE_MIDDLE : phase == 0 ? PLACE_BEGIN : PLACE_END, kind == KIND_GLU ? CELL_FFN_NORM : CELL_NORM, x);
  group_barrier();
  norm_scale = squares_scale();
}

void product(uint kind) {
  const uint NSUB = WG / SUBGROUP;
  uint lane = TID % SUBGROUP, sub = TID / SUBGROUP, parts = kind_parts(kind), all_take = kind_take(kind);
  uint each = rows_each(kind_rows(kind), kind_unit(kind)), n = rows_here(kind_rows(kind), each);
  uint first = gl_WorkGroupID.x * each, piece = OUT_MAX >> parts;
  if (kind == KIND_GLU && N_EXPERT_USED > 0) choose();
  planes m = planes_of(kind);
  [[dont_unroll]] for (uint begin = 0; begin < n; begin += piece) {
    uint n_item = min(piece, n - begin) << parts, total = (n_item + NSUB - 1) / NSUB * all_take; /* slots of a lane */
    /* The slot to be loaded, and the one to be multiplied: item and group among the lane's. */
    uint load_item = sub, load_take = 0, item = sub, take = 0;
    float sum = 0;
    loaded w0 = loaded(weight_none(), 0, 0), w1 = w0, w2 = w0; /* no array: drivers put one into memory */
#define ROW(ITEM) (first + begin + (min(ITEM, n_item - 1) >> parts))
#define GROUP(ITEM, TAKE) ((((ITEM) & ((1u << parts) - 1u)) * all_take + (TAKE)) * SUBGROUP + lane)
#define LOAD_SLOT(W)                                                                                                   \
  {                                                                                                                    \
    W = slot_load(kind, m, ROW(load_item), GROUP(load_item, load_take));                                               \
    if (++load_take == all_take) {                                                                                     \
      load_take = 0;                                                                                                   \
      load_item += NSUB;                                                                                               \
    }                                                                                                                  \
  }
#define DOT_SLOT(W)                                                                                                    \
  {                                                                                                                    \
    sum += W.factor * slot_dot(kind, m, W, ROW(item), GROUP(item, take));                                              \
    if (++take == all_take) {                                                                                          \
      sum = subgroup_sum(sum);                                                                                         \
      if (lane == 0) outs[item] = sum;                                                                                 \
      sum = 0;                                                                                                         \
      take = 0;                                                                                                        \
      item += NSUB;                                                                                                    \
    }                                                                                                                  \
  }
    if (0 < total) LOAD_SLOT(w0)
    if (1 < total) LOAD_SLOT(w1)
    if (2 < total) LOAD_SLOT(w2)
    if (begin == 0) stage(kind);
    [[dont_unroll]] for (uint t = 0; t < total; t += 3) {
      DOT_SLOT(w0)
      if (t + 3 < total) LOAD_SLOT(w0)
      if (t + 1 < total) DOT_SLOT(w1)
      if (t + 4 < total) LOAD_SLOT(w1)
      if (t + 2 < total) DOT_SLOT(w2)
      if (t + 5 < total) LOAD_SLOT(w2)
    }
    group_barrier();
    put_out(kind, first + begin, min(piece, n - begin));
    if (begin + piece < n) group_barrier();
  }
  phase++;
}
