/* Tables in device memory: random damage to them and to their dispatches is refused, or leaves what is safe to follow.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "small_image.h"

/* What a loader does with a section that passed: follows the tables of its dispatches. */
static void follow(const struct img_templates_view *v, const uint64_t limits[IMG_N_ARENA]) {
  for (uint32_t i = 0; i < v->n_template; i++)
    for (uint32_t at = v->template[i].first_inst; at < v->template[i].first_inst + v->template[i].n_inst; at++) {
      uint32_t table = v->inst[at].op == IMG_OP_DISPATCH ? img_resident_table(v, &v->inst[at]) : UINT32_MAX;
      if (table == UINT32_MAX) continue;
      assert_true(table < v->n_table);
      uint64_t n = (uint64_t)v->table[table].n_row * v->table[table].n_column;
      assert_true(n > 0 && v->table[table].first_value + n <= v->n_value);
      for (uint64_t k = 0; k < n; k++) {
        uint64_t cell = v->value[v->table[table].first_value + k], arena = cell >> IMG_CELL_SHIFT;
        assert_true(arena == IMG_CELL_IMM || (arena < IMG_N_ARENA && IMG_CELL_VALUE(cell) < limits[arena]));
        assert_true(arena != IMG_ARENA_WEIGHTS || IMG_CELL_VALUE(cell) == 0 || IMG_CELL_VALUE(cell) == 512);
      }
    }
}

/* A field of the resident dispatch or its table becomes something else: refused, or safe to follow. */
static void test_resident_random(void **state) {
  (void)state;
  static const uint64_t odd[] = {0,
                                 1,
                                 2,
                                 3,
                                 5,
                                 8,
                                 255,
                                 256,
                                 512,
                                 4095,
                                 0x80000000u,
                                 UINT32_MAX,
                                 1 << 24,
                                 UINT64_MAX,
                                 1ull << 56,
                                 3ull << 56,
                                 0xffull << 56,
                                 0x0300000000000100,
                                 7ull << 56,
                                 6ull << 56};
  const uint64_t limits[IMG_N_ARENA] = {1024, 64, 8192, 4096, UINT64_MAX, 4096, UINT64_MAX, 256};
  uint32_t seed = 7, n_passed = 0;
#define RANDOM(N) ((seed = seed * 1664525u + 1013904223u) >> 8) % (N)
  struct small_image s;
  for (int round = 0; round < 50000; round++) {
    small_image_init(&s);
    small_image_resident(&s);
    struct {
      void *at;
      size_t bytes;
    } const parts[] = {{&s.word[7], 3 * sizeof *s.word}, {&s.region[5], 2 * sizeof *s.region},
                       {&s.table[1], sizeof *s.table},   {&s.value[2], 4 * sizeof *s.value},
                       {&s.inst[6], sizeof *s.inst},     {&s.template[1], sizeof *s.template},
                       {&s.body[0], sizeof *s.body},     {&s.inst[2], sizeof *s.inst}};
    for (uint32_t n = 1 + RANDOM(2); n; n--) {
      uint32_t part = RANDOM(sizeof parts / sizeof *parts);
      size_t bytes = (size_t)1 << RANDOM(4), at = RANDOM(parts[part].bytes / bytes) * bytes;
      uint64_t value = odd[RANDOM(sizeof odd / sizeof *odd)];
      memcpy((uint8_t *)parts[part].at + at, &value, bytes);
    }
    static struct {
      struct img_templates head;
      struct img_template template[257];
      struct img_inst inst[8];
      struct img_body body[1];
      struct img_word word[12];
      struct img_region region[12];
      struct img_table table[2];
      uint64_t value[8];
      char name[13];
    } section;
    section.head = s.templates;
    memcpy(section.template, s.template, sizeof s.template);
    memcpy(section.inst, s.inst, sizeof s.inst);
    memcpy(section.body, s.body, sizeof s.body);
    memcpy(section.word, s.word, sizeof s.word);
    memcpy(section.region, s.region, sizeof s.region);
    memcpy(section.table, s.table, sizeof s.table);
    memcpy(section.value, s.value, sizeof s.value);
    const struct img_modules_view modules = {.module = s.module, .name = "first\0second", .n_module = 2};
    const struct img_planes_view planes = {.plane = s.plane, .name = "first\0second", .n_plane = 2};
    struct img_templates_view view;
    struct moe_error err = {0};
    if (img_check_templates(&section, sizeof section, &modules, limits, &planes, &view, &err)) continue;
    follow(&view, limits);
    n_passed++;
  }
  assert_in_range(n_passed, 2000, 40000); /* both happen */
#undef RANDOM
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_resident_random)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
