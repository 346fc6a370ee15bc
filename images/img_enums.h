/* img_enums.h: enums made from tables: roles (img_roles.def) and device features (img_features.def). A number, once
 * given, never changes. */
#ifndef IMAGES_IMG_ENUMS_H
#define IMAGES_IMG_ENUMS_H

enum img_role {
#define IMG_ROLE(ENUM, NAME) IMG_ROLE_##ENUM,
#include "img_roles.def"
#undef IMG_ROLE
  IMG_N_ROLE
};

/* Bits of struct img_module.features. */
enum img_feature {
#define IMG_FEATURE(BIT, ENUM, NAME) IMG_FEATURE_##ENUM = 1u << (BIT),
#include "img_features.def"
#undef IMG_FEATURE
};

#endif
