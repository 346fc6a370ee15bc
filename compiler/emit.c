#include "emit.h"

#include "emit_chat.h"
#include "emit_manifest.h"
#include "emit_modules.h"
#include "emit_planes.h"
#include "emit_templates.h"
#include "emit_tokenizer.h"
#include "family.h"
#include "img_print.h"
#include "img_writer.h"
#include "keys.h"
#include "pass.h"
#include "progress.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The templates of every image, in every tier whose kernels make them other than those of lower tiers: a step of n rows
 * runs in the smallest that takes it. */
static const struct {
  enum img_template_kind kind;
  uint32_t n_row;
} emit_sizes[] = {
    {IMG_TEMPLATE_TOKEN, 1},  {IMG_TEMPLATE_TOKEN, 2},    {IMG_TEMPLATE_TOKEN, 4},
    {IMG_TEMPLATE_TOKEN, 8},  {IMG_TEMPLATE_TOKEN, 16},   {IMG_TEMPLATE_TOKEN, 32},
    {IMG_TEMPLATE_TOKEN, 64}, {IMG_TEMPLATE_WINDOW, 128}, {IMG_TEMPLATE_WINDOW, 512},
};
enum { EMIT_N_SIZE = sizeof emit_sizes / sizeof *emit_sizes, EMIT_MAX_ROW = 512, EMIT_MAX_SELECT = 64 };

/* All that an image is made of. */
struct emit {
  const struct emit_options *options;
  const struct gguf *gguf;
  struct ir_graph graph;
  struct plan plan;
  struct parallel *pool;
  struct emit_modules modules;
  struct emit_bytes templates, plane_index, manifest, selftest;
  uint8_t *tokenizer, *chat;
  uint64_t tokenizer_bytes, chat_bytes;
  struct img_tokenizer tokenizer_view;
  struct img_writer *writer;
  struct progress *progress;
  /* The source's hash is made beside all else. */
  pthread_t hasher;
  bool hashing;
  atomic_bool failed; /* the hash need not be finished */
  uint8_t hash[GGUF_HASH_BYTES];
  struct moe_error hash_err;
  enum moe_code hash_code;
};

static enum moe_code emit_text(struct emit *e, struct moe_error *err) {
  struct emit_tokenizer_note note;
  enum moe_code code = emit_tokenizer(e->gguf, &e->tokenizer, &e->tokenizer_bytes, &note, err);
  if (!code && note.n_skipped + note.n_duplicate > 0 && !e->options->quiet)
    fprintf(stderr,
            "moec: note: tokenizer.ggml.merges: %u can never apply and %u are replaced by a later one of the "
            "same pair; they are left out%s%s\n",
            note.n_skipped, note.n_duplicate, note.n_skipped ? "; the first: " : "", note.first);
  if (!code) code = img_tokenizer_open(e->tokenizer, e->tokenizer_bytes, &e->tokenizer_view, err);
  if (!code && e->tokenizer_view.n_vocab > e->graph.n_vocab)
    code = moe_fail(err, MOE_FAILED, "tokenizer.ggml.tokens: %u tokens, token_embd.weight has %u rows",
                    e->tokenizer_view.n_vocab, e->graph.n_vocab);
  if (!code) code = emit_chat(e->gguf, &e->tokenizer_view, &e->chat, &e->chat_bytes, err);
  return code;
}

static enum moe_code emit_plan(struct emit *e, struct moe_error *err) {
  enum moe_code code = plan_init(&e->plan, &e->graph, plan_kv_find(e->options->kv), EMIT_MAX_ROW, err);
  for (uint32_t tier = 0, last = 0; tier < IMG_N_TIER && !last && !code; tier++) {
    last = !strcmp(img_tier_name(tier), e->options->tier);
    for (int i = 0; i < EMIT_N_SIZE && !code; i++) {
      uint32_t n_row = emit_sizes[i].n_row, n_select = n_row < EMIT_MAX_SELECT ? n_row : EMIT_MAX_SELECT;
      code = pass_lower(&e->plan, tier, emit_sizes[i].kind, n_row, n_select, err);
      if (!code) plan_drop_equal(&e->plan);
    }
  }
  return code ? code : plan_add_carried(&e->plan, err);
}

