/* img_print.h: an image as text, for people and for tests.
 *
 * Owns: the text. Does not own: the checks: every argument has passed img_check. */
#ifndef IMAGES_IMG_PRINT_H
#define IMAGES_IMG_PRINT_H

#include <stdio.h>

#include "img_check.h"

/* Header, sections and their hashes, manifest. */
void img_print_summary(const struct img *img, const struct img_view *view, FILE *out);
/* One line a module: name, tier, bytes, features. */
void img_print_modules(const struct img_modules_view *modules, FILE *out);
/* Every template, one line an instruction, bodies once. */
void img_print_templates(const struct img_view *view, FILE *out);
/* One line a plane. */
void img_print_planes(const struct img_planes_view *planes, FILE *out);

/* Names for messages: "base"; "ACT"; "gate/up". "?" for a value out of range. */
const char *img_tier_name(uint32_t tier);
const char *img_arena_name(uint32_t arena);
const char *img_role_name(uint32_t role);
/* The feature's Vulkan name for a single bit number, NULL when unknown. */
const char *img_feature_name(uint32_t bit);

#endif
