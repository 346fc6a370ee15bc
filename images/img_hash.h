/* img_hash.h: the hash tree of an image.
 *
 * Owns: leaf, section and root hashes (BLAKE2b-256 with a personal string each, so that a leaf cannot pass for a node).
 * Does not own: who compares them (img_reader for the root, `moert verify` for the rest).
 * Invariants: leaf = H("moe-leaf", up to IMG_LEAF_BYTES bytes); section = H("moe-section", leaf hashes in order); the
 * empty section has no leaf; root = H("moe-root", header bytes with the root field zeroed). Source: RFC 7693;
 * libsodium's crypto_generichash. */
#ifndef IMAGES_IMG_HASH_H
#define IMAGES_IMG_HASH_H

#include "img_format.h"
#include "moe_error.h"

/* out = hash of a leaf of `bytes` bytes. Any thread. */
void img_hash_leaf(const void *data, uint64_t bytes, uint8_t out[IMG_HASH_BYTES]);

/* out = hash of a section from its n_leaf leaf hashes (IMG_HASH_BYTES each). Any thread. */
void img_hash_node(const uint8_t *leaves, uint64_t n_leaf, uint8_t out[IMG_HASH_BYTES]);

/* out = root hash of a header of header_bytes bytes (prefix and section table); the stored root counts as zeros. Any
 * thread. */
void img_hash_root(const void *header, uint32_t header_bytes, uint8_t out[IMG_HASH_BYTES]);

/* Reads bytes [offset, offset + bytes) of fd with n_thread threads (at least one; pread, 1 MiB a thread in memory) and
 * hashes them as a section. progress, when not NULL, grows atomically by the bytes hashed. Errors: MOE_FAILED on I/O or
 * memory. */
enum moe_code img_hash_file(int fd, uint64_t offset, uint64_t bytes, unsigned n_thread, _Atomic uint64_t *progress,
                            uint8_t out[IMG_HASH_BYTES], struct moe_error *err);

/* Writes 2 * IMG_HASH_BYTES hex digits and a NUL. */
void img_hash_hex(const uint8_t hash[IMG_HASH_BYTES], char out[2 * IMG_HASH_BYTES + 1]);

#endif
