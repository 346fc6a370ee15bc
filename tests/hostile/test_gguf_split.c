/* test_gguf_split.c: models in several files: whole ones from any part, and each way in which the parts can fail to be
 * one model, with its message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <sodium.h>

#include "gguf_maker.h"
#include "moec_inspect.h"
#include "src_gguf.h"

enum { N_PART = 3 };

/* What a part of the model is made of; a test changes a field. */
struct part {
  uint32_t number, count; /* in the name, from 1 */
  uint32_t no, split_count, n_tensor;
  const char *tensor[2]; /* each 8 floats; NULL: none */
  const char *architecture;
  uint32_t alignment;
  size_t cut; /* bytes that the end lacks */
  bool absent, whole, big_endian;
};

static char folder[] = "/tmp/moec-split-XXXXXX";

static const char *part_path(uint32_t number, uint32_t count) {
  static char path[128];
  snprintf(path, sizeof path, "%s/m-%05u-of-%05u.gguf", folder, number, count);
  return path;
}

static void write_part(const struct part *p) {
  struct maker m;
  maker_init(&m, 3);
  if (p->architecture != NULL) maker_key_text(&m, "general.architecture", p->architecture);
  if (p->alignment != 0) maker_key_u32(&m, "general.alignment", p->alignment);
  if (!p->whole) {
    maker_key(&m, "split.no", GGUF_U16), maker_raw(&m, &p->no, 2);
    maker_key(&m, "split.tensors.count", GGUF_I32), maker_u32(&m, p->n_tensor);
    maker_key(&m, "split.count", GGUF_U16), maker_raw(&m, &p->split_count, 2);
  }
  uint32_t alignment = p->alignment == 0 ? 32 : p->alignment, n = 0;
  for (; n < 2 && p->tensor[n] != NULL; n++)
    maker_tensor(&m, p->tensor[n], 1, (const uint64_t[]){8}, FORMAT_F32, (uint64_t)n * alignment);
  if (n != 0) maker_data(&m, alignment, (n - 1) * alignment + 32);
  if (n != 0) m.bytes[m.used - 32] = (uint8_t)p->number; /* the last tensor's first byte */
  maker_path(&m);                                        /* sets the counts */
  if (p->big_endian) memcpy(m.bytes + 4, "\0\0\0\3", 4);
  FILE *file = fopen(part_path(p->number, p->count), "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(m.bytes, 1, m.used - p->cut, file), m.used - p->cut);
  assert_int_equal(fclose(file), 0);
  maker_deinit(&m);
}

/* The parts of a model that is in order: part 1 has the keys, part 2 another alignment, as the splitter of llama.cpp
 * leaves them. */
static void good_parts(struct part part[N_PART]) {
  static const char *const tensor[N_PART][2] = {{"a", "b"}, {"c", NULL}, {"d", "e"}};
  for (uint32_t i = 0; i < N_PART; i++)
    part[i] = (struct part){.number = i + 1,
                            .count = N_PART,
                            .no = i,
                            .split_count = N_PART,
                            .n_tensor = 5,
                            .tensor = {tensor[i][0], tensor[i][1]}};
  part[0].architecture = "qwen3";
  part[0].alignment = 64;
}

static void write_parts(const struct part part[N_PART]) {
  for (uint32_t i = 0; i < N_PART; i++) {
    unlink(part_path(i + 1, N_PART));
    if (!part[i].absent) write_part(&part[i]);
  }
}

/* The model as any part gives it. */
static void check_model(struct gguf *g) {
  static const char *const name[] = {"a", "b", "c", "d", "e"};
  static const uint32_t file[] = {0, 0, 1, 2, 2};
  static const uint8_t first[] = {0, 1, 2, 0, 3};
  struct gguf_string s;
  uint64_t bytes = 0;
  assert_int_equal(gguf_n_part(g), N_PART);
  assert_int_equal(gguf_n_tensor(g), 5);
  assert_string_equal(gguf_path(g), part_path(1, N_PART));
  for (uint64_t i = 0; i < 5; i++) {
    const struct gguf_tensor *t = gguf_tensor(g, i);
    assert_string_equal(t->name, name[i]);
    assert_ptr_equal(gguf_find_tensor(g, name[i]), t);
    assert_int_equal(t->part, file[i]);
    assert_int_equal(t->data[0], first[i]);
    gguf_release(g, t);
    assert_int_equal(t->data[0], first[i]); /* still there */
  }
  assert_int_equal(gguf_get_string(g, "general.architecture", &s, NULL), MOE_OK);
  for (uint32_t i = 0; i < N_PART; i++) {
    struct stat st;
    assert_string_equal(gguf_part_path(g, i), part_path(i + 1, N_PART));
    assert_int_equal(stat(gguf_part_path(g, i), &st), 0);
    assert_int_equal(gguf_part_bytes(g, i), st.st_size);
    bytes += gguf_part_bytes(g, i);
  }
  assert_int_equal(gguf_file_bytes(g), bytes);
}

static bool count_progress(void *context, uint64_t done, uint64_t total) {
  uint64_t *last = context;
  assert_true(done > *last && done <= total);
  *last = done;
  return true;
}

/* The hash is that of the parts one after another. */
static void check_hash(const struct gguf *g) {
  uint8_t hash[GGUF_HASH_BYTES], expected[GGUF_HASH_BYTES], data[4096];
  uint64_t last = 0;
  crypto_generichash_state state;
  crypto_generichash_init(&state, NULL, 0, sizeof expected);
  for (uint32_t i = 1; i <= N_PART; i++) {
    FILE *file = fopen(part_path(i, N_PART), "rb");
    assert_non_null(file);
    crypto_generichash_update(&state, data, fread(data, 1, sizeof data, file));
    fclose(file);
  }
  crypto_generichash_final(&state, expected, sizeof expected);
  assert_int_equal(gguf_hash(g, hash, count_progress, &last, NULL), MOE_OK);
  assert_int_equal(last, gguf_file_bytes(g));
  assert_memory_equal(hash, expected, sizeof hash);
}

static void test_any_part_opens_all(void **state) {
  (void)state;
  struct part part[N_PART];
  good_parts(part);
  write_parts(part);
  for (uint32_t i = 1; i <= N_PART; i++) {
    struct gguf *g = NULL;
    struct moe_error err = {0};
    if (gguf_open(part_path(i, N_PART), &g, &err) != MOE_OK) fail_msg("%s", err.message);
    check_model(g);
    check_hash(g);
    gguf_close(g);
  }
}

static void test_first_part_without_tensors(void **state) {
  (void)state;
  struct part part[N_PART];
  good_parts(part);
  part[0].tensor[0] = NULL;
  for (uint32_t i = 0; i < N_PART; i++) part[i].n_tensor = 3;
  write_parts(part);
  struct gguf *g = NULL;
  assert_int_equal(gguf_open(part_path(1, N_PART), &g, NULL), MOE_OK);
  assert_int_equal(gguf_n_tensor(g), 3);
  assert_int_equal(gguf_find_tensor(g, "c")->data[0], 2);
  gguf_close(g);
}

/* Opening part `given` fails with these words, and the message names the file at fault. */
static void refuse_from(uint32_t given, enum moe_code code, const char *file, const char *words) {
  struct gguf *g = NULL;
  struct moe_error err = {0};
  enum moe_code found = gguf_open(part_path(given, N_PART), &g, &err);
  if (found == MOE_OK) gguf_close(g);
  if (found != code) fail_msg("expected code %d and '%s', found %d: %s", code, words, found, err.message);
  assert_null(g);
  if (strstr(err.message, words) == NULL || strstr(err.message, file) == NULL)
    fail_msg("expected '%s' and '%s', found: %s", file, words, err.message);
  assert_null(strchr(err.message, '\n'));
}

static void refuse(const struct part part[N_PART], const char *file, const char *words) {
  write_parts(part);
  for (uint32_t i = 1; i <= N_PART; i++) refuse_from(i, MOE_FAILED, file, words);
}

static void refuse_from_first(const struct part part[N_PART], const char *file, const char *words) {
  write_parts(part);
  refuse_from(1, MOE_FAILED, file, words);
}

static void test_missing_parts(void **state) {
  (void)state;
  struct part part[N_PART];
  good_parts(part), part[2].absent = true;
  refuse_from_first(
      part, "/m-00003-of-00003.gguf: ", "part 3 of 3 of the model is missing; all parts belong into one folder");
  good_parts(part), part[1].absent = true;
  refuse_from_first(part, "/m-00002-of-00003.gguf: ", "part 2 of 3 of the model is missing");
  good_parts(part), part[0].absent = true;
  write_parts(part);
  refuse_from(3, MOE_FAILED, "/m-00001-of-00003.gguf: ", "part 1 of 3 of the model is missing");
}

static void test_wrong_numbers(void **state) {
  (void)state;
  struct part part[N_PART];
  good_parts(part), part[2].no = 1; /* part 2 twice */
  refuse_from_first(
      part, "/m-00003-of-00003.gguf: ", "its name says part 3 of 3, its keys (split.no, split.count) say part 2 of 3");
  good_parts(part), part[1].split_count = 4;
  refuse_from_first(part, "/m-00002-of-00003.gguf: ", "say part 2 of 4");
  good_parts(part), part[0].no = 2;
  refuse(part,
         "/m-00001-of-00003.gguf: ", "its name says part 1 of 3, its keys (split.no, split.count) say part 3 of 3");
  good_parts(part), part[0].split_count = 65535;
  refuse_from_first(part, "/m-00001-of-00003.gguf: ", "say part 1 of 65535");
  good_parts(part), part[1].no = 3;
  refuse_from_first(part, "/m-00002-of-00003.gguf: ", "split.no is 3, allowed 0 to split.count - 1, which is 2");
  good_parts(part), part[1].whole = true;
  refuse_from_first(part, "/m-00002-of-00003.gguf: ", "named as part 2 of 3 of a model, but it has no split.count");
}

static void test_foreign_parts(void **state) {
  (void)state;
  struct part part[N_PART];
  good_parts(part), part[1].n_tensor = 6;
  refuse_from_first(part,
                    "/m-00002-of-00003.gguf: ", "part of another model: its split.tensors.count is 6, that of /tmp/");
  good_parts(part), part[2].architecture = "llama";
  refuse_from_first(part, "/m-00003-of-00003.gguf: ", "part of another model: its general.architecture is not that of");
  good_parts(part), part[2].architecture = "qwen3"; /* not usual, and right */
  write_parts(part);
  struct gguf *g = NULL;
  assert_int_equal(gguf_open(part_path(2, N_PART), &g, NULL), MOE_OK);
  gguf_close(g);
  good_parts(part), part[2].tensor[1] = "b";
  refuse(part, "/m-00003-of-00003.gguf: ", "tensor[1] b: duplicate tensor name, already in part 1");
  good_parts(part), part[1].tensor[0] = NULL;
  refuse(part, "/m-00001-of-00003.gguf: ", "its 3 parts have 4 tensors together, its split.tensors.count is 5");
  good_parts(part), part[1].tensor[1] = "f";
  refuse(part, "/m-00003-of-00003.gguf: ",
         "with its 2 tensors the parts up to 3 have 6, more than the 5 of split.tensors.count");
  good_parts(part);
  for (uint32_t i = 0; i < N_PART; i++) part[i].n_tensor = 1;
  refuse(part, "/m-00001-of-00003.gguf: ", "has 2 tensors, more than the 1 of split.tensors.count");
  good_parts(part);
  for (uint32_t i = 0; i < N_PART; i++) part[i].n_tensor = UINT32_MAX; /* -1 as an i32 */
  refuse(part, ".gguf: ", "the key split.tensors.count is -1, allowed 0 to 4294967295");
  good_parts(part);
  for (uint32_t i = 0; i < N_PART; i++) part[i].n_tensor = INT32_MAX;
  refuse(part, ".gguf: ", "split.tensors.count is 2147483647, allowed 0 to 1048576");
}

static void test_broken_parts(void **state) {
  (void)state;
  struct part part[N_PART];
  good_parts(part), part[2].cut = 8;
  refuse(part, "/m-00003-of-00003.gguf: ", "tensor[1] e: truncated file: its data need 32 bytes");
  good_parts(part), part[1].cut = 100;
  refuse(part, "/m-00002-of-00003.gguf: ", "truncated file");
  good_parts(part), part[1].big_endian = true;
  write_parts(part);
  refuse_from(1, MOE_DECLINED, "/m-00002-of-00003.gguf: ", "a big-endian GGUF (version 3)");
  good_parts(part), part[1].absent = true;
  write_parts(part);
  assert_int_equal(mkdir(part_path(2, N_PART), 0700), 0);
  refuse_from(1, MOE_FAILED, "/m-00002-of-00003.gguf: ", "is a directory");
  rmdir(part_path(2, N_PART));
}

/* A part whose name says nothing of the others. */
static void test_renamed_part(void **state) {
  (void)state;
  static const char *const name[] = {"model.gguf", "-00001-of-00003.gguf", "m-0001-of-00003.gguf",
                                     "m-00001-of-0000x.gguf"};
  struct part part[N_PART];
  good_parts(part);
  for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
    char path[128];
    struct gguf *g = NULL;
    struct moe_error err = {0};
    write_parts(part);
    snprintf(path, sizeof path, "%s/%s", folder, name[i]);
    assert_int_equal(rename(part_path(1, N_PART), path), 0);
    assert_int_equal(gguf_open(path, &g, &err), MOE_FAILED);
    assert_null(g);
    if (strstr(err.message, "part 1 of 3 of a model; its name must then end in -00001-of-00003.gguf") == NULL)
      fail_msg("%s", err.message);
    unlink(path);
  }
}

