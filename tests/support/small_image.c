#include "small_image.h"

#include <stdlib.h>
#include <string.h>

#include "img_enums.h"
#include "img_writer.h"

#define NAMES "first\0second"
#define CODE "\x28\xb5\x2f\xfd" /* a zstd frame's magic; nobody decompresses it */

static void init_manifest(struct img_manifest *m) {
  *m = (struct img_manifest){
      .model_n_param = 10,
      .model_n_layer = 2,
      .model_d_model = 64,
      .model_n_head = 2,
      .model_n_kv_head = 1,
      .model_d_head = 32,
      .model_d_ff = 64,
      .model_n_vocab = 100,
      .model_n_ctx = 128,
      .state_page_tok = 64,
      .state_page_bytes = 4096,
      .state_block_bytes = 256,
      .memory_act_bytes = 4096,
      .memory_max_row = 1,
      .requires_vulkan_major = 1,
      .requires_vulkan_minor = 2,
      .requires_workgroup = 64,
      .requires_push_bytes = 16,
  };
  strcpy(m->model_name, "small");
  strcpy(m->model_architecture, "qwen3");
  strcpy(m->state_kv, "f16");
}

static void init_modules(struct small_image *s) {
  for (uint32_t i = 0; i < 2; i++)
    s->module[i] = (struct img_module){.code_zbytes = 4,
                                       .code_bytes = 8,
                                       .name_offset = 6 * i,
                                       .push_bytes = 16,
                                       .n_tuning = 1,
                                       .tuning = {{.min_subgroup = 1, .spec = {64, 1, 0, 0}, .group_items = 64}}};
  s->modules = (struct img_modules){.n_module = 2,
                                    .module_offset = sizeof s->modules,
                                    .name_offset = sizeof s->modules + sizeof s->module,
                                    .name_bytes = sizeof NAMES};
  s->module[0].code_offset = s->module[1].code_offset = s->modules.name_offset + sizeof NAMES;
  s->code = CODE;
  s->code_zbytes = 4;
}

static void init_planes(struct small_image *s) {
  s->plane[0] = (struct img_plane){.offset = 0, .bytes = 300, .n_in = 5, .n_out = 15, .n_mat = 1};
  s->plane[1] = (struct img_plane){.offset = 512, .bytes = 512, .name_offset = 6, .n_in = 8, .n_out = 16, .n_mat = 1};
  s->planes = (struct img_planes){.n_plane = 2,
                                  .plane_offset = sizeof s->planes,
                                  .name_offset = sizeof s->planes + sizeof s->plane,
                                  .name_bytes = sizeof NAMES};
}

/* first: reads WEIGHTS, writes ACT[0, 1024). body: reads ACT[0, 1024), writes ACT[value, +512). second: reads ACT[1024,
 * 2048). */
