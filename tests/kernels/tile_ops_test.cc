// The tile operations of every class agree with scalar definitions in double, at odd widths, and write nothing outside.

#include <algorithm>
#include <functional>
#include <limits>

#include "tests/kernels/support.h"

using namespace forge;
using forge::test::Guarded;
using forge::test::Random;

namespace {

constexpr std::size_t kWidths[] = {1, 7, 15, 16, 17, 31, 32, 33, 64, 100, 576};
constexpr std::size_t kRows = 3;

/// Runs an in-place operation on a tile with a gap between rows, and compares with `want(value, row, column)`.
void check_elementwise(const std::function<void(const cpu::Kernels&, cpu::Tile)>& run,
                       const std::function<double(double, std::size_t, std::size_t)>& want, double ulps = 4,
                       float deviation = 2) {
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const std::size_t width : kWidths) {
      CAPTURE(test::label(*kernels), width);
      Random random(static_cast<unsigned>(width));
      const std::size_t stride = width + 3;
      Guarded<float> data(kRows * stride - 3, width % 2);
      std::vector<float> before(data.size());
      for (std::size_t i = 0; i < data.size(); ++i)
        if (i % stride < width) before[i] = data[i] = random.normal(deviation);
      run(*kernels, {data.data(), kRows, width, stride});
      data.check();
      for (std::size_t i = 0; i < data.size(); ++i) {
        if (i % stride >= width) {
          REQUIRE(std::isnan(data[i]));
          continue;
        }
        const double expected = want(static_cast<double>(before[i]), i / stride, i % stride);
        if (std::fabs(static_cast<double>(data[i]) - expected) > ulps * 6e-8 * std::fabs(expected) + 1e-30)
          FAIL("element " << i << " of " << before[i] << ": " << data[i] << ", expected " << expected);
      }
    }
}

using elementwise::Function;

/// One row y, repeated for all rows of x.
cpu::ConstTile one_row(const float* y, cpu::Tile x) {
  return {y, x.rows, x.width, 0};
}
using test::run_unary;
void run_binary(const cpu::Kernels& kernels, Function function, cpu::Tile x, cpu::ConstTile y) {
  kernels.binary(function)(x, y, x, nullptr);
}

double xielu(double x, double alpha_n, double alpha_p, double beta, double eps) {
  return x > 0 ? alpha_p * x * x + beta * x : alpha_n * (std::expm1(std::min(x, eps)) - x) + beta * x;
}
double silu(double x) {
  return x / (1 + std::exp(-x));
}
double gelu(double x) {
  return x / 2 * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

}  // namespace

TEST_CASE("sums and products with scalars, vectors and tiles") {
  const std::vector<float> factors{0.5f, -3.0f, 1e-3f}, vector = Random(1).floats(600),
                                                        tile = Random(2).floats(kRows * 700);
  const cpu::ConstTile other{tile.data(), kRows, 600, 700};
  const auto f64 = [](float x) { return static_cast<double>(x); };
  check_elementwise([&](auto& k, auto x) { k.scale_rows(x, factors.data()); },
                    [&](double v, std::size_t t, std::size_t) { return v * f64(factors[t]); });
  check_elementwise([&](auto& k, auto x) { run_unary(k, Function::kScale, x, {0.7f}); },
                    [&](double v, std::size_t, std::size_t) { return v * f64(0.7f); });
  check_elementwise([&](auto& k, auto x) { run_binary(k, Function::kAdd, x, one_row(vector.data(), x)); },
                    [&](double v, std::size_t, std::size_t i) { return v + f64(vector[i]); });
  check_elementwise([&](auto& k, auto x) { run_binary(k, Function::kMul, x, one_row(vector.data(), x)); },
                    [&](double v, std::size_t, std::size_t i) { return v * f64(vector[i]); });
  check_elementwise([&](auto& k, auto x) { run_binary(k, Function::kAdd, x, other); },
                    [&](double v, std::size_t t, std::size_t i) { return v + f64(tile[t * 700 + i]); });
  check_elementwise([&](auto& k, auto x) { run_binary(k, Function::kMul, x, other); },
                    [&](double v, std::size_t t, std::size_t i) { return v * f64(tile[t * 700 + i]); });
}

