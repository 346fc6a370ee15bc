/* test_families_hostile_all.c: test_families_hostile.c with every value of every key of every family, and more of the
 * random changes. */
#define EVERY_CASE
#define CASES 20000
#include "test_families_hostile.c"
