#pragma once
// Layout "planes" (planes.h) of the IQ1, IQ2 and IQ3 types, whose blocks are grid indices and signs. They stay as they
// are, in the native number of bytes; only the parts are apart. A weight of `rows` rows is up to four planes, each with
// all rows in order and in a row the columns in order:
//   first   per 32 columns 8 bytes (IQ1: 4): grid indices, IQ2 also signs
//   second  per 32 columns 2 or 4 bytes: further bits of the indices, signs, scales
//   small   per 32 columns 1 byte: scales (IQ2_XS), or further bits (IQ3_S)
//   tail    per block of 256: d, and what scales are left

#include "kernels/quant/iq1_m.h"
#include "kernels/quant/iq1_s.h"
#include "kernels/quant/iq2_s.h"
#include "kernels/quant/iq2_xs.h"
#include "kernels/quant/iq2_xxs.h"
#include "kernels/quant/iq3_s.h"
#include "kernels/quant/iq3_xxs.h"
#include "kernels/quant/planes_codes.h"

namespace forge::quant {

/// Bytes of each plane's share: of 32 columns, and of a block (tail).
struct GridSizes {
  u32 first, second, small, tail;
};
/// A unit of 32 columns in its planes. The tail is that of the block.
struct GridUnit {
  u32 first[2], second, small, tail[2];
};

/// The type's sizes; no other block type has this.
template <class Block>
struct GridLayout;
template <>
struct GridLayout<BlockIQ2_XXS> {
  static constexpr GridSizes kSizes{8, 0, 0, 2};
};
template <>
struct GridLayout<BlockIQ2_XS> {
  static constexpr GridSizes kSizes{8, 0, 1, 2};
};
template <>
struct GridLayout<BlockIQ2_S> {
  static constexpr GridSizes kSizes{8, 2, 0, 2};
};
template <>
struct GridLayout<BlockIQ3_XXS> {
  static constexpr GridSizes kSizes{8, 4, 0, 2};
};
template <>
struct GridLayout<BlockIQ3_S> {
  static constexpr GridSizes kSizes{8, 4, 1, 6};
};
template <>
struct GridLayout<BlockIQ1_S> {
  static constexpr GridSizes kSizes{4, 2, 0, 2};
};
template <>
struct GridLayout<BlockIQ1_M> {
  static constexpr GridSizes kSizes{4, 2, 0, 8};
};
template <class Block>
concept HasGrid = requires { GridLayout<Block>::kSizes; };

/// The byte offsets of the planes in a weight of `rows` rows of `k` columns (the first plane starts at 0).
template <class Block>
struct PlanesGrids {
  static constexpr GridSizes kSizes = GridLayout<Block>::kSizes;
  static constexpr u32 kParts = 8;
  static_assert(Block::kElems == 32 * kParts &&
                    kParts * (kSizes.first + kSizes.second + kSizes.small) + kSizes.tail == sizeof(Block),
                "the planes take the block's bytes");
  u64 second, small, tail;
  FORGE_QUANT_FN constexpr PlanesGrids(u64 rows, u64 k)
      : second(rows * (k / 32) * kSizes.first),
        small(second + rows * (k / 32) * kSizes.second),
        tail(small + rows * (k / 32) * kSizes.small) {}
};

// grid_unit: the unit `part` of a block; grid_tail: byte i of its tail.

FORGE_QUANT_FN u32 low_byte(u32 word, u32 i) {
  return word >> (8 * i) & 255u;
}
FORGE_QUANT_FN void grid_unit(const BlockIQ2_XXS& block, u32 part, GridUnit& out) {
  for (u32 i = 0; i < 2; ++i) out.first[i] = load_u32(block.qs + 8 * part + 4 * i);
}
FORGE_QUANT_FN void grid_unit(const BlockIQ2_XS& block, u32 part, GridUnit& out) {
  for (u32 i = 0; i < 2; ++i)
    out.first[i] = block.qs[4 * part + 2 * i] | static_cast<u32>(block.qs[4 * part + 2 * i + 1]) << 16;
  out.small = block.scales[part];
}
FORGE_QUANT_FN void grid_unit(const BlockIQ2_S& block, u32 part, GridUnit& out) {
  out.first[0] = load_u32(block.qs + 4 * part);
  out.first[1] = load_u32(block.signs + 4 * part);
  out.second = block.qh[part] | static_cast<u32>(block.scales[part]) << 8;
}
FORGE_QUANT_FN void grid_unit(const BlockIQ3_XXS& block, u32 part, GridUnit& out) {
  for (u32 i = 0; i < 2; ++i) out.first[i] = load_u32(block.qs + 8 * part + 4 * i);
  out.second = load_u32(block.signs + 4 * part);
}
FORGE_QUANT_FN void grid_unit(const BlockIQ3_S& block, u32 part, GridUnit& out) {
  for (u32 i = 0; i < 2; ++i) out.first[i] = load_u32(block.qs + 8 * part + 4 * i);
  out.second = load_u32(block.signs + 4 * part);
  out.small = block.qh[part];
}
FORGE_QUANT_FN void grid_unit(const BlockIQ1_S& block, u32 part, GridUnit& out) {
  out.first[0] = load_u32(block.qs + 4 * part);
  out.second = block.qh[part];
}
FORGE_QUANT_FN void grid_unit(const BlockIQ1_M& block, u32 part, GridUnit& out) {
  out.first[0] = load_u32(block.qs + 4 * part);
  out.second = block.qh[2 * part] | static_cast<u32>(block.qh[2 * part + 1]) << 8;
}
template <class Block>
FORGE_QUANT_FN u32 grid_tail(const Block& block, u32 i) {
  return low_byte(block.d, i);
}
FORGE_QUANT_FN u32 grid_tail(const BlockIQ3_S& block, u32 i) {
  return i < 2 ? low_byte(block.d, i) : block.scales[i - 2];
}
FORGE_QUANT_FN u32 grid_tail(const BlockIQ1_M& block, u32 i) {
  return block.scales[i];
}

/// As planes_pack_codes.
template <class Block>
FORGE_QUANT_FN void planes_pack_grid(const Block& block, u64 rows, u64 k, u64 row, u64 b, u8* planes) {
  using Planes = PlanesGrids<Block>;
  constexpr GridSizes kSizes = Planes::kSizes;
  const Planes at(rows, k);
  for (u32 part = 0; part < Planes::kParts; ++part) {
    const u64 unit = row * (k / 32) + b * Planes::kParts + part;
    GridUnit parts{};
    grid_unit(block, part, parts);
    copy_bytes<kSizes.first>(planes + unit * kSizes.first, parts.first);
    if constexpr (kSizes.second > 0)
      copy_bytes<kSizes.second>(planes + at.second + unit * kSizes.second, &parts.second);
    if constexpr (kSizes.small > 0) planes[at.small + unit] = static_cast<u8>(parts.small);
  }
  u8* tail = planes + at.tail + (row * (k / Block::kElems) + b) * kSizes.tail;
  for (u32 i = 0; i < kSizes.tail; ++i) tail[i] = static_cast<u8>(grid_tail(block, i));
}
/// Writes a native block into its planes, of grids or of codes.
template <class Block>
FORGE_QUANT_FN void planes_pack_block(const Block& block, u64 rows, u64 k, u64 row, u64 b, u8* planes) {
  if constexpr (HasGrid<Block>)
    planes_pack_grid(block, rows, k, row, b, planes);
  else
    planes_pack_codes(block, rows, k, row, b, planes);
}

}  // namespace forge::quant