static void test_stems(void **state) {
  (void)state;
  static const struct {
    const char *path;
    size_t stem;
  } cases[] = {{"m-00001-of-00003.gguf", 1},
               {"d/model.gguf", 7},
               {"x", 1},
               {"", 0},
               {".gguf", 5},
               {"-00001-of-00003.gguf", 15},
               {"m-00001-of-00003.gguf.part", 26},
               {"m-1-of-3.gguf", 8}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(gguf_stem_bytes(cases[i].path), cases[i].stem);
}

static void test_inspect_lists_the_parts(void **state) {
  (void)state;
  struct part part[N_PART];
  good_parts(part);
  write_parts(part);
  char *text = NULL;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  assert_int_equal(inspect_run(part_path(2, N_PART), &(struct inspect_options){0}, out, NULL), MOE_OK);
  fclose(out);
  if (strstr(text, "3 parts") == NULL || strstr(text, "m-00003-of-00003.gguf") == NULL) fail_msg("%s", text);
  free(text);
}

static int make_folder(void **state) {
  (void)state;
  return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
  (void)state;
  for (uint32_t i = 1; i <= N_PART; i++) unlink(part_path(i, N_PART));
  return rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_any_part_opens_all),
      cmocka_unit_test(test_first_part_without_tensors),
      cmocka_unit_test(test_missing_parts),
      cmocka_unit_test(test_wrong_numbers),
      cmocka_unit_test(test_foreign_parts),
      cmocka_unit_test(test_broken_parts),
      cmocka_unit_test(test_renamed_part),
      cmocka_unit_test(test_stems),
      cmocka_unit_test(test_inspect_lists_the_parts),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
