#pragma once
// Matmul of block types by q8a activations, many rows, with tiles (Tiles: tiles_amx-inl.h or tiles_model-inl.h). The
// bits are those of the other kernels with FMA: tiles give the same exact integer dot of each part that has a scale of
// its own, and vectors add it to the sums in the same order.
//
// What bounds it: a part of 32 columns fills half a tile, and its 16x16 dots then cost 64 vector operations (to float,
// scale, two fma) on two ports, 32 cycles, beside 16 cycles of the tile unit; on VNNI the dots would be 128 operations
// more. Measured on a Xeon with AMX at 2.7 GHz (tests/device/amx_check.cc): a product of 16 rows takes 5.9 ns, of 12
// rows 5.0 and of 8 rows 4.5, so tiles are of 16 rows; a load, product and store of one take 10 ns when nothing else
// runs. A kernel that read a stage's dots right behind their store was 1.3 times as fast as VNNI, but took the sum of
// both times, as if a stored tile came to vectors only from the cache (30 ns a product and its 16x16 sums), and 41 ns a
// part to lay out 16 rows of x one number at a time. So, since then and not measured yet,
//   - a stage is kStage products. While vectors add stage s up, tiles store s + 1 and multiply s + 2.
//   - scales and sums of 16 rows of x are transposed in registers.
//
// Loops, outermost first: tokens whose panels fit L2; strips of columns; groups, whose strip is unpacked into L1; tiles
// of 16 tokens.
//
// Roads not taken. Weights made bf16 once and multiplied as such need no scales in the inner loop, but then a token's
// bits differ from those of a step of one row, which stays on vectors. BF16 and F16 weights as tiles of bf16, x split
// in two parts, pass the reference models' bounds by far (nmse 2e-7 on small models), but for the same bits few rows
// must sum as a tile does, and one row took 2.6 times as long.

#include "kernels/cpu/matmul_codes-inl.h"
#include "kernels/cpu/tile_shapes.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

inline constexpr std::size_t kTileStripParts = 24;  // a group's strip takes 15 of L1's 48 KiB
inline constexpr std::size_t kTileStripColumns = 32 * kTileStripParts;
inline constexpr std::size_t kTilePanels = 8;

/// What the kernel needs to know of a type: a packed group's bytes, unit_bytes for every unit_parts times 32 columns,
/// and how some of these units are unpacked, as kUnpackedBytes says.
struct TileWeights {
  std::size_t unit_parts, unit_bytes;
  void (*unpack)(const std::uint8_t* unit, std::size_t units, std::uint8_t* out);
};

/// The types whose packed bytes are the file's (matmul_int-inl.h); `first` begins a unit of the layout.
template <class Format>
void unpack_int_parts(const std::uint8_t* first, std::size_t parts, std::uint8_t* out) {
  const Lanes::I nibble = Lanes::words(0x0f0f0f0f);
  const auto block = [&](const std::uint8_t* quants, const std::uint8_t* scales) FORGE_INLINE_BODY {
    auto* floats = reinterpret_cast<float*>(out + 512);
    for (int row = 0; row < 16; row += Lanes::kRows) {
#pragma GCC unroll 8
      for (int j = 0; j < (Format::kFlat ? 8 : 4); ++j) {
        const Lanes::I word = Lanes::load(quants + 64 * j + 4 * row);
        Lanes::store(out + 64 * j + 4 * row, Format::kFlat ? word : Lanes::both(word, nibble));
        if constexpr (!Format::kFlat)
          Lanes::store(out + 64 * (4 + j) + 4 * row, Lanes::both(Lanes::right<4>(word), nibble));
      }
      const Lanes::F d = Lanes::halves(scales + 2 * row);
      Lanes::store_floats(floats + row, d);
      Lanes::store_floats(floats + 16 + row, Format::kMinimum ? Lanes::halves(scales + 32 + 2 * row)
                                                              : Lanes::times(d, Lanes::all(Format::kOffset)));
    }
    out += kUnpackedBytes<32>;
  };
  MicroArgs args{};
  args.weights = first;
  args.blocks = parts;
  for_each_block<Format>(args, [](const std::uint8_t*) FORGE_INLINE_BODY {}, block);
}

using TokenFloats = float __attribute__((vector_size(64)));

