/* prelude.glsl: what every kernel includes first. A kernel file is
 *
 *   #version 460
 *   #extension GL_GOOGLE_include_directive : require
 *   #define KERNEL_<name>
 *   #include "prelude.glsl"
 *
 * Owns: extensions, specialization constants, parameters, the push block and the accessors ld_<field>_<type> and
 * st_<field>_<type> made from kernels.def, the step block's constants and reads, reductions.
 * Invariants: every access to memory goes through an accessor with the field it belongs to; with INSTRUMENT the accessor
 * checks the field's extent, leaves out an access outside and reports it. Workgroups are one-dimensional and subgroups are full and
 * consist of consecutive invocations. Sums have a fixed order: they depend on shapes and tuning, never on arrival. */
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#pragma use_vulkan_memory_model

/* enum img_spec_id */
layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;
layout(constant_id = 1) const uint LANES = 1;    /* invocations that share one row */
layout(constant_id = 2) const uint SUBGROUP = 1; /* the device's subgroup size */
layout(constant_id = 3) const uint EXTRA = 1;
#define WG gl_WorkGroupSize.x
#define TID gl_LocalInvocationIndex
/* Subgroups of 8: a CPU (lavapipe). There a load is a loop over the lanes, the same value in all lanes too, and it takes 8 bytes as fast
 * as 4; shuffles are one instruction. */
#define NARROW (SUBGROUP == 8)
/* A loop's bound N that drivers for narrow subgroups do not see as a constant: code there is generated at first use, and the less the
 * better. TID is far below 2^24. */
#define ROLLED(N) (NARROW ? (N) + (TID >> 24) : (N))

#define IMG_STEP(NAME, VALUE, WHAT) const int IMG_##NAME = VALUE;
#include "img_step.def"
#undef IMG_STEP

/* ---- kernels.def: parameters. The library defines them as macros; standing alone, the defaults are constants. ---- */
#define KERNEL(ENUM, NAME, WHAT)
#define KERNEL_END(ENUM, NAME)
#define GRID(X, Y, Z)
#define TUNE(MIN_SUBGROUP, WG, LANES, EXTRA, ITEMS, SHARED)
#define NEEDS(FEATURES)
#ifndef SHADERGEN_PARAMS
#define PARAM_INT(NAME, DEFAULT) const int NAME = DEFAULT;
#define PARAM_FLOAT(NAME, DEFAULT) const float NAME = DEFAULT;
#define PARAM_FORMAT(NAME, DEFAULT)
#define PARAM(KIND, NEED, NAME, DEFAULT, WHAT) PARAM_##KIND(NAME, DEFAULT)
#else
#define PARAM(KIND, NEED, NAME, DEFAULT, WHAT)
#endif
#define PUSH(INDEX, KIND, NAME, ACCESS, BYTES, WHAT)
#include "kernels.def"

/* ---- kernels.def: the push block ---- */
#define KERNEL(ENUM, NAME, WHAT)
#define KERNEL_END(ENUM, NAME)
#define GRID(X, Y, Z)
#define TUNE(MIN_SUBGROUP, WG, LANES, EXTRA, ITEMS, SHARED)
#define NEEDS(FEATURES)
#define PARAM(KIND, NEED, NAME, DEFAULT, WHAT)
#define PUSH_ADDRESS uint64_t
#define PUSH_WORD uint
#define PUSH(INDEX, KIND, NAME, ACCESS, BYTES, WHAT) PUSH_##KIND NAME;
layout(push_constant, std430) uniform push_block {
#include "kernels.def"
#ifdef INSTRUMENT
  uint64_t extents; /* struct shadergen_extents */
#endif
} pc;

