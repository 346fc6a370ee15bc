/* test_experts_all.c: test_experts.c with every weight format at many more shapes: the experts' kernels and gemm. */
#define TEST_ALL_SHAPES
#include "test_experts.c"
