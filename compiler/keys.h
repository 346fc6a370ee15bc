/* keys.h: which hyperparameters of a file ("<architecture>.<key>") moec knows.
 *
 * Owns: the question whether a key is read by some code or known to change nothing (keys.def), so that what moec
 * ignores is said. Does not own: what keys mean (hparams.def, the families), which values are declined. Thread rules:
 * pure but for the output. */
#ifndef COMPILER_KEYS_H
#define COMPILER_KEYS_H

#include "src_gguf.h"

/* Whether keys.def or hparams.def has the key, given without the architecture. */
bool keys_known(const char *key);

/* The key without the architecture when pair `index` of the file is a hyperparameter of its general.architecture that
 * moec does not know; else NULL. The text is the file's: not made printable. */
const char *keys_unknown(const struct gguf *g, uint64_t index);

/* Writes the unknown ones, printable and with the architecture, into text: "a.x, a.y", cut at capacity, always
 * terminated. Returns how many there are. */
uint64_t keys_list_unknown(const struct gguf *g, char *text, size_t capacity);

#endif
