#pragma once
// Prefill matmul of block types by q8a_32 activations, with BF16 tiles. Weights (quant, scale and minimum) and
// activations (quant and scale) are converted to BF16 once, and a tile then sums over all of k by itself. No part has
// its own scale any more, so no vector work is left between the products; that work is half the time of int8 tiles
// (matmul_tiles-inl.h). A BF16 tile has 32 columns too.
//
// Accuracy: rounding to BF16 changes a dot by less than q8a_32 did already. Relative to the sum of squared products,
// rounding both factors gives some 5e-6, q8a_32 (half of 1/127 of a block's largest value) some 3e-5.
//
// The bits differ from those of all other kernels. Summation order: in each 32 columns two chains of fma from 0, over
// the even and the odd columns; their sum is added to the parts' before; subnormals count as 0. So every token of a
// long prompt uses this kernel, one as well as many, and no other token does. A token's result then depends neither on
// how its prompt is cut nor on what shares its step (Kernels::prompt_matmul, runtime/step_batch.h).
//
// Loops, outermost first: blocks of tokens whose panels fit L2; strips of columns; pairs of groups, whose weights are
// converted to BF16 in L1; pairs of panels of 16 tokens. Two groups by two panels are 4 tiles of sums, for which each
// tile of x and of weights is loaded once.

#include "kernels/cpu/matmul/matmul_tiles-inl.h"

#if defined(__AVX512BF16__)
#include "kernels/cpu/bf16_pairs-inl.h"
#endif

namespace forge::cpu::FORGE_CPU_NAMESPACE {

inline constexpr std::size_t kPromptPanels = 16;  ///< panels of 16 tokens in L2
inline constexpr std::size_t kPromptParts = 10;   ///< columns / 32 of a strip: two groups and two panels take 40 KiB
inline constexpr std::size_t kPromptTile = 1024;  ///< bytes of a tile: 16 rows of 32 BF16

#if defined(__AVX512BF16__)
/// Stores 32 floats as BF16: out[0..16) = a, out[16..32) = b.
FORGE_INLINE void store_bf16(V a, V b, std::uint8_t* out) {
  _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(b.raw, a.raw));
}
/// Stores two vectors interleaved as BF16: out[2i] = even[i], out[2i + 1] = odd[i].
FORGE_INLINE void store_bf16_pairs(Lanes::F even, Lanes::F odd, std::uint8_t* out) {
  _mm512_storeu_si512(out, bf16_pairs((__m512i)_mm512_cvtne2ps_pbh(odd, even)));
}
#else
FORGE_INLINE void put_bf16(float x, std::uint8_t* out) {
  const std::uint16_t bits = quant::bf16_of_f32(x);
  std::memcpy(out, &bits, 2);
}
FORGE_INLINE void store_bf16(V a, V b, std::uint8_t* out) {
  float lanes[32];
  M::store(a, lanes);
  M::store(b, lanes + 16);
  for (std::size_t i = 0; i < 32; ++i) put_bf16(lanes[i], out + 2 * i);
}
FORGE_INLINE void store_bf16_pairs(Lanes::F even, Lanes::F odd, std::uint8_t* out) {
  float lanes[2][Lanes::kRows];
  Lanes::store_floats(lanes[0], even);
  Lanes::store_floats(lanes[1], odd);
  for (std::size_t i = 0; i < 2 * Lanes::kRows; ++i) put_bf16(lanes[i % 2][i / 2], out + 2 * i);
}
#endif