TEST_CASE("activations are accurate to a few ulp") {
  struct Case {
    Function function;
    double (*exact)(double);
    double ulps;
    elementwise::Parameters parameters{};
  };
  const Case cases[] = {
      {Function::kSilu, silu, 6},
      {Function::kSoftcap, [](double v) { return 5 * std::tanh(v / 5); }, 8, {5.0f}},
      {Function::kRelu, [](double v) { return std::max(v, 0.0); }, 0},
      {Function::kClamp, [](double v) { return std::clamp(v, -0.75, 0.75); }, 0, {0.75f}},
      {Function::kReluSquared, [](double v) { return v > 0 ? v * v : 0.0; }, 1},
      {Function::kSoftplus, [](double v) { return std::max(v, 0.0) + std::log1p(std::exp(-std::fabs(v))); }, 8},
      {Function::kSigmoid, [](double v) { return 1 / (1 + std::exp(-v)); }, 6},
      {Function::kExponential, [](double v) { return std::exp(v); }, 4},
      {Function::kXielu,
       [](double v) { return xielu(v, 0.25, 1.25, 0.5, static_cast<double>(-1e-6f)); },
       10,
       {0.25f, 1.25f, 0.5f, -1e-6f}}};
  for (const float deviation : {0.01f, 1.0f, 8.0f})
    for (const auto& c : cases)
      check_elementwise([&](auto& k, auto x) { run_unary(k, c.function, x, c.parameters); },
                        [&](double v, auto, auto) { return c.exact(v); }, c.ulps, deviation);
  // Far in the negative tail gelu's argument is rounded before the exponential, which amplifies the error.
  check_elementwise([](auto& k, auto x) { run_unary(k, Function::kGelu, x); },
                    [](double v, auto, auto) { return gelu(v); }, 40, 1.0f);
}

TEST_CASE("gated activations, also written over one of their operands") {
  Random random(3);
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const std::size_t width : kWidths) {
      CAPTURE(test::label(*kernels), width);
      auto gate = random.floats(kRows * width), up = random.floats(kRows * width);
      const auto run = [&](auto function, double (*gated)(double, double), double tail = 0) {
        Guarded<float> out(kRows * width);
        function(cpu::ConstTile{gate.data(), kRows, width, width}, cpu::ConstTile{up.data(), kRows, width, width},
                 cpu::Tile{out.data(), kRows, width, width}, nullptr);
        out.check();
        for (std::size_t i = 0; i < out.size(); ++i)
          REQUIRE(out[i] == Approx(gated(static_cast<double>(gate[i]), static_cast<double>(up[i])))
                                .epsilon(2e-6 + tail * std::abs(static_cast<double>(gate[i])))
                                .margin(tail > 0 ? 1e-35 : 0));
        auto aliased = up;
        const cpu::Tile both{aliased.data(), kRows, width, width};
        function(cpu::ConstTile{gate.data(), kRows, width, width}, cpu::ConstTile(both), both, nullptr);
        REQUIRE(test::same_bits(aliased.data(), out.data(), out.size()));
      };
      run(kernels->binary(Function::kSilu), [](double g, double u) { return silu(g) * u; });
      run(kernels->binary(Function::kGelu), [](double g, double u) { return gelu(g) * u; });
      // Far below zero e^x amplifies the rounding of 1.702 g, and where e^x exceeds f32 the result is zero.
      constexpr double kTail = 1.702 * 1.2e-7;
      for (auto* operand : {&gate, &up})  // beyond the limits of +-7, on both sides
        for (float& x : *operand) x *= 5;
      run(
          kernels->binary(Function::kClampedSwish),
          [](double g, double u) {
            const double swish = std::min(g, 7.0);
            return swish / (1 + std::exp(-1.702 * swish)) * (std::clamp(u, -7.0, 7.0) + 1);
          },
          kTail);
    }
}

