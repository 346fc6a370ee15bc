/* img_manifest.h: the manifest: what an image is and what a device must have, as JSON in the file and as a struct in
 * memory.
 *
 * Owns: both directions; img_manifest.def has the fields. Does not own: whether a device suffices (runtime), the
 * features that single modules need (struct img_module.features). Invariants: a parsed manifest has every field, in
 * range; a reader ignores keys it does not know. */
#ifndef IMAGES_IMG_MANIFEST_H
#define IMAGES_IMG_MANIFEST_H

#include "img_format.h"
#include "moe_error.h"

typedef uint32_t img_manifest_u32;
typedef uint64_t img_manifest_u64;

/* Fields are named object_key, as model_d_model, state_page_bytes. */
struct img_manifest {
#define IMG_STRING(OBJECT, KEY, BYTES, WHAT) char OBJECT##_##KEY[BYTES];
#define IMG_NUMBER(OBJECT, KEY, TYPE, MIN, MAX, WHAT) img_manifest_##TYPE OBJECT##_##KEY;
#include "img_manifest.def"
#undef IMG_STRING
#undef IMG_NUMBER
};

/* Parses JSON text. Errors: MOE_FAILED naming the field, what was found and what is allowed. */
enum moe_code img_manifest_parse(const void *text, uint64_t bytes, struct img_manifest *manifest,
                                 struct moe_error *err);

/* *text = the manifest as JSON (give to free), *bytes its length; fields in img_manifest.def's order, so equal
 * manifests give equal bytes. Errors: MOE_FAILED (a field that img_manifest_parse would refuse, text that is not UTF-8,
 * memory). */
enum moe_code img_manifest_format(const struct img_manifest *manifest, char **text, uint64_t *bytes,
                                  struct moe_error *err);

#endif
