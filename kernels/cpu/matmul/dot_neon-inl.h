#pragma once
// Integer dots with NEON, 4 rows per register. SDOT multiplies 4 signed bytes by 4 signed bytes per lane and adds
// exactly; CPUs without it (before ARMv8.2) add pairs of products in 16 bits (add_dots). Source: Arm Architecture
// Reference Manual (DDI 0487), SDOT.

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/matmul/matmul_int-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// Tokens of a register tile of half a group (8 rows): two integer and two float sums per token, two registers of
/// weights and one of x, 27 of 32.
template <class Format>
constexpr int tokens_max() {
  return 6;
}
/// No side-by-side groups in this class.
template <class Format>
constexpr int groups_max() {
  return 1;
}

/// The integer dots of one block: 4 Q rows by T tokens. `quants` points at these rows in the block's first line.
template <class Format, int T, int Q>
FORGE_INLINE void block_dots(const std::uint8_t* quants, const std::uint8_t* panel, int32x4_t (&dots)[T][Q]) {
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) {
    // Q8_0's bytes become signed below (XOR with the bias), so their dots need no correction and start at 0.
    const bool from_zero = Format::kMinimum || Format::kFlat;
    const int32x4_t begin = vdupq_n_s32(from_zero ? 0 : load_i32(panel + 36 * T + 4 * t));
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) dots[t][q] = begin;
  }
#pragma GCC unroll 8
  for (int j = 0; j < static_cast<int>(Format::kQuantBytes / 64); ++j) {
    int8x16_t first[Q], second[Q];
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) {
      const uint8x16_t raw = vld1q_u8(quants + 64 * j + 16 * q);
      if constexpr (Format::kFlat) {
        first[q] = vreinterpretq_s8_u8(veorq_u8(raw, vdupq_n_u8(Format::kBias)));
      } else {
        first[q] = vreinterpretq_s8_u8(vandq_u8(raw, vdupq_n_u8(15)));
        second[q] = vreinterpretq_s8_u8(vshrq_n_u8(raw, 4));
      }
    }
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      const int8x16_t x = all_words(load_i32(panel + 32 * t + 4 * j));
#pragma GCC unroll 4
      for (int q = 0; q < Q; ++q) dots[t][q] = add_dots(dots[t][q], first[q], x);
      if constexpr (!Format::kFlat) {
        const int8x16_t x16 = all_words(load_i32(panel + 32 * t + 16 + 4 * j));
#pragma GCC unroll 4
        for (int q = 0; q < Q; ++q) dots[t][q] = add_dots(dots[t][q], second[q], x16);
      }
    }
  }
}

/// Four f16 scales as floats.
FORGE_INLINE float32x4_t scales_of(const std::uint8_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

/// 4 Q rows of a group by T tokens over a strip.
template <class Format, int T, int Q>
FORGE_INLINE void micro_rows(const MicroArgs& args, int first_row) {
  const std::uint8_t* panel = args.panel;
  float* out = args.out + first_row;
  float32x4_t sums[T][Q];
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q)
      sums[t][q] = args.first ? vdupq_n_f32(0) : vld1q_f32(out + static_cast<std::size_t>(t) * args.out_stride + 4 * q);
  const auto fetch = [&](const std::uint8_t* block) FORGE_INLINE_BODY {
    if (args.fetch && first_row == 0) fetch_ahead<Format>(block);
  };
  const auto block = [&](const std::uint8_t* quants, const std::uint8_t* group_scales) FORGE_INLINE_BODY {
    const std::uint8_t* scales = group_scales + 2 * first_row;
    int32x4_t dots[T][Q];
    block_dots<Format, T, Q>(quants + 4 * first_row, panel, dots);
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) {
      const float32x4_t d = scales_of(scales + 8 * q);
      const float32x4_t minimum = Format::kMinimum ? scales_of(scales + 32 + 8 * q) : vdupq_n_f32(0);
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        const float32x4_t step = vmulq_f32(d, vdupq_n_f32(load_f32(panel + 32 * T + 4 * t)));
        sums[t][q] = vfmaq_f32(sums[t][q], step, vcvtq_f32_s32(dots[t][q]));
        if constexpr (Format::kMinimum)
          sums[t][q] = vfmaq_f32(sums[t][q], minimum, vdupq_n_f32(load_f32(panel + 36 * T + 4 * t)));
      }
    }
    panel += 40 * T;
  };
  for_each_block<Format>(args, fetch, block);
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) vst1q_f32(out + static_cast<std::size_t>(t) * args.out_stride + 4 * q, sums[t][q]);
}

/// One group by T tokens over a strip. One or two tokens take all 16 rows at once, because their weights come from
/// memory and should be read once; more tokens take 8 rows at a time.
template <class Format, int T>
void micro(const MicroArgs& args) {
  constexpr int kQuarters = T <= 2 ? 4 : 2;
  for (int row = 0; row < 16; row += 4 * kQuarters) micro_rows<Format, T, kQuarters>(args, row);
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
