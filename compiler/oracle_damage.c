/* oracle_damage.c: which weight makes a model's logits no numbers. See oracle.h. */
#include "dequant.h"
#include "oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The first row with a value that is NaN or infinite; false when there is none, or no memory. */
static bool damaged_row(const struct gguf_tensor *t, uint64_t *row) {
  uint64_t n = t->dim[0], n_row = t->n_element / n;
  float *values = malloc(n * sizeof *values);
  bool found = false;
  for (uint64_t r = 0; values && r < n_row && !found; r++) {
    dequant_row(t->format, gguf_row(t, r), values, n);
    for (uint64_t i = 0; i < n && !found; i++)
      if (!isfinite(values[i])) found = true, *row = r;
  }
  free(values);
  return found;
}

const char *oracle_damage(const struct ir_graph *graph, char text[ORACLE_DAMAGE_BYTES]) {
  for (int i = 0; i < graph->n_node; i++)
    for (size_t k = 0; k < sizeof graph->node[i].weight / sizeof *graph->node[i].weight; k++) {
      const struct gguf_tensor *t = graph->node[i].weight[k];
      uint64_t row;
      if (!t || !damaged_row(t, &row)) continue;
      snprintf(text, ORACLE_DAMAGE_BYTES,
               "row %llu of %.200s holds a weight that is NaN or infinite: the file is damaged, fetch it again",
               (unsigned long long)row, t->name);
      return text;
    }
  snprintf(text, ORACLE_DAMAGE_BYTES, "all weights are, so their sizes do not belong together: the file is damaged");
  return text;
}
