#pragma once
// Integer dots for x86 without VNNI: 8 rows per register (AVX2) or 16 (AVX-512BW). vpmaddubsw multiplies unsigned by
// signed bytes and adds pairs of products in 16 bits, with saturation. Nibbles cannot saturate: |2 * 15 * 127| = 3810,
// and even the 8 words of a block sum to 30480 < 32768. Q8_0's bytes could. With AVX2 they are multiplied as |w| by x
// with w's sign (vpsignb): |2 * 128 * 127| = 32512, and each pair is widened to 32 bits. AVX-512 has no vpsignb, so
// there they are split into two nibbles, u = low + 16 * high, each with its own 16-bit sum; the final vpmaddwd widens
// to 32 bits and multiplies by 1 and by 16. All dots are exact, so all classes agree bit for bit.

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/matmul/matmul_int-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// Tokens of a register tile: 4 by both of AVX2's registers of rows. With AVX-512, nibble formats keep two sums per
/// token and Q8_0 three. Measured on Zen 3 in GMAC/s of one thread (8192x2048, 512 tokens), 4 tokens by one register
/// against two, with sums in any order and then kept in order (keep_order): Q4_0 68 and 100, Q8_0 51 and 59. By
/// nibbles, two tokens a tile, LFM2 1.2B in Q8_0 has 57 tokens/s in place of 84 to 97.
template <class Format>
constexpr int tokens_max() {
  constexpr int kSums = Format::kFlat ? 3 : 2;
  return Lanes::kRows == 16 ? 24 / kSums : 4;
}
/// One token multiplies two groups side by side, all rows of both, so that their bytes are read once and as two
/// streams. Measured in tokens/s on Zen 3 (AVX2, one token, a 1B model): by halves of one group Q4_0 16.5 and Q8_0 9.2;
/// two groups 25.1 and 11.8; four groups 23.2 and 11.6.
template <class Format>
constexpr int groups_max() {
  return 2;
}

/// The integer dots of one block of signed bytes.
template <class L, class Format, int T>
FORGE_INLINE void byte_dots(const std::uint8_t* quants, const std::uint8_t* panel,
                            typename L::I (&dots)[kRowRegisters][T]) {
  using I = typename L::I;
  const I bias = L::words(static_cast<std::int32_t>(0x01010101U * Format::kBias)), ones = L::shorts(1);
#pragma GCC unroll 2
  for (int r = 0; r < kRowRegisters; ++r)
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) dots[r][t] = L::none();
#pragma GCC unroll 8
  for (int j = 0; j < static_cast<int>(Format::kQuantBytes / 64); ++j) {
    I w[kRowRegisters], magnitude[kRowRegisters];
#pragma GCC unroll 2
    for (int r = 0; r < kRowRegisters; ++r) {
      w[r] = L::sub_bytes(L::load(quants + 64 * j + 4 * r * L::kRows), bias);
      magnitude[r] = L::magnitudes(w[r]);
    }
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      const I x = L::words(load_i32(panel + 32 * t + 4 * j));
#pragma GCC unroll 2
      for (int r = 0; r < kRowRegisters; ++r) {
        dots[r][t] = L::plus(dots[r][t], L::widen(L::pairs(magnitude[r], L::with_signs(x, w[r])), ones));
        keep_order(dots[r][t]);
      }
    }
  }
}

/// The integer dots of one block: a group by T tokens.
template <class Format, int T>
FORGE_INLINE void block_dots(const std::uint8_t* quants, const std::uint8_t* panel,
                             Lanes::I (&dots)[kRowRegisters][T]) {
  using I = Lanes::I;
  if constexpr (Format::kFlat && Lanes::kRows == 8) return byte_dots<Lanes, Format, T>(quants, panel, dots);
  const I nibble = Lanes::shorts(0x0f0f);
  I low[kRowRegisters][T], high[kRowRegisters][T];
#pragma GCC unroll 2
  for (int r = 0; r < kRowRegisters; ++r)
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) low[r][t] = high[r][t] = Lanes::none();
#pragma GCC unroll 8
  for (int j = 0; j < static_cast<int>(Format::kQuantBytes / 64); ++j) {
    I w0[kRowRegisters], w1[kRowRegisters];
#pragma GCC unroll 2
    for (int r = 0; r < kRowRegisters; ++r) {
      const I raw = Lanes::load(quants + 64 * j + 4 * r * Lanes::kRows);
      w0[r] = Lanes::and_(raw, nibble), w1[r] = Lanes::and_(Lanes::right<4>(raw), nibble);
    }
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      const I x0 = Lanes::words(load_i32(panel + 32 * t + 4 * j));
      const I x1 = Format::kFlat ? x0 : Lanes::words(load_i32(panel + 32 * t + 16 + 4 * j));
#pragma GCC unroll 2
      for (int r = 0; r < kRowRegisters; ++r) {
        auto& second = Format::kFlat ? high[r][t] : low[r][t];
        low[r][t] = Lanes::add_16(low[r][t], Lanes::pairs(w0[r], x0));
        keep_order(low[r][t]);
        second = Lanes::add_16(second, Lanes::pairs(w1[r], x1));
        keep_order(second);
      }
    }
  }
