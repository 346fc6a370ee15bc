/* test_gemv_all.c: test_gemv.c with every weight format at many more shapes: gemv, embed and norm. */
#define TEST_ALL_SHAPES
#include "test_gemv.c"
