/* shadergen.c: one request to one module: parameters to definitions, glslang to SPIR-V, spirv-opt, spirv-val.
 *
 * Owns: target versions, compiler options, the module's name and hash. Does not own: the rules of requests
 * (shadergen_params.c), sources (shadergen_sources.c).
 * Invariants: no global state but glslang's, which is initialized once and never torn down; a failed compilation leaves
 * nothing allocated. */
#include "shadergen.h"

#include "img_hash.h"
#include "shadergen_params.h"
#include "shadergen_sources.h"

#include <glslang/Include/glslang_c_interface.h>
#include <glslang/Public/resource_limits_c.h>
#include <pthread.h>
#include <spirv-tools/libspirv.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHADERGEN_SPV_ENV SPV_ENV_VULKAN_1_2

/* ---- text that grows in a fixed buffer; the parameters of any kernel fit many times over ---- */

struct text {
  char data[4096];
  size_t length;
};

static void __attribute__((format(printf, 2, 3))) text_add(struct text *t, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(t->data + t->length, sizeof t->data - t->length, format, args);
  va_end(args);
  if (n > 0) t->length += (size_t)n;
  if (t->length > sizeof t->data - 1) t->length = sizeof t->data - 1;
}

/* #define lines for every parameter. */
static void definitions(const struct shadergen_values *v, bool instrument, struct text *t) {
  text_add(t, "#define SHADERGEN_PARAMS\n");
  if (instrument) text_add(t, "#define INSTRUMENT\n");
  for (uint32_t i = 0; i < v->info->n_param; i++) {
    const struct kernel_param_info *p = &v->info->param[i];
    if (p->kind == KERNEL_PARAM_FLOAT)
      text_add(t, "#define %s float(%.9g)\n", p->name, (double)(float)v->value[i]);
    else
      text_add(t, "#define %s %.0f\n", p->name, v->value[i]);
  }
}

/* "gemv FMT=q4_k N_IN=256 ...": the parameters that differ from their optional default. */
static void module_name(const struct shadergen_values *v, char *name, size_t bytes) {
  struct text t = {.length = 0};
  text_add(&t, "%s", v->info->name);
  for (uint32_t i = 0; i < v->info->n_param; i++) {
    const struct kernel_param_info *p = &v->info->param[i];
    if (!p->required && v->value[i] == p->value) continue;
    if (p->kind == KERNEL_PARAM_FORMAT)
      text_add(&t, " %s=%s", p->name, shadergen_format_name((uint32_t)v->value[i]));
    else
      text_add(&t, " %s=%.9g", p->name, v->value[i]);
  }
  snprintf(name, bytes, "%.*s", (int)bytes - 1, t.data);
}

/* ---- glslang ---- */

static void initialize_glslang(void) {
  glslang_initialize_process();
}

static glsl_include_result_t *include_source(void *context, const char *header, const char *includer, size_t depth) {
  (void)context, (void)includer, (void)depth;
  size_t bytes;
  const char *source = shadergen_source(header, &bytes);
  glsl_include_result_t *result = source ? malloc(sizeof *result) : NULL;
  if (result) *result = (glsl_include_result_t){header, source, bytes};
  return result;
}
static int include_done(void *context, glsl_include_result_t *result) {
  (void)context;
  free(result);
  return 0;
}

/* The first line of a compiler's log that says what is wrong, without its end of line. */
static void first_error(const char *log, char *line, size_t bytes) {
  const char *at = log ? strstr(log, "ERROR") : NULL;
  if (!at) at = log ? log : "";
  size_t n = strcspn(at, "\n");
  snprintf(line, bytes, "%.*s", (int)(n < bytes ? n : bytes - 1), at);
}