/// Converts the parts of an unpacked strip (kUnpackedBytes) to weight tiles: [16 pairs of columns][16 rows][2].
template <int kSub, bool kSigned>
void weights_to_bf16(const std::uint8_t* unpacked, std::size_t parts, std::uint8_t* out) {
  for (std::size_t p = 0; p < parts; ++p, unpacked += kUnpackedBytes<kSub>, out += kPromptTile)
    for (int row = 0; row < 16; row += Lanes::kRows)
      unrolled<8>([&]<int w>() FORGE_INLINE_BODY {  // 4 columns
        const auto* floats = reinterpret_cast<const float*>(unpacked + 512 + 128 * (4 * w / kSub)) + row;
        const Lanes::F scale = Lanes::load_floats(floats);
        const Lanes::F offset = kSigned ? scale : Lanes::load_floats(floats + 16);
        const Lanes::I bytes = Lanes::load(unpacked + 64 * w + 4 * row);
        const auto weight = [&]<int b>() FORGE_INLINE_BODY {
          if constexpr (kSigned)
            return Lanes::times(scale, Lanes::to_float(Lanes::right_signed<24>(Lanes::left_word<24 - 8 * b>(bytes))));
          else
            return Lanes::fused(
                scale, Lanes::to_float(Lanes::and_(Lanes::right_signed<8 * b>(bytes), Lanes::words(0xff))), offset);
        };
        store_bf16_pairs(weight.template operator()<0>(), weight.template operator()<1>(), out + 128 * w + 4 * row);
        store_bf16_pairs(weight.template operator()<2>(), weight.template operator()<3>(),
                         out + 128 * w + 64 + 4 * row);
      });
}

/// Converts parts [first, first + parts) of 16 rows of x to tiles [16 rows][32 columns]. Rows from `tokens` on are
/// zeros.
FORGE_INLINE void x_to_bf16(const PanelSource& source, std::size_t first_token, std::size_t tokens, std::size_t first,
                            std::size_t parts, std::uint8_t* out) {
  for (std::size_t t = 0; t < kTileTokens; ++t, out += 64) {
    if (t >= tokens) {
      for (std::size_t p = 0; p < parts; ++p) std::memset(out + kPromptTile * p, 0, 64);
      continue;
    }
    const std::byte* row = source.row(first_token + t);
    const auto* quants = reinterpret_cast<const std::int8_t*>(row) + 32 * first;
    const auto* scales = reinterpret_cast<const float*>(row + quant::q8a_scales_offset(source.k)) + first;
    for (std::size_t p = 0; p < parts; ++p) {
      const V scale = M::set1(scales[p]);
      store_bf16(mul(M::load_i8(quants + 32 * p), scale), mul(M::load_i8(quants + 32 * p + 16), scale),
                 out + kPromptTile * p);
    }
  }
}

/// Two groups by one or two panels over a strip. Tile registers: 0-3 sums, 4-5 x, 6-7 weights.
struct PromptTiles {
  static constexpr TileShapes kShapes = [] {
    TileShapes shapes;
    for (std::size_t tile = 0; tile < 8; ++tile) shapes.set(tile, kTileTokens, 64);
    return shapes;
  }();
  const std::uint8_t *weights, *x;  ///< groups, and panels, are kPromptParts tiles apart
  std::size_t parts;
  bool first;  ///< sums start at 0 instead of `to`

  /// to[panel][group]: 16 rows of 16 sums, `stride` bytes apart, which are read and written.
  template <bool kTwoPanels>
  FORGE_INLINE void run(float* const (*to)[2], const std::size_t (*stride)[2]) const {
    constexpr std::size_t kNext = kPromptParts * kPromptTile;
    const auto for_sums = [&](auto f) FORGE_INLINE_BODY {
      f.template operator()<0>(to[0][0], stride[0][0]);
      f.template operator()<1>(to[0][1], stride[0][1]);
      if constexpr (kTwoPanels) {
        f.template operator()<2>(to[1][0], stride[1][0]);
        f.template operator()<3>(to[1][1], stride[1][1]);
      }
    };
    for_sums([&]<int tile>(const float* from, std::size_t bytes) FORGE_INLINE_BODY {
      if (first)
        Tiles::zero<tile>();
      else
        Tiles::load<tile>(from, bytes);
    });
    for (std::size_t p = 0; p < parts; ++p) {
      Tiles::load<4>(x + p * kPromptTile, 64);
      Tiles::load<6>(weights + p * kPromptTile, 64);
      Tiles::dot_bf16<0, 4, 6>();
      Tiles::load<7>(weights + p * kPromptTile + kNext, 64);
      Tiles::dot_bf16<1, 4, 7>();
      if constexpr (kTwoPanels) {
        Tiles::load<5>(x + p * kPromptTile + kNext, 64);
        Tiles::dot_bf16<2, 5, 6>();
        Tiles::dot_bf16<3, 5, 7>();
      }
    }
    for_sums([&]<int tile>(float* at, std::size_t bytes) FORGE_INLINE_BODY { Tiles::store<tile>(at, bytes); });
  }
};

