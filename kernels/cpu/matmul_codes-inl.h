#pragma once
// Matmul of the block types that are packed as codes (kernels/quant/x16_codes.h), by q8a activations. A type is what
// that header says of it; here are two kernels for all of them:
//   one row of x     codes become bytes, and scales floats, in registers on their way into the dots
//   more rows of x   some groups' strips are unpacked once, to bytes and floats in L2, and then read by every tile of
//                    tokens: unpacking costs about as much as four tokens' dots
// Both add up in the same order: for every part of 32 (or 16) columns that has a scale of its own, from the first on,
// acc = fma(scale_w * scale_x, float(dot of raw values), acc), then acc = fma(offset_w, sum_x, acc).

#include <utility>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/matmul_int-inl.h"
#include "kernels/quant/x16_codes.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// A panel of T tokens has, for each 32 columns, [T][32] int8, [T] scale and [T] sum of each part.
template <int kSub>
constexpr std::size_t panel_part_bytes(std::size_t tokens) {
  return (36 + 4 * (32 / kSub)) * tokens;
}

/// 32 columns of a group, unpacked: 8 lines of bytes, then for each part 16 scales and 16 offsets.
template <int kSub>
inline constexpr std::size_t kUnpackedBytes = 512 + 128 * (32 / kSub);

/// A copy of the type's levels that belongs to this class: nothing of it is linked into another.
template <class Block>
struct Levels {
  struct Bytes {
    std::uint8_t at[16];
  };
  static constexpr Bytes kBytes = [] {
    Bytes out{};
    if constexpr (quant::HasLevels<Block>)
      for (std::size_t i = 0; i < 16; ++i) out.at[i] = Block::kLevels[i];
    return out;
  }();
};

/// The unit kFetchAhead bytes on, as fetch_ahead does.
template <std::size_t kBytes>
FORGE_INLINE void fetch_unit(const std::uint8_t* unit) {
#pragma GCC unroll 64
  for (std::size_t line = 0; line < kBytes; line += 64) __builtin_prefetch(unit + kFetchAhead + line, 0, 2);
}

template <class Block>
FORGE_INLINE Lanes::F half_of(const std::uint8_t* unit, int part, int row) {
  return Lanes::halves(unit + quant::X16Codes<Block>::kHalvesAt + 32 * part + 2 * row);
}

/// Scale and offset of part `kPart` of a unit, for rows `row` and on.
template <class Block, int kPart>
FORGE_INLINE void part_scale(const std::uint8_t* unit, Lanes::F d, Lanes::F m, int row, Lanes::F& scale,
                             Lanes::F& offset) {
  quant::x16_scale<Block, kPart, Lanes>(unit + quant::X16Codes<Block>::kNumbersAt + row, d, m, scale, offset);
}

/// d and m of a unit; zeros for what the type has not.
template <class Block>
FORGE_INLINE void unit_halves(const std::uint8_t* unit, int row, Lanes::F& d, Lanes::F& m) {
  d = m = Lanes::all(0.0f);
  if constexpr (Block::kPacking.halves > 0) d = half_of<Block>(unit, 0, row);
  if constexpr (Block::kPacking.halves > 1) m = half_of<Block>(unit, 1, row);
}

/// One token by one group over `units` units; `panel` of one token.
template <class Block>
void one_row(const std::uint8_t* group, std::size_t units, const std::uint8_t* panel, float* out, bool first) {
  using Unit = quant::X16Codes<Block>;
  constexpr int kSub = Block::kSub, kParts = 32 / kSub, kWords = kSub / 4;
  constexpr int kShorts = words_in_shorts(quant::raw_max<Block>());
  const Lanes::Table levels = Lanes::table(Levels<Block>::kBytes.at);
  for (int row = 0; row < 16; row += Lanes::kRows) {
    const std::uint8_t* unit = group;
    const std::uint8_t* x = panel;
    Lanes::F sum = first ? Lanes::all(0.0f) : Lanes::load_floats(out + row);
    for (std::size_t u = 0; u < units; ++u, unit += Unit::kBytes) {
      if (row == 0) fetch_unit<Unit::kBytes>(unit);
      Lanes::F d, m;
      unit_halves<Block>(unit, row, d, m);
      unrolled<static_cast<int>(Unit::kParts)>([&]<int p>() FORGE_INLINE_BODY {
        const std::uint8_t* codes = unit + p * Unit::kPartBytes + 4 * row;
        const Lanes::F x_scale = Lanes::all(load_f32(x + 32));
        unrolled<kParts>([&]<int s>() FORGE_INLINE_BODY {
          Dot<kShorts, kWords> dot;
          unrolled<kWords>([&]<int w>() FORGE_INLINE_BODY {
            constexpr int kWord = s * kWords + w;
            dot.add(w, quant::x16_word<Block, kWord, Lanes>(codes, levels), load_i32(x + 4 * kWord));
          });
          Lanes::F scale, offset;
          part_scale<Block, p * kParts + s>(unit, d, m, row, scale, offset);
          sum = Lanes::fused(Lanes::times(scale, x_scale), Lanes::to_float(dot.total()), sum);
          sum = Lanes::fused(offset, Lanes::all(load_f32(x + 36 + 4 * s)), sum);
        });
        x += panel_part_bytes<kSub>(1);
      });
    }
    Lanes::store_floats(out + row, sum);
  }
}

