#pragma once
// Matmul of the block types that layout x16 packs as codes (kernels/quant/x16_codes.h), by q8a_32 activations. Two
// kernels serve all of these types:
//   one row of x    codes become bytes, and scales floats, in registers on their way into the dots
//   many rows of x  a strip of one or two groups is unpacked once, to bytes and floats in L1, and then read by every
//                   tile of tokens. Unpacking costs about as much as the dots of four tokens.
// Both sum in the same order, which makes them agree bit for bit. For each sub-block of 32 (or 16) columns with its own
// scale, from the first on:
//   types with a zero     acc = fma(scale_w * scale_x, float(dot of raw - zero), acc), the dot being exact
//   types with a minimum  acc = fma(scale_w * scale_x, float(dot of raw), acc), then acc = fma(offset_w, sum_x, acc)

#include <utility>

#include "kernels/cpu/matmul/codes_panel-inl.h"
#include "kernels/quant/x16_codes.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// dot_bias of the type. Only types with levels have raw values above 127.
template <class Block>
inline constexpr std::uint32_t kDotBias = dot_bias(quant::raw_max<Block>());

/// The correction word of the type: the zero that is left after kDotBias.
template <class Block>
  requires(!Block::kMinimum || kDotBias<Block> == 0)  // a minimum's word cannot correct a biased dot
inline constexpr PanelSums kPanelSums{Block::kMinimum, static_cast<std::int32_t>(Block::kZero - kDotBias<Block>)};

/// Bytes of 32 unpacked columns of a group:
///   | 8 lines of 64 bytes: word w of 16 rows | per sub-block 16 f32 scales, 16 f32 offsets (types with a minimum) |
template <int kSub>
inline constexpr std::size_t kUnpackedBytes = 512 + 128 * (32 / kSub);

/// A copy of the type's levels less kDotBias. It lies in the class's namespace, so that it is never shared between
/// classes by the linker.
template <class Block>
struct Levels {
  struct Bytes {
    std::uint8_t at[16];
  };
  static constexpr Bytes kBytes = [] {
    Bytes out{};
    if constexpr (quant::HasLevels<Block>)
      for (std::size_t i = 0; i < 16; ++i) out.at[i] = static_cast<std::uint8_t>(Block::kLevels[i] - kDotBias<Block>);
    return out;
  }();
};

/// Prefetches the memory kCodesFetchAhead bytes ahead, one piece of kPieces of a unit per call. Prefetching a whole
/// large unit at once fills the miss queue, and loads then wait behind it. The barrier keeps g++ 12 from moving all
/// pieces in front of the unit. Measured on Zen 5 (one token, 8192x2048, GB/s), all at once and 6144 bytes ahead
/// against this: Q2_K 27 and 34, Q5_K 26 and 33, Q6_K 29 and 33, Q4_K 29 and 31. A distance of 3072 bytes gives 25 to
/// 27, 16384 the same as 9216.
inline constexpr std::size_t kCodesFetchAhead = 9216;
template <std::size_t kBytes, int kPiece, int kPieces>
FORGE_INLINE void fetch_piece(const std::uint8_t* unit) {
  constexpr std::size_t kLines = (kBytes + 63) / 64, kFrom = kLines * kPiece / kPieces;
  constexpr std::size_t kTo = kLines * (kPiece + 1) / kPieces;
#pragma GCC unroll 64
  for (std::size_t line = kFrom; line < kTo; ++line) __builtin_prefetch(unit + kCodesFetchAhead + 64 * line, 0, 3);
  asm volatile("" ::: "memory");
}

/// f16 number `part` of a unit as floats, for rows `row` and on.
template <class Block>
FORGE_INLINE Lanes::F half_of(const std::uint8_t* unit, int part, int row) {
  return Lanes::halves(unit + quant::X16Codes<Block>::kHalvesAt + 32 * part + 2 * row);
}

/// Scale and offset of sub-block `kPart` of a unit, for rows `row` and on.
template <class Block, int kPart>
FORGE_INLINE void part_scale(const std::uint8_t* unit, Lanes::F d, Lanes::F m, int row, Lanes::F& scale,
                             Lanes::F& offset) {
  quant::x16_scale<Block, kPart, Lanes>(unit + quant::X16Codes<Block>::kNumbersAt + row, d, m, scale, offset);
}