TEST_CASE("an element has the same bits at any place in a tile") {
  constexpr elementwise::Parameters kParameters{0.75f, 0.5f, 0.25f, 0.125f};
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (std::size_t number = 0; number < elementwise::kFunctionCount; ++number) {
      const auto function = *elementwise::find_function(number);
      CAPTURE(test::label(*kernels), std::string(elementwise::function_def(function).name));
      const auto x = Random(4).floats(100, 3), y = Random(5).floats(100, 3);
      if (const auto unary = kernels->unary(function)) {
        auto whole = x;
        unary({whole.data(), 1, 100, 100}, kParameters.data());
        for (std::size_t i = 0; i < 100; ++i) {
          float one = x[i];
          unary({&one, 1, 1, 1}, kParameters.data());
          REQUIRE(test::bits(one) == test::bits(whole[i]));
        }
      }
      if (const auto binary = kernels->binary(function)) {
        auto whole = x;
        const cpu::Tile tile{whole.data(), 1, 100, 100};
        binary(tile, {y.data(), 1, 100, 100}, tile, kParameters.data());
        for (std::size_t i = 0; i < 100; ++i) {
          float one = x[i];
          binary({&one, 1, 1, 1}, {&y[i], 1, 1, 1}, {&one, 1, 1, 1}, kParameters.data());
          REQUIRE(test::bits(one) == test::bits(whole[i]));
        }
      }
    }
}

TEST_CASE("every elementwise function has a kernel of each of its forms, and of no other") {
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (std::size_t number = 0; number < elementwise::kFunctionCount; ++number) {
      const auto& def = elementwise::function_def(*elementwise::find_function(number));
      CAPTURE(test::label(*kernels), std::string(def.name));
      CHECK(static_cast<std::size_t>(def.function) == number);
      CHECK((kernels->unary(def.function) != nullptr) == elementwise::is_unary(def.form));
      CHECK((kernels->binary(def.function) != nullptr) == elementwise::is_binary(def.form));
    }
  CHECK(!elementwise::find_function(elementwise::kFunctionCount));
}

TEST_CASE("norms: sums of squares by blocks, inverse root, and two routes to the same bits") {
  Random random(5);
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const std::size_t width : kWidths) {
      CAPTURE(test::label(*kernels), width);
      const std::size_t blocks = (width + 15) / 16, stride = width + 5;
      const auto x = random.floats(kRows * stride), weight = random.floats(width);
      const cpu::ConstTile tile{x.data(), kRows, width, stride};
      Guarded<float> partial(kRows * (blocks + 1) - 1), out(kRows * width);
      float inv[kRows];
      kernels->sum_squares(tile, partial.data(), blocks + 1);
      kernels->inv_rms(partial.data(), blocks + 1, blocks, kRows, width, 1e-5f, inv);
      partial.check();
      for (std::size_t t = 0; t < kRows; ++t) {
        double total = 0;
        for (std::size_t i = 0; i < width; ++i) total += std::pow(static_cast<double>(x[t * stride + i]), 2);
        REQUIRE(inv[t] == Approx(1 / std::sqrt(total / static_cast<double>(width) + 1e-5)).epsilon(1e-6));
      }
      kernels->rms_norm(tile, weight.data(), 1e-5f, {out.data(), kRows, width, width});
      out.check();
      std::vector<float> split(kRows * width);
      const cpu::Tile parts{split.data(), kRows, width, width};
      kernels->copy(tile, parts);
      kernels->scale_rows(parts, inv);
      run_binary(*kernels, Function::kMul, parts, one_row(weight.data(), parts));
      REQUIRE(test::same_bits(split.data(), out.data(), out.size()));
    }
}

TEST_CASE("norms of heads equal norms of rows") {
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const std::size_t dim : {8, 40, 64}) {
      const auto x = Random(6).floats(2 * 3 * dim), weight = Random(7).floats(dim);
      auto heads = x, rows = x;
      kernels->rms_norm_heads({heads.data(), 2, 3 * dim, 3 * dim}, dim, weight.data(), 1e-6f);
      kernels->rms_norm({rows.data(), 6, dim, dim}, weight.data(), 1e-6f, {rows.data(), 6, dim, dim});
      REQUIRE(heads == rows);
    }
}

