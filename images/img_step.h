/* img_step.h: the step block (host to device), the result block (device to host) and the slot state: what changes
 * between steps.
 *
 * Owns: their layouts, in 32-bit words, as constants that C uses and shadergen turns into GLSL constants
 * (img_step.def). Does not own: who fills them (runtime/step.c, the sample kernel). Invariants: all words little-endian
 * uint32 (float words hold the bits of a binary32). Capacities max_row and max_select are the image's (manifest),
 * n_slot and page_stride are run-time numbers: only the page table, last in the block, depends on them. */
#ifndef IMAGES_IMG_STEP_H
#define IMAGES_IMG_STEP_H

#include <stdint.h>

enum img_step_constant {
#define IMG_STEP(NAME, VALUE, WHAT) IMG_##NAME = VALUE,
#include "img_step.def"
#undef IMG_STEP
};

/* Word offsets inside a step block with capacity max_row. */
static inline uint32_t img_step_row_token(void) {
  return IMG_STEP_HEAD_WORDS;
}
static inline uint32_t img_step_row_pos(uint32_t max_row) {
  return IMG_STEP_HEAD_WORDS + max_row;
}
static inline uint32_t img_step_row_slot(uint32_t max_row) {
  return IMG_STEP_HEAD_WORDS + 2 * max_row;
}
static inline uint32_t img_step_select(uint32_t max_row) {
  return IMG_STEP_HEAD_WORDS + 3 * max_row;
}
static inline uint32_t img_step_run(uint32_t max_row) {
  return img_step_select(max_row) + IMG_MAX_SELECT * IMG_SELECT_WORDS;
}
static inline uint32_t img_step_page_table(uint32_t max_row) {
  return img_step_run(max_row) + IMG_MAX_RUN * IMG_RUN_WORDS;
}
/* Bytes of a step block, of a result block, of the slot arena. */
static inline uint64_t img_step_bytes(uint32_t max_row, uint32_t n_slot, uint32_t page_stride) {
  return 4ull * (img_step_page_table(max_row) + (uint64_t)n_slot * page_stride);
}
static inline uint64_t img_result_bytes(void) {
  return 4ull * (IMG_RESULT_HEAD_WORDS + IMG_MAX_SELECT * IMG_RESULT_WORDS);
}
static inline uint64_t img_slot_bytes(uint32_t n_slot) {
  return 4ull * IMG_SLOT_WORDS * n_slot;
}

#endif