/// d and m of a unit for rows `row` and on; zeros if the type has none.
template <class Block>
FORGE_INLINE void unit_halves(const std::uint8_t* unit, int row, Lanes::F& d, Lanes::F& m) {
  d = m = Lanes::all(0.0f);
  if constexpr (Block::kPacking.halves > 0) d = half_of<Block>(unit, 0, row);
  if constexpr (Block::kPacking.halves > 1) m = half_of<Block>(unit, 1, row);
}

/// One token's strip for the kernel of one row: quants and scales in the q8a_32 row itself, and the correction words.
struct RowOfX {
  const std::uint8_t *quants, *scales, *sums;
};

/// One token by one group over `units` units. out: the group's 16 sums, which are continued unless `first`.
template <class Block>
void one_row(const std::uint8_t* group, std::size_t units, const RowOfX& row_of_x, float* out, bool first) {
  using Unit = quant::X16Codes<Block>;
  constexpr int kSub = Block::kSub, kParts = 32 / kSub, kWords = kSub / 4;
  constexpr int kShorts = words_in_shorts(quant::raw_max<Block>());
  const Lanes::Table levels = Lanes::table(Levels<Block>::kBytes.at);
  for (int first_row = 0; first_row < 16; first_row += kRowRegisters * Lanes::kRows) {
    const std::uint8_t* unit = group;
    RowOfX x = row_of_x;
    Lanes::F sums[kRowRegisters];
    const auto row_of = [&](int r) FORGE_INLINE_BODY { return first_row + r * Lanes::kRows; };
#pragma GCC unroll 2
    for (int r = 0; r < kRowRegisters; ++r) sums[r] = first ? Lanes::all(0.0f) : Lanes::load_floats(out + row_of(r));
    for (std::size_t u = 0; u < units; ++u, unit += Unit::kBytes) {
      Lanes::F d[kRowRegisters], m[kRowRegisters];
#pragma GCC unroll 2
      for (int r = 0; r < kRowRegisters; ++r) unit_halves<Block>(unit, row_of(r), d[r], m[r]);
      unrolled<static_cast<int>(Unit::kParts)>([&]<int p>() FORGE_INLINE_BODY {
        if (first_row == 0) fetch_piece<Unit::kBytes, p, static_cast<int>(Unit::kParts)>(unit);
        const std::uint8_t* codes = unit + p * Unit::kPartBytes;
        const Lanes::F x_scale = Lanes::all(load_f32(x.scales + 4 * p));
        unrolled<kParts>([&]<int s>() FORGE_INLINE_BODY {
          constexpr int kPart = p * kParts + s;
          Dot<kShorts, kWords> dots[kRowRegisters];
          if constexpr (!Block::kMinimum)
#pragma GCC unroll 2
            for (int r = 0; r < kRowRegisters; ++r) dots[r].sum = Lanes::words(load_i32(x.sums + 4 * kPart));
          unrolled<kWords>([&]<int w>() FORGE_INLINE_BODY {
            constexpr int kWord = s * kWords + w;
            const std::int32_t word_of_x = load_i32(x.quants + 32 * p + 4 * kWord);
#pragma GCC unroll 2
            for (int r = 0; r < kRowRegisters; ++r)
              dots[r].add(w, quant::x16_word<Block, kWord, Lanes>(codes + 4 * row_of(r), levels), word_of_x);
          });
#pragma GCC unroll 2
          for (int r = 0; r < kRowRegisters; ++r) {
            Lanes::F scale, offset;
            part_scale<Block, kPart>(unit, d[r], m[r], row_of(r), scale, offset);
            sums[r] = Lanes::fused(Lanes::times(scale, x_scale), Lanes::to_float(dots[r].total()), sums[r]);
            if constexpr (Block::kMinimum)
              sums[r] = Lanes::fused(offset, Lanes::all(load_f32(x.sums + 4 * kPart)), sums[r]);
          }
        });
      });
      x.quants += 32 * Unit::kParts;
      x.scales += 4 * Unit::kParts;
      x.sums += 4 * Unit::kParts * kParts;
    }
#pragma GCC unroll 2
    for (int r = 0; r < kRowRegisters; ++r) Lanes::store_floats(out + row_of(r), sums[r]);
  }
}

