#pragma once

#include <limits>
#include <numeric>
#include <span>

namespace forge {

/// The normalised mean square error: that of `got`, divided by the variance of `expected`. Infinity if they differ in
/// size.
inline double nmse(std::span<const float> got, std::span<const float> expected) {
  if (got.size() != expected.size()) return std::numeric_limits<double>::infinity();
  const double mean = std::accumulate(expected.begin(), expected.end(), 0.0) / static_cast<double>(expected.size());
  double error = 0, power = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double e = static_cast<double>(got[i]) - static_cast<double>(expected[i]);
    const double p = static_cast<double>(expected[i]) - mean;
    error += e * e;
    power += p * p;
  }
  return error == 0 ? 0 : error / power;
}

}  // namespace forge
