/* plane.glsl: where things are in a weight plane (compiler/PLANES.md, "Shape"), and the bit tricks that its formats share.
 * All sizes are functions of literals and fold away. */
uint64_t plane_align(uint64_t bytes, uint align) { return (bytes + (align - 1)) / align * align; }
/* Bytes from row to row of a sub-plane with block_bytes for every `elements` weights. */
uint64_t plane_row(uint n_in, uint elements, uint block_bytes) {
  return plane_align(uint64_t(n_in / elements) * block_bytes, 16);
}
/* Where the sub-plane after one that starts at `offset` starts; after the last: the matrix's bytes. */
uint64_t plane_next(uint64_t offset, uint n_out, uint64_t row_stride) {
  return plane_align(offset + n_out * row_stride, 256);
}

/* The four bytes of a word, lowest first. */
vec4 bytes_u8(uint w) { return vec4(w & 255u, (w >> 8) & 255u, (w >> 16) & 255u, w >> 24); }
vec4 bytes_s8(uint w) {
  int s = int(w);
  return vec4((s << 24) >> 24, (s << 16) >> 24, (s << 8) >> 24, s >> 24);
}
/* The f16 at an even byte address: loaded as the word that holds it. */
float plane_f16(uint field, uint64_t address) {
  vec2 pair = unpackHalf2x16(mem_ld_uint(field, address & ~uint64_t(3)));
  return (uint(address) & 2u) != 0u ? pair.y : pair.x;
}
/* The byte at an address: loaded as the word that holds it. */
uint plane_u8(uint field, uint64_t address) {
  return (mem_ld_uint(field, address & ~uint64_t(3)) >> (8 * (uint(address) & 3u))) & 255u;
}
/* Two bits of four elements: of words with one run of 16 each (PLANES.md, "Two bits"). */
uint bits2(uint word, uint k) { return (word >> (2 * k)) & 0x03030303u; }
/* First element of a unit of a 256-block. */
uint unit_base_256(uint u) { return (u >> 1) * 64 + (u & 1) * 16; }

/* For decoders of pieces (formats.glsl). Unit 2p + 1 of a row, or unit 2p where the row ends with it. */
uint piece_second(uint n_in, uint p) { return n_in % 64 == 0 ? 2 * p + 1 : min(2 * p + 1, n_in / 32 - 1); }
/* The f16 of a block out of the word that holds it and its neighbour's. */
float piece_half(uint w, uint block) {
  vec2 pair = unpackHalf2x16(w);
  return (block & 1u) != 0u ? pair.y : pair.x;
}
/* Run k of two units of nibbles of step 16, and of step 32. */
uvec4 nibbles_16(uvec4 q[2], uint k) { return (q[k >> 1] >> (4 * (k & 1))) & 0x0f0f0f0fu; }
uvec4 nibbles_32(uvec4 q[2], uint k) { return (q[k & 1] >> (4 * (k >> 1))) & 0x0f0f0f0fu; }
/* Bit 8b + j of a word to bit 4 of byte b of word j. */
uvec4 fifth_bits(uint w) { return ((uvec4(w) >> uvec4(0, 1, 2, 3)) & 0x01010101u) << 4; }
/* Bits 8b + 2j and 8b + 2j + 1 of a word to byte b of word j. */
uvec4 four_bits2(uint w) { return (uvec4(w) >> uvec4(0, 2, 4, 6)) & 0x03030303u; }
