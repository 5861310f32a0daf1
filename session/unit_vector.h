#pragma once
// Vectors of length 1: the form in which forge-run and the server hand out embeddings.

#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

namespace forge::session {

/// The first `count` columns of `row` (at most all), divided by their length; nullopt if that is zero, NaN or infinite.
[[nodiscard]] inline std::optional<std::vector<float>> unit_vector(std::vector<float> row, std::size_t count) {
  row.resize(count);
  double square = 0;
  for (const double value : row) square += value * value;
  if (!(square > 0) || !std::isfinite(square)) return std::nullopt;
  const double scale = 1 / std::sqrt(square);
  for (auto& value : row) value = static_cast<float>(value * scale);
  return row;
}

}  // namespace forge::session