TEST_CASE("RoPE rotates adjacent pairs or halves, and leaves the rest of a head unchanged") {
  struct Case {
    std::size_t head_dim, rotary;
  };
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const auto& [head_dim, rotary] : {Case{64, 64}, Case{80, 32}, Case{6, 4}, Case{128, 96}, Case{40, 40}})
      for (const auto mode : {cpu::RopeMode::kPairs, cpu::RopeMode::kHalves}) {
        CAPTURE(test::label(*kernels), head_dim, rotary, mode == cpu::RopeMode::kPairs);
        const std::size_t heads = 3, width = heads * head_dim, pairs = rotary / 2;
        const auto x = Random(8).floats(kRows * width), table = Random(9).floats(kRows * (rotary + 2));
        Guarded<float> out(kRows * width);
        std::memcpy(out.data(), x.data(), x.size() * 4);
        kernels->rope({out.data(), kRows, width, width}, head_dim, rotary, mode, table.data(), rotary + 2);
        out.check();
        for (std::size_t t = 0; t < kRows; ++t)
          for (std::size_t h = 0; h < heads; ++h) {
            const std::size_t head = t * width + h * head_dim;
            for (std::size_t i = 0; i < pairs; ++i) {
              const std::size_t first = head + (mode == cpu::RopeMode::kPairs ? 2 * i : i);
              const std::size_t second = mode == cpu::RopeMode::kPairs ? first + 1 : first + pairs;
              const float c = table[t * (rotary + 2) + 2 * i], s = table[t * (rotary + 2) + 2 * i + 1];
              REQUIRE(out[first] == Approx(x[first] * c - x[second] * s).margin(1e-5));
              REQUIRE(out[second] == Approx(x[first] * s + x[second] * c).margin(1e-5));
            }
            for (std::size_t i = rotary; i < head_dim; ++i) REQUIRE(out[head + i] == x[head + i]);
          }
      }
}

namespace {

/// Compares byte for byte, except that any NaN equals any other.
void require_q8a(const Guarded<std::byte>& rows, const std::vector<std::byte>& want, std::size_t count, std::size_t k) {
  const std::size_t stride = quant::q8a_row_bytes(k);
  for (std::size_t t = 0; t < count; ++t)
    for (std::size_t i = 0; i < 40 * (k / 32); ++i) {
      const bool is_float = i >= k;
      float a, b;
      std::memcpy(&a, rows.data() + t * stride + (is_float ? i / 4 * 4 : 0), 4);
      std::memcpy(&b, want.data() + t * stride + (is_float ? i / 4 * 4 : 0), 4);
      if (is_float && std::isnan(a) && std::isnan(b)) continue;
      CAPTURE(t, i);
      REQUIRE(rows[t * stride + i] == want[t * stride + i]);
    }
}

}  // namespace

TEST_CASE("q8a quantisation equals the scalar reference bit for bit, at any place in the row") {
  for (const cpu::Kernels* kernels : test::all_kernels()) {
    CAPTURE(test::label(*kernels));
    const std::size_t k = 160, stride = quant::q8a_row_bytes(k);
    auto x = Random(10).floats(kRows * k, 5);
    for (std::size_t i = 0; i < 32; ++i) x[32 + i] = 0;
    for (std::size_t i = 0; i < 32; ++i) x[64 + i] = static_cast<float>(i) - 0.5f;  // ties
    x[64 + 31] = 127;
    x[k + 3] = std::numeric_limits<float>::quiet_NaN();
    x[k + 40] = -std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < 32; ++i) x[2 * k + i] = 1e-44f * static_cast<float>(i);  // subnormal steps
    for (std::size_t i = 0; i < 32; ++i) x[2 * k + 32 + i] = 3e38f;
    const auto want = test::q8a_rows(x, k);
    Guarded<std::byte> rows(kRows * stride);
    std::memset(rows.data(), 0, rows.size());
    for (const auto& [from, to] : {std::pair<std::size_t, std::size_t>{0, 2}, {2, 5}})
      kernels->quantize_q8a({x.data() + 32 * from, kRows, 32 * (to - from), k}, rows.data(), stride, k, from);
    rows.check();
    require_q8a(rows, want, kRows, k);
  }
}