static enum moe_code parse_and_link(glslang_shader_t *shader, glslang_program_t *program, const glslang_input_t *input,
                                    const char *name, struct moe_error *err) {
  char line[512];
  if (!glslang_shader_preprocess(shader, input) || !glslang_shader_parse(shader, input)) {
    first_error(glslang_shader_get_info_log(shader), line, sizeof line);
    return moe_fail(err, MOE_FAILED, "%s does not compile: %s", name, line);
  }
  glslang_program_add_shader(program, shader);
  if (!glslang_program_link(program, GLSLANG_MSG_SPV_RULES_BIT | GLSLANG_MSG_VULKAN_RULES_BIT)) {
    first_error(glslang_program_get_info_log(program), line, sizeof line);
    return moe_fail(err, MOE_FAILED, "%s does not link: %s", name, line);
  }
  glslang_program_SPIRV_generate(program, GLSLANG_STAGE_COMPUTE);
  return MOE_OK;
}

/* ---- SPIRV-Tools ---- */

static void keep_message(spv_message_level_t level, const char *source, const spv_position_t *position,
                         const char *message) {
  (void)level, (void)source, (void)position, (void)message;
}

static enum moe_code validate(const uint32_t *words, size_t n_word, const char *name, struct moe_error *err) {
  spv_context context = spvContextCreate(SHADERGEN_SPV_ENV);
  spv_diagnostic diagnostic = NULL;
  struct spv_const_binary_t binary = {words, n_word};
  enum moe_code code = MOE_OK;
  if (spvValidate(context, &binary, &diagnostic) != SPV_SUCCESS)
    code = moe_fail(err, MOE_FAILED, "%s: spirv-val: %.400s", name, diagnostic ? diagnostic->error : "rejected");
  spvDiagnosticDestroy(diagnostic);
  spvContextDestroy(context);
  return code;
}

/* spirv-opt's performance recipe without its repetitions and its loop unrolling: drivers unroll what is marked anyway.
 * Measured on a CPU driver: the same speed, modules a quarter as large, four times faster to make and faster to load.
 */
static const char *const passes[] = {"--wrap-opkill",
                                     "--eliminate-dead-branches",
                                     "--merge-return",
                                     "--inline-entry-points-exhaustive",
                                     "--eliminate-dead-functions",
                                     "--eliminate-dead-code-aggressive",
                                     "--private-to-local",
                                     "--eliminate-local-single-block",
                                     "--eliminate-local-single-store",
                                     "--eliminate-dead-code-aggressive",
                                     "--scalar-replacement=100",
                                     "--convert-local-access-chains",
                                     "--eliminate-local-single-block",
                                     "--eliminate-local-single-store",
                                     "--eliminate-dead-code-aggressive",
                                     "--ssa-rewrite",
                                     "--eliminate-dead-code-aggressive",
                                     "--ccp",
                                     "--eliminate-dead-code-aggressive",
                                     "--simplify-instructions",
                                     "--redundancy-elimination",
                                     "--eliminate-dead-branches",
                                     "--merge-blocks",
                                     "--eliminate-dead-code-aggressive"};

/* out->words = the optimized module, in memory of its own. */
static enum moe_code optimize(const uint32_t *words, size_t n_word, struct shadergen_module *out,
                              struct moe_error *err) {
  spv_optimizer_t *optimizer = spvOptimizerCreate(SHADERGEN_SPV_ENV);
  spv_optimizer_options options = spvOptimizerOptionsCreate();
  spv_binary optimized = NULL;
  spvOptimizerSetMessageConsumer(optimizer, keep_message);
  for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) spvOptimizerRegisterPassFromFlag(optimizer, passes[i]);
  spvOptimizerOptionsSetRunValidator(options, false);
  enum moe_code code = MOE_OK;
  if (spvOptimizerRun(optimizer, words, n_word, &optimized, options) != SPV_SUCCESS || !optimized) {
    code = moe_fail(err, MOE_FAILED, "%s: spirv-opt fails", out->name);
  } else {
    size_t bytes = optimized->wordCount * sizeof(uint32_t);
    out->words = malloc(bytes);
    if (!out->words) {
      code = moe_fail(err, MOE_FAILED, "%s: no memory for %zu bytes of SPIR-V", out->name, bytes);
    } else {
      memcpy(out->words, optimized->code, bytes);
      out->bytes = (uint32_t)bytes;
    }
  }
  spvBinaryDestroy(optimized);
  spvOptimizerOptionsDestroy(options);
  spvOptimizerDestroy(optimizer);
  return code;
}