/// `units` units of a group to kUnpackedBytes for each 32 columns.
template <class Block>
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
          Lanes::store(part + 64 * w + 4 * row, quant::x16_word<Block, w, Lanes>(codes, levels));
        });
        unrolled<kParts>([&]<int s>() FORGE_INLINE_BODY {
          Lanes::F scale, offset;
          part_scale<Block, p * kParts + s>(group, d, m, row, scale, offset);
          auto* floats = reinterpret_cast<float*>(part + 512 + 128 * s) + row;
          Lanes::store_floats(floats, scale);
          Lanes::store_floats(floats + 16, offset);
        });
      });
    }
    out += Unit::kParts * kUnpackedBytes<kSub>;
  }
}

/// T tokens by one unpacked group over `parts` times 32 columns.
template <int kSub, int kShorts, int T>
void unpacked_rows(const std::uint8_t* group, std::size_t parts, const std::uint8_t* panel, float* out,
                   std::size_t out_stride, bool first) {
  constexpr int kParts = 32 / kSub, kWords = kSub / 4;
  for (int row = 0; row < 16; row += Lanes::kRows) {
    const std::uint8_t *lines = group + 4 * row, *x = panel;
    Lanes::F sums[T];
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t)
      sums[t] = first ? Lanes::all(0.0f) : Lanes::load_floats(out + static_cast<std::size_t>(t) * out_stride + row);
    for (std::size_t p = 0; p < parts; ++p, lines += kUnpackedBytes<kSub>, x += panel_part_bytes<kSub>(T)) {
#pragma GCC unroll 2
      for (int s = 0; s < kParts; ++s) {
        Dot<kShorts, kWords> dots[T];
#pragma GCC unroll 8
        for (int w = 0; w < kWords; ++w) {
          const Lanes::I bytes = Lanes::load(lines + 64 * (s * kWords + w));
#pragma GCC unroll 12
          for (int t = 0; t < T; ++t) dots[t].add(w, bytes, load_i32(x + 32 * t + 4 * (s * kWords + w)));
        }
        const auto* floats = reinterpret_cast<const float*>(lines - 4 * row + 512 + 128 * s) + row;
        const Lanes::F scale = Lanes::load_floats(floats), offset = Lanes::load_floats(floats + 16);
#pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
          const Lanes::F step = Lanes::times(scale, Lanes::all(load_f32(x + 32 * T + 4 * t)));
          sums[t] = Lanes::fused(step, Lanes::to_float(dots[t].total()), sums[t]);
          sums[t] = Lanes::fused(offset, Lanes::all(load_f32(x + (36 + 4 * s) * T + 4 * t)), sums[t]);
        }
      }
    }
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) Lanes::store_floats(out + static_cast<std::size_t>(t) * out_stride + row, sums[t]);
  }
}

using OneRowFn = void (*)(const std::uint8_t*, std::size_t, const std::uint8_t*, float*, bool);
using UnpackFn = void (*)(const std::uint8_t*, std::size_t, std::uint8_t*);
using UnpackedRowsFn = void (*)(const std::uint8_t*, std::size_t, const std::uint8_t*, float*, std::size_t, bool);

template <int kSub, int kShorts, int T>
FORGE_INLINE UnpackedRowsFn unpacked_rows_for(std::size_t count) {
  if constexpr (T > 1)
    if (count < T) return unpacked_rows_for<kSub, kShorts, T - 1>(count);
  return unpacked_rows<kSub, kShorts, T>;
}

/// What the drivers need to know of a type.
struct CodesType {
  std::size_t unit_bytes, unit_parts;  ///< parts: of 32 columns
  OneRowFn one_row;
  UnpackFn unpack;
};

/// What the offset of a part of 16 columns is multiplied with.
FORGE_INLINE float half_sum(float scale, const std::int8_t* quants) {
  std::int32_t total = 0;
  for (std::size_t i = 0; i < 16; ++i) total += quants[i];
  return scale * static_cast<float>(total);
}