static void init_program(struct small_image *s) {
  s->value[0] = 1024, s->value[1] = 1536;
  s->table[0] = (struct img_table){.n_row = 2, .n_column = 1};
  s->word[0] = (struct img_word){.kind = IMG_WORD_ADDRESS, .arena = IMG_ARENA_WEIGHTS, .value = 512};
  s->word[1] = (struct img_word){.kind = IMG_WORD_ADDRESS, .arena = IMG_ARENA_ACT};
  s->word[2] = s->word[1];
  s->word[3] = (struct img_word){.kind = IMG_WORD_LAYER_ADDRESS, .arena = IMG_ARENA_ACT};
  s->word[4] = (struct img_word){.kind = IMG_WORD_ADDRESS, .arena = IMG_ARENA_ACT, .value = 1024};
  s->word[5] = (struct img_word){.kind = IMG_WORD_IMM, .value = 7};
  s->word[6] = (struct img_word){.kind = IMG_WORD_IMM, .value = 8};
  s->region[0] = (struct img_region){
      .access = IMG_ACCESS_READ, .arena = IMG_ARENA_WEIGHTS, .column = IMG_NO_COLUMN, .offset = 512, .bytes = 512};
  s->region[1] =
      (struct img_region){.access = IMG_ACCESS_WRITE, .arena = IMG_ARENA_ACT, .column = IMG_NO_COLUMN, .bytes = 1024};
  s->region[2] =
      (struct img_region){.access = IMG_ACCESS_READ, .arena = IMG_ARENA_ACT, .column = IMG_NO_COLUMN, .bytes = 1024};
  s->region[3] = (struct img_region){.access = IMG_ACCESS_WRITE, .arena = IMG_ARENA_ACT, .column = 0, .bytes = 512};
  s->region[4] = (struct img_region){
      .access = IMG_ACCESS_READ, .arena = IMG_ARENA_ACT, .column = IMG_NO_COLUMN, .offset = 1024, .bytes = 1024};
  s->inst[0] = (struct img_inst){
      .op = IMG_OP_DISPATCH, .module = 0, .grid = {100, 1, 1}, .first_word = 0, .n_word = 2, .n_region = 2};
  s->inst[1] = (struct img_inst){.op = IMG_OP_BARRIER};
  s->inst[2] = (struct img_inst){.op = IMG_OP_CALL, .body = 0, .table = 0, .first_row = 0, .count = 2};
  s->inst[3] = (struct img_inst){.op = IMG_OP_BARRIER};
  s->inst[4] = (struct img_inst){.op = IMG_OP_DISPATCH,
                                 .module = 1,
                                 .grid = {1, 1, 1},
                                 .first_word = 4,
                                 .n_word = 3,
                                 .first_region = 4,
                                 .n_region = 1};
  s->inst[5] = (struct img_inst){.op = IMG_OP_DISPATCH,
                                 .module = 0,
                                 .grid = {64, 2, 1},
                                 .first_word = 2,
                                 .n_word = 2,
                                 .first_region = 2,
                                 .n_region = 2};
  s->body[0] = (struct img_body){5, 1};
  s->template[0] = (struct img_template){.kind = IMG_TEMPLATE_TOKEN, .n_row = 1, .n_select = 1, .n_inst = 5};
}

void small_image_init(struct small_image *s) {
  memset(s, 0, sizeof *s);
  init_manifest(&s->manifest);
  init_modules(s);
  init_planes(s);
  init_program(s);
  struct img_templates *t = &s->templates;
  *t = (struct img_templates){
      .n_template = 1, .n_inst = 6, .n_body = 1, .n_word = 7, .n_region = 5, .n_table = 1, .n_value = 2};
  t->template_offset = sizeof *t;
  t->inst_offset = t->template_offset + sizeof s->template;
  t->body_offset = t->inst_offset + sizeof s->inst;
  t->word_offset = t->body_offset + sizeof s->body;
  t->region_offset = t->word_offset + sizeof s->word;
  t->table_offset = t->region_offset + sizeof s->region;
  t->value_offset = t->table_offset + sizeof s->table;
  t->name_offset = t->value_offset + sizeof s->value;
  t->name_bytes = sizeof NAMES;
}

void small_image_two_tiers(struct small_image *s) {
  s->module[1].tier = IMG_TIER_DOT;
  s->module[1].features = IMG_FEATURE_DOT_PRODUCT;
  s->template[1] = s->template[0];
  s->template[1].tier = IMG_TIER_DOT;
  s->template[1].first_inst = 4;
  s->template[0].n_inst = s->template[1].n_inst = 1;
  s->templates.n_template = 2;
}

