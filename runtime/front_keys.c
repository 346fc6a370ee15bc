#include "front_keys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static enum moe_code front_keys_add(struct front_keys *keys, const char *path, int line, char *text,
                                    struct moe_error *err) {
  static const char space[] = " \t\r\n";
  text += strspn(text, space);
  size_t length = strlen(text);
  while (length && strchr(space, text[length - 1])) length--;
  text[length] = 0;
  if (!length || *text == '#') return MOE_OK;
  if (length >= FRONT_MAX_KEY_BYTES)
    return moe_fail(err, MOE_FAILED, "%s: line %d: a key of %zu bytes; allowed: up to %d", path, line, length,
                    FRONT_MAX_KEY_BYTES - 1);
  if (keys->n_key == FRONT_MAX_KEYS)
    return moe_fail(err, MOE_FAILED, "%s: line %d: more keys than the %d that are allowed", path, line, FRONT_MAX_KEYS);
  memcpy(keys->key[keys->n_key++], text, length + 1);
  return MOE_OK;
}

enum moe_code front_keys_read(struct front_keys *keys, const char *path, struct moe_error *err) {
  memset(keys, 0, sizeof *keys);
  FILE *file = fopen(path, "re");
  if (!file) return moe_fail(err, MOE_FAILED, "%s: cannot read API keys: %s", path, strerror(errno));
  char text[1024];
  enum moe_code code = MOE_OK;
  for (int line = 1; !code && fgets(text, sizeof text, file); line++)
    if (strlen(text) == sizeof text - 1) /* what is beyond, of a comment say, must not become a key */
      code = moe_fail(err, MOE_FAILED, "%s: line %d: longer than %zu bytes", path, line, sizeof text - 2);
    else
      code = front_keys_add(keys, path, line, text, err);
  if (!code && ferror(file)) code = moe_fail(err, MOE_FAILED, "%s: cannot read API keys: %s", path, strerror(errno));
  fclose(file);
  if (!code && !keys->n_key) code = moe_fail(err, MOE_FAILED, "%s: holds no API key (one a line)", path);
  return code;
}

bool front_keys_allow(const struct front_keys *keys, const char *authorization) {
  if (!keys->n_key) return true;
  if (!authorization || strncasecmp(authorization, "Bearer ", 7)) return false;
  const char *given = authorization + 7;
  given += strspn(given, " ");
  char padded[FRONT_MAX_KEY_BYTES] = {0};
  size_t length = strlen(given);
  if (length >= sizeof padded) return false;
  memcpy(padded, given, length);
  /* Every byte of every key is looked at, whatever is found. */
  unsigned any = 0;
  for (size_t k = 0; k < keys->n_key; k++) {
    volatile unsigned char difference = 0;
    for (size_t i = 0; i < sizeof padded; i++) difference |= (unsigned char)padded[i] ^ (unsigned char)keys->key[k][i];
    any |= difference == 0;
  }
  return any != 0;
}
