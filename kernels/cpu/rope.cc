#include "kernels/cpu/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace forge::cpu {

namespace {

/// The (fractional) pair index whose dimension turns `rotations` times over the original context.
double yarn_pair(const RopeParams& params, double rotations) {
  const double dims = static_cast<double>(params.dims), context = static_cast<double>(params.original_context);
  return dims * std::log(context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(params.base));
}

/// The range of pairs over which YaRN blends: pairs below `low` keep their frequency, pairs above `high` are fully
/// interpolated.
struct Ramp {
  double low = 0, high = 0;
};
bool has_ramp(const RopeParams& params) {
  return params.scaling == RopeScaling::kYarn && params.ext_factor != 0;
}
Ramp ramp_of(const RopeParams& params) {
  if (!has_ramp(params)) return {};
  return {.low = std::max(0.0, std::floor(yarn_pair(params, params.beta_fast))),
          .high = std::min(static_cast<double>(params.dims) - 1.0, std::ceil(yarn_pair(params, params.beta_slow)))};
}

/// Rotation angle per position of one pair: interpolated by `factor`, with YaRN's blend towards the original frequency
/// for pairs that turn often.
double frequency(const RopeParams& params, const Ramp& ramp, std::size_t pair) {
  const double divisor = params.freq_factors ? static_cast<double>(params.freq_factors[pair]) : 1.0;
  const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(params.dims);
  const double original = std::pow(params.base, exponent) / divisor;
  if (params.scaling == RopeScaling::kNone) return original;
  const double interpolated = original / params.factor;
  if (!has_ramp(params)) return interpolated;
  const double place = (static_cast<double>(pair) - ramp.low) / std::max(0.001, ramp.high - ramp.low);
  const double mix = (1.0 - std::clamp(place, 0.0, 1.0)) * params.ext_factor;
  return interpolated * (1.0 - mix) + original * mix;
}

void store_cos_sin(double angle, double magnitude, float* out) {
  out[0] = static_cast<float>(std::cos(angle) * magnitude);
  out[1] = static_cast<float>(std::sin(angle) * magnitude);
}

/// The factor of cos and sin at one position (RopeMagnitude).
double magnitude_at(const RopeMagnitude& magnitude, std::int32_t position) {
  const auto base = static_cast<double>(magnitude.base);
  if (magnitude.length == 0) return base;
  const std::int64_t lengths = (std::int64_t{std::max(position, 0)} + magnitude.offset) / magnitude.length;
  return base * (1 + static_cast<double>(magnitude.temperature) * std::log(1.0 + static_cast<double>(lengths)));
}

}  // namespace

void rope_frequencies(const RopeParams& params, float* out) {
  const Ramp ramp = ramp_of(params);
  for (std::size_t i = 0; i < params.dims / 2; ++i) out[i] = static_cast<float>(frequency(params, ramp, i));
}

float rope_magnitude(const RopeParams& params) {
  return static_cast<float>(params.attn_factor * (has_ramp(params) ? 1.0 + 0.1 * std::log(params.factor) : 1.0));
}

void rope_table(const std::int32_t* positions, std::size_t tokens, const float* frequencies, std::size_t dims,
                const RopeMagnitude& magnitude, float* out, std::size_t stride) {
  for (std::size_t t = 0; t < tokens; ++t) {
    const double factor = magnitude_at(magnitude, positions[t]);
    for (std::size_t i = 0; i < dims / 2; ++i)
      store_cos_sin(static_cast<double>(positions[t]) * static_cast<double>(frequencies[i]), factor,
                    out + t * stride + 2 * i);
  }
}

void rope_table(const std::int32_t* positions, std::size_t tokens, const RopeParams& params, float* out,
                std::size_t stride) {
  const auto magnitude = static_cast<double>(rope_magnitude(params));
  const Ramp ramp = ramp_of(params);
  for (std::size_t i = 0; i < params.dims / 2; ++i) {
    const double step = frequency(params, ramp, i);
    for (std::size_t t = 0; t < tokens; ++t)
      store_cos_sin(static_cast<double>(positions[t]) * step, magnitude, out + t * stride + 2 * i);
  }
}

}  // namespace forge::cpu
