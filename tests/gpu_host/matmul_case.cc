// Builds the inputs of a matmul case, runs its kernel and checks the results of its epilogue (matmul_case.h).
#include "tests/gpu_host/matmul_case.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace forge::gpu_host {
namespace {

constexpr float kUntouched = 12345;
constexpr double kRelative = 4e-6;

std::size_t row_bytes(const MatmulProblem& c) {
  const auto k = static_cast<std::size_t>(c.k);
  if (c.tiles != DType::kF32) return 2 * k;
  return is_float(c.type) ? 4 * k : static_cast<std::size_t>(c.terms) * q8_row_bytes(k);
}

/// The activations: the values [real][k], and the buffer with padding rows, which must not affect results.
struct Activations {
  std::vector<float> values;
  Buffer<std::byte> rows;
  explicit Activations(const MatmulProblem& c)
      : values(random_floats(static_cast<std::size_t>(c.real) * c.k)), rows(c.total * row_bytes(c)) {
    const auto copy = [&](const auto& from) { std::memcpy(rows.data(), from.data(), from.size() * sizeof(from[0])); };
    if (c.tiles != DType::kF32) {
      copy(numbers_of(c.tiles, values));
      round_to(c.tiles, values);
    } else if (is_float(c.type)) {
      copy(values);
    } else {
      copy(quantise_rows(values, c.k, c.terms));
      values = values_of_rows(rows.data(), c.real, c.k, c.terms);
    }
  }
};

/// The expected result of the epilogue, and how far rounding may move it.
struct Expected {
  double value, margin;
};
Expected expect(const MatmulProblem& c, const Products& products, int t, int n, double factor, double residual) {
  const auto at = [&](int column) { return static_cast<std::size_t>(t) * c.n + column; };
  if (c.kind == MatmulKind::kStore) return {products.sums[at(n)], kRelative * products.magnitudes[at(n)]};
  if (c.kind == MatmulKind::kResidual)
    return {products.sums[at(n)] * factor + residual,
            kRelative * (products.magnitudes[at(n)] * factor + std::fabs(residual))};
  const int gate = n / 16 * 32 + n % 16;
  const double g = products.sums[at(gate)] * factor, u = products.sums[at(gate + 16)] * factor;
  const double g_margin = kRelative * products.magnitudes[at(gate)] * factor;
  const double u_margin = kRelative * products.magnitudes[at(gate + 16)] * factor;
  const double silu = g / (1 + std::exp(-g));
  return {silu * u, 1.2 * g_margin * std::fabs(u) + std::fabs(silu) * u_margin + kRelative * std::fabs(silu * u)};
}

}  // namespace

/// out[t][n] = v; or, with 1/rms from partial sums, residual + v with its squares and quantised rows; or silu(gate) *
/// up.
std::string epilogue_of(const MatmulProblem& c) {
  const std::string results = std::to_string(c.results()), squares = std::to_string((c.results() + 15) / 16);
  std::string text = R"(struct Epilogue {
  struct Args {
    float* out;
    const float* partial;
    const float* residual;
    float* squares;
    u8* rows;
  };
  static constexpr int kIn = )" +
                     std::string(c.kind == MatmulKind::kGlu ? "32" : "16") +
                     ", kOperands = " + (c.kind == MatmulKind::kResidual ? "1" : "0") +
                     ", kParts = " + std::to_string(c.parts()) + ", kSquaresOut = " + (c.totals ? squares : "0") + R"(;
  FORGE_DEVICE static float* squares_out(const Args& a) { return a.squares; }
  FORGE_DEVICE static const float* squares(const Args& a) { return a.partial; }
  FORGE_DEVICE static float inv_rms(float sum) { return 1.0f / sqrt_of(sum); }
  FORGE_DEVICE static void load(const Args& a, int t, int n, int, float (&o)[1]) {
    o[0] = gpu::load(a.residual + t * )" +
                     results + R"( + n);
  }
  template <class In>
  FORGE_DEVICE static void run(const Args& a, int t, int n, int, bool real, float factor, const float (&o)[1], In&& in) {
)";
  if (c.kind == MatmulKind::kGlu)
    text +=
        "    const int gate = n / 16 * 32 + n % 16;\n"
        "    const float v = silu(in(gate) * factor) * (in(gate + 16) * factor);\n";
  else
    text += c.kind == MatmulKind::kResidual ? "    const float v = in(n) * factor + o[0];\n"
                                            : "    const float v = in(n);\n";
  text += "    store(a.out + t * " + results + " + n, v, real);\n";
  if (c.kind == MatmulKind::kResidual)
    text += "    store_squares(a.squares + t * " + squares + " + n / 16, v, real);\n";
  if (c.kind != MatmulKind::kStore && c.results() % 32 == 0)
    text += "    store_activation<" + results + ", " + std::to_string(c.format()) + ">(a.rows, t, n, v, real);\n";
  return text + "  }\n};\n";
}

