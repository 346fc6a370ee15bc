/* img_format.h: the bytes of a device image, as C structures. FORMAT.md is the same in prose and must suffice for a
 * second reader.
 *
 * Owns: every on-disk structure and constant. Does not own: reading (img_reader), checking (img_check, img_hazard),
 * writing (img_writer), the step block (img_step.h), the manifest's JSON (img_manifest). Invariants: little-endian; all
 * structures are fixed-size, naturally aligned, and map 1:1 onto the file; reserved bytes are zero; sections start at
 * multiples of IMG_ALIGN, gaps are zero; a reader accepts the same major and any minor. */
#ifndef IMAGES_IMG_FORMAT_H
#define IMAGES_IMG_FORMAT_H

#include <stdint.h>

#define IMG_MAGIC "MOEIMAGE" /* 8 bytes, no terminator */
#define IMG_MAJOR 1
#define IMG_MINOR 1
#define IMG_ALIGN 65536u          /* sections */
#define IMG_PLANE_ALIGN 256u      /* planes and tables inside their sections, buffers inside arenas */
#define IMG_HASH_BYTES 32         /* BLAKE2b-256 */
#define IMG_LEAF_BYTES (1u << 20) /* a section's hash is the hash of its leaves' hashes, leaves of 1 MiB */
#define IMG_MAX_SECTION 32

/* The frozen prefix: 64 bytes that no major version moves. root = BLAKE2b-256 over the header (prefix with root zeroed,
 * then the section table). */
struct img_prefix {
  uint8_t magic[8];
  uint16_t major, minor;
  uint32_t header_bytes; /* prefix and section table */
  uint64_t file_bytes;
  uint32_t n_section, reserved;
  uint8_t root[IMG_HASH_BYTES];
};

enum img_section_kind {
  IMG_SECTION_MANIFEST = 1,    /* JSON, see img_manifest.h */
  IMG_SECTION_MODULES = 2,     /* struct img_modules */
  IMG_SECTION_TEMPLATES = 3,   /* struct img_templates */
  IMG_SECTION_PLANE_INDEX = 4, /* struct img_planes: names and extents of what PLANES holds */
  IMG_SECTION_PLANES = 5,      /* raw weight planes; offsets in it are offsets in the arena WEIGHTS */
  IMG_SECTION_TABLES = 6,      /* raw constant tables; offsets in it are offsets in the arena TABLES */
  IMG_SECTION_TOKENIZER = 7,   /* img_tokenizer.h */
  IMG_SECTION_CHAT = 8,        /* img_chat.h */
  IMG_SECTION_SELFTEST =
      9, /* JSON: {"prompt_ids":[...],"ids":[...],"logprobs":[[[id,logprob],...],...]} from the oracle */
};

struct img_section {
  uint32_t kind, flags;
  uint64_t offset, bytes, reserved;
  uint8_t hash[IMG_HASH_BYTES];
};

/* ---- MODULES: struct img_modules, n_module structs img_module, then names (NUL-terminated) and zstd frames ---- */

#define IMG_MAX_TUNING 4
#define IMG_N_SPEC 4
#define IMG_MAX_RESIDENT 1024 /* workgroups of a dispatch of a module that needs IMG_FEATURE_RESIDENT */
/* Specialization constants have fixed ids: 0 local size x, 1 lanes per row, 2 the device's subgroup size, 3 free for
 * the kernel, but the number of workgroups where the module needs IMG_FEATURE_RESIDENT. */
enum img_spec_id { IMG_SPEC_WG = 0, IMG_SPEC_LANES = 1, IMG_SPEC_SUBGROUP = 2, IMG_SPEC_EXTRA = 3 };

/* Values for devices with at least this subgroup size; the last row whose min_subgroup is not above the device's is
 * used. */
struct img_tuning {
  uint32_t min_subgroup;
  uint32_t spec[IMG_N_SPEC]; /* by id; spec[IMG_SPEC_SUBGROUP] is ignored, the loader puts the device's there */
  uint32_t group_items;      /* items of grid[0] that one workgroup serves: groups = ceil(grid[0] / group_items) */
};

struct img_module {
  uint64_t code_offset;             /* zstd frame, from the section's start */
  uint32_t code_zbytes, code_bytes; /* compressed, and SPIR-V bytes */
  uint32_t name_offset;             /* "gemv.q4_k.2048x768.norm" */
  uint32_t tier;                    /* enum img_tier */
  uint32_t push_bytes, n_tuning;
  uint64_t features;               /* bits of img_features.def */
  uint32_t shared_bytes, reserved; /* workgroup memory at the largest tuning */
  struct img_tuning tuning[IMG_MAX_TUNING];
};

struct img_modules {
  uint32_t n_module, reserved;
  uint64_t module_offset, name_offset, name_bytes; /* from the section's start */
};

enum img_tier {
  IMG_TIER_BASE = 0,
  IMG_TIER_DOT = 1,
  IMG_TIER_KHR = 2,
  IMG_TIER_NV = 3,
  IMG_TIER_RESIDENT = 4,
  IMG_N_TIER = 5
};

/* ---- TEMPLATES: struct img_templates, then the arrays it names ---- */

enum img_arena {
  IMG_ARENA_WEIGHTS = 0,   /* read only: PLANES, cut into slabs at plane borders */
  IMG_ARENA_TABLES = 1,    /* read only: TABLES */
  IMG_ARENA_STATE = 2,     /* state pages; n_page * page_bytes */
  IMG_ARENA_ACT = 3,       /* activations and scratch, zeroed once at load */
  IMG_ARENA_STEP = 4,      /* the step block (two of them, one per recording), written by the host before each step */
  IMG_ARENA_RESULT = 5,    /* the result block (two), read by the host after each step */
  IMG_ARENA_SLOT = 6,      /* per slot state that lives on the device between steps, zeroed once at load */
  IMG_ARENA_RECURRENT = 7, /* a block of manifest.state_block_bytes a slot, zeroed once at load; offsets in it are
                              offsets in every slot's block */
  IMG_N_ARENA = 8,
};