/// Unpacks `units` units of a group, kUnpackedBytes per 32 columns. kSigned: bytes are stored less the type's zero.
template <class Block, bool kSigned = false>
void unpack_units(const std::uint8_t* group, std::size_t units, std::uint8_t* out) {
  using Unit = quant::X16Codes<Block>;
  constexpr int kSub = Block::kSub, kParts = 32 / kSub;
  const Lanes::Table levels = Lanes::table(Levels<Block>::kBytes.at);
  for (std::size_t u = 0; u < units; ++u, group += Unit::kBytes) {
    for (int row = 0; row < 16; row += Lanes::kRows) {
      Lanes::F d, m;
      unit_halves<Block>(group, row, d, m);
      unrolled<static_cast<int>(Unit::kParts)>([&]<int p>() FORGE_INLINE_BODY {
        std::uint8_t* part = out + p * kUnpackedBytes<kSub>;
        const std::uint8_t* codes = group + p * Unit::kPartBytes + 4 * row;
        unrolled<8>([&]<int w>() FORGE_INLINE_BODY {
          Lanes::I word = quant::x16_word<Block, w, Lanes>(codes, levels);
          if constexpr (kSigned)
            word = Lanes::sub_bytes(word, Lanes::words(static_cast<std::int32_t>(0x01010101U * Block::kZero)));
          Lanes::store(part + 64 * w + 4 * row, word);
        });
        unrolled<kParts>([&]<int s>() FORGE_INLINE_BODY {
          Lanes::F scale, offset;
          part_scale<Block, p * kParts + s>(group, d, m, row, scale, offset);
          auto* floats = reinterpret_cast<float*>(part + 512 + 128 * s) + row;
          Lanes::store_floats(floats, scale);
          if constexpr (Block::kMinimum) Lanes::store_floats(floats + 16, offset);
        });
      });
    }
    out += Unit::kParts * kUnpackedBytes<kSub>;
  }
}

/// Bytes of one group's unpacked strip.
template <int kSub>
inline constexpr std::size_t kGroupStrip = kStripParts * kUnpackedBytes<kSub>;

/// Unpacked strips of some groups, kGroupStrip bytes apart, and the tokens that are multiplied with them.
template <int kSub>
struct UnpackedTile {
  const std::uint8_t* groups;
  std::size_t parts;  ///< columns / 32
  const CodesPanel<kSub>* panels;
  float* out;  ///< sums of the first group and token
  std::size_t out_stride;
  bool first;  ///< out holds nothing yet
};

/// T tokens by G groups. One load of x serves all their registers of rows, so the load ports stay half idle.
template <int kSub, bool kMinimum, int kShorts, int G, int T>
void unpacked_rows(const UnpackedTile<kSub>& tile) {
  constexpr int kParts = 32 / kSub, kWords = kSub / 4, kRegisters = G * kRowRegisters;
  for (int row = 0; row < 16; row += kRowRegisters * Lanes::kRows) {
    const std::uint8_t* lines = tile.groups;
    /// The first row of register r, and the offset of its group's strip.
    const auto row_of = [&](int r) FORGE_INLINE_BODY { return row + r % kRowRegisters * Lanes::kRows; };
    const auto strip_of = [&](int r) FORGE_INLINE_BODY {
      return static_cast<std::size_t>(r / kRowRegisters) * kGroupStrip<kSub>;
    };
    const auto out = [&](int r, int t) FORGE_INLINE_BODY {
      return tile.out + static_cast<std::size_t>(t) * tile.out_stride + 16 * (r / kRowRegisters) + row_of(r);
    };
    Lanes::F sums[kRegisters][T];
#pragma GCC unroll 2
    for (int r = 0; r < kRegisters; ++r)
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) sums[r][t] = tile.first ? Lanes::all(0.0f) : Lanes::load_floats(out(r, t));
    for (std::size_t p = 0; p < tile.parts; ++p, lines += kUnpackedBytes<kSub>) {
#pragma GCC unroll 2
      for (int s = 0; s < kParts; ++s) {
        const auto sum_of = [&](int t) FORGE_INLINE_BODY { return &tile.panels[t].sums[p * kParts + s]; };
        const auto quants_of = [&](int t) FORGE_INLINE_BODY {
          return reinterpret_cast<const std::uint8_t*>(tile.panels[t].quants) + 32 * p + kSub * s;
        };
        Dot<kShorts, kWords> dots[kRegisters][T];
        if constexpr (!kMinimum)
#pragma GCC unroll 12
          for (int t = 0; t < T; ++t)
#pragma GCC unroll 2
            for (int r = 0; r < kRegisters; ++r) dots[r][t].sum = Lanes::words(static_cast<std::int32_t>(*sum_of(t)));
#pragma GCC unroll 8
        for (int w = 0; w < kWords; ++w) {
          Lanes::I bytes[kRegisters];
#pragma GCC unroll 2
          for (int r = 0; r < kRegisters; ++r)
            bytes[r] = Lanes::load(lines + strip_of(r) + 64 * (s * kWords + w) + 4 * row_of(r));
#pragma GCC unroll 12
          for (int t = 0; t < T; ++t)
#pragma GCC unroll 2
            for (int r = 0; r < kRegisters; ++r) dots[r][t].add(w, bytes[r], load_i32(quants_of(t) + 4 * w));
        }
#pragma GCC unroll 2
        for (int r = 0; r < kRegisters; ++r) {
          const auto* floats = reinterpret_cast<const float*>(lines + strip_of(r) + 512 + 128 * s) + row_of(r);
          const Lanes::F scale = Lanes::load_floats(floats);
#pragma GCC unroll 12
          for (int t = 0; t < T; ++t) {
            const Lanes::F step = Lanes::times(scale, Lanes::all(tile.panels[t].scales[p]));
            sums[r][t] = Lanes::fused(step, Lanes::to_float(dots[r][t].total()), sums[r][t]);
            if constexpr (kMinimum)
              sums[r][t] =
                  Lanes::fused(Lanes::load_floats(floats + 16), Lanes::all(quant::f32_of_bits(*sum_of(t))), sums[r][t]);
          }
        }
      }
    }
#pragma GCC unroll 2
    for (int r = 0; r < kRegisters; ++r)
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) Lanes::store_floats(out(r, t), sums[r][t]);
  }
}