static enum moe_code compile_source(const struct shadergen_values *v, bool instrument, struct shadergen_module *out,
                                    struct moe_error *err) {
  char file[64];
  snprintf(file, sizeof file, "%s.comp", v->info->name);
  const char *source = shadergen_source(file, NULL);
  if (!source) return moe_fail(err, MOE_FAILED, "kernel %s: source %s is not in the library", v->info->name, file);
  struct text defines = {.length = 0};
  definitions(v, instrument, &defines);
  const glslang_input_t input = {
      .language = GLSLANG_SOURCE_GLSL,
      .stage = GLSLANG_STAGE_COMPUTE,
      .client = GLSLANG_CLIENT_VULKAN,
      .client_version = GLSLANG_TARGET_VULKAN_1_2,
      .target_language = GLSLANG_TARGET_SPV,
      .target_language_version = GLSLANG_TARGET_SPV_1_5,
      .code = source,
      .default_version = 460,
      .default_profile = GLSLANG_CORE_PROFILE,
      .messages = GLSLANG_MSG_SPV_RULES_BIT | GLSLANG_MSG_VULKAN_RULES_BIT,
      .resource = glslang_default_resource(),
      .callbacks = {.include_local = include_source,
                    .include_system = include_source,
                    .free_include_result = include_done},
  };
  glslang_shader_t *shader = glslang_shader_create(&input);
  glslang_program_t *program = glslang_program_create();
  glslang_shader_set_preamble(shader, defines.data);
  enum moe_code code = parse_and_link(shader, program, &input, out->name, err);
  if (!code) code = optimize(glslang_program_SPIRV_get_ptr(program), glslang_program_SPIRV_get_size(program), out, err);
  glslang_program_delete(program);
  glslang_shader_delete(shader);
  return code;
}

/* Identity of what the loader makes of a module: words, tuning, features. */
static void hash_module(struct shadergen_module *m) {
  uint8_t parts[2][IMG_HASH_BYTES];
  struct {
    uint64_t features;
    uint32_t push_bytes, n_tuning;
    struct img_tuning tuning[IMG_MAX_TUNING];
  } rest;
  memset(&rest, 0, sizeof rest);
  rest.features = m->features;
  rest.push_bytes = m->push_bytes;
  rest.n_tuning = m->n_tuning;
  memcpy(rest.tuning, m->tuning, sizeof rest.tuning);
  img_hash_leaf(m->words, m->bytes, parts[0]);
  img_hash_leaf(&rest, sizeof rest, parts[1]);
  img_hash_node(parts[0], 2, m->hash);
}

enum moe_code shadergen_compile(const struct shadergen_request *request, struct shadergen_module *out,
                                struct moe_error *err) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, initialize_glslang);
  struct shadergen_values v;
  enum moe_code code = shadergen_values_init(&v, request, err);
  if (code) return code;
  *out = (struct shadergen_module){.push_bytes = v.info->push_bytes + (request->instrument ? 8 : 0),
                                   .features = v.info->features};
  out->n_tuning = shadergen_values_tuning(&v, out->tuning, &out->shared_bytes);
  module_name(&v, out->name, sizeof out->name);
  code = compile_source(&v, request->instrument, out, err);
  if (!code) code = validate(out->words, out->bytes / sizeof(uint32_t), out->name, err);
  if (code) {
    shadergen_module_deinit(out);
    return code;
  }
  hash_module(out);
  return MOE_OK;
}

void shadergen_module_deinit(struct shadergen_module *module) {
  free(module->words);
  *module = (struct shadergen_module){0};
}
