/* kernel_case.c: see kernel_case.h. */
#include "kernel_case.h"

#include "codebooks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct vkh_device device;
static void close_device(void);

struct vkh_device *kernel_case_device(void) {
  static bool open;
  if (!open) {
    struct moe_error err = {0};
    if (vkh_open(&device, &err)) fail_msg("%s", err.message);
    atexit(close_device);
    open = true;
  }
  return &device;
}

static void check(enum moe_code code, const struct moe_error *err) {
  if (code) fail_msg("code %d: %s", (int)code, err->message);
}

void kernel_case_init(struct kernel_case *c, enum kernel_id kernel) {
  memset(c, 0, sizeof *c);
  c->device = kernel_case_device();
  c->info = kernel_get(kernel);
  c->request.kernel = kernel;
  c->n_resident = 1;
}

void kernel_case_resident(struct kernel_case *c, uint32_t n) {
  c->n_resident = n;
}

void kernel_case_deinit(struct kernel_case *c) {
  for (uint32_t i = 0; i < c->info->n_push; i++)
    if (c->bound[i]) vkh_buffer_deinit(c->device, &c->buffer[i]);
  memset(c, 0, sizeof *c);
}

void kernel_case_param(struct kernel_case *c, const char *name, double value) {
  for (uint32_t i = 0; i < c->request.n_param; i++)
    if (!strcmp(c->request.param[i].name, name)) {
      c->request.param[i].value = value;
      return;
    }
  assert_true(c->request.n_param < KERNEL_MAX_PARAM);
  c->request.param[c->request.n_param++] = (struct shadergen_param){name, value};
}

static uint32_t field_index(const struct kernel_case *c, const char *field) {
  int index = kernel_push_index(c->info, field);
  if (index < 0) fail_msg("kernel %s has no field %s", c->info->name, field);
  return (uint32_t)index;
}

static uint64_t extent(struct kernel_case *c, uint32_t field) {
  struct moe_error err = {0};
  uint64_t bytes = 0;
  check(shadergen_extent(&c->request, field, &bytes, &err), &err);
  return bytes;
}

void *kernel_case_bind(struct kernel_case *c, const char *field, const void *data, uint64_t bytes) {
  uint32_t index = field_index(c, field);
  if (bytes == 0) bytes = extent(c, index);
  if (bytes == 0) fail_msg("kernel %s: field %s needs a size", c->info->name, field);
  assert_false(c->bound[index]);
  vkh_buffer_init(c->device, bytes, &c->buffer[index]);
  c->bound[index] = true;
  if (data) memcpy(c->buffer[index].data, data, bytes);
  return c->buffer[index].data;
}

void *kernel_case_data(struct kernel_case *c, const char *field) {
  return c->buffer[field_index(c, field)].data;
}

/* ---- running ---- */

/* The pipelines made last: a test that runs a few kernels in turn, many times, makes each once. */
enum { N_MADE = 4 };
static struct made {
  struct shadergen_request request;
  struct vkh_kernel kernel;
  uint32_t n_resident;
  bool made;
} made[N_MADE];
static uint32_t next_made;

static bool same_request(const struct shadergen_request *a, const struct shadergen_request *b) {
  if (a->kernel != b->kernel || a->instrument != b->instrument || a->n_param != b->n_param) return false;
  for (uint32_t i = 0; i < a->n_param; i++)
    if (strcmp(a->param[i].name, b->param[i].name) || a->param[i].value != b->param[i].value) return false;
  return true;
}

static void close_device(void) {
  for (uint32_t i = 0; i < N_MADE; i++)
    if (made[i].made) vkh_kernel_deinit(&device, &made[i].kernel);
  vkh_close(&device);
}

static const struct vkh_kernel *make_kernel(struct kernel_case *c) {
  struct moe_error err = {0};
  struct shadergen_module module;
  for (uint32_t i = 0; i < N_MADE; i++)
    if (made[i].made && made[i].n_resident == c->n_resident && same_request(&made[i].request, &c->request))
      return &made[i].kernel;
  check(shadergen_compile(&c->request, &module, &err), &err);
  struct made *m = &made[next_made++ % N_MADE];
  if (m->made) vkh_kernel_deinit(c->device, &m->kernel);
  c->device->n_resident = m->n_resident = c->n_resident;
  vkh_kernel_init(c->device, &module, &m->kernel);
  shadergen_module_deinit(&module);
  m->request = c->request;
  m->made = true;
  return &m->kernel;
}

