// Activations and other elementwise functions at the ends of the range of numbers, in all CPU classes.

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "tests/kernels/support.h"

using namespace forge;

namespace {

using elementwise::Function;

using test::run_unary;

}  // namespace

TEST_CASE("activations at the ends of the range") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const cpu::Kernels* kernels : test::all_kernels()) {
    float x[] = {-1e30f, -200.0f, 200.0f, 1e30f, 0.0f, infinity, nan};
    run_unary(*kernels, Function::kSilu, {x, 1, 7, 7});
    REQUIRE((std::fabs(x[0]) < 1e-6f && std::fabs(x[1]) < 1e-30f && x[2] == 200.0f && x[3] == 1e30f && x[4] == 0.0f));
    REQUIRE((x[5] == infinity && std::isnan(x[6])));
    float squares[] = {-infinity, -1e30f, 0.0f, 3.0f, infinity, nan};
    run_unary(*kernels, Function::kReluSquared, {squares, 1, 6, 6});
    REQUIRE((squares[0] == 0 && squares[1] == 0 && squares[2] == 0 && squares[3] == 9 && squares[4] == infinity));
    REQUIRE(std::isnan(squares[5]));
    float relu[] = {-infinity, -1.0f, 0.0f, 3.0f, infinity, nan};
    run_unary(*kernels, Function::kRelu, {relu, 1, 6, 6});
    REQUIRE((relu[0] == 0 && relu[1] == 0 && relu[2] == 0 && relu[3] == 3 && relu[4] == infinity));
    REQUIRE(std::isnan(relu[5]));
    float clamped[] = {-infinity, -1.0f, 3.0f, infinity, nan};
    run_unary(*kernels, Function::kClamp, {clamped, 1, 5, 5}, {2.0f});
    REQUIRE((clamped[0] == -2 && clamped[1] == -1 && clamped[2] == 2 && clamped[3] == 2 && std::isnan(clamped[4])));
    float softplus[] = {-infinity, -1e30f, -80.0f, 0.0f, 1e30f, infinity, nan};
    run_unary(*kernels, Function::kSoftplus, {softplus, 1, 7, 7});
    REQUIRE((softplus[0] == 0 && softplus[1] == 0 && softplus[2] > 0 && softplus[4] == 1e30f));
    REQUIRE(softplus[3] == Approx(std::log(2.0)).epsilon(1e-6));
    REQUIRE((softplus[5] == infinity && std::isnan(softplus[6])));
    float sigmoid[] = {-infinity, -1e30f, 0.0f, 1e30f, infinity, nan};
    run_unary(*kernels, Function::kSigmoid, {sigmoid, 1, 6, 6});
    REQUIRE((std::fabs(sigmoid[0]) < 1e-30f && std::fabs(sigmoid[1]) < 1e-30f && sigmoid[2] == 0.5f));
    REQUIRE((sigmoid[3] == 1 && sigmoid[4] == 1 && std::isnan(sigmoid[5])));
    float xielu[] = {-1e6f, 0.0f, 2.0f, infinity, nan};
    run_unary(*kernels, Function::kXielu, {xielu, 1, 5, 5}, {2.0f, 1.0f, 0.5f, 0.0f});
    REQUIRE((xielu[0] == 1.5e6f - 2 && xielu[1] == 0 && xielu[2] == 5 && xielu[3] == infinity));
    REQUIRE(std::isnan(xielu[4]));
    float y[] = {-1e30f, 1e30f, 1e-20f, nan};
    run_unary(*kernels, Function::kSoftcap, {y, 1, 4, 4}, {30.0f});
    REQUIRE((y[0] == -30.0f && y[1] == 30.0f && std::isnan(y[3])));
    REQUIRE(y[2] == Approx(1e-20f));
  }
}

TEST_CASE("SwiGLU with limits: both factors end at them, and NaN passes") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const elementwise::Parameters limit{2.0f};
  for (const cpu::Kernels* kernels : test::all_kernels()) {
    const float gate[] = {40, 40, 1, -1, infinity, nan, 1}, up[] = {1, -9, 9, 0.5f, -infinity, 1, nan};
    float out[7];
    kernels->binary(Function::kLimitedSilu)({gate, 1, 7, 7}, {up, 1, 7, 7}, {out, 1, 7, 7}, limit.data());
    REQUIRE((out[0] == 2 && out[1] == -4 && out[4] == -4 && std::isnan(out[5]) && std::isnan(out[6])));
    REQUIRE(out[2] == Approx(2 / (1 + std::exp(-1.0))));
    REQUIRE(out[3] == Approx(-0.5 / (1 + std::exp(1.0))));
  }
}
