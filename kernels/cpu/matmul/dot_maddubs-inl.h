#pragma once
// Integer dots for x86 without VNNI: 8 rows per register (AVX2) or 16 (AVX-512BW). vpmaddubsw multiplies unsigned by
// signed bytes and adds pairs of products in 16 bits, with saturation. Nibbles cannot saturate: |2 * 15 * 127| = 3810,
// and even the 8 words of a block sum to 30480 < 32768. Q8_0's bytes could, so they are split into two nibbles, u = low
// + 16 * high, each with its own 16-bit sum; the final vpmaddwd widens to 32 bits and multiplies by 1 and by 16. All
// dots are exact, so all classes agree bit for bit.

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/matmul/matmul_int-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// Tokens of a register tile. Nibble formats keep two sums per token, Q8_0 three.
template <class Format>
constexpr int tokens_max() {
  constexpr int kSums = Format::kFlat ? 3 : 2;
  return (Lanes::kRows == 16 ? 24 : 8) / kSums;
}
/// One token multiplies two groups side by side, all rows of both, so that their bytes are read once and as two
/// streams. Measured in tokens/s on Zen 3 (AVX2, one token, a 1B model): by halves of one group Q4_0 16.5 and Q8_0 9.2;
/// two groups 25.1 and 11.8; four groups 23.2 and 11.6.
template <class Format>
constexpr int groups_max() {
  return 2;
}

/// The integer dots of one block: kRows rows by T tokens. `quants` points at these rows in the block's first line.
template <class Format, int T>
FORGE_INLINE void block_dots(const std::uint8_t* quants, const std::uint8_t* panel, Lanes::I* dots) {
  using I = Lanes::I;
  const I nibble = Lanes::shorts(0x0f0f);
  I low[T], high[T];
#pragma GCC unroll 12
  for (int t = 0; t < T; ++t) low[t] = high[t] = Lanes::none();
#pragma GCC unroll 8
  for (int j = 0; j < static_cast<int>(Format::kQuantBytes / 64); ++j) {
    const I raw = Lanes::load(quants + 64 * j);
    const I w0 = Lanes::and_(raw, nibble), w1 = Lanes::and_(Lanes::right<4>(raw), nibble);
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      const I x0 = Lanes::words(load_i32(panel + 32 * t + 4 * j));
      low[t] = Lanes::add_16(low[t], Lanes::pairs(w0, x0));
      if constexpr (Format::kFlat)
        high[t] = Lanes::add_16(high[t], Lanes::pairs(w1, x0));
      else
        low[t] = Lanes::add_16(low[t], Lanes::pairs(w1, Lanes::words(load_i32(panel + 32 * t + 16 + 4 * j))));
    }
  }
#pragma GCC unroll 12
  for (int t = 0; t < T; ++t) {
    dots[t] = Lanes::widen(low[t], Lanes::shorts(1));
    if constexpr (Format::kFlat) dots[t] = Lanes::plus(dots[t], Lanes::widen(high[t], Lanes::shorts(16)));
    if constexpr (!Format::kMinimum) dots[t] = Lanes::plus(dots[t], Lanes::words(load_i32(panel + 36 * T + 4 * t)));
  }
}

/// kRows rows of a group by T tokens over a strip. Only the first half of a group prefetches.
template <class Format, int T>
FORGE_INLINE void micro_rows(const MicroArgs& args, int first_row) {
  using F = Lanes::F;
  const std::uint8_t* panel = args.panel;
  float* out = args.out + first_row;
  F sums[T];
#pragma GCC unroll 12
  for (int t = 0; t < T; ++t) sums[t] = args.first ? Lanes::all(0.0f) : Lanes::load_floats(out + t * args.out_stride);
  const auto fetch = [&](const std::uint8_t* block) FORGE_INLINE_BODY {
    if (args.fetch && first_row == 0) fetch_ahead<Format>(block);
  };
  const auto block = [&](const std::uint8_t* quants, const std::uint8_t* group_scales) FORGE_INLINE_BODY {
    const std::uint8_t* scales = group_scales + 2 * first_row;
    Lanes::I dots[T];
    block_dots<Format, T>(quants + 4 * first_row, panel, dots);
    const F d = Lanes::halves(scales);
    const F minimum = Format::kMinimum ? Lanes::halves(scales + 32) : Lanes::all(0.0f);
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      const F step = Lanes::times(d, Lanes::all(load_f32(panel + 32 * T + 4 * t)));
      sums[t] = Lanes::fused(step, Lanes::to_float(dots[t]), sums[t]);
      if constexpr (Format::kMinimum)
        sums[t] = Lanes::fused(minimum, Lanes::all(load_f32(panel + 36 * T + 4 * t)), sums[t]);
    }
    panel += 40 * T;
  };
  for_each_block<Format>(args, fetch, block);
#pragma GCC unroll 12
  for (int t = 0; t < T; ++t) Lanes::store_floats(out + t * args.out_stride, sums[t]);
}

/// One group by T tokens over a strip.
template <class Format, int T>
void micro(const MicroArgs& args) {
  for (int row = 0; row < 16; row += Lanes::kRows) micro_rows<Format, T>(args, row);
}

/// One token by kGroups groups over a strip.
template <class Format, int kGroups>
void micro_groups(const MicroArgs& args) {
  using F = Lanes::F;
  constexpr int kParts = 16 / Lanes::kRows;
  const std::uint8_t* panel = args.panel;
  F sums[kGroups][kParts];
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 2
    for (int p = 0; p < kParts; ++p)
      sums[g][p] = args.first ? Lanes::all(0.0f) : Lanes::load_floats(args.out + 16 * g + p * Lanes::kRows);
  const auto block = [&](const std::uint8_t* quants, const std::uint8_t* scales) FORGE_INLINE_BODY {
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 2
      for (int p = 0; p < kParts; ++p) {
        const std::size_t at = g * args.group_bytes;
        Lanes::I dot[1];
        block_dots<Format, 1>(quants + at + 4 * p * Lanes::kRows, panel, dot);
        const std::uint8_t* own = scales + at + 2 * p * Lanes::kRows;
        const F step = Lanes::times(Lanes::halves(own), Lanes::all(load_f32(panel + 32)));
        sums[g][p] = Lanes::fused(step, Lanes::to_float(dot[0]), sums[g][p]);
        if constexpr (Format::kMinimum)
          sums[g][p] = Lanes::fused(Lanes::halves(own + 32), Lanes::all(load_f32(panel + 36)), sums[g][p]);
      }
    panel += 40;
  };
  const StreamsAhead<Format, kGroups> ahead{args};
  for_each_block<Format>(args, [&](const std::uint8_t* p) FORGE_INLINE_BODY { ahead.fetch(p); }, block);
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 2
    for (int p = 0; p < kParts; ++p) Lanes::store_floats(args.out + 16 * g + p * Lanes::kRows, sums[g][p]);
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