void small_image_resident(struct small_image *s) {
  s->module[1].tier = IMG_TIER_RESIDENT;
  s->module[1].features = IMG_FEATURE_RESIDENT;
  s->value[2] = (uint64_t)IMG_ARENA_WEIGHTS << IMG_CELL_SHIFT | 512;
  s->value[3] = (uint64_t)IMG_CELL_IMM << IMG_CELL_SHIFT | 7;
  s->value[4] = (uint64_t)IMG_ARENA_ACT << IMG_CELL_SHIFT | 256;
  s->value[5] = (uint64_t)IMG_CELL_IMM << IMG_CELL_SHIFT | 1ull << 40;
  s->table[1] = (struct img_table){.n_row = 2, .n_column = 2, .first_value = 2};
  s->word[7] = (struct img_word){.kind = IMG_WORD_TABLE, .value = 1};
  s->word[8] = s->word[5];
  s->word[9] = s->word[6];
  s->region[5] = (struct img_region){
      .access = IMG_ACCESS_READ, .arena = IMG_ARENA_WEIGHTS, .column = IMG_NO_COLUMN, .bytes = IMG_WHOLE_ARENA};
  s->region[6] = (struct img_region){
      .access = IMG_ACCESS_READ | IMG_ACCESS_WRITE, .arena = IMG_ARENA_ACT, .column = IMG_NO_COLUMN, .bytes = 1024};
  s->inst[6] = (struct img_inst){.op = IMG_OP_DISPATCH,
                                 .module = 1,
                                 .grid = {1, 1, 1},
                                 .first_word = 7,
                                 .n_word = 3,
                                 .first_region = 5,
                                 .n_region = 2};
  s->template[1] = s->template[0];
  s->template[1].tier = IMG_TIER_RESIDENT;
  s->template[1].first_inst = 6;
  s->template[0].n_inst = s->template[1].n_inst = 1;
  s->templates.n_template = s->templates.n_table = 2;
  s->templates.n_inst = 7;
  s->templates.n_word = 10;
  s->templates.n_region = 7;
  s->templates.n_value = 6;
}

static enum moe_code section(struct img_writer *w, enum img_section_kind kind, const void *const part[],
                             const size_t bytes[], size_t n, struct moe_error *err) {
  enum moe_code code = img_writer_begin(w, kind, err);
  for (size_t i = 0; code == MOE_OK && i < n; i++) code = img_writer_append(w, part[i], bytes[i], err);
  return code == MOE_OK ? img_writer_end(w, err) : code;
}

enum moe_code small_image_write(const struct small_image *s, const char *path, struct moe_error *err) {
  struct img_writer *w = NULL;
  char *text = NULL;
  uint64_t text_bytes = 0;
  static const uint8_t planes[1024] = {1, 2, 3}, tables[64] = {4};
  enum moe_code code = img_manifest_format(&s->manifest, &text, &text_bytes, err);
  if (code == MOE_OK) code = img_writer_create(path, &w, err);
#define WRITE(KIND, N, SIZES, ...)                                                                                     \
  if (code == MOE_OK) code = section(w, KIND, (const void *const[]){__VA_ARGS__}, (const size_t[])SIZES, N, err)
#define LIST(...) {__VA_ARGS__}
  WRITE(IMG_SECTION_MANIFEST, 1, LIST(text_bytes), text);
  WRITE(IMG_SECTION_MODULES, 4, LIST(sizeof s->modules, sizeof s->module, sizeof NAMES, s->code_zbytes), &s->modules,
        s->module, NAMES, s->code);
  WRITE(IMG_SECTION_TEMPLATES, 9,
        LIST(sizeof s->templates, sizeof s->template, sizeof s->inst, sizeof s->body, sizeof s->word, sizeof s->region,
             sizeof s->table, sizeof s->value, sizeof NAMES),
        &s->templates, s->template, s->inst, s->body, s->word, s->region, s->table, s->value, NAMES);
  WRITE(IMG_SECTION_PLANE_INDEX, 3, LIST(sizeof s->planes, sizeof s->plane, sizeof NAMES), &s->planes, s->plane, NAMES);
  WRITE(IMG_SECTION_TABLES, 1, LIST(sizeof tables), tables);
  WRITE(IMG_SECTION_PLANES, 1, LIST(sizeof planes), planes);
  if (code == MOE_OK) code = img_writer_finish(w, 2, NULL, err);
  img_writer_destroy(w);
  free(text);
  return code;
}
