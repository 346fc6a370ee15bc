/* test_experts_all.c: the experts' kernels, gemm and router with every weight format at many more shapes than
 * test_experts.c has, and with mixed formats. */
#define TEST_ALL_SHAPES
#include "test_experts.c"

/* Every format at every shape. */
static void test_window_all(void **state) {
  (void)state;
  static const uint32_t live[] = {1, 2, 31, 33, 64, 100}, n_out[] = {1, 3, 33, 63, 65, 128};
  struct oracle_rng rng = {10};
  for (size_t f = 0; f < oracle_n_format; f++)
    for (uint32_t i = f % 2; i < 6; i += 2) {
      /* Few values, all small by chance, are no measure of their error. */
      uint32_t format = oracle_formats[f], least = live[i] < 4 ? 2 : 0;
      uint32_t odd = oracle_fits(format, 1408) ? 1408 : 512;
      run_gemm(&rng, format, i & 1 ? 768 : odd, n_out[least + (i + f) % (6 - least)], live[i] + (i & 1), live[i],
               i & 2 ? 32 : 8, live[i] > IMG_MAX_SELECT ? i & 3 : i, false);
      struct window t = {
          .shape = {format, format, i & 1 ? 256 : odd, n_out[least + (i + f + 3) % (6 - least)], 7, 3, live[i]},
          .n_row = live[i] + (i & 1),
          .tm = i & 1 ? 32 : 16};
      window_init(&t, &rng, i & 1);
      run_gate_up_gemm(&rng, &t, true, false);
      run_down_gemm(&rng, &t, false);
      window_deinit(&t);
    }
}

/* Gate and up of every format beside every fifth other, at the longest rows that both have. */
static void test_mixed_all(void **state) {
  (void)state;
  struct oracle_rng rng = {11};
  for (size_t f = 0; f < oracle_n_format; f++)
    for (size_t g = (f + 1) % 5; g < oracle_n_format; g += 5) {
      uint32_t gate = oracle_formats[f], up = oracle_formats[g], n_in = 256;
      if (gate == up) continue;
      if (oracle_fits(gate, 1408) && oracle_fits(up, 1408)) n_in = f & 1 ? 1408 : 2880;
      run_gate_up(&rng, &(struct moe_shape){gate, up, n_in, 17, 3, 2, 1}, true, false);
      struct window t = {.shape = {gate, up, n_in, 9, 3, 2, 5}, .n_row = 5, .tm = 8};
      window_init(&t, &rng, true);
      run_gate_up_gemm(&rng, &t, true, false);
      window_deinit(&t);
    }
}

/* The few-row kernels and the router at rows that no 256-block divides. */
static void test_odd_rows_all(void **state) {
  (void)state;
  static const uint32_t n_in[] = {1408, 2880};
  struct oracle_rng rng = {12};
  for (size_t f = 0; f < oracle_n_format; f++)
    for (int i = 0; i < 2; i++) {
      uint32_t format = oracle_formats[f];
      if (!oracle_fits(format, n_in[i])) continue;
      struct moe_shape s = {format, format, n_in[i], 19, 5, 4, 2};
      run_gate_up(&rng, &s, true, false);
      run_down(&rng, &s, true, 1, false);
      run_router(&rng, format, n_in[i], 12, 3, 2, true);
    }
}
