#pragma once
// Matmul of block types by q8a activations, many rows, with tiles (Tiles: tiles_amx-inl.h or tiles_model-inl.h). The
// bits are those of the other kernels with FMA: tiles give the same exact integer dot of each part that has a scale of
// its own, and vectors add it to the sums in the same order.
//
// What bounds it: a part of 32 columns fills half a tile, and its 16x16 dots then cost 64 vector operations (to float,
// scale, two fma) on two ports, 32 cycles, beside at most 16 cycles of the tile unit. The dots on VNNI would be 128
// operations more. So vectors must never wait: a stage is the tiles of two parts, and while vectors add one stage's
// dots up, tiles multiply the next one's.
//
// Loops, outermost first: tokens whose panels fit L2; strips of columns; pairs of groups, whose strips are unpacked
// into L1; tiles of T tokens.

#include "kernels/cpu/matmul_codes-inl.h"
#include "kernels/cpu/tile_shapes.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

inline constexpr std::size_t kTileStripParts = 24;  // two groups' strips take 30 of L1's 48 KiB
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

/// A strip of T tokens' rows.
template <int kSub, int T>
struct alignas(64) TilePanel {
  static constexpr std::size_t kFloats = 1 + 32 / kSub;
  std::int8_t quants[T][kTileStripColumns];
  float floats[kTileStripParts][kFloats][T];  ///< scale, and each part's sum
};

/// `tokens` rows, and rows of zeros up to T.
template <int kSub, int T>
void fill_tile_panel(const PanelSource& source, std::size_t first_token, std::size_t tokens, std::size_t first,
                     std::size_t parts, TilePanel<kSub, T>& panel) {
  for (std::size_t t = 0; t < T; ++t) {
    if (t >= tokens) {
      std::memset(panel.quants[t], 0, 32 * parts);
      for (std::size_t p = 0; p < parts; ++p)
        for (auto& row : panel.floats[p]) row[t] = 0.0f;
      continue;
    }
    const std::byte* row = source.row(first_token + t);
    const auto* scales = reinterpret_cast<const std::uint8_t*>(row + source.k + 4 * first);
    std::memcpy(panel.quants[t], row + 32 * first, 32 * parts);
    for (std::size_t p = 0; p < parts; ++p) {
      const float scale = load_f32(scales + 4 * p);
      panel.floats[p][0][t] = scale;
      if constexpr (kSub == 32) {
        panel.floats[p][1][t] = load_f32(scales + source.k / 32 * 4 + 4 * p);
      } else {
        for (std::size_t s = 0; s < 2; ++s)
          panel.floats[p][1 + s][t] = half_sum(scale, panel.quants[t] + 32 * p + 16 * s);
      }
    }
  }
}

/// The tiles of a stage: 4 of dots, 2 of x (T rows of kSub bytes), 2 of weights (kSub/4 rows of 16 words).
template <int kSub, int T>
struct DotTiles {
  static constexpr TileShapes kShapes = [] {
    TileShapes shapes;
    for (std::size_t tile = 0; tile < 4; ++tile) shapes.set(tile, T, 64);
    for (std::size_t tile = 4; tile < 6; ++tile) shapes.set(tile, T, kSub);
    for (std::size_t tile = 6; tile < 8; ++tile) shapes.set(tile, kSub / 4, 64);
    return shapes;
  }();
};

struct TileStrip {
  const std::uint8_t* unpacked;  ///< of the first group; the next one's is `group_bytes` on
  std::size_t group_bytes, parts;
  float* out;  ///< of the first group and token
  std::size_t out_stride, tokens;
  bool first;  ///< out holds nothing yet
};