#pragma GCC unroll 2
  for (int r = 0; r < kRowRegisters; ++r)
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      dots[r][t] = Lanes::widen(low[r][t], Lanes::shorts(1));
      if constexpr (Format::kFlat) dots[r][t] = Lanes::plus(dots[r][t], Lanes::widen(high[r][t], Lanes::shorts(16)));
      if constexpr (!Format::kMinimum)
        dots[r][t] = Lanes::plus(dots[r][t], Lanes::words(load_i32(panel + 36 * T + 4 * t)));
    }
}

/// One group by T tokens over a strip.
template <class Format, int T>
void micro(const MicroArgs& args) {
  using F = Lanes::F;
  const std::uint8_t* panel = args.panel;
  const auto out = [&](int r, int t) FORGE_INLINE_BODY {
    return args.out + static_cast<std::size_t>(t) * args.out_stride + r * Lanes::kRows;
  };
  F sums[kRowRegisters][T];
#pragma GCC unroll 2
  for (int r = 0; r < kRowRegisters; ++r)
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) sums[r][t] = args.first ? Lanes::all(0.0f) : Lanes::load_floats(out(r, t));
  const auto fetch = [&](const std::uint8_t* block) FORGE_INLINE_BODY {
    if (args.fetch) fetch_ahead<Format>(block);
  };
  const auto block = [&](const std::uint8_t* quants, const std::uint8_t* scales) FORGE_INLINE_BODY {
    Lanes::I dots[kRowRegisters][T];
    block_dots<Format, T>(quants, panel, dots);
#pragma GCC unroll 2
    for (int r = 0; r < kRowRegisters; ++r) {
      const F d = Lanes::halves(scales + 2 * r * Lanes::kRows);
      const F minimum = Format::kMinimum ? Lanes::halves(scales + 32 + 2 * r * Lanes::kRows) : Lanes::all(0.0f);
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        const F step = Lanes::times(d, Lanes::all(load_f32(panel + 32 * T + 4 * t)));
        sums[r][t] = Lanes::fused(step, Lanes::to_float(dots[r][t]), sums[r][t]);
        if constexpr (Format::kMinimum)
          sums[r][t] = Lanes::fused(minimum, Lanes::all(load_f32(panel + 36 * T + 4 * t)), sums[r][t]);
      }
    }
    panel += 40 * T;
  };
  for_each_block<Format>(args, fetch, block);
#pragma GCC unroll 2
  for (int r = 0; r < kRowRegisters; ++r)
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) Lanes::store_floats(out(r, t), sums[r][t]);
}

/// One token by kGroups groups over a strip.
template <class Format, int kGroups>
void micro_groups(const MicroArgs& args) {
  using F = Lanes::F;
  const std::uint8_t* panel = args.panel;
  F sums[kGroups][kRowRegisters];
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 2
    for (int r = 0; r < kRowRegisters; ++r)
      sums[g][r] = args.first ? Lanes::all(0.0f) : Lanes::load_floats(args.out + 16 * g + r * Lanes::kRows);
  const auto block = [&](const std::uint8_t* quants, const std::uint8_t* scales) FORGE_INLINE_BODY {
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      const std::size_t at = g * args.group_bytes;
      Lanes::I dots[kRowRegisters][1];
      block_dots<Format, 1>(quants + at, panel, dots);
#pragma GCC unroll 2
      for (int r = 0; r < kRowRegisters; ++r) {
        const std::uint8_t* own = scales + at + 2 * r * Lanes::kRows;
        const F step = Lanes::times(Lanes::halves(own), Lanes::all(load_f32(panel + 32)));
        sums[g][r] = Lanes::fused(step, Lanes::to_float(dots[r][0]), sums[g][r]);
        if constexpr (Format::kMinimum)
          sums[g][r] = Lanes::fused(Lanes::halves(own + 32), Lanes::all(load_f32(panel + 36)), sums[g][r]);
      }
    }
    panel += 40;
  };
  const StreamsAhead<Format, kGroups> ahead{args};
  for_each_block<Format>(args, [&](const std::uint8_t* p) FORGE_INLINE_BODY { ahead.fetch(p); }, block);
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 2
    for (int r = 0; r < kRowRegisters; ++r) Lanes::store_floats(args.out + 16 * g + r * Lanes::kRows, sums[g][r]);
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