/* ---- memory ---- */
layout(buffer_reference, std430, buffer_reference_align = 4) buffer mem_uint { uint v; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer mem_uint64_t { uint64_t v; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer mem_uvec2 { uvec2 v; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer mem_uvec4 { uvec4 v; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer mem_float { float v; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer mem_vec2 { vec2 v; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer mem_vec4 { vec4 v; };
/* Written by one workgroup and read by another of the same dispatch: available and visible to the device, access by access. */
layout(buffer_reference, std430, buffer_reference_align = 4) buffer mem_shared_float { devicecoherent float v; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer mem_shared_vec4 { devicecoherent vec4 v; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer mem_counter { uint v; };

#ifdef INSTRUMENT
layout(buffer_reference, std430, buffer_reference_align = 8) buffer mem_extents {
  uint n_violation, field, reserved[2];
  uint64_t address, reserved2;
  uint64_t extent[];
};
bool mem_ok(uint field, uint64_t address, uint bytes) {
  mem_extents e = mem_extents(pc.extents);
  bool ok = address >= e.extent[2 * field] && address + bytes <= e.extent[2 * field + 1] && address % bytes == 0;
  if (!ok && atomicAdd(e.n_violation, 1u) == 0) {
    e.field = field;
    e.address = address;
  }
  return ok;
}
#else
bool mem_ok(uint field, uint64_t address, uint bytes) { return true; }
#endif

#define MEM_TYPE(T, BYTES)                                                                                             \
  T mem_ld_##T(uint field, uint64_t address) { return mem_ok(field, address, BYTES) ? mem_##T(address).v : T(0); }     \
  void mem_st_##T(uint field, uint64_t address, T value) {                                                             \
    if (mem_ok(field, address, BYTES)) mem_##T(address).v = value;                                                     \
  }
MEM_TYPE(uint, 4)
MEM_TYPE(float, 4)
MEM_TYPE(uint64_t, 8)
/* Vectors of 2 and of 4: as 64-bit words where that is faster. */
#define MEM_VECTOR(T2, T4, FROM, TO)                                                                                   \
  T2 mem_ld_##T2(uint field, uint64_t address) {                                                                       \
    if (NARROW) return FROM(unpackUint2x32(mem_ld_uint64_t(field, address)));                                          \
    return mem_ok(field, address, 8) ? mem_##T2(address).v : T2(0);                                                    \
  }                                                                                                                    \
  T4 mem_ld_##T4(uint field, uint64_t address) {                                                                       \
    if (NARROW) return T4(mem_ld_##T2(field, address), mem_ld_##T2(field, address + 8));                               \
    return mem_ok(field, address, 16) ? mem_##T4(address).v : T4(0);                                                   \
  }                                                                                                                    \
  void mem_st_##T2(uint field, uint64_t address, T2 value) {                                                           \
    if (NARROW)                                                                                                        \
      mem_st_uint64_t(field, address, packUint2x32(TO(value)));                                                        \
    else if (mem_ok(field, address, 8))                                                                                \
      mem_##T2(address).v = value;                                                                                     \
  }                                                                                                                    \
  void mem_st_##T4(uint field, uint64_t address, T4 value) {                                                           \
    if (NARROW) {                                                                                                      \
      mem_st_##T2(field, address, value.xy);                                                                           \
      mem_st_##T2(field, address + 8, value.zw);                                                                       \
    } else if (mem_ok(field, address, 16)) {                                                                           \
      mem_##T4(address).v = value;                                                                                     \
    }                                                                                                                  \
  }
MEM_VECTOR(uvec2, uvec4, uvec2, uvec2)
MEM_VECTOR(vec2, vec4, uintBitsToFloat, floatBitsToUint)

/* ---- kernels.def: F_<field>, ld_<field>_<type>(byte offset), st_<field>_<type>(byte offset, value) ---- */
#define ACCESS_LD(NAME, T)                                                                                             \
  T ld_##NAME##_##T(uint64_t offset) { return mem_ld_##T(F_##NAME, pc.NAME + offset); }
#define ACCESS_ST(NAME, T)                                                                                             \
  void st_##NAME##_##T(uint64_t offset, T value) { mem_st_##T(F_##NAME, pc.NAME + offset, value); }
#define ACCESS_R(NAME)                                                                                                 \
  ACCESS_LD(NAME, uint) ACCESS_LD(NAME, uvec2) ACCESS_LD(NAME, uvec4)                                                  \
  ACCESS_LD(NAME, float) ACCESS_LD(NAME, vec2) ACCESS_LD(NAME, vec4)
#define ACCESS_W(NAME)                                                                                                 \
  ACCESS_ST(NAME, uint) ACCESS_ST(NAME, uvec2) ACCESS_ST(NAME, uvec4)                                                  \
  ACCESS_ST(NAME, float) ACCESS_ST(NAME, vec2) ACCESS_ST(NAME, vec4)
#define ACCESS_RW(NAME) ACCESS_R(NAME) ACCESS_W(NAME)
#define FIELD_ADDRESS(NAME, ACCESS) ACCESS_##ACCESS(NAME)
#define FIELD_WORD(NAME, ACCESS)
#define KERNEL(ENUM, NAME, WHAT)
#define KERNEL_END(ENUM, NAME)
#define GRID(X, Y, Z)
#define TUNE(MIN_SUBGROUP, WG, LANES, EXTRA, ITEMS, SHARED)
#define NEEDS(FEATURES)
#define PARAM(KIND, NEED, NAME, DEFAULT, WHAT)
#define PUSH(INDEX, KIND, NAME, ACCESS, BYTES, WHAT) const uint F_##NAME = INDEX; FIELD_##KIND(NAME, ACCESS)
#include "kernels.def"

/* Values that workgroups of one dispatch hand to each other. */
float mem_ld_shared(uint field, uint64_t address) {
  return mem_ok(field, address, 4) ? mem_shared_float(address).v : 0.0;
}
void mem_st_shared(uint field, uint64_t address, float value) {
  if (mem_ok(field, address, 4)) mem_shared_float(address).v = value;
}

vec4 mem_ld_shared_vec4(uint field, uint64_t address) {
  return mem_ok(field, address, 16) ? mem_shared_vec4(address).v : vec4(0);
}
void mem_st_shared_vec4(uint field, uint64_t address, vec4 value) {
  if (mem_ok(field, address, 16)) mem_shared_vec4(address).v = value;
}

/* All invocations of the workgroup are here, and see what they wrote to shared memory before. Lanes of a narrow subgroup go in step, and a
 * barrier makes coroutines of them there. Call in uniform control flow. */
void group_barrier() {
  if (WG > SUBGROUP)
    barrier();
  else if (!NARROW)
    subgroupBarrier();
}

/* Arrival of a workgroup at a counter that n workgroups share. True, in all its invocations, for the last one, which then sees what
 * the others stored with mem_st_shared before; the counter is zero again afterwards. Call in uniform control flow. */
#define SEMANTICS_ALL (gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable | gl_SemanticsMakeVisible)
shared bool arrival_last;
bool arrive_last(uint field, uint64_t address, uint n) {
  if (WG > SUBGROUP)
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeDevice, gl_StorageSemanticsBuffer, SEMANTICS_ALL);
  else if (!NARROW)
    controlBarrier(gl_ScopeSubgroup, gl_ScopeDevice, gl_StorageSemanticsBuffer, SEMANTICS_ALL);
  bool last = false;
  if (TID == 0 && mem_ok(field, address, 4)) {
    mem_counter c = mem_counter(address);
    last = atomicAdd(c.v, 1u, gl_ScopeDevice, gl_StorageSemanticsBuffer, SEMANTICS_ALL) == n - 1;
    if (last) atomicStore(c.v, 0u, gl_ScopeDevice, gl_StorageSemanticsNone, gl_SemanticsRelaxed);
  }
  if (WG > SUBGROUP) {
    if (TID == 0) arrival_last = last;
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeDevice, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, SEMANTICS_ALL);
    return arrival_last;
  }
  if (!NARROW) controlBarrier(gl_ScopeSubgroup, gl_ScopeDevice, gl_StorageSemanticsBuffer, SEMANTICS_ALL);
  return subgroupShuffle(uint(last), 0) != 0;
}

/* ---- the step block ---- */
uint step_word(uint index) { return ld_step_uint(4 * index); }
uint step_row_token(uint r) { return step_word(IMG_STEP_HEAD_WORDS + r); }
uint step_row_pos(uint r) { return step_word(IMG_STEP_HEAD_WORDS + MAX_ROW + r); }
uint step_row_slot(uint r) { return step_word(IMG_STEP_HEAD_WORDS + 2 * MAX_ROW + r); }
uint step_select(uint i, uint word) {
  return step_word(IMG_STEP_HEAD_WORDS + 3 * MAX_ROW + i * IMG_SELECT_WORDS + word);
}
/* Run record i (img_step.def). */
uint step_run(uint i, uint word) {
  return step_word(IMG_STEP_HEAD_WORDS + 3 * MAX_ROW + IMG_MAX_SELECT * IMG_SELECT_WORDS + i * IMG_RUN_WORDS + word);
}
/* Page index of position pos of a slot. */
uint step_page(uint slot, uint pos) {
  return step_word(IMG_STEP_HEAD_WORDS + 3 * MAX_ROW + IMG_MAX_SELECT * IMG_SELECT_WORDS +
                   IMG_MAX_RUN * IMG_RUN_WORDS + slot * step_word(IMG_STEP_PAGE_STRIDE) + pos / 64);
}

/* ---- reductions; all lanes get the result ---- */
#define FOLD_STEP(N, M, HOW)                                                                                           \
  if (N > M) v = HOW(v, subgroupShuffleXor(v, M));
/* Without a loop, which drivers for CPUs would not unroll: see README.md about their limit. */
#define FOLD(N, HOW)                                                                                                   \
  FOLD_STEP(N, 64, HOW) FOLD_STEP(N, 32, HOW) FOLD_STEP(N, 16, HOW) FOLD_STEP(N, 8, HOW) FOLD_STEP(N, 4, HOW)          \
  FOLD_STEP(N, 2, HOW) FOLD_STEP(N, 1, HOW)
#define FOLD_ADD(A, B) (A + B)
float lanes_sum(float v) {
  FOLD(LANES, FOLD_ADD)
  return v;
}
float subgroup_sum(float v) {
  FOLD(SUBGROUP, FOLD_ADD)
  return v;
}
float subgroup_max(float v) {
  FOLD(SUBGROUP, max)
  return v;
}