TEST_CASE("sums of squares of many blocks at once equal those of single blocks") {
  constexpr std::size_t kRows = 9, width = 1000, blocks = 63;
  const auto x = Random(21).floats(kRows * width, 3);
  for (const cpu::Kernels* kernels : test::all_kernels()) {
    CAPTURE(test::label(*kernels));
    Guarded<float> partial(kRows * blocks);
    kernels->sum_squares({x.data(), kRows, width, width}, partial.data(), blocks);
    partial.check();
    for (std::size_t t = 0; t < kRows; ++t)
      for (std::size_t b = 0; b < blocks; ++b) {
        float alone = 0;
        const std::size_t count = std::min<std::size_t>(16, width - 16 * b);
        kernels->sum_squares({x.data() + t * width + 16 * b, 1, count, count}, &alone, 1);
        CAPTURE(t, b);
        REQUIRE(test::bits(partial[t * blocks + b]) == test::bits(alone));
      }
  }
}

TEST_CASE("q8a quantisation of many blocks at once equals that of single blocks") {
  // Runs of 16, 8, 4, 2 blocks and one; the rows do not fill a multiple of 16.
  constexpr std::size_t kRows = 9, k = 1120;
  const std::size_t stride = quant::q8a_row_bytes(k);
  Random random(20);
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const bool odd : {false, true}) {
      CAPTURE(test::label(*kernels), odd);
      auto x = random.floats(kRows * k, 3);
      if (odd) {
        x[3 * k + 700] = std::numeric_limits<float>::infinity();
        x[5 * k + 90] = std::numeric_limits<float>::quiet_NaN();
        for (std::size_t i = 0; i < 32; ++i) x[6 * k + 512 + i] = 0;
        for (std::size_t i = 0; i < 32; ++i) x[7 * k + 1088 + i] = 1e-42f;
      }
      const auto want = test::q8a_rows(x, k);
      Guarded<std::byte> rows(kRows * stride);
      std::memset(rows.data(), 0, rows.size());
      kernels->quantize_q8a({x.data(), kRows, k, k}, rows.data(), stride, k, 0);
      rows.check();
      require_q8a(rows, want, kRows, k);
    }
}

TEST_CASE("layer norm of heads with a large mean: shared and own gains, with and without offsets") {
  Random random(12);
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const std::size_t dim : {1, 7, 16, 33, 64, 200})
      for (const bool shared : {true, false})
        for (const bool offsets : {true, false}) {
          CAPTURE(test::label(*kernels), dim, shared, offsets);
          constexpr std::size_t kHeads = 3;
          const std::size_t width = kHeads * dim;
          const auto weight = random.floats(width), bias = random.floats(width);
          Guarded<float> x(kRows * width);
          for (std::size_t i = 0; i < x.size(); ++i) x[i] = random.normal(0.5f) + 100;
          const std::vector<float> before(x.data(), x.data() + x.size());
          kernels->layer_norm_heads({x.data(), kRows, width, width}, dim, weight.data(),
                                    offsets ? bias.data() : nullptr, shared, 1e-5f);
          x.check();
          for (std::size_t start = 0; start < x.size(); start += dim) {
            double mean = 0, variance = 0;
            for (std::size_t i = 0; i < dim; ++i)
              mean += static_cast<double>(before[start + i]) / static_cast<double>(dim);
            for (std::size_t i = 0; i < dim; ++i)
              variance +=
                  (static_cast<double>(before[start + i]) - mean) * (static_cast<double>(before[start + i]) - mean);
            const double inverse = 1 / std::sqrt(variance / static_cast<double>(dim) + 1e-5);
            for (std::size_t i = 0; i < dim; ++i) {
              const std::size_t w = shared ? i : start % width + i;
              const double want =
                  (static_cast<double>(before[start + i]) - mean) * inverse * static_cast<double>(weight[w]) +
                  (offsets ? static_cast<double>(bias[w]) : 0);
              REQUIRE(static_cast<double>(x[start + i]) == Approx(want).margin(dim == 1 ? 1e-2 : 2e-4));
            }
          }
        }
}

TEST_CASE("argmax finds the first maximum and skips NaN") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const cpu::Kernels* kernels : test::all_kernels()) {
    for (const std::size_t count : {1, 5, 16, 17, 1000}) {
      auto x = Random(static_cast<unsigned>(count)).floats(count);
      REQUIRE(kernels->argmax(x.data(), count) ==
              static_cast<std::size_t>(std::max_element(x.begin(), x.end()) - x.begin()));
      x[count / 2] = x[count - 1] = 99;
      REQUIRE(kernels->argmax(x.data(), count) == count / 2);
      x[0] = nan;
      if (count > 1) REQUIRE(kernels->argmax(x.data(), count) == count / 2);
    }
    const std::vector<float> nothing(40, nan), lowest(40, -infinity);
    REQUIRE(kernels->argmax(nothing.data(), 40) == 0);
    REQUIRE(kernels->argmax(lowest.data(), 40) == 0);
    std::vector<float> one = nothing;
    one[33] = -infinity;
    REQUIRE(kernels->argmax(one.data(), 40) == 33);
  }
}

