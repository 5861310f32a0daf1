#pragma once
// Matmul of Q8_0, Q4_0 and Q4_1 weights by q8a_32 activations: the driver that all classes share. A class provides
//   micro<Format, T>         one group of 16 rows by T tokens over some blocks
//   tokens_max<Format>()     the largest T that its registers hold
//   micro_groups, groups_max one token by several groups (optional)
// in its dot_*-inl.h.
//
// Loops, outermost first: sets of groups whose strips fit L2, mostly all groups of the call; strips of k whose
// activations ("panel") fit L1; tiles of up to T tokens; groups. x is copied into the panel once per strip, so that the
// inner loop has one pointer for x and constant offsets. The panel of T tokens per block of 32 columns:
//   | [T][32] int8 quants | [T] f32 scale | [T] f32 sum, or for formats with a bias the i32 that dots start with |
// Sums pass from strip to strip through `out`, which is f32 and rounds nothing.

#include "kernels/cpu/simd-inl.h"
#include "kernels/quant/x16.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// Layout of a unit (X16Unit) and the meaning of its bytes. kFlat: bytes are unsigned quants (Q8_0), otherwise pairs of
/// nibbles. kBias: the stored value minus the true one. kMinimum: the format has no bias but a stored minimum m.
struct FormatQ8_0 : quant::X16Unit<quant::BlockQ8_0> {
  static constexpr bool kFlat = true, kMinimum = false;
  static constexpr int kBias = 128;
};
struct FormatQ4_0 : quant::X16Unit<quant::BlockQ4_0> {
  static constexpr bool kFlat = false, kMinimum = false;
  static constexpr int kBias = 8;
};
struct FormatQ4_1 : quant::X16Unit<quant::BlockQ4_1> {
  static constexpr bool kFlat = false, kMinimum = true;
  static constexpr int kBias = 0;
};

inline constexpr std::size_t kPanelBytes = 16384;       ///< half of a 32 KiB L1
inline constexpr std::size_t kWeightBytes = 384 << 10;  ///< share of a 1 MiB L2

/// Arguments of a class's inner kernel: one group by T tokens over a strip that begins at a unit.
struct MicroArgs {
  const std::uint8_t* weights;  ///< the strip's first unit
  const std::uint8_t* panel;
  std::size_t blocks;
  float* out;  ///< sums of the group and the first token
  std::size_t out_stride;
  bool first;               ///< out holds nothing yet
  bool fetch;               ///< prefetch weights
  std::size_t group_bytes;  ///< distance of groups, for micro_groups
};

/// Prefetch distance in bytes, and the prefetch of one block's share of weights. The first tile of tokens reads weights
/// from memory. Groups lie one behind the other and each is one stream, but the hardware prefetcher stops at every
/// page. One share per block: prefetching a whole unit at once fills the miss queue, and loads wait behind it. Measured
/// on Zen 5 (one token, a 1B model, tokens/s), a unit at once and 3072 bytes ahead against this: Q4_0 42 and 51, Q8_0
/// 26 and 27; SmolLM2's Q4_1 305 and 327. 128 tokens of Q8_0: 215 without prefetch, 250 with. Into L2: prefetching into
/// L1 takes the few buffers that the loads need (Zen 4, Q4_1 8192x2048: 13.7 GB/s, into L1 10.7; no difference on Zen
/// 5).
inline constexpr std::size_t kFetchAhead = 6144;
template <class Format>
FORGE_INLINE void fetch_ahead(const std::uint8_t* block) {
#pragma GCC unroll 9
  for (std::size_t line = 0; line < Format::kBlockBytes; line += 64)
    __builtin_prefetch(block + kFetchAhead + line, 0, 2);
}

/// The weights that will be read next: a piece of each of some groups. The work before prefetches them share by share
/// (128 tokens, one thread, a 1B model: Q4_K 242 tokens/s without and 276 with; Q6_K 220 and 246).
struct NextWeights {
  const std::byte* first;
  std::size_t bytes, stride, groups;  ///< bytes of a piece, distance of groups, number of groups
  FORGE_INLINE void fetch(std::size_t share, std::size_t shares) const {
    const std::size_t lines = (bytes + 63) / 64, end = lines * (share + 1) / shares;
    for (std::size_t g = 0; g < groups; ++g)
      for (std::size_t line = lines * share / shares; line < end; ++line)
        __builtin_prefetch(first + g * stride + 64 * line, 0, 2);
  }
};
/// What is read after units [u0, u1) of groups [group, group + together): the next groups' piece of the same strip, or
/// after the last group the first groups' piece of the next strip.
FORGE_INLINE NextWeights next_weights(const std::byte* weights, std::size_t unit_bytes, std::size_t units,
                                      std::size_t groups, std::size_t u0, std::size_t u1, std::size_t group,
                                      std::size_t together) {
  const bool strip_ends = group + together >= groups && u1 < units;
  const std::byte* first = weights + (strip_ends ? u1 : (group + together) * units + u0) * unit_bytes;
  return {first, (u1 - u0) * unit_bytes, units * unit_bytes, together};
}