using OneRowFn = void (*)(const std::uint8_t*, std::size_t, const RowOfX&, float*, bool);
using UnpackFn = void (*)(const std::uint8_t*, std::size_t, std::uint8_t*);
template <int kSub>
using UnpackedRowsFn = void (*)(const UnpackedTile<kSub>&);

/// unpacked_rows for `count` tokens, 1 <= count <= T.
template <int kSub, bool kMinimum, int kShorts, int G, int T>
FORGE_INLINE UnpackedRowsFn<kSub> unpacked_rows_for(std::size_t count) {
  if constexpr (T > 1)
    if (count < T) return unpacked_rows_for<kSub, kMinimum, kShorts, G, T - 1>(count);
  return unpacked_rows<kSub, kMinimum, kShorts, G, T>;
}

/// The properties of a type that the drivers need. They are run-time values, so that types share the drivers' code.
struct CodesType {
  std::size_t unit_bytes, unit_parts;  ///< of a packed unit: bytes, and columns / 32
  PanelSums sums;
  OneRowFn one_row;
  UnpackFn unpack;
};

inline constexpr std::size_t kRowParts = 1024;  ///< columns / 32 of a strip, for one row of x

/// Driver for one row of x. Strips bound the array of correction words.
template <int kSub>
void matmul_one_row(const CodesType& type, const std::byte* weights, std::size_t units, std::size_t groups,
                    const PanelSource& source, float* out) {
  std::uint32_t sums[kRowParts * (32 / kSub)];
  const std::byte* row = source.row(0);
  const std::size_t strips = units == 0 ? 1 : divide_up(units, kRowParts / type.unit_parts);
  for (std::size_t strip = 0; strip < strips; ++strip) {
    const std::size_t u0 = units * strip / strips, count = units * (strip + 1) / strips - u0;
    const std::size_t first = u0 * type.unit_parts;
    panel_sums<kSub>(type.sums, row, source.k, first, count * type.unit_parts, sums);
    const auto* quants = reinterpret_cast<const std::uint8_t*>(row);
    const RowOfX x{quants + 32 * first, quants + source.k + 4 * first, reinterpret_cast<const std::uint8_t*>(sums)};
    for (std::size_t g = 0; g < groups; ++g) {
      const auto* group = reinterpret_cast<const std::uint8_t*>(weights) + (g * units + u0) * type.unit_bytes;
      type.one_row(group, count, x, out + 16 * g, strip == 0);
    }
  }
}

/// Register tile of unpacked_rows: 6 tokens by two groups with AVX-512; 3 tokens by one group with NEON, where a group
/// is four registers; 4 tokens by one group with AVX2; otherwise 4 tokens by one register of rows. Measured on Zen 3
/// (AVX2, 8192x2048, 512 tokens, GMAC/s of one thread), 4 tokens by one register, and 2, 3 and 4 by two: Q4_K 77, 53,
/// 97, 99; Q6_K 51, 52, 68, 72. One token (one_row), by one register and by two: Q4_K 26 and 35, Q6_K 18 and 23.
inline constexpr int kUnpackedTokens = kLanes == 16 ? 6 : Lanes::kRows == 16 ? 3 : 4;
inline constexpr int kUnpackedGroups = kLanes == 16 ? 2 : 1;
inline constexpr std::size_t kPanelTokens = 96;  ///< their panels take 67 KiB of L2

