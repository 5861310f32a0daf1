// Matmul by rows: every weight type at the edges of rows, columns and tokens, cut up in different ways, with plain and
// with busy epilogues, against products in f64.

#include <cmath>
#include <limits>

#include "tests/gpu_host/kernel_bench.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

// How a block is cut up. Columns of a block are a multiple of 16 for both waves.
struct Cut {
  int waves, lanes, waves_per_row, rows_per_team, ahead;  ///< lanes 0: the wave's
  bool prefetch = false;
};
constexpr Cut kCuts[] = {{8, 32, 1, 2, 2}, {16, 0, 1, 1, 2, true}, {2, 4, 1, 1, 1},
                         {8, 0, 4, 8, 2},  {4, 8, 1, 1, 3},        {1, 2, 1, 1, 1, true}};
// Tokens of a tile, of memory, and how many are real.
struct Rows {
  int tile, total, real;
};
constexpr Rows kRows[] = {{1, 1, 1}, {2, 2, 2}, {7, 7, 5}, {16, 16, 16}, {16, 32, 17}, {16, 32, 16}};
constexpr int kColumns[] = {1, 17, 96}, kDepths[] = {32, 96, 256, 2080, 2304};
constexpr float kUntouched = 12345;
enum Kind { kStore, kResidual, kGlu, kKinds };

struct MatmulCase {
  DType type;
  int n, k;
  Rows rows;
  Cut cut;
  Kind kind;
  int wave;
  [[nodiscard]] int block_rows() const {
    const int lanes = cut.lanes == 0 ? wave : cut.lanes;
    return cut.waves / cut.waves_per_row * (wave / lanes) * cut.rows_per_team;
  }
  /// Columns of the result.
  [[nodiscard]] int results() const { return kind == kGlu ? n / 2 : n; }
  [[nodiscard]] int parts() const { return kind == kStore ? 0 : 5; }
};

/// out[t][n] = v, or with 1/rms from partial sums: residual + v, its squares and quantised rows, or silu(gate) * up.
std::string epilogue_of(const MatmulCase& c) {
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
                     std::string(c.kind == kGlu ? "32" : "16") + ", kOperands = " + (c.kind == kResidual ? "1" : "0") +
                     ", kParts = " + std::to_string(c.parts()) + R"(;
  FORGE_DEVICE static const float* squares(const Args& a) { return a.partial; }
  FORGE_DEVICE static float inv_rms(float sum) { return 1.0f / sqrt_of(sum); }
  FORGE_DEVICE static void load(const Args& a, int t, int n, int, float (&o)[1]) {
    o[0] = gpu::load(a.residual + t * )" +
                     results + R"( + n);
  }
  template <class In>
  FORGE_DEVICE static void run(const Args& a, int t, int n, int, bool real, float factor, const float (&o)[1], In&& in) {
)";
  if (c.kind == kGlu)
    text +=
        "    const int gate = n / 16 * 32 + n % 16;\n"
        "    const float v = silu(in(gate) * factor) * (in(gate + 16) * factor);\n";
  else
    text += c.kind == kResidual ? "    const float v = in(n) * factor + o[0];\n" : "    const float v = in(n);\n";
  text += "    store(a.out + t * " + results + " + n, v, real);\n";
  if (c.kind == kResidual) text += "    store_squares(a.squares + t * " + squares + " + n / 16, v, real);\n";
  if (c.kind != kStore && c.results() % 32 == 0)
    text += "    quantise_block<" + results + ">(a.rows + t * Q8Rows<" + results + ">::kRowBytes, n, v, real);\n";
  return text + "  }\n};\n";
}

WaveText text_of(const MatmulCase& c) {
  codegen::KernelText text{.header = "kernels/gpu/matmul_rows.h",
                           .kernel = "MatmulRows",
                           .defaults = "MatmulDefaults",
                           .before = epilogue_of(c)};
  text.config.use("Weight", weight_text(c.type, c.n, c.k))
      .use("Epilogue", "gpu::Epilogue")
      .number("kTokens", c.rows.tile)
      .number("kTokensTotal", c.rows.total)
      .number("kWaves", c.cut.waves)
      .number("kLanesPerRow", c.cut.lanes == 0 ? c.wave : c.cut.lanes)
      .number("kWavesPerRow", c.cut.waves_per_row)
      .number("kRowsPerTeam", c.cut.rows_per_team)
      .number("kUnitsAhead", c.cut.ahead)
      .number("kPrefetchBytes", c.cut.prefetch ? 256 : 0);
  text.blocks = (c.n + c.block_rows() - 1) / c.block_rows() * (c.rows.total / c.rows.tile);
  text.threads = c.cut.waves * c.wave;
  return {c.wave, std::move(text)};
}

/// What was multiplied: x as its rows mean it, [real][k], and the buffer with padding that must not matter.
struct Activations {
  std::vector<float> values;
  Buffer<std::byte> rows;
  explicit Activations(const MatmulCase& c)
      : values(random_floats(static_cast<std::size_t>(c.rows.real) * c.k)),
        rows(c.rows.total * (!is_float(c.type) ? q8_row_bytes(c.k) : 4 * static_cast<std::size_t>(c.k))) {
    if (is_float(c.type)) {
      std::memcpy(rows.data(), values.data(), values.size() * sizeof(float));
      return;
    }
    const auto quantised = quantise_rows(values, c.k);
    std::memcpy(rows.data(), quantised.data(), quantised.size());
    values = values_of_rows(rows.data(), c.rows.real, c.k);
  }
};