/// Parts [first, first + parts) of tokens' rows into a panel; the sums of parts of 16 columns are made here.
template <int kSub>
void fill_codes_panel(const PanelSource& source, std::size_t first_token, std::size_t tokens, std::size_t first,
                      std::size_t parts, std::uint8_t* panel) {
  if constexpr (kSub == 32) {
    fill_panel(source, first_token, tokens, first, parts, panel);
    return;
  }
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::byte* row = source.row(first_token + t);
    const auto* quants = reinterpret_cast<const std::int8_t*>(row) + 32 * first;
    const auto* scales = reinterpret_cast<const std::uint8_t*>(row + source.k + 4 * first);
    std::uint8_t* out = panel;
    for (std::size_t p = 0; p < parts; ++p, out += panel_part_bytes<kSub>(tokens), quants += 32) {
      const float scale = load_f32(scales + 4 * p);
      std::memcpy(out + 32 * t, quants, 32);
      std::memcpy(out + 32 * tokens + 4 * t, &scale, 4);
      for (std::size_t s = 0; s < 2; ++s) {
        const float sum = half_sum(scale, quants + 16 * s);
        std::memcpy(out + (36 + 4 * s) * tokens + 4 * t, &sum, 4);
      }
    }
  }
}

template <int kSub>
void matmul_one_row(const CodesType& type, const std::byte* weights, std::size_t units, std::size_t groups,
                    const PanelSource& source, float* out) {
  alignas(64) std::uint8_t panel[kPanelBytes];
  const std::size_t strip_units = kPanelBytes / (panel_part_bytes<kSub>(1) * type.unit_parts);
  const std::size_t strips = units == 0 ? 1 : divide_up(units, strip_units);
  for (std::size_t strip = 0; strip < strips; ++strip) {
    const std::size_t u0 = units * strip / strips, count = units * (strip + 1) / strips - u0;
    fill_codes_panel<kSub>(source, 0, 1, u0 * type.unit_parts, count * type.unit_parts, panel);
    for (std::size_t g = 0; g < groups; ++g) {
      const auto* group = reinterpret_cast<const std::uint8_t*>(weights) + (g * units + u0) * type.unit_bytes;
      type.one_row(group, count, panel, out + 16 * g, strip == 0);
    }
  }
}

inline constexpr std::size_t kStripParts = 24;     // 768 columns: a panel of 12 tokens fits L1
inline constexpr std::size_t kUnpackedGroups = 8;  // strips of them, 144 KiB, stay in L2
inline constexpr int kUnpackedTokens = Lanes::kRows == 16 ? 12 : 4;

template <int kSub, int kShorts>
void matmul_many_rows(const CodesType& type, const std::byte* weights, std::size_t units, std::size_t groups,
                      const PanelSource& source, std::size_t tokens, float* out, std::size_t out_stride) {
  static_assert(panel_part_bytes<kSub>(kUnpackedTokens) * kStripParts <= kPanelBytes);
  constexpr std::size_t kStripBytes = kStripParts * kUnpackedBytes<kSub>;
  alignas(64) std::uint8_t panel[kPanelBytes];
  alignas(64) std::uint8_t unpacked[kUnpackedGroups * kStripBytes];
  const std::size_t tiles = divide_up(tokens, kUnpackedTokens);
  const std::size_t strips = units == 0 ? 1 : divide_up(units, kStripParts / type.unit_parts);
  for (std::size_t group0 = 0; group0 < groups; group0 += kUnpackedGroups) {
    const std::size_t together = groups - group0 < kUnpackedGroups ? groups - group0 : kUnpackedGroups;
    for (std::size_t strip = 0; strip < strips; ++strip) {
      const std::size_t u0 = units * strip / strips, count = units * (strip + 1) / strips - u0;
      const std::size_t parts = count * type.unit_parts;
      for (std::size_t g = 0; g < together; ++g)
        type.unpack(reinterpret_cast<const std::uint8_t*>(weights) + ((group0 + g) * units + u0) * type.unit_bytes,
                    count, unpacked + g * kStripBytes);
      for (std::size_t tile = 0; tile < tiles; ++tile) {
        const std::size_t t0 = tokens * tile / tiles, width = tokens * (tile + 1) / tiles - t0;
        const UnpackedRowsFn run = unpacked_rows_for<kSub, kShorts, kUnpackedTokens>(width);
        fill_codes_panel<kSub>(source, t0, width, u0 * type.unit_parts, parts, panel);
        for (std::size_t g = 0; g < together; ++g)
          run(unpacked + g * kStripBytes, parts, panel, out + t0 * out_stride + 16 * (group0 + g), out_stride,
              strip == 0);
      }
    }
  }
}

template <class Block>
void matmul_codes(const std::byte* weights, std::size_t k, std::size_t groups, const std::byte* x,
                  std::size_t x_row_bytes, const std::int32_t* row_map, std::size_t tokens, float* out,
                  std::size_t out_stride) {
  using Unit = quant::X16Codes<Block>;
  constexpr CodesType kType{Unit::kBytes, Unit::kParts, one_row<Block>, unpack_units<Block>};
  if (tokens == 0 || groups == 0) return;
  const PanelSource source{x, x_row_bytes, k, row_map};
  if (tokens == 1)
    matmul_one_row<Block::kSub>(kType, weights, k / Block::kElems, groups, source, out);
  else
    matmul_many_rows<Block::kSub, words_in_shorts(quant::raw_max<Block>())>(kType, weights, k / Block::kElems, groups,
                                                                            source, tokens, out, out_stride);
}

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