/// At most kPanelTokens tokens by G unpacked strips. Prefetches the weights that are read next.
template <int kSub, bool kMinimum, int kShorts, int G>
void multiply_strip(const std::uint8_t* unpacked, std::size_t parts, const CodesPanel<kSub>* panels, std::size_t tokens,
                    float* out, std::size_t out_stride, bool first, const NextWeights& next) {
  const std::size_t tiles = divide_up(tokens, kUnpackedTokens);
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    next.fetch(tile, tiles);
    const std::size_t t0 = tokens * tile / tiles, width = tokens * (tile + 1) / tiles - t0;
    unpacked_rows_for<kSub, kMinimum, kShorts, G, kUnpackedTokens>(width)(
        {unpacked, parts, panels + t0, out + t0 * out_stride, out_stride, first});
  }
}

/// Driver for many rows of x. Loops, outermost first: blocks of tokens whose panels fit L2; strips of columns; groups,
/// whose strips are unpacked into L1; tiles of tokens.
template <int kSub, bool kMinimum, int kShorts>
void matmul_many_rows(const CodesType& type, const std::byte* weights, std::size_t units, std::size_t groups,
                      const PanelSource& source, std::size_t tokens, float* out, std::size_t out_stride) {
  CodesPanel<kSub> panels[kPanelTokens];
  alignas(64) std::uint8_t unpacked[kUnpackedGroups * kGroupStrip<kSub>];
  const std::size_t strips = units == 0 ? 1 : divide_up(units, kStripParts / type.unit_parts);
  for (std::size_t token0 = 0; token0 < tokens; token0 += kPanelTokens) {
    const std::size_t count = tokens - token0 < kPanelTokens ? tokens - token0 : kPanelTokens;
    for (std::size_t strip = 0; strip < strips; ++strip) {
      const std::size_t u0 = units * strip / strips, run = units * (strip + 1) / strips - u0;
      const std::size_t parts = run * type.unit_parts;
      fill_codes_panels<kSub>(source, type.sums, token0, count, u0 * type.unit_parts, parts, panels);
      for (std::size_t group = 0; group < groups; group += kUnpackedGroups) {
        const std::size_t together = groups - group < kUnpackedGroups ? groups - group : kUnpackedGroups;
        for (std::size_t g = 0; g < together; ++g)
          type.unpack(reinterpret_cast<const std::uint8_t*>(weights) + ((group + g) * units + u0) * type.unit_bytes,
                      run, unpacked + g * kGroupStrip<kSub>);
        const auto multiply = together == kUnpackedGroups ? multiply_strip<kSub, kMinimum, kShorts, kUnpackedGroups>
                                                          : multiply_strip<kSub, kMinimum, kShorts, 1>;
        multiply(unpacked, parts, panels, count, out + token0 * out_stride + 16 * group, out_stride, strip == 0,
                 next_weights(weights, type.unit_bytes, units, groups, u0, u0 + run, group, together));
      }
    }
  }
}

/// The MatmulFn of a type.
template <class Block>
void matmul_codes(const std::byte* weights, std::size_t k, std::size_t groups, const std::byte* x,
                  std::size_t x_row_bytes, const std::int32_t* row_map, std::size_t tokens, float* out,
                  std::size_t out_stride) {
  using Unit = quant::X16Codes<Block>;
  constexpr CodesType kType{Unit::kBytes, Unit::kParts, kPanelSums<Block>, one_row<Block>, unpack_units<Block>};
  if (tokens == 0 || groups == 0) return;
  const PanelSource source{x, x_row_bytes, k, row_map};
  if (tokens == 1)
    matmul_one_row<Block::kSub>(kType, weights, k / Block::kElems, groups, source, out);
  else
    matmul_many_rows<Block::kSub, Block::kMinimum, words_in_shorts(quant::raw_max<Block>())>(
        kType, weights, k / Block::kElems, groups, source, tokens, out, out_stride);
}

/// matmul_codes for the type in the list; nullptr if it is not packed as codes.
template <class... Rows>
MatmulFn matmul_codes_of(DType type, quant::BlockRows<Rows...>) {
  MatmulFn found = nullptr;
  const auto look = [&]<class Row>(std::type_identity<Row>) FORGE_INLINE_BODY {
    if constexpr (quant::HasPacking<typename Row::Block>)
      if (type == Row::kType) found = matmul_codes<typename Row::Block>;
  };
  (look(std::type_identity<Rows>{}), ...);
  return found;
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
