/* test_families_hostile_all.c: test_families_hostile.c with many more of the random changes. */
#define CASES 20000
#include "test_families_hostile.c"