/// What the epilogue makes of a row's sums, and how far off rounding may put it.
struct Expected {
  double value, margin;
};
Expected expect(const MatmulCase& c, const Products& products, int t, int n, double factor, double residual) {
  constexpr double kRelative = 4e-6;
  const auto at = [&](int column) { return static_cast<std::size_t>(t) * c.n + column; };
  if (c.kind == kStore) return {products.sums[at(n)], kRelative * products.magnitudes[at(n)]};
  if (c.kind == kResidual)
    return {products.sums[at(n)] * factor + residual,
            kRelative * (products.magnitudes[at(n)] * factor + std::fabs(residual))};
  const int gate = n / 16 * 32 + n % 16;
  const double g = products.sums[at(gate)] * factor, u = products.sums[at(gate + 16)] * factor;
  const double g_margin = kRelative * products.magnitudes[at(gate)] * factor;
  const double u_margin = kRelative * products.magnitudes[at(gate + 16)] * factor;
  const double silu = g / (1 + std::exp(-g));
  return {silu * u, 1.2 * g_margin * std::fabs(u) + std::fabs(silu) * u_margin + kRelative * std::fabs(silu * u)};
}

void check_matmul(const MatmulCase& c, const Kernel& kernel) {
  INFO("type " << dtype_name(c.type) << ", " << c.n << "x" << c.k << ", tokens " << c.rows.real << " of "
               << c.rows.total << " in " << c.rows.tile << ", cut " << c.cut.waves << '/' << c.cut.lanes << ", kind "
               << c.kind << ", wave " << c.wave);
  const int results = c.results(), squares_count = (results + 15) / 16;
  const PlanesWeight weight(c.type, c.n, c.k);
  const Activations x(c);
  const auto parts = random_floats(static_cast<std::size_t>(c.rows.real) * 5);
  const auto residual = random_floats(static_cast<std::size_t>(c.rows.real) * results);
  Buffer<float> partial(c.rows.total * 5), added(c.rows.total * results), out(c.rows.total * results);
  for (std::size_t i = 0; i < parts.size(); ++i) partial[i] = parts[i] * parts[i];
  std::copy(residual.begin(), residual.end(), added.data());
  Buffer<float> squares(c.rows.total * squares_count);
  Buffer<std::byte> rows(c.rows.total * q8_row_bytes(results));
  const Buffer<int> counts = Buffer<int>::of({c.rows.real, -1, -1, -1});
  const KernelArgs args({weight.planes.data(), x.rows.data(), counts.data(), out.data(), partial.data(), added.data(),
                         squares.data(), rows.data()});
  run_in_all_orders(
      kernel, args,
      [&] {
        out.fill(kUntouched);
        squares.fill(NAN);
      },
      [&] {
        auto bytes = bytes_of(out);  // of real tokens: what padding gives is nobody's business
        bytes.resize(static_cast<std::size_t>(c.rows.real) * results * sizeof(float));
        return bytes;
      });
  const Products products = multiply(weight.values, x.values, c.k);
  for (int t = 0; t < c.rows.real; ++t) {
    double sum = 0;
    for (int i = 0; i < 5; ++i) sum += partial[t * 5 + i];
    const double factor = 1 / std::sqrt(sum);
    for (int n = 0; n < results; ++n) {
      const double other = c.kind == kResidual ? residual[t * results + n] : 0;
      const auto [value, margin] = expect(c, products, t, n, factor, other);
      INFO("token " << t << ", column " << n << ": " << out[t * results + n] << ", expected " << value);
      REQUIRE(std::fabs(out[t * results + n] - value) <= margin + std::numeric_limits<float>::min());
    }
    if (c.kind == kResidual)
      for (int part = 0; part < squares_count; ++part) {
        double expected = 0;
        for (int n = part * 16; n < std::min(results, part * 16 + 16); ++n)
          expected += static_cast<double>(out[t * results + n]) * out[t * results + n];
        REQUIRE(std::fabs(squares[t * squares_count + part] - expected) <= 1e-6 * expected);
      }
  }
  if (c.kind != kStore && results % 32 == 0) {
    const auto quantised =
        quantise_rows({out.data(), out.data() + static_cast<std::size_t>(c.rows.real) * results}, results);
    for (std::size_t i = 0; i < quantised.size(); ++i)
      if (i % q8_row_bytes(results) < static_cast<std::size_t>(results + results / 4)) REQUIRE(rows[i] == quantised[i]);
  }
  // whole tiles of padding are left alone
  for (int i = (c.rows.real + 15) / 16 * 16 * results; i < c.rows.total * results; ++i) REQUIRE(out[i] == kUntouched);
  for (const auto* buffer : {&out, &squares, &partial, &added}) buffer->check();
  rows.check();
  x.rows.check();
  weight.planes.check();
}

}  // namespace

TEST_CASE("matmul by rows gives the products, for all types, shapes and cuts") {
  const Choice<7> sizes{std::size(kWeightTypes), std::size(kColumns), std::size(kDepths),
                        std::size(kRows),        std::size(kCuts),    kKinds,
                        std::size(kWaves)};
  const auto case_of = [](const Choice<7>& at) {
    return MatmulCase{kWeightTypes[at[0]], kColumns[at[1]], kDepths[at[2]], kRows[at[3]],
                      kCuts[at[4]],        Kind(at[5]),     kWaves[at[6]]};
  };
  std::vector<MatmulCase> cases;
  for (const auto& choice : cases_of(sizes, [&](const Choice<7>& at) {
         const auto c = case_of(at);
         return has_rows_of(c.type, c.k) && (c.kind != kGlu || (c.n % 32 == 0 && c.block_rows() % 32 == 0));
       }))
    cases.push_back(case_of(choice));
  check_cases(cases, text_of, check_matmul);
}
