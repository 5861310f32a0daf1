#pragma once
// What the IQ2 and IQ3 types share: groups of magnitudes out of a grid, with a sign bit each.

#include "kernels/quant/packing.h"

namespace forge::quant {

/// 32 groups of 8 elements: an entry of a grid for each (of IQ3 two, the second in bits 32 and on), and its sign bits.
/// They are gathered first; what is left are loops over words, of which compilers make registers.
struct GridGroups {
  u64 entries[32], signs[32];
};

/// 8 sign bits, of which files keep 7: their number is even.
FORGE_QUANT_FN u64 even_signs(u64 seven) {
  u64 parity = seven ^ seven >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return seven | (parity & 1) << 7;
}
FORGE_QUANT_FN u32 load_u32(const u8* bytes) {
  u32 word;
  __builtin_memcpy(&word, bytes, 4);
  return word;
}
/// 4 groups' signs, 7 bits of `word` each.
FORGE_QUANT_FN void put_signs(u32 word, u64* signs) {
  for (u32 i = 0; i < 4; ++i) signs[i] = even_signs(word >> (7 * i) & 127u);
}
/// 8 fields of two bits as 8 bytes; the lowest first.
FORGE_QUANT_FN u64 bytes_of_pairs(u64 x) {
  x = (x | x << 24) & 0x000000ff000000ffu;
  x = (x | x << 12) & 0x000f000f000f000fu;
  return (x | x << 6) & 0x0303030303030303u;
}
/// 4 fields of three bits as 4 bytes, in both halves of a word.
FORGE_QUANT_FN u64 bytes_of_triples(u64 x) {
  return (x & 0x0000000700000007u) | (x & 0x0000003800000038u) << 5 | (x & 0x000001c0000001c0u) << 10 |
         (x & 0x00000e0000000e00u) << 15;
}
/// The codes of bytes c, magnitudes counted from the smallest, with a sign bit each: levels stand in the order of their
/// values, so that c is code `positive` + c, or `positive` - 1 - c where its bit is set.
FORGE_QUANT_FN u64 signed_codes(u64 c, u64 signs, u32 positive) {
  constexpr u64 kOnes = 0x0101010101010101u;
  return c + positive * kOnes - ((2 * c + kOnes) & (bytes_of_bits(signs) * 255u));
}
/// Magnitudes of two bits, with signs.
FORGE_QUANT_FN void iq2_codes(const GridGroups& groups, u8* codes) {
  for (u32 i = 0; i < 32; ++i)
    store_bytes(signed_codes(bytes_of_pairs(groups.entries[i]), groups.signs[i], 3), codes + 8 * i);
}
/// Magnitudes of three bits.
FORGE_QUANT_FN void iq3_codes(const GridGroups& groups, u8* codes) {
  for (u32 i = 0; i < 32; ++i)
    store_bytes(signed_codes(bytes_of_triples(groups.entries[i]), groups.signs[i], 8), codes + 8 * i);
}

}  // namespace forge::quant