static void run_module(struct kernel_case *c, bool instrument, const uint64_t *push) {
  struct moe_error err = {0};
  c->request.instrument = instrument;
  struct vkh_dispatch dispatch = {.kernel = make_kernel(c), .push = push};
  check(shadergen_grid(&c->request, dispatch.grid, &err), &err);
  vkh_run(c->device, &dispatch, 1, 1);
}

static void bind_rest(struct kernel_case *c) {
  for (uint32_t i = 0; i < c->info->n_push; i++)
    if (!c->bound[i]) {
      uint64_t bytes = extent(c, i);
      bool books = !strcmp(c->info->push[i].name, "codebook") && bytes == sizeof codebooks;
      kernel_case_bind(c, c->info->push[i].name, books ? &codebooks : NULL, bytes ? bytes : 16);
    }
}

/* Extents of the bound buffers, cut to what kernels.def allows; field `cut` to cut_bytes. */
static void fill_extents(struct kernel_case *c, struct shadergen_extents *e, uint32_t cut, uint64_t cut_bytes) {
  memset(e, 0, sizeof *e);
  for (uint32_t i = 0; i < c->info->n_push; i++) {
    uint64_t bytes = extent(c, i);
    if (bytes == 0) bytes = c->buffer[i].bytes;
    if (bytes > c->buffer[i].bytes)
      fail_msg("kernel %s: field %s has %llu bytes, its extent is %llu", c->info->name, c->info->push[i].name,
               (unsigned long long)c->buffer[i].bytes, (unsigned long long)bytes);
    if (i == cut) bytes = cut_bytes;
    e->extent[i].begin = c->buffer[i].address;
    e->extent[i].end = c->buffer[i].address + bytes;
  }
}

static void run_instrumented(struct kernel_case *c, uint32_t cut, uint64_t cut_bytes,
                             struct shadergen_extents *report) {
  uint64_t push[KERNEL_MAX_PUSH + 1];
  struct vkh_buffer extents;
  vkh_buffer_init(c->device, sizeof *report, &extents);
  fill_extents(c, report, cut, cut_bytes);
  memcpy(extents.data, report, sizeof *report);
  for (uint32_t i = 0; i < c->info->n_push; i++) push[i] = c->buffer[i].address;
  push[c->info->n_push] = extents.address;
  run_module(c, true, push);
  memcpy(report, extents.data, sizeof *report);
  vkh_buffer_deinit(c->device, &extents);
}

void kernel_case_run_plain(struct kernel_case *c) {
  uint64_t push[KERNEL_MAX_PUSH];
  uint8_t *before[KERNEL_MAX_PUSH] = {NULL};
  bind_rest(c);
  for (uint32_t i = 0; i < c->info->n_push; i++) {
    push[i] = c->buffer[i].address;
    if (c->info->push[i].access != KERNEL_ACCESS_R) continue;
    before[i] = malloc(c->buffer[i].bytes);
    assert_non_null(before[i]);
    memcpy(before[i], c->buffer[i].data, c->buffer[i].bytes);
  }
  run_module(c, false, push);
  for (uint32_t i = 0; i < c->info->n_push; i++) {
    if (!vkh_buffer_intact(&c->buffer[i]))
      fail_msg("kernel %s writes outside of field %s", c->info->name, c->info->push[i].name);
    if (before[i] && memcmp(before[i], c->buffer[i].data, c->buffer[i].bytes))
      fail_msg("kernel %s writes into field %s, which is declared R", c->info->name, c->info->push[i].name);
    free(before[i]);
  }
}

void kernel_case_run(struct kernel_case *c) {
  struct shadergen_extents report;
  uint8_t *before[KERNEL_MAX_PUSH];
  bind_rest(c);
  for (uint32_t i = 0; i < c->info->n_push; i++) {
    before[i] = malloc(c->buffer[i].bytes);
    assert_non_null(before[i]);
    memcpy(before[i], c->buffer[i].data, c->buffer[i].bytes);
  }
  run_instrumented(c, UINT32_MAX, 0, &report);
  if (report.n_violation)
    fail_msg("kernel %s: %u accesses outside the declared extents, one of field %s at byte %lld", c->info->name,
             report.n_violation, c->info->push[report.field].name,
             (long long)(report.address - report.extent[report.field].begin));
  for (uint32_t i = 0; i < c->info->n_push; i++) {
    memcpy(c->buffer[i].data, before[i], c->buffer[i].bytes);
    free(before[i]);
  }
  kernel_case_run_plain(c);
}

uint32_t kernel_case_violations(struct kernel_case *c, const char *field, uint64_t bytes) {
  struct shadergen_extents report;
  bind_rest(c);
  run_instrumented(c, field_index(c, field), bytes, &report);
  if (report.n_violation) assert_int_equal(report.field, field_index(c, field));
  return report.n_violation;
}
