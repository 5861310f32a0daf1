#pragma once
// Weight formats of the IQ1, IQ2 and IQ3 types, in planes of grid indices and signs (kernels/quant/planes_grids.h). The
// members are those that formats.h describes. A unit is 32 columns, four groups of 8. An index selects the magnitudes
// of a group (IQ3: of half a group) from a table in device memory, which the caches hold; signs are applied to four
// bytes at a time. Products are exact int8 dots with quantised activations, scaled in f32.

#include "kernels/gpu/formats.h"
#include "kernels/quant/planes_grids.h"

namespace forge::gpu {

/// The magnitudes of a grid as bytes, four to a word. Bits: of an element in the grid's entries.
template <int Words>
struct alignas(16) GridTable {
  u32 at[Words];
};
template <int Bits, int Words, int Entries>
FORGE_QUANT_FN constexpr GridTable<Words> magnitudes_of(const u16 (&grid)[Entries], const u8 (&levels)[16],
                                                        int positive, int zero) {
  GridTable<Words> out{};
  constexpr int kWordsOfEntry = Words / Entries;
  for (int word = 0; word < Words; ++word)
    for (int i = 0; i < 4; ++i) {
      const int index = grid[word / kWordsOfEntry] >> ((word % kWordsOfEntry * 4 + i) * Bits) & ((1 << Bits) - 1);
      out.at[word] |= static_cast<u32>(levels[positive + index] - zero & 255) << (8 * i);
    }
  return out;
}
FORGE_QUANT_FN constexpr GridTable<512> magnitudes(const quant::BlockIQ2_XXS*) {
  return magnitudes_of<2, 512>(quant::kIq2XxsGrid, quant::kIq2Levels, 3, 43);
}
FORGE_QUANT_FN constexpr GridTable<1024> magnitudes(const quant::BlockIQ2_XS*) {
  return magnitudes_of<2, 1024>(quant::kIq2XsGrid, quant::kIq2Levels, 3, 43);
}
FORGE_QUANT_FN constexpr GridTable<2048> magnitudes(const quant::BlockIQ2_S*) {
  return magnitudes_of<2, 2048>(quant::kIq2SGrid, quant::kIq2Levels, 3, 43);
}
FORGE_QUANT_FN constexpr GridTable<256> magnitudes(const quant::BlockIQ3_XXS*) {
  return magnitudes_of<3, 256>(quant::kIq3XxsGrid, quant::kIq3XxsLevels, 8, 62);
}
FORGE_QUANT_FN constexpr GridTable<512> magnitudes(const quant::BlockIQ3_S*) {
  return magnitudes_of<3, 512>(quant::kIq3SGrid, quant::kIq3SLevels, 8, 15);
}
/// The table of a type's magnitudes. A template, so that a kernel computes only the table that it uses: all five take
/// compilers longer than a small kernel.
template <class Block>
FORGE_QUANT_TABLE auto kMagnitudes = magnitudes(static_cast<const Block*>(nullptr));

/// 0xff in the bytes whose bit (0 to 3) is set.
FORGE_DEVICE u32 byte_masks(u32 bits) {
  const u32 ones = ((bits & 15u) * 0x00204081u) & 0x01010101u;
  return (ones << 8) - ones;
}
/// Negates the bytes, which are 1 to 127, whose bit is set.
FORGE_DEVICE u32 with_signs(u32 bytes, u32 bits) {
  const u32 mask = byte_masks(bits);
  return (bytes ^ mask) + (mask & 0x01010101u);
}
/// 8 sign bits of group g from 7 bits each of `word`: their number is even.
FORGE_DEVICE u32 even_signs(u32 word, int g) {
  u32 seven = word >> (7 * g) & 127u, parity = seven ^ seven >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return seven | (parity & 1u) << 7;
}

// grid_word: columns 4w .. 4w+3 of a unit as signed bytes (IQ1: larger by kAbove); table: kMagnitudes of the type.
// grid_scale: the small integer of the scale of columns 16 * half and following.
using quant::GridUnit;

FORGE_DEVICE u32 grid_word(const GridUnit& unit, int w, const u32* table, const quant::BlockIQ2_XXS*) {
  const int g = w / 2;
  const u32 index = unit.first[0] >> (8 * g) & 255u;
  return with_signs(table[index * 2 + w % 2], even_signs(unit.first[1], g) >> (w % 2 * 4));
}
FORGE_DEVICE u32 grid_scale(const GridUnit& unit, int, int, const quant::BlockIQ2_XXS*) {
  return unit.first[1] >> 28;
}
FORGE_DEVICE u32 grid_word(const GridUnit& unit, int w, const u32* table, const quant::BlockIQ2_XS*) {
  const u32 both = unit.first[w / 4] >> (w / 2 % 2 * 16) & 0xffffu;
  return with_signs(table[(both & 511u) * 2 + w % 2], even_signs(both >> 9, 0) >> (w % 2 * 4));
}
FORGE_DEVICE u32 grid_scale(const GridUnit& unit, int, int half, const quant::BlockIQ2_XS*) {
  return unit.small >> (4 * half) & 15u;
}
FORGE_DEVICE u32 grid_word(const GridUnit& unit, int w, const u32* table, const quant::BlockIQ2_S*) {
  const int g = w / 2;
  const u32 index = (unit.first[0] >> (8 * g) & 255u) | (unit.second >> (2 * g) & 3u) << 8;
  return with_signs(table[index * 2 + w % 2], unit.first[1] >> (4 * w));
}
FORGE_DEVICE u32 grid_scale(const GridUnit& unit, int, int half, const quant::BlockIQ2_S*) {
  return unit.second >> (8 + 4 * half) & 15u;
}
FORGE_DEVICE u32 grid_word(const GridUnit& unit, int w, const u32* table, const quant::BlockIQ3_XXS*) {
  const u32 index = unit.first[w / 4] >> (w % 4 * 8) & 255u;
  return with_signs(table[index], even_signs(unit.second, w / 2) >> (w % 2 * 4));
}
FORGE_DEVICE u32 grid_scale(const GridUnit& unit, int, int, const quant::BlockIQ3_XXS*) {
  return unit.second >> 28;
}
FORGE_DEVICE u32 grid_word(const GridUnit& unit, int w, const u32* table, const quant::BlockIQ3_S*) {
  const u32 index = (unit.first[w / 4] >> (w % 4 * 8) & 255u) | (unit.small >> w & 1u) << 8;
  return with_signs(table[index], unit.second >> (4 * w));
}
FORGE_DEVICE u32 grid_scale(const GridUnit& unit, int part, int, const quant::BlockIQ3_S*) {
  return (part < 4 ? unit.tail[0] >> 16 : unit.tail[1]) >> (part % 4 * 4) & 15u;
}
/// Four ternary elements of 2 bits each, `high` being the index's upper bits; below: the delta is -1/8.
FORGE_DEVICE u32 ternary_word(u32 low, u32 high, int w, bool below) {
  u32 pairs = quant::kIq1Grid[low | high << 8] >> (w % 2 * 8) & 255u;
  pairs = (pairs | pairs << 12) & 0x000f000fu;
  pairs = (pairs | pairs << 6) & 0x03030303u;
  return (pairs << 3) + (below ? 0u : 0x02020202u);
}
FORGE_DEVICE u32 grid_word(const GridUnit& unit, int w, const quant::BlockIQ1_S*) {
  const int g = w / 2;
  return ternary_word(unit.first[0] >> (8 * g) & 255u, unit.second >> (3 * g) & 7u, w, unit.second >> 15 != 0);
}
FORGE_DEVICE u32 grid_scale(const GridUnit& unit, int, int, const quant::BlockIQ1_S*) {
  return unit.second >> 12 & 7u;
}
FORGE_DEVICE u32 grid_word(const GridUnit& unit, int w, const quant::BlockIQ1_M*) {
  const int g = w / 2;
  const u32 nibble = unit.second >> (4 * g);
  return ternary_word(unit.first[0] >> (8 * g) & 255u, nibble & 7u, w, (nibble & 8u) != 0);
}
FORGE_DEVICE u32 grid_scale(const GridUnit& unit, int part, int half, const quant::BlockIQ1_M*) {
  const u32 words = (part < 4 ? unit.tail[0] : unit.tail[1]) >> (part / 2 % 2 * 16);
  return words >> (part % 2 * 6 + half * 3) & 7u;
}
template <class Block>
FORGE_DEVICE u32 grid_d(const GridUnit& unit, const Block*) {
  return unit.tail[0] & 0xffffu;
}
FORGE_DEVICE u32 grid_d(const GridUnit& unit, const quant::BlockIQ1_M*) {
  return (unit.tail[0] >> 12 & 15u) | (unit.tail[0] >> 24 & 0xf0u) | (unit.tail[1] >> 4 & 0xf00u) |
         (unit.tail[1] >> 16 & 0xf000u);
}

template <class Block, int Rows, int K>
struct WeightGrids {
  using Planes = quant::PlanesGrids<Block>;
  static constexpr quant::Packing kPacking = Block::kPacking;
  static constexpr quant::GridSizes kSizes = Planes::kSizes;
  static constexpr Planes kPlanes{Rows, K};
  static constexpr const Block* kType = nullptr;
  static constexpr int kRows = Rows, kK = K, kUnits = K / 32;
  static constexpr bool kHalves = Block::kSub == 16;  ///< 16 columns share a scale, not 32
  /// IQ1's bytes are unsigned, larger by this; those of the others are signed.
  static constexpr int kAbove = kSizes.first == 4 ? static_cast<int>(Block::kZero) : 0;
  static constexpr u64 kXRowBytes = Q8Rows<K>::kRowBytes;
  static_assert(K % Block::kElems == 0, "k must be a multiple of the block size");

