/* shadergen.h: (kernel, parameters) -> checked SPIR-V with its tuning, grid and the bytes it may touch.
 *
 * Owns: compilation of the kernels of kernels.def from sources embedded in the library. Does not own: which kernels a
 * model needs (compiler/), Vulkan (runtime/). Invariants: every module has passed spirv-opt and spirv-val; the same
 * request gives the same words on every run and machine; no file is read at run time. All functions may be called from
 * any thread at the same time.
 *
 * Use: request = {.kernel = KERNEL_GEMV, .param = {{"FMT", 12}, {"N_IN", 2048}, ...}, .n_param = ...};
 * shadergen_compile for the module; shadergen_grid for img_inst.grid; shadergen_extent for the bytes of each
 * img_region; struct push_gemv for the order of the words. */
#ifndef SHADERGEN_SHADERGEN_H
#define SHADERGEN_SHADERGEN_H

#include "img_format.h"
#include "moe_error.h"
#include "shadergen_kernels.h"

#include <math.h>

/* A parameter by its name in kernels.def. Integers are exact in a double; floats are rounded to binary32. */
struct shadergen_param {
  const char *name;
  double value;
};

/* What to compile. Parameters in any order; REQUIRED ones must be there, unknown ones are an error. */
struct shadergen_request {
  enum kernel_id kernel;
  uint32_t n_param;
  struct shadergen_param param[KERNEL_MAX_PARAM];
  bool instrument; /* accessors check their field's extent; push block gets the extents' address at its end */
};

/* A compiled module. Owned by the caller; shadergen_module_deinit frees it. */
struct shadergen_module {
  uint32_t *words;
  uint32_t bytes; /* of words */
  uint32_t push_bytes;
  uint64_t features;
  uint32_t shared_bytes; /* the largest of the tuning rows */
  uint32_t n_tuning;
  struct img_tuning tuning[IMG_MAX_TUNING];
  uint8_t hash[IMG_HASH_BYTES]; /* of words, tuning and features: modules with equal hashes are interchangeable */
  char name[192];               /* "gemv FMT=q4_k N_IN=256 ...": the parameters given */
};

/* Checks the request and compiles it. *out is initialized by the call and needs deinit only on MOE_OK.
 * Errors: MOE_USAGE for a request that breaks kernels.def's rules (named); MOE_DECLINED for a format that no fmt_*.glsl
 * decodes; MOE_FAILED when the source does not compile or does not validate (the tool's message is in err). */
enum moe_code shadergen_compile(const struct shadergen_request *request, struct shadergen_module *out,
                                struct moe_error *err);
void shadergen_module_deinit(struct shadergen_module *module);

/* Whether two requests ask for the same in the same words: parameters alike and in one order. */
bool shadergen_same_request(const struct shadergen_request *a, const struct shadergen_request *b);

/* grid: for img_inst.grid; [0] in items. Errors: MOE_USAGE as shadergen_compile. */
enum moe_code shadergen_grid(const struct shadergen_request *request, uint32_t grid[3], struct moe_error *err);

/* *bytes: how many bytes from its address push field `field` (index; kernel_push_index) may touch. 0: all of the object
 * that the address is in (kernels.def). Errors: MOE_USAGE as shadergen_compile, or no such field. */
enum moe_code shadergen_extent(const struct shadergen_request *request, uint32_t field, uint64_t *bytes,
                               struct moe_error *err);

/* Whether a format of the request is a codebook format: its push field `codebook` must then have the table of all
 * codebooks, shadergen_codebooks_bytes() bytes laid out as codebooks.def says. False for a faulty request. */
bool shadergen_needs_codebooks(const struct shadergen_request *request);
uint32_t shadergen_codebooks_bytes(void);

/* Whether a weight format (GGUF type number) has a decoder, and its name in GLSL ("q4_k"), or NULL. */
const char *shadergen_format_name(uint32_t format);

/* Whether it also has one to integers, which kernels of tier dot need. */
bool shadergen_has_dot(uint32_t format);

/* An entry of rope_store's table: the angle of one position in turns, as a fraction of 2^64. The kernel multiplies it
 * by the position modulo 2^64, so the angle modulo a turn is exact at any position. inv_freq: radians per position, 0
 * <= inv_freq < 2 pi. */
static inline uint64_t shadergen_rope_turns(double inv_freq) {
  return (uint64_t)ldexp(inv_freq / 6.283185307179586476925286766559, 64);
}

/* What an instrumented module reads and writes at the address in its last push word: first n_field extents, then the
 * report. */
struct shadergen_extents {
  uint32_t n_violation; /* zero before the run; accesses outside */
  uint32_t field;       /* of one of them: index of the push field */
  uint32_t reserved[2];
  uint64_t address; /* of one of them */
  uint64_t reserved2;
  struct {
    uint64_t begin, end; /* field i may touch [begin, end) */
  } extent[KERNEL_MAX_PUSH];
};

#endif