static bool emit_hash_progress(void *context, uint64_t done, uint64_t total) {
  (void)total;
  static _Thread_local uint64_t counted;
  struct emit *e = context;
  progress_add(e->progress, done - counted);
  counted = done;
  return !atomic_load(&e->failed);
}

static void *emit_hash_main(void *argument) {
  struct emit *e = argument;
  e->hash_code = gguf_hash(e->gguf, e->hash, emit_hash_progress, e, &e->hash_err);
  return NULL;
}

static enum moe_code emit_hash_start(struct emit *e, struct moe_error *err) {
  e->hashing = !pthread_create(&e->hasher, NULL, emit_hash_main, e);
  return e->hashing ? MOE_OK : moe_fail(err, MOE_FAILED, "the thread that hashes the model file could not be started");
}

static enum moe_code emit_hash_wait(struct emit *e, struct moe_error *err) {
  if (e->hashing) pthread_join(e->hasher, NULL);
  e->hashing = false;
  return e->hash_code ? moe_fail(err, e->hash_code, "%s", e->hash_err.message) : MOE_OK;
}

static enum moe_code emit_whole(struct emit *e, enum img_section_kind kind, const void *data, uint64_t bytes,
                                struct moe_error *err) {
  if (bytes == 0) return MOE_OK;
  enum moe_code code = img_writer_begin(e->writer, kind, err);
  if (!code) code = img_writer_append(e->writer, data, bytes, err);
  return code ? code : img_writer_end(e->writer, err);
}

static enum moe_code emit_write_planes(struct emit *e, struct moe_error *err) {
  progress_phase(e->progress, "packing weights");
  enum moe_code code = img_writer_begin(e->writer, IMG_SECTION_PLANES, err);
  if (!code) code = emit_planes(&e->plan, e->writer, e->pool, e->progress, err);
  return code ? code : img_writer_end(e->writer, err);
}

/* The sections that the graph alone decides. */
static enum moe_code emit_make(struct emit *e, struct moe_error *err) {
  progress_phase(e->progress, "compiling kernels");
  enum moe_code code = emit_modules_make(&e->modules, &e->plan, (int)e->options->compress, e->pool, err);
  if (!code) code = emit_templates(&e->templates, &e->plan, &e->modules, err);
  if (!code) code = emit_plane_index(&e->plane_index, &e->plan, err);
  return code;
}

static enum moe_code emit_write(struct emit *e, struct moe_error *err) {
  enum moe_code code = emit_whole(e, IMG_SECTION_MODULES, e->modules.section.data, e->modules.section.n, err);
  if (!code) code = emit_whole(e, IMG_SECTION_TEMPLATES, e->templates.data, e->templates.n, err);
  if (!code) code = emit_whole(e, IMG_SECTION_PLANE_INDEX, e->plane_index.data, e->plane_index.n, err);
  if (!code) code = emit_whole(e, IMG_SECTION_TABLES, e->plan.table, e->plan.table_bytes, err);
  if (!code) code = emit_whole(e, IMG_SECTION_TOKENIZER, e->tokenizer, e->tokenizer_bytes, err);
  if (!code) code = emit_whole(e, IMG_SECTION_CHAT, e->chat, e->chat_bytes, err);
  if (!code) code = emit_write_planes(e, err);
  if (!code && !e->options->no_selftest) {
    progress_phase(e->progress, "computing the self-test");
    code = emit_selftest(&e->selftest, &e->plan, &e->tokenizer_view, e->pool, err);
  }
  if (!code) code = emit_whole(e, IMG_SECTION_SELFTEST, e->selftest.data, e->selftest.n, err);
  if (!code) code = emit_hash_wait(e, err);
  if (!code) code = emit_manifest(&e->manifest, &e->plan, &e->modules, e->options, e->hash, err);
  if (!code) code = emit_whole(e, IMG_SECTION_MANIFEST, e->manifest.data, e->manifest.n, err);
  progress_phase(e->progress, "hashing the image");
  if (!code) code = img_writer_finish(e->writer, parallel_n_thread(e->pool), progress_counter(e->progress), err);
  return code;
}

static enum moe_code emit_dump(const struct emit *e) {
  ir_print(&e->graph, stdout);
  plan_print(&e->plan, stdout);
  return MOE_OK;
}

