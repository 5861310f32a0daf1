#pragma once
// Integer dots in plain C++, for any CPU. Loops run over the 16 rows, so compilers can vectorise them.

#include "kernels/cpu/matmul/matmul_int-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// Tokens of a register tile.
template <class Format>
constexpr int tokens_max() {
  return 4;
}
/// No side-by-side groups in this class.
template <class Format>
constexpr int groups_max() {
  return 1;
}

/// fma where the CPU has it; otherwise the product is rounded first.
FORGE_INLINE float fma_scalar(float a, float b, float c) {
#if defined(__FP_FAST_FMAF)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

/// dots[r] += dot of word j of row r and the matching bytes of x. Nibble formats: low nibbles belong to columns 4j ..
/// 4j+3, high nibbles to 16 + 4j .. 16 + 4j+3.
template <class Format>
FORGE_INLINE void add_word(const std::uint8_t* line, const std::int8_t* x, int j, std::int32_t* dots) {
  for (int r = 0; r < 16; ++r) {
    std::int32_t dot = 0;
    for (int i = 0; i < 4; ++i) {
      const int byte = line[4 * r + i];
      dot += Format::kFlat ? byte * x[4 * j + i] : (byte & 15) * x[4 * j + i] + (byte >> 4) * x[16 + 4 * j + i];
    }
    dots[r] += dot;
  }
}

/// One group by T tokens over a strip. The panel per block: [T][32] quants, [T] scales, [T] sums (or start values).
template <class Format, int T>
void micro(const MicroArgs& args) {
  constexpr int kWords = Format::kQuantBytes / 64;
  float sums[T][16] = {};
  for (int t = 0; t < T && !args.first; ++t) std::memcpy(sums[t], args.out + t * args.out_stride, 64);
  const std::uint8_t* panel = args.panel;
  const auto block = [&](const std::uint8_t* quants, const std::uint8_t* scales) FORGE_INLINE_BODY {
    float d[16], minimum[16];
    for (int r = 0; r < 16; ++r) {
      std::uint16_t bits;
      std::memcpy(&bits, scales + 2 * r, 2);
      d[r] = quant::f32_of_f16(bits);
      if constexpr (Format::kMinimum) {
        std::memcpy(&bits, scales + 32 + 2 * r, 2);
        minimum[r] = quant::f32_of_f16(bits);
      }
    }
    for (int t = 0; t < T; ++t) {
      const std::uint8_t* last = panel + 36 * T + 4 * t;
      std::int32_t dots[16];
      for (int r = 0; r < 16; ++r) dots[r] = Format::kMinimum ? 0 : load_i32(last);
      for (int j = 0; j < kWords; ++j)
        add_word<Format>(quants + 64 * j, reinterpret_cast<const std::int8_t*>(panel + 32 * t), j, dots);
      const float scale = load_f32(panel + 32 * T + 4 * t);
      for (int r = 0; r < 16; ++r) {
        sums[t][r] = fma_scalar(d[r] * scale, static_cast<float>(dots[r]), sums[t][r]);
        if constexpr (Format::kMinimum) sums[t][r] = fma_scalar(minimum[r], load_f32(last), sums[t][r]);
      }
    }
    panel += 40 * T;
  };
  for_each_block<Format>(args, [](const std::uint8_t*) {}, block);
  for (int t = 0; t < T; ++t) std::memcpy(args.out + t * args.out_stride, sums[t], 64);
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
