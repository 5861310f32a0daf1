// Functions of whole rows: match_rms gives rows of the wanted length, gaussian_topk what lies above its limit; rows do
// not depend on each other, and strides are kept.

#include "kernels/cpu/row_functions.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace forge::cpu;

namespace {

std::vector<float> random_floats(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.5F, 2);
  std::vector<float> out(count);
  for (float& x : out) x = normal(engine);
  return out;
}

double length(const float* x, std::size_t width) {
  double sum = 0;
  for (std::size_t i = 0; i < width; ++i) sum += static_cast<double>(x[i]) * x[i];
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("match_rms scales each row to the length of its partner") {
  for (const std::size_t width : {1, 15, 16, 48, 301}) {
    const std::size_t stride = width + 3;
    auto x = random_floats(3 * stride, 1);
    const auto like = random_floats(3 * stride, 2);
    for (std::size_t i = 0; i < width; ++i) x[stride + i] = 0;
    std::vector<float> out(3 * stride, 7);
    match_rms({x.data(), 3, width, stride}, {like.data(), 3, width, stride}, {out.data(), 3, width, stride});
    for (std::size_t t = 0; t < 3; ++t) {
      const double wanted = t == 1 ? 0 : length(&like[t * stride], width);
      CHECK(length(&out[t * stride], width) == Approx(wanted));
      for (std::size_t i = 0; t != 1 && i < width; ++i)
        CHECK(out[t * stride + i] == Approx(x[t * stride + i] * wanted / length(&x[t * stride], width)));
      for (std::size_t i = width; i < stride; ++i) CHECK(out[t * stride + i] == 7);
    }
  }
}

TEST_CASE("gaussian_topk keeps what lies above mean + cutoff * deviation") {
  for (const std::size_t width : {2, 17, 64, 1000}) {
    const auto x = random_floats(2 * width, 3);
    std::vector<float> out(x);
    gaussian_topk({out.data(), 2, width, width}, 1.25F, {out.data(), 2, width, width});  // in place
    for (std::size_t t = 0; t < 2; ++t) {
      double mean = 0, squares = 0;
      for (std::size_t i = 0; i < width; ++i) mean += x[t * width + i] / static_cast<double>(width);
      for (std::size_t i = 0; i < width; ++i) squares += std::pow(x[t * width + i] - mean, 2);
      const double limit = mean + 1.25 * std::sqrt(squares / static_cast<double>(width - 1));
      for (std::size_t i = 0; i < width; ++i)
        CHECK(out[t * width + i] == Approx(std::max(0.0, x[t * width + i] - limit)).margin(1e-5));
    }
  }
}

TEST_CASE("gaussian_topk does not hide NaN") {
  std::vector<float> x{1, std::numeric_limits<float>::quiet_NaN(), 3};
  gaussian_topk({x.data(), 1, 3, 3}, 1, {x.data(), 1, 3, 3});
  for (const float value : x) CHECK(std::isnan(value));
}
