/* test_families_hostile.c: every family's hyperparameters and tensors, broken: each change gives an answer (compiles,
 * or one line that says why not), never a crash, a hang or memory without bound; what this test lists by name gives the
 * error that is written there.
 *
 * The models are the tiny ones of golden/tiny_models.py, one a family at least, and the embedded one. A change that is
 * accepted is run through the oracle for a token. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "emit.h"
#include "family.h"
#include "gguf_edit.h"
#include "keys.h"
#include "oracle.h"
#include "src_gguf.h"

#ifndef CASES
#define CASES 1500 /* random changes of each kind */
#endif

enum { MAX_MODEL = 64, SECONDS = 60 };

/* What the sanitizer ends the program for: memory without bound. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
  return "hard_rss_limit_mb=2500:malloc_context_size=2";
}

static struct model {
  char name[64], family[64];
  struct edit edit;
} models[MAX_MODEL];
static int n_model;

static uint64_t random_state = 88172645463325252u; /* Marsaglia's xorshift64 */
static uint64_t random_next(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

static char what[512]; /* the change at hand, for messages and for the crash that must not come */

static void on_alarm(int number) {
  (void)number;
  dprintf(2, "hangs: %s\n", what);
  _exit(1);
}

/* ---- Answers ---- */

/* One token of the oracle: it may say no, it may not crash. */
static void run_oracle(const struct gguf *g) {
  static const uint32_t prompt[] = {1, 0, 2};
  struct ir_graph graph;
  struct oracle_result result;
  struct parallel *pool = NULL;
  if (family_build(g, &graph, NULL) != MOE_OK) return;
  const struct oracle_request request = {
      .prompt = prompt, .n_prompt = sizeof prompt / sizeof *prompt, .n_predict = 1, .n_top = 2};
  if (graph.n_ctx > request.n_prompt && parallel_create(1, &pool, NULL) == MOE_OK &&
      oracle_run(&graph, pool, &request, &result, NULL) == MOE_OK)
    oracle_deinit(&result);
  parallel_destroy(pool);
  ir_deinit(&graph);
}

/* What moec says of a file. err: filled. */
static enum moe_code answer(struct maker *m, struct moe_error *err) {
  struct gguf *g = NULL;
  *err = (struct moe_error){0};
  alarm(SECONDS);
  enum moe_code code = gguf_open(maker_path(m), &g, err);
  if (code == MOE_OK) code = emit_model_check(g, err);
  if (code == MOE_OK) run_oracle(g);
  gguf_close(g);
  alarm(0);
  if (code == MOE_OK) return code;
  if (code != MOE_FAILED && code != MOE_DECLINED) fail_msg("%s: code %d: %s", what, code, err->message);
  if (err->message[0] == '\0' || strchr(err->message, '\n') != NULL || strstr(err->message, "(null)") != NULL ||
      strstr(err->message, "out of memory") != NULL)
    fail_msg("%s: no message of one line: '%s'", what, err->message);
  return code;
}

/* ---- Models ---- */

/* What general.architecture is. */
static void read_family(struct model *m, const char *path) {
  struct gguf *g = NULL;
  struct gguf_string s;
  assert_int_equal(gguf_open(path, &g, NULL), MOE_OK);
  assert_int_equal(gguf_get_string(g, "general.architecture", &s, NULL), MOE_OK);
  snprintf(m->family, sizeof m->family, "%.*s", (int)s.bytes, s.data);
  gguf_close(g);
}

static void add_model(const char *name, const char *path) {
  assert_true(n_model < MAX_MODEL);
  struct model *m = &models[n_model++];
  snprintf(m->name, sizeof m->name, "%s", name);
  edit_open(&m->edit, path);
  read_family(m, path);
}

static int make_models(void **state) {
  (void)state;
  char folder[] = "/tmp/moec-families-XXXXXX", command[2048], path[256], name[64];
  const char *tests = getenv("TESTS_DIR");
  if (tests == NULL || mkdtemp(folder) == NULL) return 1;
  signal(SIGALRM, on_alarm);
  snprintf(command, sizeof command,
           "PYTHONPATH=%s/golden PYTHONDONTWRITEBYTECODE=1 python3 -c \"import tiny_models\n"
           "for name in tiny_models.FAMILIES: open('%s/' + name + '.gguf', 'wb').write(tiny_models.gguf(name)); "
           "print(name)\"",
           tests, folder);
  FILE *names = popen(command, "r");
  if (names == NULL) return 1;
  while (fscanf(names, "%63s", name) == 1) {
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    add_model(name, path);
    unlink(path);
  }
  rmdir(folder);
  snprintf(path, sizeof path, "%s/models/wordnet-moe.gguf", tests);
  add_model("wordnet-moe", path);
  return pclose(names) != 0 || n_model < 2;
}

static int free_models(void **state) {
  (void)state;
  while (n_model > 0) edit_close(&models[--n_model].edit);
  return 0;
}

static void test_models_compile(void **state) {
  (void)state;
  for (int i = 0; i < n_model; i++) {
    struct maker m;
    struct moe_error err;
    snprintf(what, sizeof what, "%.63s", models[i].name);
    edit_copy(&models[i].edit, &m);
    enum moe_code code = answer(&m, &err);
    if (code == MOE_FAILED) fail_msg("%s: %s", what, err.message); /* a family may wait for its kernels */
    maker_deinit(&m);
  }
}

/* Any model; the embedded one, the last, rarely: it is large. */
static const struct model *any_model(void) {
  uint64_t n = random_next() % 16 == 0 ? (uint64_t)n_model : (uint64_t)n_model - 1;
  return &models[random_next() % n];
}

/* ---- Any value of any key ---- */

static const char *const keys[] = {
#define HPARAM(field, key, fallback, min, max) key,
#define HPARAM_REAL(field, key, fallback, min, max) key,
#define HPARAM_EACH(field, key, fallback, min, max) key,
#define HPARAM_OPTION(key, min, max, a, b) key,
#include "hparams.def"
#undef HPARAM
#undef HPARAM_REAL
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.shared_kv_layers",
    "attention.key_length_swa",
    "attention.value_length_swa",
    "attention.key_length_mla",
    "attention.value_length_mla",
    "attention.kv_lora_rank",
    "attention.q_lora_rank",
    "attention.output_scale",
    "attention.layer_norm_epsilon",
    "full_attention_interval",
    "ssm.conv_kernel",
    "ssm.inner_size",
    "ssm.state_size",
    "ssm.time_step_rank",
    "ssm.group_count",
    "rope.dimension_sections",
    "rope.dimension_count_swa",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scale_linear",
    "rope.freq_base_swa",
    "rope.scaling.original_context_length",
    "rope.scaling.yarn_log_multiplier",
    "expert_group_count",
    "expert_group_used_count",
    "interleave_moe_layer_step",
    "moe_every_n_layers",
    "embedding_length_per_layer_input",
    "pooling_type",
    "vocab_size",
};
enum { N_KEY = sizeof keys / sizeof *keys };

/* A value as it stands in the file. */
struct value {
  uint32_t type;
  const char *data;
  size_t bytes;
  const char *text;
};
#define VALUE(type, data, text)                                                                                        \
  { type, data, sizeof data - 1, text }

static const struct value values[] = {
    {0, NULL, 0, "taken out"},
    VALUE(GGUF_U32, "\0\0\0\0", "0"),
    VALUE(GGUF_U32, "\1\0\0\0", "1"),
    VALUE(GGUF_U32, "\2\0\0\0", "2"),
    VALUE(GGUF_U32, "\3\0\0\0", "3"),
    VALUE(GGUF_U32, "\10\0\0\0", "8"),
    VALUE(GGUF_U32, "\37\0\0\0", "31"),
    VALUE(GGUF_U32, "\100\0\0\0", "64"),
    VALUE(GGUF_U32, "\0\2\0\0", "512"),
    VALUE(GGUF_U32, "\1\20\0\0", "4097"),
    VALUE(GGUF_U32, "\377\377\377\0", "2^24 - 1"),
    VALUE(GGUF_U32, "\377\377\377\177", "2^31 - 1"),
    VALUE(GGUF_U32, "\377\377\377\377", "2^32 - 1"),
    VALUE(GGUF_I32, "\377\377\377\377", "-1"),
    VALUE(GGUF_U64, "\377\377\377\377\377\377\377\377", "2^64 - 1"),
    VALUE(GGUF_F32, "\0\0\0\0", "0.0"),
    VALUE(GGUF_F32, "\0\0\0\200", "-0.0"),
    VALUE(GGUF_F32, "\0\0\200\277", "-1.0"),
    VALUE(GGUF_F32, "\0\0\0\77", "0.5"),
    VALUE(GGUF_F32, "\0\0\300\177", "NaN"),
    VALUE(GGUF_F32, "\0\0\200\177", "infinity"),
    VALUE(GGUF_F32, "\0\0\200\377", "-infinity"),
    VALUE(GGUF_F32, "\377\377\177\177", "3.4e38"),
    VALUE(GGUF_F32, "\1\0\0\0", "1.4e-45"),
    VALUE(GGUF_F64, "\0\0\0\0\0\0\370\177", "NaN as f64"),
    VALUE(GGUF_BOOL, "\0", "false"),
    VALUE(GGUF_BOOL, "\1", "true"),
    VALUE(GGUF_STRING, "\0\0\0\0\0\0\0\0", "''"),
    VALUE(GGUF_STRING, "\4\0\0\0\0\0\0\0yarn", "'yarn'"),
    VALUE(GGUF_STRING, "\3\0\0\0\0\0\0\0a\x1b%", "'a ESC %'"),
    VALUE(GGUF_ARRAY, "\5\0\0\0\0\0\0\0\0\0\0\0", "[]"),
    VALUE(GGUF_ARRAY, "\5\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0", "[1]"),
    VALUE(GGUF_ARRAY, "\5\0\0\0\3\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\377\377\377\377", "[2, 0, -1]"),
    VALUE(GGUF_ARRAY, "\5\0\0\0\3\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0", "[1, 0, 2]"),
    VALUE(GGUF_ARRAY, "\5\0\0\0\4\0\0\0\0\0\0\0\377\377\377\177\377\377\377\177\377\377\377\177\377\377\377\177",
          "[2^31 - 1] * 4"),
    VALUE(GGUF_ARRAY, "\5\0\0\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "[0, 0, 0, 0]"),
    VALUE(GGUF_ARRAY, "\7\0\0\0\3\0\0\0\0\0\0\0\1\0\1", "[true, false, true]"),
    VALUE(GGUF_ARRAY, "\6\0\0\0\2\0\0\0\0\0\0\0\0\0\300\177\0\0\200\177", "[NaN, infinity]"),
    VALUE(GGUF_ARRAY, "\10\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0a", "['a']"),
};
enum { N_VALUE = sizeof values / sizeof *values };

static void change_key(const struct model *model, const char *key, const struct value *value) {
  char name[192];
  struct maker m;
  struct moe_error err;
  snprintf(name, sizeof name, "%s.%s", model->family, key);
  snprintf(what, sizeof what, "%s: %s = %s", model->name, name, value->text);
  edit_key(&model->edit, &m, name, value->type, value->data, value->bytes);
  answer(&m, &err);
  maker_deinit(&m);
}

static void test_any_value_of_any_key(void **state) {
  (void)state;
  for (int i = 0; i < CASES; i++)
    change_key(any_model(), keys[random_next() % N_KEY], &values[random_next() % N_VALUE]);
}

/* ---- Tensors ---- */

/* One field of a tensor's record: a dimension, the number of dimensions, the format, the offset, a letter of the name.
 */
static void change_tensor(const struct model *model, struct maker *m) {
  static const uint64_t dims[] = {0, 1, 2, 31, 32, 33, 64, 96, 128, 256, 1 << 20, INT32_MAX, 1ull << 32, UINT64_MAX};
  const struct edit *e = &model->edit;
  const struct edit_place *t = &e->tensor[random_next() % e->n_tensor];
  size_t kind = random_next() % 6, numbers = t->start + 8 + t->name_bytes, n_dim = (t->end - numbers - 16) / 8;
  uint64_t value = dims[random_next() % (sizeof dims / sizeof *dims)];
  size_t at = numbers + 4 + 8 * (random_next() % n_dim), bytes = 8;
  if (kind == 3) value = random_next() % 42, at = t->end - 12, bytes = 4;
  if (kind == 4) value = 32 * (random_next() % 64), at = t->end - 8;
  if (kind == 5) value = 'a' + random_next() % 26, at = t->start + 8 + random_next() % t->name_bytes, bytes = 1;
  memcpy(m->bytes + at, &value, bytes);
  size_t used = strlen(what);
  snprintf(what + used, sizeof what - used, ", %.*s: kind %zu, %ju", (int)t->name_bytes, t->name, kind,
           (uintmax_t)value);
}

/* A dimension of two tensors is swapped: what a file of another shape would be, with data of the same size. */
static void swap_dimensions(const struct model *model, struct maker *m) {
  const struct edit *e = &model->edit;
  const struct edit_place *t = &e->tensor[random_next() % e->n_tensor];
  size_t numbers = t->start + 8 + t->name_bytes;
  uint64_t a, b;
  if (t->end - numbers < 4 + 16 + 12) return; /* one dimension */
  memcpy(&a, m->bytes + numbers + 4, 8);
  memcpy(&b, m->bytes + numbers + 12, 8);
  memcpy(m->bytes + numbers + 4, &b, 8);
  memcpy(m->bytes + numbers + 12, &a, 8);
  size_t used = strlen(what);
  snprintf(what + used, sizeof what - used, ", %.*s: transposed", (int)t->name_bytes, t->name);
}

static void test_any_change_of_tensors(void **state) {
  (void)state;
  for (int i = 0; i < CASES; i++) {
    const struct model *model = any_model();
    struct maker m;
    struct moe_error err;
    snprintf(what, sizeof what, "%s", model->name);
    edit_copy(&model->edit, &m);
    for (uint64_t n = 1 + random_next() % 2; n > 0; n--) {
      if (random_next() % 8 == 0)
        swap_dimensions(model, &m);
      else
        change_tensor(model, &m);
    }
    answer(&m, &err);
    maker_deinit(&m);
  }
}

/* Weights of random bits: NaN and infinite scales among them. The oracle computes with them and must not crash. */
static void test_weights_of_random_bits(void **state) {
  (void)state;
  for (int i = 0; i < n_model; i++) {
    struct maker m;
    struct moe_error err;
    snprintf(what, sizeof what, "%.63s: random weights", models[i].name);
    edit_copy(&models[i].edit, &m);
    for (size_t at = models[i].edit.data; at < m.used; at++) m.bytes[at] = (uint8_t)random_next();
    answer(&m, &err);
    for (size_t at = models[i].edit.data; at < m.used; at++) m.bytes[at] = 0xff; /* NaN in every float format */
    answer(&m, &err);
    maker_deinit(&m);
  }
}

/* ---- Named errors ---- */

/* A change of one key of a family's first model, and the words of its error. */
static const struct named {
  const char *family, *key;
  struct value value;
  enum moe_code code;
  const char *words;
} named[] = {
#define U32(n)                                                                                                         \
  { GGUF_U32, (const char *)(const uint32_t[]){n}, 4, #n }
#define F32(n)                                                                                                         \
  { GGUF_F32, (const char *)(const float[]){n}, 4, #n }
    {"qwen2", "attention.head_count", U32(0), MOE_FAILED, "qwen2.attention.head_count: 0; allowed: 1 to 4096"},
    {"qwen2", "attention.head_count", VALUE(GGUF_ARRAY, "\5\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0", ""), MOE_FAILED,
     "the key qwen2.attention.head_count has 1 values, expected 3"},
    {"qwen2", "attention.head_count", VALUE(GGUF_ARRAY, "\5\0\0\0\3\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\2\0\0\0", ""),
     MOE_FAILED, "layer 1: 0 attention heads over 1 key/value heads"},
    {"qwen2", "attention.head_count_kv", VALUE(GGUF_ARRAY, "\5\0\0\0\3\0\0\0\0\0\0\0\3\0\0\0\1\0\0\0\1\0\0\0", ""),
     MOE_FAILED, "layer 0: 2 attention heads over 3 key/value heads"},
    {"qwen2", "attention.head_count_kv", VALUE(GGUF_ARRAY, "\5\0\0\0\3\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0\1\0\0\0", ""),
     MOE_FAILED, "tensor["},
    {"qwen2", "feed_forward_length",
     VALUE(GGUF_ARRAY, "\5\0\0\0\3\0\0\0\0\0\0\0\140\0\0\0\377\377\377\377\140\0\0\0", ""), MOE_FAILED,
     "value 1 of the key qwen2.feed_forward_length is -1"},
    {"qwen2", "feed_forward_length",
     VALUE(GGUF_ARRAY, "\5\0\0\0\3\0\0\0\0\0\0\0\140\0\0\0\377\377\377\177\140\0\0\0", ""), MOE_FAILED,
     "qwen2.feed_forward_length[1]: 2147483647; allowed: 0 to 16777216"},
    {"qwen2", "attention.sliding_window", U32(1), MOE_DECLINED,
     "qwen2.attention.sliding_window: 1 of a context of 512"},
    {"qwen3moe", "expert_used_count", U32(17), MOE_FAILED, "expert_used_count: 17 of 16 experts; allowed: 1 to"},
    {"qwen3moe", "expert_used_count", U32(0), MOE_FAILED, "expert_used_count: 0 of 16 experts"},
    {"qwen3moe", "expert_count", U32(5000), MOE_FAILED, "qwen3moe.expert_count: 5000; allowed: 0 to"},
    {"qwen3moe", "expert_feed_forward_length", U32(255), MOE_FAILED,
     "ffn_gate_exps.weight: 256 rows, the hyperparameters give 255"},
    {"qwen3moe", "attention.layer_norm_rms_epsilon", F32(__builtin_nanf("")), MOE_FAILED,
     "rms_epsilon: nan; allowed: 0 to 1"},
    {"qwen3moe", "expert_weights_scale", F32(__builtin_nanf("")), MOE_DECLINED, "qwen3moe.expert_weights_scale: nan"},
    {"gemma4", "embedding_length_per_layer_input", U32(64), MOE_DECLINED,
     "gemma4.embedding_length_per_layer_input: 64 changes what the model computes"},
    {"gemma4", "attention.shared_kv_layers", U32(1), MOE_DECLINED, "gemma4.attention.shared_kv_layers: 1 changes"},
    {"gemma4", "attention.sliding_window_pattern", VALUE(GGUF_ARRAY, "\7\0\0\0\2\0\0\0\0\0\0\0\1\0", ""), MOE_FAILED,
     "gemma4.attention.sliding_window_pattern: 2 flags; the model has 3 layers"},
    {"gemma4", "attention.sliding_window_pattern", U32(0), MOE_FAILED, "sliding_window_pattern: 0; allowed: 1 to"},
    {"gemma3", "attn_logit_softcapping", F32(50.0f), MOE_DECLINED, "gemma3.attn_logit_softcapping: 50 changes"},
    {"gemma3", "rope.scaling.factor", F32(0.125f), MOE_FAILED,
     "gemma3.rope.scaling.factor: 0.125; allowed: 0 for none"},
    {"deepseek2", "rope.scaling.yarn_log_multiplier", U32(0), MOE_DECLINED,
     "deepseek2.rope.scaling.yarn_log_multiplier: missing beside yarn"},
    {"deepseek2", "expert_gating_func", U32(3), MOE_FAILED, "need probabilities before the choice"},
    {"qwen3moe", "expert_group_count", U32(3), MOE_DECLINED,
     "qwen3moe.expert_group_count: 3 changes what the model computes"},
    {"qwen35moe", "ssm.conv_kernel", U32(0), MOE_FAILED, "conv_kernel 0; allowed: key heads that divide the heads"},
    {"qwen35moe", "ssm.conv_kernel", U32(5), MOE_FAILED, "ssm_conv1d.weight: 4 columns, the hyperparameters give 5"},
    {"qwen35moe", "ssm.conv_kernel", U32(2147483647), MOE_FAILED, "ssm.conv_kernel: 2147483647; allowed: 0 to 32"},
    {"qwen35moe", "ssm.group_count", U32(3), MOE_FAILED, "4 heads (time_step_rank), 3 key heads (group_count)"},
    {"qwen35moe", "ssm.inner_size", U32(96), MOE_FAILED, "ssm.inner_size: 96; 4 heads of state_size 32 give 128"},
    {"qwen35moe", "full_attention_interval", U32(0), MOE_FAILED, "full_attention_interval: 0; allowed: 1 to"},
    {"qwen35", "rope.dimension_sections", VALUE(GGUF_ARRAY, "\5\0\0\0\1\0\0\0\0\0\0\0\10\0\0\0", ""), MOE_FAILED,
     "qwen35.rope.dimension_sections: 1 sections; allowed: 3 or 4"},
    {"qwen35", "rope.dimension_sections",
     VALUE(GGUF_ARRAY, "\5\0\0\0\4\0\0\0\0\0\0\0\4\0\0\0\4\0\0\0\4\0\0\0\0\0\0\0", ""), MOE_FAILED,
     "qwen35.rope.dimension_sections: 12 pairs in all; 8 are rotated"},
    {"qwen35", "rope.dimension_sections",
     VALUE(GGUF_ARRAY, "\5\0\0\0\4\0\0\0\0\0\0\0\3\0\0\0\2\0\0\0\2\0\0\0\1\0\0\0", ""), MOE_DECLINED,
     "qwen35.rope.dimension_sections[3]: 1 pairs that text does not turn"},
    {"qwen35", "rope.dimension_sections",
     VALUE(GGUF_ARRAY, "\5\0\0\0\3\0\0\0\0\0\0\0\377\377\377\377\10\0\0\0\1\0\0\0", ""), MOE_FAILED,
     "qwen35.rope.dimension_sections[0]: -1 pairs; allowed: 0 to 8"},
    {"gemma3", "attention.sliding_window_pattern", VALUE(GGUF_ARRAY, "\7\0\0\0\1\0\0\0\0\0\0\0\1", ""), MOE_FAILED,
     "sliding_window_pattern: 1 flags; the model has"},
    {"gemma3", "attention.sliding_window_pattern", F32(1.5f), MOE_FAILED, "expected an integer"},
    {"gemma3", "attention.sliding_window_pattern", U32(0), MOE_FAILED, "sliding_window_pattern: 0; allowed: 1 to 1024"},
    {"gemma3", "final_logit_softcapping", F32(__builtin_nanf("")), MOE_FAILED, "final_logit_softcapping: nan; allowed"},
    {"deepseek2", "expert_group_count", U32(3), MOE_FAILED, "router: 8 experts in 3 groups"},
    {"deepseek2", "expert_group_used_count", U32(0), MOE_FAILED, "of which 0 have the chosen 3"},
    {"deepseek2", "expert_group_count", U32(2147483647), MOE_FAILED, "expert_group_count: 2147483647; allowed: 0 to"},
    {"deepseek2", "attention.kv_lora_rank", U32(0), MOE_FAILED, "kv_lora_rank 0, 4 heads of 64"},
    {"dots1", "expert_feed_forward_length", U32(31), MOE_FAILED, "rows, the hyperparameters give 62"},
    {"dots1", "leading_dense_block_count", U32(31), MOE_FAILED, "blk.1.ffn_gate.weight: the file has no such tensor"},
    {"dots1", "expert_shared_count", U32(0), MOE_DECLINED,
     "ffn_gate_shexp.weight and 5 more tensors: dots1 has no place"},
    {"dots1", "expert_weights_scale", F32(-1), MOE_FAILED, "dots1.expert_weights_scale: -1; allowed: 0 to"},
    {"glm4moe", "expert_gating_func", U32(3), MOE_FAILED, "need probabilities before the choice"},
    {"glm4moe", "expert_gating_func", U32(4), MOE_FAILED, "glm4moe.expert_gating_func: 4; allowed: 0 to 3"},
    {"glm4moe", "nextn_predict_layers", U32(4), MOE_FAILED, "nextn_predict_layers: 4 of 4 blocks"},
    {"glm4moe", "nextn_predict_layers", U32(65), MOE_FAILED, "nextn_predict_layers: 65; allowed: 0 to 64"},
    {"glm4moe", "nextn_predict_layers", U32(0), MOE_DECLINED, "glm4moe has no place"},
    {"deepseek", "expert_shared_count", U32(3), MOE_FAILED, "ffn_gate_shexp.weight: 64 rows"},
    {"deepseek", "expert_feed_forward_length", U32(16777216), MOE_FAILED,
     "deepseek.expert_shared_count: 2 shared experts of 16777216 columns; allowed: 16777216"},
    {"ernie4_5-moe", "expert_shared_count", U32(0), MOE_DECLINED, "ernie4_5-moe has no place"},
    {"hunyuan-moe", "expert_shared_count", U32(0), MOE_DECLINED, "hunyuan-moe has no place"},
    {"llama", "rope.dimension_sections",
     VALUE(GGUF_ARRAY, "\5\0\0\0\4\0\0\0\0\0\0\0\6\0\0\0\5\0\0\0\5\0\0\0\0\0\0\0", ""), MOE_DECLINED,
     "llama.rope.dimension_sections: llama has no rotations in sections"},
    {"granitemoe", "residual_scale", F32(__builtin_inff()), MOE_FAILED,
     "granitemoe.residual_scale: inf; allowed: 0 to"},
};

static void test_named_errors(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
    const struct named *c = &named[i];
    const struct model *model = NULL;
    for (int k = 0; k < n_model && model == NULL; k++)
      if (strcmp(models[k].family, c->family) == 0) model = &models[k];
    if (model == NULL) fail_msg("case %zu: no model of %s", i, c->family);
    char name[192];
    struct maker m;
    struct moe_error err;
    snprintf(name, sizeof name, "%s.%s", c->family, c->key);
    snprintf(what, sizeof what, "%s: %s", model->name, name);
    edit_key(&model->edit, &m, name, c->value.type, c->value.data, c->value.bytes);
    enum moe_code code = answer(&m, &err);
    if (code != c->code || strstr(err.message, c->words) == NULL)
      fail_msg("case %zu, %s: expected code %d and '%s', found %d: %s", i, what, c->code, c->words, code, err.message);
    maker_deinit(&m);
  }
}

/* ---- Keys that files may lack ---- */

/* Without the key a model's graph is what it is with the tiny model's own value. */
static const struct lacking {
  const char *model, *key;
  struct value other; /* another value, which gives another graph; no value: others are declined (named errors) */
} lacking[] = {
    {"deepseek2", "expert_gating_func", U32(1)}, /* GLM-4.7-Flash */
    {"gemma4", "final_logit_softcapping", F32(20.0f)},
    {"ernie4_5-moe", "expert_shared_count", {0, NULL, 0, NULL}},
    {"hunyuan-moe", "expert_shared_count", {0, NULL, 0, NULL}},
};

/* What of the graph the keys above can change, as text: freed by the caller. Ends m. */
static char *graph_text(struct maker *m) {
  struct moe_error err = {0};
  struct gguf *g = NULL;
  struct ir_graph graph;
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  assert_non_null(out);
  if (gguf_open(maker_path(m), &g, &err) || family_build(g, &graph, &err)) fail_msg("%s: %s", what, err.message);
  for (int i = 0; i < graph.n_node; i++) {
    const struct ir_node *n = &graph.node[i];
    fprintf(out, "%d %d %u gating %d sum %u cap %g", (int)n->op, n->layer, n->width, (int)n->a.gating, n->a.n_group_sum,
            n->a.softcap);
    for (int k = 0; k < IR_MAX_IN; k++) fprintf(out, " %d", n->in[k]);
    for (int k = 0; k < IR_MAX_WEIGHT; k++) fprintf(out, " %s", n->weight[k] ? n->weight[k]->name : "-");
    fputc('\n', out);
  }
  fclose(out);
  ir_deinit(&graph);
  gguf_close(g);
  maker_deinit(m);
  return text;
}

static char *graph_text_with(const struct model *model, const char *key, const struct value *value) {
  struct maker m;
  edit_key(&model->edit, &m, key, value->type, value->data, value->bytes);
  return graph_text(&m);
}

static void test_keys_that_files_lack(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++) {
    const struct lacking *c = &lacking[i];
    const struct model *model = NULL;
    for (int k = 0; k < n_model && model == NULL; k++)
      if (strcmp(models[k].name, c->model) == 0) model = &models[k];
    if (model == NULL) fail_msg("no model %s", c->model);
    char key[192];
    struct maker m;
    snprintf(key, sizeof key, "%s.%s", model->family, c->key);
    snprintf(what, sizeof what, "%s: %s", model->name, key);
    if (edit_find_key(&model->edit, key) < 0) fail_msg("%s: the tiny model lacks it", what);
    edit_copy(&model->edit, &m);
    char *with = graph_text(&m), *without = graph_text_with(model, key, &(struct value){0, NULL, 0, NULL});
    if (strcmp(with, without) != 0) fail_msg("%s: left out, the graph is another", what);
    char *other = c->other.data ? graph_text_with(model, key, &c->other) : NULL;
    if (other != NULL && strcmp(with, other) == 0) fail_msg("%s = %s: the same graph", what, c->other.text);
    free(with);
    free(without);
    free(other);
  }
}

/* Every key of the tiny models is known; one that is not is named. */
static void test_unknown_keys(void **state) {
  (void)state;
  for (int i = 0; i < n_model; i++) {
    char key[192], list[256];
    struct maker m;
    struct gguf *g = NULL;
    snprintf(what, sizeof what, "%.63s", models[i].name);
    edit_copy(&models[i].edit, &m);
    assert_int_equal(gguf_open(maker_path(&m), &g, NULL), MOE_OK);
    if (keys_list_unknown(g, list, sizeof list) != 0) fail_msg("%s: %s", what, list);
    gguf_close(g);
    maker_deinit(&m);
    snprintf(key, sizeof key, "%s.rope.unheard_of", models[i].family);
    edit_key(&models[i].edit, &m, key, GGUF_U32, "\1\0\0\0", 4);
    assert_int_equal(gguf_open(maker_path(&m), &g, NULL), MOE_OK);
    assert_int_equal(keys_list_unknown(g, list, sizeof list), 1);
    assert_string_equal(list, key);
    assert_int_equal(keys_list_unknown(g, list, 4), 1); /* cut */
    assert_int_equal(strlen(list), 3);
    gguf_close(g);
    maker_deinit(&m);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_models_compile),         cmocka_unit_test(test_named_errors),
      cmocka_unit_test(test_any_value_of_any_key),   cmocka_unit_test(test_any_change_of_tensors),
      cmocka_unit_test(test_weights_of_random_bits), cmocka_unit_test(test_keys_that_files_lack),
      cmocka_unit_test(test_unknown_keys),
  };
  return cmocka_run_group_tests(tests, make_models, free_models);
}