enum img_access { IMG_ACCESS_READ = 1, IMG_ACCESS_WRITE = 2 }; /* bits */

enum img_word_kind {
  IMG_WORD_IMM = 1,           /* one word: the low half of value */
  IMG_WORD_ADDRESS = 2,       /* two words: base of arena + value */
  IMG_WORD_LAYER_ADDRESS = 3, /* two words: base of arena + table[row][column] + value */
  IMG_WORD_LAYER_IMM = 4,     /* one word: the low half of table[row][column] */
  IMG_WORD_TABLE = 5,         /* two words: the device address of table number `value`, see IMG_CELL_SHIFT */
};

/* A cell of a table in device memory (a resident table): the top byte is an arena's number, and the device finds base
 * of arena + the low bytes there, or IMG_CELL_IMM, and it finds the low bytes. */
#define IMG_CELL_SHIFT 56
#define IMG_CELL_IMM 0xffu
#define IMG_CELL_VALUE(CELL) ((CELL) & ((1ull << IMG_CELL_SHIFT) - 1))

/* A push-constant operand: 4 or 8 bytes of the push block, in order; an 8-byte one is 8-byte aligned. */
struct img_word {
  uint8_t kind, arena;
  uint16_t column;
  uint32_t reserved;
  uint64_t value;
};

#define IMG_WHOLE_ARENA                                                                                                \
  UINT64_MAX /* img_region.bytes: all of the arena (what is chosen at run time: experts, pages)                        \
              */
#define IMG_NO_COLUMN 0xffffu

/* What a dispatch may touch: [offset + table[row][column], + bytes) of an arena. */
struct img_region {
  uint8_t access, arena;
  uint16_t column; /* IMG_NO_COLUMN: none */
  uint32_t reserved;
  uint64_t offset, bytes;
};

enum img_op {
  IMG_OP_DISPATCH = 1, /* bind module, push words, dispatch grid */
  IMG_OP_BARRIER = 2,  /* all compute writes before are visible to all compute after */
  IMG_OP_CALL = 3, /* run body `body` for table rows first_row .. first_row + count - 1, in order; not inside a body */
};

struct img_inst {
  uint16_t op, role; /* role: enum img_role (img_roles.def), for profiles */
  uint32_t module;
  uint32_t grid[3]; /* grid[0] in items (see img_tuning.group_items), [1], [2] in workgroups; a module that needs
                       IMG_FEATURE_RESIDENT has as many workgroups as the device runs at once instead */
  uint32_t first_word, n_word, first_region, n_region;
  uint32_t body, table, first_row, count;
  uint32_t reserved[3];
};

struct img_body {
  uint32_t first_inst, n_inst;
};

/* Per-layer values of a body, or what a dispatch reads as IMG_WORD_TABLE: n_row rows of n_column 64-bit values,
 * starting at values[first_value]. */
struct img_table {
  uint32_t n_row, n_column;
  uint64_t first_value;
};

#define IMG_MAX_TEMPLATE 256
enum img_template_kind { IMG_TEMPLATE_TOKEN = 1, IMG_TEMPLATE_WINDOW = 2 };

struct img_template {
  uint32_t name_offset; /* "token(8)", "window(512)" */
  uint32_t kind, tier;
  uint32_t n_row;              /* B or R: the most rows a step of this template takes */
  uint32_t n_select;           /* the most rows that get logits and a sample */
  uint32_t first_inst, n_inst; /* the top level */
  uint32_t reserved;
};

/* Counts, and offsets from the section's start, of the arrays. Offsets are multiples of 8. */
struct img_templates {
  uint32_t n_template, n_inst, n_body, n_word, n_region, n_table;
  uint64_t n_value;
  uint64_t template_offset, inst_offset, body_offset, word_offset, region_offset, table_offset, value_offset;
  uint64_t name_offset, name_bytes;
};

/* ---- PLANE_INDEX ---- */
struct img_plane {
  uint64_t offset, bytes;      /* in PLANES; offset a multiple of IMG_PLANE_ALIGN; planes in order, no overlap */
  uint32_t name_offset;        /* the GGUF tensor's name */
  uint32_t format;             /* GGUF type number */
  uint64_t n_in, n_out, n_mat; /* columns, rows, matrices (experts) */
};
struct img_planes {
  uint32_t n_plane, n_carried; /* the last n_carried are used by no template: a loader leaves them in the file */
  uint64_t plane_offset, name_offset, name_bytes;
};

_Static_assert(sizeof(struct img_prefix) == 64 && sizeof(struct img_section) == 64, "FORMAT.md");
_Static_assert(sizeof(struct img_module) == 144 && sizeof(struct img_tuning) == 24, "FORMAT.md");
_Static_assert(sizeof(struct img_templates) == 104 && sizeof(struct img_template) == 32, "FORMAT.md");
_Static_assert(sizeof(struct img_inst) == 64 && sizeof(struct img_body) == 8, "FORMAT.md");
_Static_assert(sizeof(struct img_word) == 16 && sizeof(struct img_region) == 24, "FORMAT.md");
_Static_assert(sizeof(struct img_table) == 16 && sizeof(struct img_plane) == 48, "FORMAT.md");

#endif
