#pragma once
// What the IQ2 and IQ3 types share: groups of magnitudes out of a grid, with a sign bit each.

#include "kernels/quant/packing.h"

namespace forge::quant {

/// 8 sign bits, of which files keep 7: their number is even.
FORGE_QUANT_FN u32 even_signs(u32 seven) {
  return seven | (static_cast<u32>(__builtin_popcount(seven)) & 1u) << 7;
}
/// 8 fields of two bits as 8 bytes; the lowest first.
FORGE_QUANT_FN u64 bytes_of_pairs(u32 pairs) {
  u64 x = pairs;
  x = (x | x << 24) & 0x000000ff000000ffu;
  x = (x | x << 12) & 0x000f000f000f000fu;
  return (x | x << 6) & 0x0303030303030303u;
}
/// 4 fields of three bits as 4 bytes.
FORGE_QUANT_FN u32 bytes_of_triples(u32 triples) {
  return (triples & 0x7u) | (triples & 0x38u) << 5 | (triples & 0x1c0u) << 10 | (triples & 0xe00u) << 15;
}
/// The codes of bytes c, magnitudes counted from the smallest, with a sign bit each: levels stand in the order of their
/// values, so that c is code `positive` + c, or `positive` - 1 - c where its bit is set.
FORGE_QUANT_FN u64 signed_codes(u64 c, u32 signs, u32 positive) {
  constexpr u64 kOnes = 0x0101010101010101u;
  return c + positive * kOnes - ((2 * c + kOnes) & (bytes_of_bits(signs) * 255u));
}
/// 8 elements: the magnitudes of two entries of a grid, with signs.
FORGE_QUANT_FN void iq3_codes(u32 first, u32 second, u32 signs, u8* codes) {
  const u64 magnitudes = bytes_of_triples(first) | static_cast<u64>(bytes_of_triples(second)) << 32;
  store_bytes(signed_codes(magnitudes, signs, 8), codes);
}

}  // namespace forge::quant
