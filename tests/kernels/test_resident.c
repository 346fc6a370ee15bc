/* A resident dispatch from the image to the token: its table holds addresses and numbers, it has as many workgroups as
 * specialization constant 3 says, and a wait that runs out in it ends the engine with a message. The kernel is this
 * file's. Skipped (77) where no number of workgroups is known to run at once. */
#include "engine_parts.h"
#include "img_enums.h"
#include "run_jobs.h"
#include "scheduler_make.h"
#include "small_image.h"
#include "vk_memory.h"

#include <glslang/Include/glslang_c_interface.h>
#include <glslang/Public/resource_limits_c.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include <cmocka.h>

/* Token ids, below small_image's vocabulary: a prompt, and two answers. */
#define LOSES 5
#define RIGHT 40
#define WRONG 41
#define TEXT(X) #X
#define DIGITS(X) TEXT(X)

/* The last of EXTRA workgroups that come answers RIGHT when the table's cells are what init_image made them, when it
 * was dispatched over EXTRA workgroups, and when nobody had lost a wait; told LOSES, it says that it did. */
static const char source[] =
    "#version 460\n"
    "#extension GL_EXT_buffer_reference : require\n"
    "#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require\n"
#define IMG_STEP(NAME, VALUE, WHAT) "const int IMG_" #NAME " = " #VALUE ";\n"
#include "img_step.def"
#undef IMG_STEP
    "const uint LOSES = " DIGITS(LOSES) ", RIGHT = " DIGITS(RIGHT) ", WRONG = " DIGITS(
        WRONG) ";\n"
               "layout(local_size_x_id = 0) in;\n"
               "layout(constant_id = 3) const uint EXTRA = 0;\n"
               "layout(buffer_reference, std430, buffer_reference_align = 4) buffer words { uint v[]; };\n"
               "layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer cells { uint64_t v[4]; "
               "};\n"
               "layout(push_constant, std430) uniform block { cells table; words step; words result; uint seven, "
               "eight; } pc;\n"
               "void main() {\n"
               "  if (gl_LocalInvocationIndex != 0) return;\n"
               "  words counter = words(pc.table.v[2]);\n"
               "  if (atomicAdd(counter.v[0], 1) != EXTRA - 1) return;\n"
               "  counter.v[0] = 0;\n"
               "  bool right = gl_NumWorkGroups == uvec3(EXTRA, 1, 1) && pc.result.v[IMG_RESULT_LOST] == 0 &&\n"
               "               words(pc.table.v[0]).v[0] == 0x030201 && pc.table.v[1] == 7 && pc.seven == 7 && "
               "pc.eight == 8 &&\n"
               "               pc.table.v[3] == uint64_t(1) << 40;\n"
               "  pc.result.v[IMG_RESULT_NUMBER] = pc.step.v[IMG_STEP_NUMBER];\n"
               "  if (pc.step.v[IMG_STEP_HEAD_WORDS] == LOSES) pc.result.v[IMG_RESULT_LOST] = 9;\n"
               "  pc.result.v[IMG_RESULT_HEAD_WORDS + IMG_RESULT_TOKEN] = right ? RIGHT : WRONG;\n"
               "  pc.result.v[IMG_RESULT_HEAD_WORDS + IMG_RESULT_DONE] = 0;\n"
               "}\n";

static char path[64];

/* The kernel as a zstd frame; *bytes: of the SPIR-V, *zbytes: of the frame. */
static void *compile(uint32_t *bytes, size_t *zbytes) {
  const glslang_input_t input = {.language = GLSLANG_SOURCE_GLSL,
                                 .stage = GLSLANG_STAGE_COMPUTE,
                                 .client = GLSLANG_CLIENT_VULKAN,
                                 .client_version = GLSLANG_TARGET_VULKAN_1_2,
                                 .target_language = GLSLANG_TARGET_SPV,
                                 .target_language_version = GLSLANG_TARGET_SPV_1_5,
                                 .code = source,
                                 .default_version = 460,
                                 .default_profile = GLSLANG_CORE_PROFILE,
                                 .messages = GLSLANG_MSG_SPV_RULES_BIT | GLSLANG_MSG_VULKAN_RULES_BIT,
                                 .resource = glslang_default_resource()};
  glslang_initialize_process();
  glslang_shader_t *shader = glslang_shader_create(&input);
  if (!glslang_shader_preprocess(shader, &input) || !glslang_shader_parse(shader, &input))
    fail_msg("%s", glslang_shader_get_info_log(shader));
  glslang_program_t *program = glslang_program_create();
  glslang_program_add_shader(program, shader);
  assert_true(glslang_program_link(program, GLSLANG_MSG_SPV_RULES_BIT | GLSLANG_MSG_VULKAN_RULES_BIT));
  glslang_program_SPIRV_generate(program, GLSLANG_STAGE_COMPUTE);
  *bytes = (uint32_t)(4 * glslang_program_SPIRV_get_size(program));
  size_t bound = ZSTD_compressBound(*bytes);
  void *frame = malloc(bound);
  assert_non_null(frame);
  *zbytes = ZSTD_compress(frame, bound, glslang_program_SPIRV_get_ptr(program), *bytes, 1);
  assert_false(ZSTD_isError(*zbytes));
  glslang_program_delete(program);
  glslang_shader_delete(shader);
  return frame;
}