  /// As it lies in memory; `part` is the unit's number in its block.
  struct Unit {
    GridUnit grid;
    int part;
  };
  using XUnit = XPair;
  FORGE_DEVICE static XUnit load_x(const u8* row, int unit) { return XPair::load<K>(row, unit); }

  FORGE_DEVICE static Unit load_unit(const u8* weights, int row, int unit) {
    const u64 at = static_cast<u64>(row) * kUnits + unit;
    Unit out{{}, unit % 8};
    if constexpr (kSizes.first == 8) {
      const U32x2 pair = load8(weights + at * 8);
      out.grid.first[0] = pair.at[0];
      out.grid.first[1] = pair.at[1];
    } else {
      out.grid.first[0] = load(reinterpret_cast<const u32*>(weights) + at);
    }
    const u8* second = weights + kPlanes.second + at * kSizes.second;
    if constexpr (kSizes.second == 4) out.grid.second = load(reinterpret_cast<const u32*>(second));
    if constexpr (kSizes.second == 2) out.grid.second = load(reinterpret_cast<const u16*>(second));
    if constexpr (kSizes.small > 0) out.grid.small = load(weights + kPlanes.small + at);
    const u8* tail = weights + kPlanes.tail + at / 8 * kSizes.tail;
    if constexpr (kSizes.tail == 8) {
      const U32x2 pair = load8(tail);
      out.grid.tail[0] = pair.at[0];
      out.grid.tail[1] = pair.at[1];
    } else {
      const u16* halves = reinterpret_cast<const u16*>(tail);
      out.grid.tail[0] = load(halves);
      if constexpr (kSizes.tail == 6) {
        out.grid.tail[0] |= static_cast<u32>(load(halves + 1)) << 16;
        out.grid.tail[1] = load(halves + 2);
      }
    }
    return out;
  }

