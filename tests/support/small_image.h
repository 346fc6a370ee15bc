/* small_image.h: a tiny but complete image in memory, which tests break in one place and write to a file.
 *
 * Two modules ("first", "second"; their code is not SPIR-V unless a test puts some there), two planes, one template
 * token(1): dispatch first, then body 0 for both rows of table 0, then dispatch second. The instructions have their
 * barriers. */
#ifndef TESTS_SMALL_IMAGE_H
#define TESTS_SMALL_IMAGE_H

#include "img_check.h"

struct small_image {
  struct img_manifest manifest;
  struct img_module module[2];
  struct img_modules modules;
  struct img_plane plane[2];
  struct img_planes planes;
  struct img_templates templates;
  struct img_template template[257]; /* templates.n_template of them */
  struct img_inst inst[8];
  struct img_body body[1];
  struct img_word word[12];
  struct img_region region[12];
  struct img_table table[2];
  uint64_t value[8];
  const void *code; /* of both modules: a zstd frame of code_zbytes bytes */
  size_t code_zbytes;
};

/* The valid image. */
void small_image_init(struct small_image *image);

/* Makes it one of two tiers: module "second" is of tier dot and needs shaderIntegerDotProduct; token(1) is the first
 * dispatch in tier base and the last one in tier dot. */
void small_image_two_tiers(struct small_image *image);

/* Makes it one of the tiers base and resident: module "second" needs resident workgroups; token(1) is the first
 * dispatch in tier base, and inst[6] in tier resident: module "second" with table 1 in device memory, of 2 x 2 cells
 * (WEIGHTS+512, 7; ACT+256, 2^40), and the numbers 7 and 8. */
void small_image_resident(struct small_image *image);

/* Writes it as `path`. Errors as img_writer's. */
enum moe_code small_image_write(const struct small_image *image, const char *path, struct moe_error *err);

#endif