/// Lines become columns: each pass interleaves line i with line i + 8 (kernels/quant/x16.h, x16_transpose).
FORGE_INLINE void transpose(TokenFloats* lines) {
#pragma GCC unroll 4
  for (int pass = 0; pass < 4; ++pass) {
    TokenFloats out[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      out[2 * i] =
          __builtin_shufflevector(lines[i], lines[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      out[2 * i + 1] =
          __builtin_shufflevector(lines[i], lines[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) lines[i] = out[i];
  }
}

inline constexpr std::size_t kTileTokens = 16;

/// A strip of 16 tokens' rows.
template <int kSub>
struct alignas(64) TilePanel {
  static constexpr std::size_t kFloats = 1 + 32 / kSub;
  std::int8_t quants[kTileTokens][kTileStripColumns];
  float floats[kTileStripParts][kFloats][kTileTokens];  ///< scale, and each part's sum
};

/// out[p][token] = from(token)[p] for `parts` numbers p, `stride` floats from one to the next; 0 behind `tokens`.
template <class From>
FORGE_INLINE void gather_tokens(From from, std::size_t tokens, std::size_t parts, float* out, std::size_t stride) {
  for (std::size_t p = 0; p < parts; p += 16) {
    const std::size_t count = parts - p < 16 ? parts - p : 16;
    TokenFloats lines[16];
    for (std::size_t t = 0; t < 16; ++t) {
      lines[t] = TokenFloats{};
      if (t < tokens && count == 16)
        std::memcpy(&lines[t], from(t) + 4 * p, 64);
      else if (t < tokens)
        std::memcpy(&lines[t], from(t) + 4 * p, 4 * count);
    }
    transpose(lines);
    for (std::size_t i = 0; i < count; ++i) std::memcpy(out + (p + i) * stride, &lines[i], 64);
  }
}

/// `tokens` rows, and rows of zeros up to 16.
template <int kSub>
void fill_tile_panel(const PanelSource& source, std::size_t first_token, std::size_t tokens, std::size_t first,
                     std::size_t parts, TilePanel<kSub>& panel) {
  constexpr std::size_t kStride = sizeof(panel.floats[0]) / 4;
  for (std::size_t t = 0; t < kTileTokens; ++t)
    if (t < tokens)
      std::memcpy(panel.quants[t], source.row(first_token + t) + 32 * first, 32 * parts);
    else
      std::memset(panel.quants[t], 0, 32 * parts);
  const auto scales = [&](std::size_t t)
                          FORGE_INLINE_BODY { return source.row(first_token + t) + source.k + 4 * first; };
  gather_tokens(scales, tokens, parts, panel.floats[0][0], kStride);
  if constexpr (kSub == 32) {
    const auto sums = [&](std::size_t t) FORGE_INLINE_BODY { return scales(t) + source.k / 32 * 4; };
    gather_tokens(sums, tokens, parts, panel.floats[0][1], kStride);
  } else {
    for (std::size_t p = 0; p < parts; ++p)
      for (std::size_t s = 0; s < 2; ++s)
        for (std::size_t t = 0; t < kTileTokens; ++t)
          panel.floats[p][1 + s][t] = half_sum(panel.floats[p][0][t], panel.quants[t] + 32 * p + 16 * s);
  }
}

/// The tiles of a stage: 4 of dots, 2 of x (16 rows of kSub bytes), 2 of weights (kSub/4 rows of 16 words).
template <int kSub>
struct DotTiles {
  static constexpr TileShapes kShapes = [] {
    TileShapes shapes;
    for (std::size_t tile = 0; tile < 4; ++tile) shapes.set(tile, kTileTokens, 64);
    for (std::size_t tile = 4; tile < 6; ++tile) shapes.set(tile, kTileTokens, kSub);
    for (std::size_t tile = 6; tile < 8; ++tile) shapes.set(tile, kSub / 4, 64);
    return shapes;
  }();
};

struct TileStrip {
  const std::uint8_t* unpacked;
  std::size_t parts;
  float* out;  ///< of the group and the first token
  std::size_t out_stride, tokens;
  bool first;  ///< out holds nothing yet
};

/// One group by 16 tokens over a strip, `kStage` parts a stage; rows of `out` behind `tokens` are left alone.
template <int kSub, int kStage>
void tile_strip(const TileStrip& args, const TilePanel<kSub>& panel) {
  constexpr std::size_t kParts = 32 / kSub;
  constexpr int T = kTileTokens, kVectors = 16 / Lanes::kRows;
  alignas(64) std::uint8_t dots[2][kStage][T][64];
  Lanes::F sums[T][kVectors];
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      sums[t][v] =
          args.first || static_cast<std::size_t>(t) >= args.tokens
              ? Lanes::all(0.0f)
              : Lanes::load_floats(args.out + static_cast<std::size_t>(t) * args.out_stride + v * Lanes::kRows);
  const std::size_t subs = args.parts * kParts;  // parts of kSub columns
  const auto multiply = [&](std::size_t stage) FORGE_INLINE_BODY {
    unrolled<kStage>([&]<int i>() FORGE_INLINE_BODY {
      const std::size_t sub = kStage * stage + i;
      if (sub >= subs) return;
      Tiles::load<4 + i % 2>(panel.quants[0] + kSub * sub, kTileStripColumns);
      Tiles::load<6 + i % 2>(args.unpacked + sub / kParts * kUnpackedBytes<kSub> + sub % kParts * 16 * kSub, 64);
      Tiles::zero<i>();
      Tiles::dot_signed_unsigned<i, 4 + i % 2, 6 + i % 2>();
    });
  };
  const auto put = [&](std::size_t stage) FORGE_INLINE_BODY {
    unrolled<kStage>([&]<int i>() FORGE_INLINE_BODY {
      if (kStage * stage + i < subs) Tiles::store<i>(dots[stage % 2][i], 64);
    });
  };
  const auto add = [&](std::size_t sub, const std::uint8_t(*dot)[64]) FORGE_INLINE_BODY {
    const std::size_t part = sub / kParts, s = sub % kParts;
    const auto* floats = reinterpret_cast<const float*>(args.unpacked + part * kUnpackedBytes<kSub> + 512 + 128 * s);
    const float *x_scale = panel.floats[part][0], *x_sum = panel.floats[part][1 + s];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Lanes::F scale = Lanes::load_floats(floats + v * Lanes::kRows);
      const Lanes::F offset = Lanes::load_floats(floats + 16 + v * Lanes::kRows);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        const Lanes::F step = Lanes::times(scale, Lanes::all(x_scale[t]));
        sums[t][v] = Lanes::fused(step, Lanes::to_float(Lanes::load(dot[t] + 4 * v * Lanes::kRows)), sums[t][v]);
        sums[t][v] = Lanes::fused(offset, Lanes::all(x_sum[t]), sums[t][v]);
      }
    }
  };
  multiply(0);
  put(0);
  multiply(1);
  for (std::size_t stage = 0; kStage * stage < subs; ++stage) {
    put(stage + 1);
    multiply(stage + 2);
    const std::size_t left = subs - kStage * stage, count = left < kStage ? left : kStage;
    for (std::size_t i = 0; i < count; ++i) add(kStage * stage + i, dots[stage % 2][i]);
  }
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t)
    if (static_cast<std::size_t>(t) < args.tokens)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        Lanes::store_floats(args.out + static_cast<std::size_t>(t) * args.out_stride + v * Lanes::kRows, sums[t][v]);
}

/// One group by 16 tokens over a strip; rows of `out` behind `tokens` are left alone. While vectors add part p up,
/// tiles store part p + kLag and multiply part p + kLag + 4.
template <int kSub, int kLag>
void tile_strip_ring(const TileStrip& args, const TilePanel<kSub>& panel) {
  constexpr std::ptrdiff_t kParts = 32 / kSub, kFlight = 4;
  static_assert(kLag % kFlight == 0);
  constexpr int T = kTileTokens, kVectors = 16 / Lanes::kRows;
  alignas(64) std::uint8_t dots[kLag][T][64];
  Lanes::F sums[T * kVectors];
  const auto at = [&](int i)
                      FORGE_INLINE_BODY { return args.out + static_cast<std::size_t>(i / kVectors) * args.out_stride + i % kVectors * Lanes::kRows; };
  unrolled<T * kVectors>([&]<int i>() FORGE_INLINE_BODY {
    sums[i] = args.first || static_cast<std::size_t>(i / kVectors) >= args.tokens ? Lanes::all(0.0f) : Lanes::load_floats(at(i));
  });
  const auto subs = static_cast<std::ptrdiff_t>(args.parts) * kParts;  // parts of kSub columns
  const std::uint8_t* const unpacked = args.unpacked;
  const auto add = [&](std::size_t sub, const std::uint8_t(*dot)[64]) FORGE_INLINE_BODY {
    const std::size_t part = sub / kParts, s = sub % kParts;
    const auto* floats = reinterpret_cast<const float*>(unpacked + part * kUnpackedBytes<kSub> + 512 + 128 * s);
    const float *x_scale = panel.floats[part][0], *x_sum = panel.floats[part][1 + s];
    unrolled<kVectors>([&]<int v>() FORGE_INLINE_BODY {
      const Lanes::F scale = Lanes::load_floats(floats + v * Lanes::kRows);
      const Lanes::F offset = Lanes::load_floats(floats + 16 + v * Lanes::kRows);
      unrolled<T>([&]<int t>() FORGE_INLINE_BODY {
        const Lanes::F step = Lanes::times(scale, Lanes::all(x_scale[t]));
        Lanes::F sum = Lanes::fused(step, Lanes::to_float(Lanes::load(dot[t] + 4 * v * Lanes::kRows)), sums[t * kVectors + v]);
        sums[t * kVectors + v] = Lanes::fused(offset, Lanes::all(x_sum[t]), sum);
      });
    });
  };
  const auto tiles = [&]<int i>(std::ptrdiff_t stored, std::uint8_t(*dot)[64]) FORGE_INLINE_BODY {
    if (stored >= 0 && stored < subs) Tiles::store<i>(dot, 64);
    if (stored + kFlight >= subs) return;
    const auto sub = static_cast<std::size_t>(stored + kFlight);
    Tiles::load<4 + i % 2>(panel.quants[0] + kSub * sub, kTileStripColumns);
    Tiles::load<6 + i % 2>(unpacked + sub / kParts * kUnpackedBytes<kSub> + sub % kParts * 16 * kSub, 64);
    Tiles::zero<i>();
    Tiles::dot_signed_unsigned<i, 4 + i % 2, 6 + i % 2>();
  };
  for (std::ptrdiff_t now = -(kLag + kFlight); now < subs; ++now) {
    auto* dot = dots[static_cast<std::size_t>(now) % kLag];
    if (now >= 0) add(static_cast<std::size_t>(now), dot);
    switch (static_cast<std::size_t>(now) % kFlight) {
      case 0: tiles.template operator()<0>(now + kLag, dot); break;
      case 1: tiles.template operator()<1>(now + kLag, dot); break;
      case 2: tiles.template operator()<2>(now + kLag, dot); break;
      default: tiles.template operator()<3>(now + kLag, dot); break;
    }
  }
  unrolled<T * kVectors>([&]<int i>() FORGE_INLINE_BODY {
    if (static_cast<std::size_t>(i / kVectors) < args.tokens) Lanes::store_floats(at(i), sums[i]);
  });
}

template <int kSub, int kStage>
void matmul_tiles(const TileWeights& type, const std::byte* weights, std::size_t groups, const PanelSource& source,
                  std::size_t tokens, float* out, std::size_t out_stride) {
  constexpr std::size_t kTokens = kTilePanels * kTileTokens;
  TilePanel<kSub> panels[kTilePanels];
  alignas(64) std::uint8_t unpacked[kTileStripParts * kUnpackedBytes<kSub>];
  const std::size_t all_parts = source.k / 32, group_bytes = all_parts / type.unit_parts * type.unit_bytes;
  Tiles::configure(DotTiles<kSub>::kShapes);
  for (std::size_t token0 = 0; token0 < tokens; token0 += kTokens) {
    const std::size_t count = tokens - token0 < kTokens ? tokens - token0 : kTokens;
    const auto tile_tokens = [&](std::size_t at)
                                 FORGE_INLINE_BODY { return count - at < kTileTokens ? count - at : kTileTokens; };
    std::size_t first = 0;
    do {
      const std::size_t parts = all_parts - first < kTileStripParts ? all_parts - first : kTileStripParts;
      for (std::size_t at = 0; at < count; at += kTileTokens)
        fill_tile_panel<kSub>(source, token0 + at, tile_tokens(at), first, parts, panels[at / kTileTokens]);
      for (std::size_t group = 0; group < groups; ++group) {
        type.unpack(reinterpret_cast<const std::uint8_t*>(weights) + group * group_bytes +
                        first / type.unit_parts * type.unit_bytes,
                    parts / type.unit_parts, unpacked);
        for (std::size_t at = 0; at < count; at += kTileTokens)
{
          const TileStrip args{unpacked, parts, out + (token0 + at) * out_stride + 16 * group, out_stride, tile_tokens(at), first == 0};
          if constexpr (kStage >= 100)
            tile_strip_ring<kSub, kStage - 100>(args, panels[at / kTileTokens]);
          else
            tile_strip<kSub, kStage>(args, panels[at / kTileTokens]);
        }
      }
      first += parts;
    } while (first < all_parts);
  }
  Tiles::release();
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