  FORGE_DEVICE static u32 word(const Unit& unit, int w) {
    if constexpr (kAbove == 0)
      return grid_word(unit.grid, w, kMagnitudes<Block>.at, kType);
    else
      return grid_word(unit.grid, w, kType);
  }
  FORGE_DEVICE static float scale(const Unit& unit, int half) {
    const float d = f32_of_f16(static_cast<u16>(grid_d(unit.grid, kType)));
    return d * (static_cast<float>(2 * grid_scale(unit.grid, unit.part, half, kType) + 1) * kPacking.unit);
  }

  static constexpr int kUnitColumns = 32;
  using XHalf = QuantisedHalf;
  template <class Numbers>
  FORGE_DEVICE static void expand(const Unit& unit, u32 (&pairs)[16]) {
    FORGE_UNROLL
    for (int w = 0; w < 8; ++w) {
      const float factor = scale(unit, kHalves ? w / 4 : 0) * Numbers::kWeight;
      if constexpr (kAbove == 0)
        expand_bytes<128, Numbers>(raised(word(unit, w)), factor, 0.0f, pairs + 2 * w);
      else
        expand_bytes<kAbove, Numbers>(word(unit, w), factor, 0.0f, pairs + 2 * w);
    }
  }
  /// sum + product of the unit with 32 columns of a token, as in WeightCodes (codes.h).
  FORGE_DEVICE static float add(float sum, const Unit& unit, const XUnit& x) {
    i32 dots[2] = {-kAbove * quant_sum(x.meta.at[0]), -kAbove * quant_sum(x.meta.at[1])};
    FORGE_UNROLL
    for (int i = 0; i < 4; ++i) {
      dots[0] = dot4(word(unit, i), x.low.at[i], dots[0]);
      dots[1] = dot4(word(unit, 4 + i), x.high.at[i], dots[1]);
    }
    const float first = bf16_scale(x.meta.at[0]) * static_cast<float>(dots[0]);
    const float second = bf16_scale(x.meta.at[1]) * static_cast<float>(dots[1]);
    if constexpr (kHalves)
      return fma_of(scale(unit, 1), second, fma_of(scale(unit, 0), first, sum));
    else
      return fma_of(scale(unit, 0), first + second, sum);
  }
  /// Goes through all words, because registers cannot be indexed by a variable.
  FORGE_DEVICE static float element(const u8* weights, int row, int k) {
    const Unit unit = load_unit(weights, row, k / 32);
    const int column = k % 32;
    u32 four = 0;
    FORGE_UNROLL
    for (int w = 0; w < 8; ++w)
      if (w == column / 4) four = word(unit, w);
    const u32 byte = four >> (column % 4 * 8) & 255u;
    const int plain = kAbove == 0 ? static_cast<i8>(byte) : static_cast<int>(byte) - kAbove;
    return (kHalves && column >= 16 ? scale(unit, 1) : scale(unit, 0)) * static_cast<float>(plain);
  }
};

}  // namespace forge::gpu
