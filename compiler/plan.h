/* plan.h: what the passes make of a graph and the emitter writes: planes, tables, and per template a list of dispatches
 * with their buffers placed in ACT.
 *
 * Owns: struct plan and its parts, adding to them. Does not own: which dispatches a graph becomes (pass.h), the bytes
 * of an image (emit.h). Invariants: a plane is added once for a tensor and a form, in order of first use; offsets
 * follow from the order alone, so that equal graphs give equal plans. Operands name things by index: emit_* turn them
 * into addresses. */
#ifndef COMPILER_PLAN_H
#define COMPILER_PLAN_H

#include "img_enums.h"
#include "ir.h"
#include "pack.h"
#include "shadergen.h"

enum { PLAN_PAGE_TOK = 64, PLAN_MAX_TEMPLATE = 64 };

/* Elements of the state's pages: the kernels' parameter KV (shadergen/glsl/kv.glsl). */
enum plan_kv { PLAN_KV_F16 = 0, PLAN_KV_F32 = 1, PLAN_KV_Q8_0 = 2 };
/* By the name that --kv gives; PLAN_KV_F16 for others. */
enum plan_kv plan_kv_find(const char *name);

enum plan_operand_kind {
  PLAN_UNUSED = 0, /* the kernel does not read it here: any readable address */
  PLAN_PLANE,      /* index: of plan->plane */
  PLAN_ACT,        /* offset in the arena ACT */
  PLAN_TABLE,      /* offset in the arena TABLES */
  PLAN_STATE,      /* index: of the graph's states */
  PLAN_RECURRENT,  /* index: of the graph's recurrent states */
  PLAN_STEP,
  PLAN_RESULT,
  PLAN_SLOT,
  PLAN_RESIDENT_TABLE, /* the template's table in device memory: plan_add_resident */
  PLAN_IMM,            /* in a cell of that table only: offset is a number below 2^56 */
};

struct plan_operand {
  enum plan_operand_kind kind;
  uint32_t index;
  uint64_t offset;
};

/* One weight plane. A vector (norm weight, bias) becomes F32 whatever its format in the file: widening is exact. */
struct plan_plane {
  const struct gguf_tensor *tensor;
  struct plane_layout layout;
  bool widened;    /* layout.format is F32, the tensor's is not */
  uint64_t offset; /* in PLANES */
};

/* One dispatch. operand[i] is push field i of the kernel. */
struct plan_op {
  enum img_role role;
  int layer;
  struct shadergen_request request;
  struct plan_operand operand[KERNEL_MAX_PUSH];
};

/* A template's table in device memory: kernels find there the address that each operand stands for, or its number; 0
 * for PLAN_UNUSED. */
struct plan_resident {
  uint32_t n_row, n_column;
  struct plan_operand *cell; /* [n_row][n_column]; NULL: the template has no table */
};

struct plan_template {
  enum img_tier tier; /* its kernels are of this tier or lower ones */
  enum img_template_kind kind;
  uint32_t n_row, n_select;
  struct plan_op *op; /* layers' dispatches stand together, in order */
  uint32_t n_op, capacity;
  uint64_t act_bytes; /* what this template needs of ACT */
  struct plan_resident resident;
};

struct plan {
  const struct ir_graph *graph;
  enum plan_kv kv;
  uint32_t max_row;
  uint64_t page_bytes;        /* of a state page: all the graph's states, one after another */
  uint64_t *state_offset;     /* by state of the graph: where it begins in a page */
  uint64_t block_bytes;       /* of a slot's recurrent block: all the graph's recurrent states, one after another */
  uint64_t *recurrent_offset; /* by recurrent state: where it begins in a block */
  struct plan_plane *plane;
  uint32_t n_plane, plane_capacity;
  uint32_t n_carried; /* the last planes, which no template reads: plan_add_carried */
  uint64_t planes_bytes;
  uint8_t *table; /* the section TABLES */
  uint64_t table_bytes;
  uint64_t *rope_table; /* by rope of the graph: offset in TABLES */
  uint64_t codebooks;   /* offset in TABLES of the table of codebooks; 0: no kernel needs it (yet) */
  /* Counters that kernels leave at zero: first in ACT, at the same place in every template. */
  uint64_t attention_counter, router_counter, counter_bytes;
  struct plan_template template[PLAN_MAX_TEMPLATE];
  uint32_t n_template;
};

/* plan: uninitialized; give it to plan_deinit also when this fails. Makes TABLES. max_row: the largest n_row that a
 * template will have. Errors: MOE_DECLINED for states that kernels cannot address. */
enum moe_code plan_init(struct plan *plan, const struct ir_graph *graph, enum plan_kv kv, uint32_t max_row,
                        struct moe_error *err);

/* bytes rounded up to IMG_PLANE_ALIGN. */
uint64_t plan_align(uint64_t bytes);
void plan_deinit(struct plan *plan);

/* The operand of a tensor's plane, added when it is new. vector: widened to F32. */
enum moe_code plan_add_plane(struct plan *plan, const struct gguf_tensor *tensor, bool vector,
                             struct plan_operand *operand, struct moe_error *err);

/* The operand of the table of codebooks (codebooks.h), which goes into TABLES when it is first asked for. */
enum moe_code plan_add_codebooks(struct plan *plan, struct plan_operand *operand, struct moe_error *err);

/* Planes of the graph's carried tensors, behind all that templates read: call it after the last pass_lower. */
enum moe_code plan_add_carried(struct plan *plan, struct moe_error *err);

/* Appends a copy of *op. */
enum moe_code plan_add_op(struct plan_template *t, const struct plan_op *op, struct moe_error *err);

/* Gives a template its table in device memory, of n_row x n_column cells; it has at most one. cells: copied; a plane, a
 * state (its offset in a page), a recurrent state, a place in ACT, TABLES or SLOT, PLAN_IMM or PLAN_UNUSED: not STEP or
 * RESULT, which exist twice. operand: for the push field (ACCESS R, BYTES 0) of a dispatch outside the layers. Such a
 * dispatch may read all of WEIGHTS and TABLES, and read and write all of STATE, ACT, SLOT and of recurrent blocks, as
 * far as cells have addresses there. Errors: MOE_FAILED (a second table, another kind of cell, a number too large). */
enum moe_code plan_add_resident(struct plan_template *t, uint32_t n_row, uint32_t n_column,
                                const struct plan_operand *cells, struct plan_operand *operand, struct moe_error *err);

/* Drops the last template when a device of its tier would take an equal one anyway: that of the highest tier below it
 * among those of its kind and rows (FORMAT.md, Tiers). Planes that it added stay. */
void plan_drop_equal(struct plan *plan);

/* Bytes of ACT: the most that a template needs. */
uint64_t plan_act_bytes(const struct plan *plan);

/* Prints one line a dispatch. */
void plan_print(const struct plan *plan, FILE *out);

#endif
