#include "kernels/cpu/row_functions.h"

#include <array>
#include <cmath>

namespace forge::cpu {
namespace {

/// Sum of f(x) over a row, in 16 partial sums that are added in order: it does not depend on how rows are grouped.
template <class F>
double sum_of(const float* x, std::size_t width, F&& f) {
  constexpr std::size_t kLanes = 16;
  std::array<double, kLanes> sums{};
  std::size_t i = 0;
  for (; i + kLanes <= width; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += f(static_cast<double>(x[i + lane]));
  double total = 0;
  for (const double sum : sums) total += sum;
  for (; i < width; ++i) total += f(static_cast<double>(x[i]));
  return total;
}

double sum_squares(const float* x, std::size_t width) {
  return sum_of(x, width, [](double value) { return value * value; });
}

}  // namespace

void match_rms(ConstTile x, ConstTile like, Tile out) {
  for (std::size_t t = 0; t < x.rows; ++t) {
    const float* from = x.data + t * x.stride;
    const double own = sum_squares(from, x.width);
    const auto factor =
        static_cast<float>(own > 0 ? std::sqrt(sum_squares(like.data + t * like.stride, x.width) / own) : 0);
    float* to = out.data + t * out.stride;
    for (std::size_t i = 0; i < x.width; ++i) to[i] = from[i] * factor;
  }
}

void gaussian_topk(ConstTile x, float cutoff, Tile out) {
  const auto width = static_cast<double>(x.width);
  for (std::size_t t = 0; t < x.rows; ++t) {
    const float* from = x.data + t * x.stride;
    const double mean = sum_of(from, x.width, [](double value) { return value; }) / width;
    const double squares = sum_of(from, x.width, [&](double value) { return (value - mean) * (value - mean); });
    const auto limit = static_cast<float>(mean + static_cast<double>(cutoff) * std::sqrt(squares / (width - 1)));
    float* to = out.data + t * out.stride;
    for (std::size_t i = 0; i < x.width; ++i) {
      const float above = from[i] - limit;
      to[i] = above < 0 ? 0 : above;  // NaN stays NaN
    }
  }
}

}  // namespace forge::cpu
