#pragma once
// Shared by the IQ1, IQ2 and IQ3 types. They store groups of elements as an index into a grid (a table of magnitude
// combinations) and, in IQ2 and IQ3, a sign bit per element. The functions here turn grid entries and signs into codes:
// indices into the type's kLevels, which are sorted by value.

#include "kernels/quant/packing.h"

namespace forge::quant {

/// A block of 256 elements as 32 groups of 8: the grid entry of each group (IQ3: two entries of 4 elements, the second
/// one in bits 32 and on) and its 8 sign bits. The entries are gathered first; the loops that follow have no table
/// look-ups, so compilers vectorise them.
struct GridGroups {
  u64 entries[32], signs[32];
};

/// The 8 sign bits of a group from the 7 that files keep: the number of set bits is always even, so the eighth bit is
/// the parity of the others.
FORGE_QUANT_FN u64 even_signs(u64 seven) {
  u64 parity = seven ^ seven >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return seven | (parity & 1) << 7;
}
/// A little-endian word from any address.
FORGE_QUANT_FN u32 load_u32(const u8* bytes) {
  u32 word;
  copy_bytes<4>(&word, bytes);
  return word;
}
/// Stores the signs of 4 groups, from 7 bits of `word` each.
FORGE_QUANT_FN void store_signs(u32 word, u64* signs) {
  for (u32 i = 0; i < 4; ++i) signs[i] = even_signs(word >> (7 * i) & 127u);
}
/// Expands the 8 two-bit fields of a 16-bit x to 8 bytes, lowest first. Each line cuts every run of fields in two and
/// moves the upper half up: 1 run of 8 fields, 2 of 4 (32 bits apart), 4 of 2 (16 apart), 8 of 1 (8 apart).
FORGE_QUANT_FN u64 bytes_of_pairs(u64 x) {
  x = (x | x << 24) & 0x000000ff000000ffu;
  x = (x | x << 12) & 0x000f000f000f000fu;
  return (x | x << 6) & 0x0303030303030303u;
}
/// Expands 4 fields of three bits to 4 bytes, lowest first, in both 32-bit halves of a word.
FORGE_QUANT_FN u64 bytes_of_triples(u64 x) {
  return (x & 0x0000000700000007u) | (x & 0x0000003800000038u) << 5 | (x & 0x000001c0000001c0u) << 10 |
         (x & 0x00000e0000000e00u) << 15;
}
/// Combines 8 magnitude indices c (one byte each, 0 = smallest) with sign bits into codes. Levels are sorted by value,
/// so +magnitude c has code positive + c and -magnitude c has code positive - 1 - c. Example IQ2, positive = 3:
///   code    0   1   2   3   4   5
///   value -43 -25  -8   8  25  43
FORGE_QUANT_FN u64 signed_codes(u64 c, u64 signs, u32 positive) {
  constexpr u64 kOnes = 0x0101010101010101u;
  return c + positive * kOnes - ((2 * c + kOnes) & (bytes_of_bits(signs) * 255u));
}
/// The 256 codes of an IQ2 block: magnitudes of two bits, three of them used.
FORGE_QUANT_FN void iq2_codes(const GridGroups& groups, u8* codes) {
  for (u32 i = 0; i < 32; ++i)
    store_bytes(signed_codes(bytes_of_pairs(groups.entries[i]), groups.signs[i], 3), codes + 8 * i);
}
/// The 256 codes of an IQ3 block: magnitudes of three bits.
FORGE_QUANT_FN void iq3_codes(const GridGroups& groups, u8* codes) {
  for (u32 i = 0; i < 32; ++i)
    store_bytes(signed_codes(bytes_of_triples(groups.entries[i]), groups.signs[i], 8), codes + 8 * i);
}

}  // namespace forge::quant