/// G groups by T tokens over a strip; rows of `out` behind `tokens` are left alone.
template <int kSub, int T, int G, bool kLate>
void tile_strip(const TileStrip& args, const TilePanel<kSub, T>& panel) {
  constexpr int kParts = 32 / kSub, kVectors = 16 / Lanes::kRows;
  alignas(64) std::uint8_t dots[2][2][G][T][64];
  Lanes::F sums[G][T][kVectors];
#pragma GCC unroll 2
  for (int g = 0; g < G; ++g)
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        sums[g][t][v] = args.first || static_cast<std::size_t>(t) >= args.tokens
                            ? Lanes::all(0.0f)
                            : Lanes::load_floats(args.out + static_cast<std::size_t>(t) * args.out_stride + 16 * g +
                                                 v * Lanes::kRows);
  // `subs` parts from part `at` on, counted in kSub columns
  const auto multiply = [&]<int subs>(std::size_t at) FORGE_INLINE_BODY {
    unrolled<subs>([&]<int i>() FORGE_INLINE_BODY {
      const std::size_t sub = at + i;
      const std::uint8_t* lines = args.unpacked + sub / kParts * kUnpackedBytes<kSub> + sub % kParts * 16 * kSub;
      Tiles::load<4 + i>(panel.quants[0] + kSub * sub, kTileStripColumns);
      unrolled<G>([&]<int g>() FORGE_INLINE_BODY {
        Tiles::load<6 + g>(lines + g * args.group_bytes, 64);
        Tiles::zero<i * G + g>();
        Tiles::dot_signed_unsigned<i * G + g, 4 + i, 6 + g>();
      });
    });
  };
  const auto put = [&]<int subs>(std::size_t stage) FORGE_INLINE_BODY {
    unrolled<subs>([&]<int i>() FORGE_INLINE_BODY {
      unrolled<G>([&]<int g>() FORGE_INLINE_BODY { Tiles::store<i * G + g>(dots[stage % 2][i][g], 64); });
    });
  };
  const auto add = [&]<int subs>(std::size_t stage) FORGE_INLINE_BODY {
    unrolled<subs>([&]<int i>() FORGE_INLINE_BODY {
      const std::size_t sub = 2 * stage + i, part = sub / kParts, s = kParts == 1 ? 0 : i;
      const auto* floats = reinterpret_cast<const float*>(args.unpacked + part * kUnpackedBytes<kSub> + 512 + 128 * s);
      const auto& x = panel.floats[part];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        Lanes::F scale[G], offset[G];
#pragma GCC unroll 2
        for (int g = 0; g < G; ++g) {
          const float* lane = floats + g * args.group_bytes / 4 + v * Lanes::kRows;
          scale[g] = Lanes::load_floats(lane);
          offset[g] = Lanes::load_floats(lane + 16);
        }
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
          const Lanes::F x_scale = Lanes::all(x[0][t]), x_sum = Lanes::all(x[1 + s][t]);
#pragma GCC unroll 2
          for (int g = 0; g < G; ++g) {
            const Lanes::I dot = Lanes::load(dots[stage % 2][i][g][t] + 4 * v * Lanes::kRows);
            sums[g][t][v] = Lanes::fused(Lanes::times(scale[g], x_scale), Lanes::to_float(dot), sums[g][t][v]);
            sums[g][t][v] = Lanes::fused(offset[g], x_sum, sums[g][t][v]);
          }
        }
      }
    });
  };

  const std::size_t subs = args.parts * kParts;
  const auto begin = [&](std::size_t stage) FORGE_INLINE_BODY {
    if (subs >= 2 * stage + 2)
      multiply.template operator()<2>(2 * stage);
    else if (subs > 2 * stage)
      multiply.template operator()<1>(2 * stage);
  };
  const auto end = [&](std::size_t stage) FORGE_INLINE_BODY {
    if (subs >= 2 * stage + 2)
      put.template operator()<2>(stage);
    else if (subs > 2 * stage)
      put.template operator()<1>(stage);
  };
  begin(0);
  end(0);
  std::size_t stage = 0;
  for (; 2 * stage + 2 <= subs; ++stage) {
    begin(stage + 1);
    if constexpr (!kLate) end(stage + 1);
    add.template operator()<2>(stage);
    if constexpr (kLate) end(stage + 1);
  }
  if (subs % 2 != 0) add.template operator()<1>(stage);
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t)
    if (static_cast<std::size_t>(t) < args.tokens)
#pragma GCC unroll 2
      for (int g = 0; g < G; ++g)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v)
          Lanes::store_floats(args.out + static_cast<std::size_t>(t) * args.out_stride + 16 * g + v * Lanes::kRows,
                              sums[g][t][v]);
}

/// T tokens by G groups at a time.
template <int kSub, int T, int G, bool kLate>
void matmul_tiles(const TileWeights& type, const std::byte* weights, std::size_t groups, const PanelSource& source,
                  std::size_t tokens, float* out, std::size_t out_stride) {
  constexpr std::size_t kStripBytes = kTileStripParts * kUnpackedBytes<kSub>;
  using Panel = TilePanel<kSub, T>;
  Panel panels[kTilePanels];
  alignas(64) std::uint8_t unpacked[G * kStripBytes];
  const std::size_t all_parts = source.k / 32, group_bytes = all_parts / type.unit_parts * type.unit_bytes;
  Tiles::configure(DotTiles<kSub, T>::kShapes);
  for (std::size_t token0 = 0; token0 < tokens; token0 += kTilePanels * T) {
    const std::size_t count = tokens - token0 < kTilePanels * T ? tokens - token0 : kTilePanels * T;
    const std::size_t tiles = divide_up(count, T);
    std::size_t first = 0;
    do {
      const std::size_t parts = all_parts - first < kTileStripParts ? all_parts - first : kTileStripParts;
      for (std::size_t tile = 0; tile < tiles; ++tile)
        fill_tile_panel<kSub, T>(source, token0 + tile * T, count - tile * T < T ? count - tile * T : T, first, parts,
                                 panels[tile]);
      for (std::size_t group = 0; group < groups; group += G) {
        const std::size_t together = groups - group < G ? groups - group : G;
        for (std::size_t g = 0; g < together; ++g)
          type.unpack(reinterpret_cast<const std::uint8_t*>(weights) + (group + g) * group_bytes +
                          first / type.unit_parts * type.unit_bytes,
                      parts / type.unit_parts, unpacked + g * kStripBytes);
        for (std::size_t tile = 0; tile < tiles; ++tile) {
          const TileStrip strip{unpacked,   kStripBytes,
                                parts,      out + (token0 + tile * T) * out_stride + 16 * group,
                                out_stride, count - tile * T < T ? count - tile * T : T,
                                first == 0};
          if (together == G)
            tile_strip<kSub, T, G, kLate>(strip, panels[tile]);
          else
            tile_strip<kSub, T, 1, kLate>(strip, panels[tile]);
        }
      }
      first += parts;
    } while (first < all_parts);
  }
  Tiles::release();
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