void check_matmul(const MatmulProblem& c, const Kernel& kernel) {
  INFO("type " << dtype_name(c.type) << ", " << c.n << "x" << c.k << ", tokens " << c.real << " of " << c.total
               << ", kind " << static_cast<int>(c.kind) << ", format " << c.format());
  const int results = c.results(), squares_count = (results + 15) / 16;
  PlanesWeight weight(c.type, c.n, c.k);
  round_as_tiles(c.tiles, c.type, weight);
  const Activations x(c);
  const auto parts = random_floats(static_cast<std::size_t>(c.real) * 5);
  const auto residual = random_floats(static_cast<std::size_t>(c.real) * results);
  Buffer<float> partial(c.total * 5), added(c.total * results), out(c.total * results);
  for (std::size_t i = 0; i < parts.size(); ++i) partial[i] = parts[i] * parts[i];
  std::copy(residual.begin(), residual.end(), added.data());
  Buffer<float> squares(c.total * squares_count);
  Buffer<std::byte> rows(
      c.total * (c.tiles != DType::kF32 ? 2 * static_cast<std::size_t>(results) : c.terms * q8_row_bytes(results)));
  Buffer<float> totals(c.total);  // of the partial sums, for tiles
  totals.fill(0);
  for (int t = 0; t < c.real; ++t)
    for (int i = 0; i < 5; ++i) totals[t] += partial[t * 5 + i];
  const Buffer<int> counts = Buffer<int>::of({c.real, -1, -1, -1});
  const KernelArgs of_rows({weight.planes.data(), x.rows.data(), counts.data(), out.data(), partial.data(),
                            added.data(), squares.data(), rows.data()});
  Buffer<float> partials(static_cast<std::size_t>(c.partials));
  Buffer<std::uint32_t> counters(static_cast<std::size_t>(c.counters));
  counters.fill(0);
  const KernelArgs of_tiles({weight.planes.data(), x.rows.data(), totals.data(), partials.data(), counters.data(),
                             counts.data(), out.data(), partial.data(), added.data(), squares.data(), rows.data()});
  const auto& args = c.tiles != DType::kF32 ? of_tiles : of_rows;
  run_in_all_orders(
      kernel, args,
      [&] {
        out.fill(kUntouched);
        squares.fill(NAN);
      },
      [&] {
        auto bytes = bytes_of(out);  // real tokens only; results of padding rows are unspecified
        bytes.resize(static_cast<std::size_t>(c.real) * results * sizeof(float));
        return bytes;
      });
  const Products products = multiply(weight.values, x.values, c.k);
  for (int t = 0; t < c.real; ++t) {
    double sum = 0;
    for (int i = 0; i < 5; ++i) sum += partial[t * 5 + i];
    const double factor = 1 / std::sqrt(sum);
    for (int n = 0; n < results; ++n) {
      const double other = c.kind == MatmulKind::kResidual ? residual[t * results + n] : 0;
      const auto [value, margin] = expect(c, products, t, n, factor, other);
      INFO("token " << t << ", column " << n << ": " << out[t * results + n] << ", expected " << value);
      REQUIRE(std::fabs(out[t * results + n] - value) <= margin + std::numeric_limits<float>::min());
    }
    if (c.kind == MatmulKind::kResidual)
      for (int part = 0; part < squares_count; ++part) {
        double expected = 0;
        const int end = c.totals && part == 0 ? results : std::min(results, part * 16 + 16);
        for (int n = part * 16; n < end; ++n)
          expected += static_cast<double>(out[t * results + n]) * out[t * results + n];
        REQUIRE(std::fabs(squares[t * squares_count + part] - expected) <= 1e-6 * expected);
      }
  }
  if (c.kind != MatmulKind::kStore && results % 32 == 0) {
    const std::vector<float> written{out.data(), out.data() + static_cast<std::size_t>(c.real) * results};
    if (c.tiles != DType::kF32) {
      const auto numbers = numbers_of(c.tiles, written);
      REQUIRE(std::memcmp(rows.data(), numbers.data(), numbers.size() * sizeof(numbers[0])) == 0);
    } else {
      const auto quantised = quantise_rows(written, results, c.terms);
      for (std::size_t i = 0; i < quantised.size(); ++i)
        if (is_written(i, results)) REQUIRE(rows[i] == quantised[i]);
    }
  }
  // Tiles that hold only padding are not written.
  for (int i = (c.real + 15) / 16 * 16 * results; i < c.total * results; ++i) REQUIRE(out[i] == kUntouched);
  for (const auto* buffer : {&out, &squares, &partial, &added}) buffer->check();
  rows.check();
  for (std::size_t i = 0; i < counters.size(); ++i) REQUIRE(counters[i] == 0);
  counters.check();
  for (const auto* buffer : {&totals, &partials}) buffer->check();
  x.rows.check();
  weight.planes.check();
}

}  // namespace forge::gpu_host