TEST_CASE("read_bytes is the XOR of all words") {
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const std::size_t bytes : {0, 1, 8, 63, 64, 65, 1000}) {
      Guarded<std::byte> data(bytes);
      std::uint64_t want = 0;
      for (std::size_t i = 0; i < bytes; ++i) {
        data[i] = static_cast<std::byte>(i * 31 + 7);
        want ^= static_cast<std::uint64_t>(data[i]) << (8 * (i % 8));
      }
      REQUIRE(kernels->read_bytes(data.data(), bytes) == want);
    }
}

TEST_CASE("the classes with FMA give the same bits everywhere") {
  const cpu::Kernels* first = nullptr;
  std::vector<float> expected;
  for (const cpu::Kernels* kernels : test::kernels_with_fma()) {
    constexpr elementwise::Parameters kParameters{0.75f, 0.5f, 0.25f, -0.125f};
    std::vector<float> x = Random(11).floats(4 * 100, 4), partial(4 * 7), row(4 * 100), values;
    for (std::size_t number = 0; number < elementwise::kFunctionCount; ++number) {
      const auto function = *elementwise::find_function(number);
      const auto unary = kernels->unary(function);
      if (unary == nullptr) continue;
      auto one = x;
      unary({one.data(), 4, 100, 100}, kParameters.data());
      values.insert(values.end(), one.begin(), one.end());
    }
    kernels->sum_squares({x.data(), 4, 100, 100}, partial.data(), 7);
    run_unary(*kernels, Function::kGelu, {x.data(), 4, 100, 100});
    run_unary(*kernels, Function::kSoftcap, {x.data(), 4, 100, 100}, {3});
    kernels->rms_norm({x.data(), 4, 100, 100}, nullptr, 1e-5f, {row.data(), 4, 100, 100});
    x.insert(x.end(), partial.begin(), partial.end());
    x.insert(x.end(), row.begin(), row.end());
    x.insert(x.end(), values.begin(), values.end());
    if (!first) {
      first = kernels;
      expected = x;
    }
    CAPTURE(test::label(*kernels));
    REQUIRE(test::same_bits(x.data(), expected.data(), x.size()));
  }
}

TEST_CASE("RoPE rounds each product before it adds, in both modes and every class") {
  // g++ once contracted a scalar loop to vfmaddsub for AVX-512 only, so that classes differed in the last bit.
  Random random(5);
  for (const cpu::Kernels* kernels : test::all_kernels()) {
    CAPTURE(test::label(*kernels));
    for (const auto mode : {cpu::RopeMode::kPairs, cpu::RopeMode::kHalves}) {
      for (const std::size_t rotary :
           {std::size_t{2}, std::size_t{6}, std::size_t{32}, std::size_t{70}, std::size_t{128}}) {
        const std::size_t head_dim = rotary + 2, pairs = rotary / 2;
        const auto x = random.floats(head_dim), angles = random.floats(rotary);
        auto got = x;
        kernels->rope({got.data(), 1, head_dim, head_dim}, head_dim, rotary, mode, angles.data(), rotary);
        for (std::size_t i = 0; i < pairs; ++i) {
          const std::size_t low = mode == cpu::RopeMode::kPairs ? 2 * i : i;
          const std::size_t high = mode == cpu::RopeMode::kPairs ? 2 * i + 1 : i + pairs;
          const volatile float ac = x[low] * angles[2 * i], bs = x[high] * angles[2 * i + 1];
          const volatile float as = x[low] * angles[2 * i + 1], bc = x[high] * angles[2 * i];
          REQUIRE(got[low] == ac - bs);
          REQUIRE(got[high] == as + bc);
        }
        REQUIRE(got[rotary] == x[rotary]);
      }
    }
  }
}
