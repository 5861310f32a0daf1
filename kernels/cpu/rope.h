#pragma once
// Rotary position embedding (RoPE): rotation frequencies and the table of cos and sin. Everything is computed in f64
// and rounded once to f32.

#include <cstddef>
#include <cstdint>

namespace forge::cpu {

/// How the context is extended: not at all, linear interpolation of positions, or YaRN.
enum class RopeScaling : std::uint8_t { kNone, kLinear, kYarn };

/// Parameters of RoPE, with ggml's names for YaRN (arXiv 2309.00071).
struct RopeParams {
  std::size_t dims = 0;  ///< rotary dimensions, even
  double base = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;                     ///< context extension; frequencies are divided by it (linear, YaRN)
  std::size_t original_context = 0;      ///< YaRN: context length of training
  double ext_factor = 0;                 ///< YaRN: 0 interpolates all dimensions, 1 applies the ramp
  double attn_factor = 1;                ///< multiplies cos and sin
  double beta_fast = 32, beta_slow = 1;  ///< YaRN: the ramp is between these rotations per original context
  const float* freq_factors = nullptr;   ///< [dims/2], nullable: divisors of the frequencies (Llama 3)
};

/// out[i] = rotation angle per position of pair i, for i in [0, dims/2).
void rope_frequencies(const RopeParams& params, float* out);
/// The factor of cos and sin: attn_factor; for YaRN with ext_factor != 0 times 1 + 0.1 ln(factor).
float rope_magnitude(const RopeParams& params);

/// The factor of cos and sin at a position: base. With length > 0 it is base * (1 + temperature * ln(1 + n)), where n =
/// (position + offset) / length rounded down: attention temperature scaling (ir::RopeTableAttrs).
struct RopeMagnitude {
  float base = 1, temperature = 0;
  std::int32_t length = 0, offset = 0;
};
/// Writes the table for `tokens` positions: row t of `out` (t * stride floats) is [dims/2][2], (cos, sin) of
/// positions[t] * frequencies[i], times the magnitude.
void rope_table(const std::int32_t* positions, std::size_t tokens, const float* frequencies, std::size_t dims,
                const RopeMagnitude& magnitude, float* out, std::size_t stride);
/// The same from parameters. The frequencies are not rounded to f32 in between.
void rope_table(const std::int32_t* positions, std::size_t tokens, const RopeParams& params, float* out,
                std::size_t stride);

}  // namespace forge::cpu
