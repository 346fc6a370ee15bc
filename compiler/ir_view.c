/* ir_view.c: weights that are parts of the file's tensors.
 *
 * Owns: ir_add_view, ir_add_vector_view. Does not own: reading rows of a view (gguf_row). Invariants: every row of a
 * view lies in its whole, which is a tensor of the file, never a view. */
#include "ir.h"

#include <stdlib.h>
#include <string.h>

static bool ir_same_view(const struct ir_view *a, const struct ir_view *b) {
  return a->rows.whole == b->rows.whole && a->rows.first == b->rows.first && a->rows.run == b->rows.run &&
         a->rows.period == b->rows.period && !memcmp(a->tensor.dim, b->tensor.dim, sizeof a->tensor.dim);
}

/* Appends *wanted, or finds its equal. */
static enum moe_code ir_keep_view(struct ir_graph *g, const struct ir_view *wanted, const struct gguf_tensor **view,
                                  struct moe_error *err) {
  for (uint32_t i = 0; i < g->n_view; i++)
    if (ir_same_view(g->view[i], wanted)) {
      *view = &g->view[i]->tensor;
      return MOE_OK;
    }
  struct ir_view **grown = realloc(g->view, (g->n_view + 1) * sizeof *grown), *added = malloc(sizeof *added);
  if (grown) g->view = grown;
  if (!grown || !added) {
    free(added);
    return moe_fail(err, MOE_FAILED, "out of memory: %u row views", g->n_view + 1);
  }
  *added = *wanted;
  added->tensor.name = added->name;
  if (added->tensor.rows) added->tensor.rows = &added->rows;
  g->view[g->n_view++] = added;
  *view = &added->tensor;
  return MOE_OK;
}

/* A copy of the whole's record, to be narrowed. */
static struct ir_view ir_view_of(const struct gguf_tensor *whole, const char *suffix) {
  struct ir_view v = {.tensor = *whole, .rows = {.whole = whole}};
  snprintf(v.name, sizeof v.name, "%s[%s]", whole->name, suffix);
  return v;
}

enum moe_code ir_add_view(struct ir_graph *g, const struct gguf_tensor *whole, uint64_t first, uint64_t n_out,
                          uint64_t run, uint64_t period, const char *suffix, const struct gguf_tensor **view,
                          struct moe_error *err) {
  if (run == 0 || run >= n_out) run = period = n_out;
  uint64_t n_run = n_out ? (n_out - 1) / run : 0, jump = 0, last = 0; /* last: the row behind the view's last one */
  bool fits = n_out && run <= period && moe_mul(n_run, period, &jump) && moe_add(first, jump, &last) &&
              moe_add(last, n_out - n_run * run, &last) && last <= whole->dim[1];
  if (!fits)
    return moe_fail(err, MOE_FAILED,
                    "%s has %llu rows where its parts are %llu from row %llu on, in runs of %llu every %llu",
                    whole->name, (unsigned long long)whole->dim[1], (unsigned long long)n_out,
                    (unsigned long long)first, (unsigned long long)run, (unsigned long long)period);
  struct ir_view v = ir_view_of(whole, suffix);
  v.rows = (struct gguf_rows){whole, first, run, period};
  v.tensor.rows = &v.rows; /* ir_keep_view makes it the copy's */
  v.tensor.dim[1] = n_out;
  v.tensor.n_element = whole->dim[0] * n_out * whole->dim[2];
  v.tensor.bytes = v.tensor.n_element / whole->format->elements * whole->format->bytes;
  return ir_keep_view(g, &v, view, err);
}

enum moe_code ir_add_vector_view(struct ir_graph *g, const struct gguf_tensor *whole, uint64_t first, uint64_t n,
                                 const char *suffix, const struct gguf_tensor **view, struct moe_error *err) {
  if (whole->n_element != whole->dim[0] || whole->format->elements != 1 || n == 0 || first > whole->dim[0] ||
      n > whole->dim[0] - first)
    return moe_fail(err, MOE_FAILED,
                    "%s: %s, %llu elements; its parts are %llu from element %llu on, of F32, F16 or BF16", whole->name,
                    whole->format->name, (unsigned long long)whole->dim[0], (unsigned long long)n,
                    (unsigned long long)first);
  struct ir_view v = ir_view_of(whole, suffix);
  v.rows.first = first;
  v.tensor.dim[0] = v.tensor.n_element = n;
  v.tensor.bytes = n * whole->format->bytes;
  v.tensor.data += first * whole->format->bytes;
  v.tensor.offset += first * whole->format->bytes;
  return ir_keep_view(g, &v, view, err);
}