/// The driver for any number of tokens. A tile always stores 16 rows of 16 sums, so sums of missing tokens or of a
/// missing second group go to a buffer (edge_sums) instead of `out`.
template <int kSub, bool kSigned>
void prompt_tiles(const TileWeights& type, const std::byte* weights, std::size_t groups, const PanelSource& source,
                  std::size_t tokens, float* out, std::size_t out_stride) {
  constexpr std::size_t kTokens = kPromptPanels * kTileTokens, kStrip = kPromptParts * kPromptTile;
  alignas(64) std::uint8_t panels[kPromptPanels * kStrip], strips[2 * kStrip];
  alignas(64) std::uint8_t unpacked[kPromptParts * kUnpackedBytes<kSub>];
  alignas(64) float edge_sums[2][2][kTileTokens][16];  // sums of missing tokens and groups
  const std::size_t units = source.k / 32 / type.unit_parts, step = strip_units(units, kPromptParts / type.unit_parts);
  Tiles::configure(PromptTiles::kShapes);
  for (std::size_t token0 = 0; token0 < tokens; token0 += kTokens) {
    const std::size_t count = tokens - token0 < kTokens ? tokens - token0 : kTokens;
    const std::size_t panel_count = divide_up(count, kTileTokens);
    for (std::size_t u0 = 0; u0 < units;) {
      const std::size_t u1 = units - u0 < step ? units : u0 + step;
      const std::size_t parts = (u1 - u0) * type.unit_parts;
      for (std::size_t panel = 0; panel < panel_count; ++panel) {
        const std::size_t at = panel * kTileTokens;
        x_to_bf16(source, token0 + at, count - at < kTileTokens ? count - at : kTileTokens, u0 * type.unit_parts, parts,
                  panels + panel * kStrip);
      }
      for (std::size_t group = 0; group < groups; group += 2) {
        const std::size_t together = groups - group < 2 ? 1 : 2;
        for (std::size_t g = 0; g < together; ++g) {
          type.unpack(reinterpret_cast<const std::uint8_t*>(weights) + ((group + g) * units + u0) * type.unit_bytes,
                      u1 - u0, unpacked);
          weights_to_bf16<kSub, kSigned>(unpacked, parts, strips + g * kStrip);
        }
        if (together == 1) std::memset(strips + kStrip, 0, parts * kPromptTile);
        const NextWeights next = next_weights(weights, type.unit_bytes, units, groups, u0, u1, group, together);
        for (std::size_t panel = 0; panel < panel_count; panel += 2) {
          next.fetch(panel / 2, divide_up(panel_count, 2));
          const std::size_t panels_now = panel_count - panel < 2 ? 1 : 2;
          float* sums[2][2];
          std::size_t strides[2][2];
          for (std::size_t i = 0; i < 2; ++i)
            for (std::size_t g = 0; g < 2; ++g) {
              const std::size_t at = (panel + i) * kTileTokens;
              const bool whole = i < panels_now && g < together && count - at >= kTileTokens;
              sums[i][g] = whole ? out + (token0 + at) * out_stride + 16 * (group + g) : edge_sums[i][g][0];
              strides[i][g] = (whole ? out_stride : 16) * sizeof(float);
            }
          // A panel with fewer than 16 tokens: its real rows are copied to edge_sums before, and back after.
          const std::size_t last = (panel + panels_now - 1) * kTileTokens, rest = count - last;
          const auto for_rest = [&](auto f) FORGE_INLINE_BODY {
            if (rest >= kTileTokens) return;
            for (std::size_t g = 0; g < together; ++g)
              for (std::size_t t = 0; t < rest; ++t)
                f(out + (token0 + last + t) * out_stride + 16 * (group + g), edge_sums[panels_now - 1][g][t]);
          };
          if (u0 > 0) for_rest([](const float* from, float* to) { std::memcpy(to, from, 64); });
          const PromptTiles tiles{strips, panels + panel * kStrip, parts, u0 == 0};
          if (panels_now == 2)
            tiles.run<true>(sums, strides);
          else
            tiles.run<false>(sums, strides);
          for_rest([](float* to, const float* from) { std::memcpy(to, from, 64); });
        }
      }
      u0 = u1;
    }
  }
  Tiles::release();
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
