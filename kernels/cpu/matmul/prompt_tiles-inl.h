#pragma once
// Matmul of block types by q8a_32 activations for tokens of prompts, with tiles of BF16: both sides are made BF16 once
// (a weight of its quant, scale and minimum, an activation of its quant and scale), and a tile adds up all of k by
// itself. No part has a scale of its own any more, so nothing is left for vectors to do in between: of the time of
// tiles of int8 (matmul_tiles-inl.h) that is half, and BF16 has 32 columns a tile as well.
//
// Rounding to BF16 moves a dot by less than q8a_32 did already: both factors' together by some 5e-6 of its products'
// squares, q8a_32 (half of 1/127 of a block's largest) by some 3e-5. The bits are not those of the other kernels, and
// sums run in another order: in each 32 columns two chains of fma from 0, over the even and the odd ones, whose sum is
// added to the parts' before; denormals count as 0. So all tokens of a long prompt go this way, one as well as many,
// and no others do: what a token gives depends neither on how a prompt is cut nor on what shares its step
// (Kernels::prompt_matmul, runtime/step_batch.h).
//
// Loops, outermost first: tokens whose panels fit L2; strips of columns; pairs of groups, whose weights are made BF16
// into L1; pairs of panels of 16 tokens: 4 tiles of sums, for which each tile of x and of weights is loaded once.

#include "kernels/cpu/matmul/matmul_tiles-inl.h"

#if defined(__AVX512BF16__)
#include "kernels/cpu/bf16_pairs-inl.h"
#endif

namespace forge::cpu::FORGE_CPU_NAMESPACE {

inline constexpr std::size_t kPromptPanels = 16;  ///< of 16 tokens
inline constexpr std::size_t kPromptParts = 10;   ///< of 32 columns, a strip: two groups and two panels are 40 KiB
inline constexpr std::size_t kPromptTile = 1024;  ///< bytes: 16 rows of 32 BF16

#if defined(__AVX512BF16__)
/// out[0..32) = a, b.
FORGE_INLINE void store_bf16(V a, V b, std::uint8_t* out) {
  _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(b.raw, a.raw));
}
/// out[2i], out[2i + 1] = even[i], odd[i].
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

/// Parts of a strip, unpacked (kUnpackedBytes), as tiles of weights: [16 pairs of columns][16 rows][2].
template <int kSub, bool kSigned>
void weights_to_bf16(const std::uint8_t* unpacked, std::size_t parts, std::uint8_t* out) {
  for (std::size_t p = 0; p < parts; ++p, unpacked += kUnpackedBytes<kSub>, out += kPromptTile)
    for (int row = 0; row < 16; row += Lanes::kRows)
      unrolled<8>([&]<int w>() FORGE_INLINE_BODY {  // of 4 columns
        const auto* floats = reinterpret_cast<const float*>(unpacked + 512 + 128 * (4 * w / kSub)) + row;
        const Lanes::F scale = Lanes::load_floats(floats);
        const Lanes::F offset = kSigned ? scale : Lanes::load_floats(floats + 16);
        const Lanes::I bytes = Lanes::load(unpacked + 64 * w + 4 * row);
        const auto weight = [&]<int b>() FORGE_INLINE_BODY {
          if constexpr (kSigned)
            return Lanes::times(scale, Lanes::to_float(Lanes::right_signed<24>(Lanes::left_word<24 - 8 * b>(bytes))));
          else
            return Lanes::fused(
                scale, Lanes::to_float(Lanes::both(Lanes::right_signed<8 * b>(bytes), Lanes::words(0xff))), offset);
        };
        store_bf16_pairs(weight.template operator()<0>(), weight.template operator()<1>(), out + 128 * w + 4 * row);
        store_bf16_pairs(weight.template operator()<2>(), weight.template operator()<3>(),
                         out + 128 * w + 64 + 4 * row);
      });
}

/// Parts [first, first + parts) of 16 rows, of which those behind `tokens` are zeros, as tiles of x: [16 rows][32].
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

/// Two groups by one or two panels over a strip.
struct PromptTiles {
  static constexpr TileShapes kShapes = [] {
    TileShapes shapes;
    for (std::size_t tile = 0; tile < 8; ++tile) shapes.set(tile, kTileTokens, 64);
    return shapes;
  }();
  const std::uint8_t *weights, *x;  ///< kPromptParts tiles from one group, or panel, to the next
  std::size_t parts;
  bool first;  ///< the sums begin at 0

  /// to[panel][group]: where 16 rows of 16 sums lie, `stride` bytes apart.
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

template <int kSub, bool kSigned>
void prompt_tiles(const TileWeights& type, const std::byte* weights, std::size_t groups, const PanelSource& source,
                  std::size_t tokens, float* out, std::size_t out_stride) {
  constexpr std::size_t kTokens = kPromptPanels * kTileTokens, kStrip = kPromptParts * kPromptTile;
  alignas(64) std::uint8_t panels[kPromptPanels * kStrip], strips[2 * kStrip];
  alignas(64) std::uint8_t unpacked[kPromptParts * kUnpackedBytes<kSub>];
  alignas(64) float aside[2][2][kTileTokens][16];  // sums of rows and groups that are not there
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
              sums[i][g] = whole ? out + (token0 + at) * out_stride + 16 * (group + g) : aside[i][g][0];
              strides[i][g] = (whole ? out_stride : 16) * sizeof(float);
            }
          // of a panel with fewer tokens the rows that are there come and go
          const std::size_t last = (panel + panels_now - 1) * kTileTokens, rest = count - last;
          const auto for_rest = [&](auto f) FORGE_INLINE_BODY {
            if (rest >= kTileTokens) return;
            for (std::size_t g = 0; g < together; ++g)
              for (std::size_t t = 0; t < rest; ++t)
                f(out + (token0 + last + t) * out_stride + 16 * (group + g), aside[panels_now - 1][g][t]);
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