/* After the graph is built. */
static enum moe_code emit_graph(struct emit *e, const char *output, struct moe_error *err) {
  enum moe_code code = emit_text(e, err);
  if (!code) code = emit_plan(e, err);
  if (code || e->options->dump_plan) return code ? code : emit_dump(e);
  code = parallel_create((unsigned)e->options->n_thread, &e->pool, err);
  if (!code) code = img_writer_create(output, &e->writer, err);
  if (!code) code = img_writer_need(e->writer, e->plan.planes_bytes + e->plan.table_bytes + e->tokenizer_bytes, err);
  if (code) return code;
  e->progress = progress_create(e->options->quiet, gguf_file_bytes(e->gguf) + 2 * e->plan.planes_bytes);
  code = emit_make(e, err);
  if (!code) code = emit_hash_start(e, err);
  if (!code) code = emit_write(e, err);
  atomic_store(&e->failed, code != MOE_OK);
  return code;
}

/* "dir/model.gguf" gives "model.img", and so does "dir/model-00001-of-00003.gguf". */
static enum moe_code emit_default_output(const char *path, char *output, size_t capacity, struct moe_error *err) {
  const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
  size_t n = gguf_stem_bytes(name);
  if (n == 0 || n + 5 > capacity) return moe_fail(err, MOE_USAGE, "%s: no name for the image; -o gives one", path);
  snprintf(output, capacity, "%.*s.img", (int)n, name);
  return MOE_OK;
}

/* No file of the model may be overwritten by its image. */
static enum moe_code emit_check_output(const struct gguf *gguf, const char *output, struct moe_error *err) {
  struct stat in, out;
  if (stat(output, &out)) return MOE_OK;
  for (uint32_t i = 0; i < gguf_n_part(gguf); i++)
    if (!stat(gguf_part_path(gguf, i), &in) && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
      return moe_fail(err, MOE_USAGE, "%s: the image would replace the model; -o takes another name", output);
  return MOE_OK;
}

/* Frees what the sections, the plan and the graph are made of. */
static void emit_deinit(struct emit *e) {
  emit_modules_deinit(&e->modules);
  emit_bytes_deinit(&e->templates);
  emit_bytes_deinit(&e->plane_index);
  emit_bytes_deinit(&e->manifest);
  emit_bytes_deinit(&e->selftest);
  free(e->tokenizer);
  free(e->chat);
  plan_deinit(&e->plan);
  ir_deinit(&e->graph);
}

enum moe_code emit_model_check(const struct gguf *gguf, struct moe_error *err) {
  const struct emit_options options = {.kv = "f16", .tier = "khr"};
  struct emit e = {.options = &options, .gguf = gguf};
  enum moe_code code = family_build(gguf, &e.graph, err);
  if (code) return code;
  code = emit_text(&e, err);
  if (!code) code = emit_plan(&e, err);
  emit_deinit(&e);
  return code;
}

/* Of a model that has compiled (an error is one line); also when told to be quiet. */
static void emit_note_keys(const struct gguf *gguf) {
  char list[512];
  uint64_t n = keys_list_unknown(gguf, list, sizeof list);
  if (n) fprintf(stderr, "moec: keys that moec does not know and ignores: %s (%llu)\n", list, (unsigned long long)n);
}

enum moe_code emit_image(const char *path, const struct emit_options *options, struct moe_error *err) {
  struct emit e = {.options = options};
  struct gguf *gguf = NULL;
  char name[4096];
  const char *output = options->output ? options->output : name;
  enum moe_code code = options->output ? MOE_OK : emit_default_output(path, name, sizeof name, err);
  if (!code) code = gguf_open(path, &gguf, err);
  if (!code) code = emit_check_output(gguf, output, err);
  e.gguf = gguf;
  if (!code && !(code = family_build(gguf, &e.graph, err))) {
    code = emit_graph(&e, output, err);
    emit_hash_wait(&e, NULL);
    progress_destroy(e.progress);
    img_writer_destroy(e.writer);
    parallel_destroy(e.pool);
    emit_deinit(&e);
  }
  if (!code) emit_note_keys(gguf);
  gguf_close(gguf);
  return code;
}