/* small_image_resident with the kernel, the step block and the result block. WEIGHTS begin with the bytes 1, 2, 3, 0.
 */
static void init_image(struct small_image *s, void *frame, uint32_t bytes, size_t zbytes) {
  small_image_init(s);
  small_image_resident(s);
  s->code = frame;
  s->code_zbytes = zbytes;
  for (int i = 0; i < 2; i++) s->module[i].code_bytes = bytes, s->module[i].code_zbytes = (uint32_t)zbytes;
  s->module[1].push_bytes = 32;
  s->module[1].features |= IMG_FEATURE_BDA | IMG_FEATURE_INT64;
  s->value[2] = (uint64_t)IMG_ARENA_WEIGHTS << IMG_CELL_SHIFT;
  s->word[11] = s->word[9];
  s->word[10] = s->word[8];
  s->word[8] = (struct img_word){.kind = IMG_WORD_ADDRESS, .arena = IMG_ARENA_STEP};
  s->word[9] = (struct img_word){.kind = IMG_WORD_ADDRESS, .arena = IMG_ARENA_RESULT};
  s->region[7] = (struct img_region){
      .access = IMG_ACCESS_READ, .arena = IMG_ARENA_STEP, .column = IMG_NO_COLUMN, .bytes = IMG_WHOLE_ARENA};
  s->region[8] = (struct img_region){.access = IMG_ACCESS_READ | IMG_ACCESS_WRITE,
                                     .arena = IMG_ARENA_RESULT,
                                     .column = IMG_NO_COLUMN,
                                     .bytes = IMG_WHOLE_ARENA};
  s->inst[6].grid[0] = 7777; /* not what the number of workgroups comes from */
  s->inst[6].n_word = 5;
  s->inst[6].n_region = 4;
  s->templates.n_word = 12;
  s->templates.n_region = 9;
}

/* Opens the image; what `prompt` is answered with, or the error. stale: of an earlier step in the result blocks. */
static enum moe_code answer(int32_t prompt, uint32_t stale, int32_t *token, struct moe_error *err) {
  const struct engine_options o = {.image_path = path, .tier = "resident", .n_slot = 1};
  struct scheduler *s;
  if (engine_open(&o, NULL, NULL, &s, err)) fail_msg("%s", err->message);
  const struct engine *e = scheduler_owner(s);
  for (int copy = 0; copy < 2; copy++)
    ((uint32_t *)vk_buffer_map(e->arenas.buffer[IMG_ARENA_RESULT][copy]))[IMG_RESULT_LOST] = stale;
  struct engine_description description;
  engine_describe(s, &description);
  assert_string_equal(description.tier, "resident");
  struct run_job job = {.request = {.prompt = &prompt, .n_prompt = 1, .n_predict = 3}};
  enum moe_code code = run_jobs(s, &job, 1, NULL, NULL, NULL, err);
  if (!code) {
    assert_int_equal(job.n_id, 3);
    *token = job.ids[0] == job.ids[1] && job.ids[1] == job.ids[2] ? job.ids[0] : -1;
  }
  run_job_deinit(&job);
  engine_close(s);
  return code;
}

static void test_resident_dispatch(void **state) {
  (void)state;
  struct small_image image;
  struct moe_error err = {0};
  uint32_t bytes;
  size_t zbytes;
  void *frame = compile(&bytes, &zbytes);
  init_image(&image, frame, bytes, zbytes);
  assert_int_equal(small_image_write(&image, path, &err), MOE_OK);
  int32_t token = 0;
  if (answer(3, 0, &token, &err)) fail_msg("%s", err.message);
  assert_int_equal(token, RIGHT);
  if (answer(3, 77, &token, &err)) fail_msg("%s", err.message); /* the word is cleared before every step */
  assert_int_equal(token, RIGHT);
  assert_int_equal(answer(LOSES, 0, &token, &err), MOE_FAILED);
  static const char *const parts[] = {"device ", "workgroups of the resident kernel did not all run at once",
                                      "result block is 9", "start with --tier base"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (!strstr(err.message, parts[i])) fail_msg("'%s' lacks '%s'", err.message, parts[i]);
  image.value[3]++; /* and the table is what the kernel reads */
  assert_int_equal(small_image_write(&image, path, &err), MOE_OK);
  err = (struct moe_error){0};
  if (answer(3, 0, &token, &err)) fail_msg("%s", err.message);
  assert_int_equal(token, WRONG);
  free(frame);
}

/* Whether the first device is one that the test can run on. */
static bool has_resident(void) {
  struct vk_instance *instance = NULL;
  struct moe_error err = {0};
  bool has = false;
  if (!vk_instance_create(&instance, &err)) {
    uint32_t n;
    const struct vk_gpu *gpus = vk_instance_gpus(instance, &n);
    for (uint32_t i = 0; i < n; i++) has |= gpus[i].resident != 0;
  }
  vk_instance_destroy(instance);
  return has;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_resident_dispatch)};
  if (!has_resident()) {
    fprintf(stderr, "skipped: no device says how many workgroups it runs at once\n");
    return 77;
  }
  snprintf(path, sizeof path, "/tmp/test_resident.%ld.img", (long)getpid());
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  unlink(path);
  return failed;
}
