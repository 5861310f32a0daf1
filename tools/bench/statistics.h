#pragma once
// Mean, standard deviation and median of a few measurements, for forge-bench.

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace forge::tools {

struct Summary {
  double mean = 0, deviation = 0, median = 0;
};

/// `deviation` is the sample standard deviation (divides by n - 1; 0 for one value). The median of an even count is the
/// mean of the middle two. All are 0 for no values.
inline Summary summary_of(std::span<const double> values) {
  Summary summary;
  if (values.empty()) return summary;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) summary.mean += value / count;
  double squares = 0;
  for (const double value : values) squares += (value - summary.mean) * (value - summary.mean);
  if (values.size() > 1) summary.deviation = std::sqrt(squares / (count - 1));
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  summary.median = (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
  return summary;
}

}  // namespace forge::tools
