/* step_layer.glsl: the row of the table that is at hand (step_cells.def), who has which rows of the matrices, where vectors are in the
 * exchange. The row lies in shared memory; the next one is loaded while a layer runs. */
#define STEP_CELL(NAME, INDEX, WHAT) const uint CELL_##NAME = INDEX;
#define STEP_FORMAT(NAME, INDEX) const uint FORMAT_##NAME = INDEX;
#include "step_cells.def"
#undef STEP_CELL
#undef STEP_FORMAT
const uint N_CELL = CELL_FORMATS_SHARED + 1;

shared uvec2 cells[2][N_CELL];
uint turn = 0; /* which of the two is at hand */
uvec2 next_cell;
/* The next row, on its way: cells_ahead when a layer begins, cells_put behind a barrier of that layer and before another. */
void cells_ahead(uint layer) {
  if (WG >= N_CELL && TID < N_CELL) next_cell = ld_table_uvec2(8 * (min(layer, uint(N_LAYER)) * N_CELL + TID));
}
void cells_put(uint which, uint layer) {
  if (WG >= N_CELL) {
    if (TID < N_CELL) cells[which][TID] = next_cell;
  } else {
    [[dont_unroll]] for (uint i = TID; i < N_CELL; i += WG) cells[which][i] = ld_table_uvec2(8 * (min(layer, uint(N_LAYER)) * N_CELL + i));
  }
}
uint64_t cell(uint i) { return packUint2x32(cells[turn][i]); }
uint cell_format(uint f) {
  return f < 7 ? uint(cell(CELL_FORMATS) >> (8 * f)) & 255u : uint(cell(CELL_FORMATS_SHARED) >> (8 * (f - 7))) & 255u;
}
float bias_at(uint which, uint i) { return mem_ld_float(F_table, cell(which) + 4 * i); }

/* The residual stream's rows of a workgroup, and how many workgroups that makes: the others of the EXTRA resident ones leave. So every
 * one has rows in every phase that ends in the stream, twice a layer: nobody can be a layer ahead of another, and places in the exchange
 * can be used again in every layer. */
const uint STREAM_ROWS = 2 * ((D_MODEL + 2 * EXTRA - 1) / (2 * EXTRA));
const uint N_WORKER = (D_MODEL + STREAM_ROWS - 1) / STREAM_ROWS;

/* Rows of a phase go to workgroups in runs of a multiple of `unit`. */
uint rows_each(uint n_row, uint unit) { return unit * ((n_row + unit * N_WORKER - 1) / (unit * N_WORKER)); }
uint rows_here(uint n_row, uint each) {
  uint first = gl_WorkGroupID.x * each;
  return first < n_row ? min(each, n_row - first) : 0;
}

/* Bytes into the exchange: the serial number; vectors of pairs; words of floats. moec's pass_step_table.c gives the exchange its size. */
const uint Q_COLUMNS = N_HEAD * D_HEAD, K_COLUMNS = N_KV_HEAD * D_HEAD;
const uint N_HIDDEN = N_EXPERT_USED * D_FF + D_FF_SHARED; /* GLU outputs: of the chosen experts, then of the shared one */
const uint PLACE_BEGIN = 16;
const uint PLACE_QKV = PLACE_BEGIN + 4 * D_MODEL;
const uint PLACE_ATTENTION = PLACE_QKV + 4 * (Q_COLUMNS + 2 * K_COLUMNS);
const uint PLACE_MIDDLE = PLACE_ATTENTION + 4 * Q_COLUMNS; /* the stream between attention and feed-forward network */
const uint PLACE_HIDDEN = PLACE_MIDDLE + 4 * D_MODEL;
const uint PLACE_END = PLACE_HIDDEN + 4 * N_HIDDEN; /* the stream behind a layer */
const uint PLACE_LOGITS = PLACE_END + 4 * D_MODEL;
const uint PLACE_SPLITS = PLACE_LOGITS + 8 * ((N_EXPERT + 2) / 2 * 2);

/* Tags of the words that are awaited, and of those that are stored: phases count up. */
uint serial, phase = 0;
uint tag_in() { return serial + phase; }
uint tag_out() { return serial + phase + 1; }