/// Calls body(quants, scales) for the strip's blocks in order, and before_block(p) before each; p advances by one
/// block's share of bytes per block.
template <class Format, class BeforeBlock, class Body>
FORGE_INLINE void for_each_block(const MicroArgs& args, BeforeBlock before_block, Body body) {
  const std::uint8_t* unit = args.weights;
  for (std::size_t b = 0; b < args.blocks; b += Format::kBlocks, unit += Format::kBytes) {
    const std::size_t left = args.blocks - b, count = left < Format::kBlocks ? left : Format::kBlocks;
    const std::uint8_t* scales = unit + count * Format::kQuantBytes;
#pragma GCC unroll 1
    for (std::size_t i = 0; i < count; ++i) {
      before_block(unit + i * Format::kBlockBytes);
      body(unit + i * Format::kQuantBytes, scales + i * Format::kScaleBytes);
    }
  }
}

FORGE_INLINE std::int32_t load_i32(const std::uint8_t* p) {
  std::int32_t word;
  std::memcpy(&word, p, 4);
  return word;
}
FORGE_INLINE float load_f32(const std::uint8_t* p) {
  float value;
  std::memcpy(&value, p, 4);
  return value;
}

template <class Format, int T>
void micro(const MicroArgs& args);
template <class Format>
constexpr int tokens_max();
/// Groups that one token multiplies side by side (micro_groups); 1 if the class has no such kernel. Bits are the same.
template <class Format>
constexpr int groups_max();
/// One token by kGroups groups over a strip. out: 16 sums per group, group after group.
template <class Format, int kGroups>
void micro_groups(const MicroArgs& args);

/// fetch_ahead for groups side by side. Past the end of the strip the next data is behind the last of the groups.
template <class Format, int kGroups>
struct StreamsAhead {
  const MicroArgs& args;
  FORGE_INLINE void fetch(const std::uint8_t* block) const {
    if (!args.fetch) return;
    if (block + kFetchAhead >= args.weights + args.blocks * Format::kBlockBytes)
      block += (kGroups - 1) * args.group_bytes;
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) fetch_ahead<Format>(block + g * args.group_bytes);
  }
};

using MicroFn = void (*)(const MicroArgs&);
/// micro<Format, count>, 1 <= count <= T.
template <class Format, int T>
FORGE_INLINE MicroFn micro_for(std::size_t count) {
  if constexpr (T > 1)
    if (count < T) return micro_for<Format, T - 1>(count);
  return micro<Format, T>;
}

/// The activation rows of a call: token t is row row_map[t], or row t without a map.
struct PanelSource {
  const std::byte* x;
  std::size_t row_bytes, k;
  const std::int32_t* row_map;
  FORGE_INLINE const std::byte* row(std::size_t token) const {
    return x + (row_map ? static_cast<std::size_t>(row_map[token]) : token) * row_bytes;
  }
};

/// The start value of a block's dot if weights are stored kBias too large: -kBias * (sum of x's quants). That sum is
/// recovered from q8a's scale * sum. It is a whole number of at most 32 * 127 in magnitude, and the two roundings on
/// the way are too small to change the nearest integer.
template <int kBias>
FORGE_INLINE std::int32_t bias_of(float scale, float sum) {
  constexpr float kRounder = 0x1.8p23f;
  const float total = sum / scale;  // NaN if x is not finite or all zeros; the result is then 0
  return __builtin_fabsf(total) < 32 * 127 + 0.5f ? -kBias * static_cast<std::int32_t>(total + kRounder - kRounder) : 0;
}

