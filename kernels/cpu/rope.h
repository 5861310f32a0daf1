#pragma once
// Rotary position embedding: frequencies and the table of cos and sin. All computed in double, rounded once.

#include <cstddef>
#include <cstdint>

namespace forge::cpu {

enum class RopeScaling : std::uint8_t { kNone, kLinear, kYarn };

/// YaRN as in arXiv 2309.00071, with ggml's parameter names.
struct RopeParams {
  std::size_t dims = 0;  ///< rotary dimensions, even
  double base = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;                     ///< positions are stretched by it (linear, yarn)
  std::size_t original_context = 0;      ///< yarn
  double ext_factor = 0;                 ///< yarn: 0 interpolates everything, 1 is YaRN's ramp
  double attn_factor = 1;                ///< multiplies cos and sin
  double beta_fast = 32, beta_slow = 1;  ///< yarn: rotations over the original context where the ramp starts and ends
  const float* freq_factors = nullptr;   ///< [dims/2], nullable: frequencies are divided by them (llama3)
};

/// out[i] = angle per position of pair i, i in [0, dims/2).
void rope_frequencies(const RopeParams& params, float* out);
/// What multiplies cos and sin: attn_factor, and for yarn with ext_factor != 0 also 1 + 0.1 ln(factor).
float rope_magnitude(const RopeParams& params);

/// What multiplies cos and sin of a position: `base`, and with a length 1 + temperature * ln(1 + position / length),
/// whole lengths.
struct RopeMagnitude {
  float base = 1, temperature = 0;
  std::int32_t length = 0;
};
/// out row t (t*stride floats): [dims/2][2] of (cos, sin) of positions[t]*frequencies[i], times magnitude.
void rope_table(const std::int32_t* positions, std::size_t tokens, const float* frequencies, std::size_t dims,
                const RopeMagnitude& magnitude, float* out, std::size_t stride);
/// The same from the parameters, without rounding the frequencies to f32 in between.
void rope_table(const std::int32_t* positions, std::size_t tokens, const RopeParams& params, float* out,
                std::size_t stride);

}  // namespace forge::cpu