/// Copies `blocks` blocks of the tokens' rows into the panel. With a bias the sums are replaced by the dots' start
/// values.
template <int kBias = 0>
void fill_panel(const PanelSource& source, std::size_t first_token, std::size_t tokens, std::size_t first_block,
                std::size_t blocks, std::uint8_t* panel) {
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::byte* row = source.row(first_token + t);
    const std::byte* quants = row + 32 * first_block;
    const std::byte* scales = row + source.k + 4 * first_block;
    const std::byte* sums = scales + source.k / 32 * 4;
    std::uint8_t* out = panel;
    for (std::size_t b = 0; b < blocks; ++b, out += 40 * tokens) {
      std::memcpy(out + 32 * t, quants + 32 * b, 32);
      std::memcpy(out + 32 * tokens + 4 * t, scales + 4 * b, 4);
      std::memcpy(out + 36 * tokens + 4 * t, sums + 4 * b, 4);
    }
    if constexpr (kBias != 0) {
      constexpr std::size_t kTogether = 16;
      for (std::size_t b = 0; b < blocks; b += kTogether) {
        const std::size_t count = blocks - b < kTogether ? blocks - b : kTogether;
        float scale[kTogether] = {}, sum[kTogether] = {};
        std::int32_t bias[kTogether];
        std::memcpy(scale, scales + 4 * b, 4 * count);
        std::memcpy(sum, sums + 4 * b, 4 * count);
        for (std::size_t i = 0; i < kTogether; ++i) bias[i] = bias_of<kBias>(scale[i], sum[i]);
        for (std::size_t i = 0; i < count; ++i)
          std::memcpy(panel + 40 * tokens * (b + i) + 36 * tokens + 4 * t, bias + i, 4);
      }
    }
  }
}

FORGE_INLINE std::size_t divide_up(std::size_t a, std::size_t b) {
  return (a + b - 1) / b;
}

/// Groups whose weights (of a strip, or whole) stay in L2 while all tiles of tokens pass. With a single tile that is
/// all of them, because no weight is read twice.
FORGE_INLINE std::size_t groups_together(bool one_tile, std::size_t groups, std::size_t group_bytes) {
  if (one_tile || group_bytes * groups <= kWeightBytes) return groups;
  return group_bytes < kWeightBytes ? kWeightBytes / group_bytes : 1;
}

/// The MatmulFn of a format.
template <class Format>
void matmul_int(const std::byte* weights, std::size_t k, std::size_t groups, const std::byte* x,
                std::size_t x_row_bytes, const std::int32_t* row_map, std::size_t tokens, float* out,
                std::size_t out_stride) {
  constexpr std::size_t kTokens = tokens_max<Format>();
  if (tokens == 0 || groups == 0) return;
  const PanelSource source{x, x_row_bytes, k, row_map};
  const std::size_t blocks = k / 32, group_bytes = blocks * Format::kBlockBytes;
  const std::size_t units = divide_up(blocks, Format::kBlocks);
  const std::size_t tiles = divide_up(tokens, kTokens), most = divide_up(tokens, tiles);
  const std::size_t strips = units == 0 ? 1 : divide_up(units, kPanelBytes / (40 * most * Format::kBlocks));
  const std::size_t groups_step = groups_together(tiles == 1, groups, group_bytes / strips);
  alignas(64) std::uint8_t panel[kPanelBytes];
  for (std::size_t group0 = 0; group0 < groups; group0 += groups_step) {
    const std::size_t group1 = group0 + groups_step < groups ? group0 + groups_step : groups;
    for (std::size_t strip = 0; strip < strips; ++strip) {
      const std::size_t u0 = units * strip / strips, b0 = u0 * Format::kBlocks;
      const std::size_t end = units * (strip + 1) / strips * Format::kBlocks, b1 = end < blocks ? end : blocks;
      for (std::size_t tile = 0; tile < tiles; ++tile) {
        const std::size_t t0 = tokens * tile / tiles, count = tokens * (tile + 1) / tiles - t0;
        const MicroFn run = micro_for<Format, static_cast<int>(kTokens)>(count);
        fill_panel<Format::kBias>(source, t0, count, b0, b1 - b0, panel);
        MicroArgs args{nullptr, panel, b1 - b0, nullptr, out_stride, strip == 0, tile == 0, group_bytes};
        const auto next = [&](std::size_t g) FORGE_INLINE_BODY {
          args.weights = reinterpret_cast<const std::uint8_t*>(weights + g * group_bytes) + u0 * Format::kBytes;
          args.out = out + t0 * out_stride + 16 * g;
        };
        std::size_t g = group0;
        if constexpr (constexpr std::size_t kGroups = groups_max<Format>(); kGroups > 1)
          for (; tokens == 1 && g + kGroups <= group1; g += kGroups) {
            next(g);
            micro_groups<Format, static_cast<int>(kGroups)>(args);
          }
        for (; g < group1; ++g) {
          next(g);
          run(args);
        }
      }
    }
  }
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
