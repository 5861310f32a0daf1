// The row kernels outside matmuls are correct: embeddings of every type, norms, splits and the RoPE table.

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "tests/gpu_host/kernel_bench.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

// Rows in memory, and rows with real tokens.
struct Rows {
  int total, real;
  /// Rows that a kernel writes: tiles of 16 rows that hold only padding are skipped.
  [[nodiscard]] int made() const { return total == 1 ? 1 : std::min(total, (real + 15) / 16 * 16); }
};
constexpr Rows kRows[] = {{1, 1}, {7, 5}, {32, 17}, {32, 16}};

enum Source { kLoaded, kTwo, kGathered, kEmbedded, kSources };
constexpr int kColumns[] = {32, 96, 288, 512};
constexpr int kTableRows = 11;

struct FillCase {
  Source source;
  DType type;  ///< type of the embedding table
  int columns;
  Rows rows;
  int waves, wave;
};

/// Source of an epilogue that stores v * 2 and its quantised rows.
std::string epilogue_of(int columns) {
  const std::string count = std::to_string(columns);
  return R"(struct Epilogue {
  struct Args {
    float* out;
    u8* rows;
  };
  static constexpr int kIn = 16, kOperands = 0, kParts = 0;
  template <class In>
  FORGE_DEVICE static void run(const Args& a, int t, int n, int, bool real, float, const float (&)[1], In&& in) {
    const float v = in(n) * 2.0f;
    store(a.out + t * )" +
         count + R"( + n, v, real);
    quantise_block<)" +
         count + ">(a.rows + t * Q8Rows<" + count + ">::kRowBytes, n, v, real);\n  }\n};\n";
}

WaveText text_of(const FillCase& c) {
  constexpr int kBlock = 64;
  const std::string columns = std::to_string(c.columns);
  const std::string sources[] = {
      "LoadedRows<" + std::to_string(c.columns + 3) + ">", "TwoRows<16, 20, " + std::to_string(c.columns - 16) + ">",
      "GatheredRows<" + columns + ">", "EmbeddedRows<" + weight_text(c.type, kTableRows, c.columns) + ">"};
  codegen::KernelText text{
      .header = "kernels/gpu/rows.h", .kernel = "FillRows", .defaults = {}, .before = epilogue_of(c.columns)};
  text.config.use("Source", sources[c.source])
      .use("Epilogue", "gpu::Epilogue")
      .number("kColumns", c.columns)
      .number("kBlockRows", kBlock)
      .number("kWaves", c.waves)
      .number("kTokensTotal", c.rows.total)
      .number("kCount", 1);
  text.blocks = (c.columns + kBlock - 1) / kBlock * c.rows.total;
  text.threads = c.waves * c.wave;
  return {c.wave, std::move(text)};
}

void check_fill(const FillCase& c, const Kernel& kernel) {
  INFO("source " << c.source << ", type " << dtype_name(c.type) << ", columns " << c.columns << ", rows " << c.rows.real
                 << " of " << c.rows.total << ", waves " << c.waves << ", wave " << c.wave);
  const int total = c.rows.total, columns = c.columns;
  const PlanesWeight table(c.type, kTableRows, columns);
  const std::vector<float> left = random_floats(static_cast<std::size_t>(total) * (columns + 3)),
                           right = random_floats(left.size());
  const Buffer<float> left_buffer{std::span<const float>(left)}, right_buffer{std::span<const float>(right)};
  Buffer<int> picks(total);
  for (int t = 0; t < total; ++t) picks[t] = c.source == kEmbedded ? t * 5 % 14 - 1 : (t * 5 + 3) % total;
  const Buffer<int> counts = Buffer<int>::of({-1, c.rows.real, -1, -1});
  Buffer<float> out(static_cast<std::size_t>(total) * columns);
  Buffer<std::byte> rows(total * q8_row_bytes(columns));
  const void *first = c.source == kEmbedded ? static_cast<const void*>(table.planes.data()) : left_buffer.data(),
             *second = c.source == kTwo ? static_cast<const void*>(right_buffer.data()) : picks.data();
  const KernelArgs two({first, second, counts.data(), out.data(), rows.data()}),
      one({first, counts.data(), out.data(), rows.data()});
  run_in_all_orders(kernel, c.source == kLoaded ? one : two, [&] { out.fill(NAN); }, [&] { return bytes_of(out); });

  const auto expected = [&](int t, int n) -> float {
    switch (c.source) {
      case kLoaded:
        return left[t * (columns + 3) + n];
      case kTwo:
        return n < 16 ? left[t * 20 + n] : right[t * (columns - 16) + n - 16];
      case kGathered:
        return left[picks[t] * columns + n];
      default:
        return picks[t] >= 0 && picks[t] < kTableRows ? table.values[picks[t] * columns + n] : 0;
    }
  };
  for (int t = 0; t < c.rows.made(); ++t)
    for (int n = 0; n < columns; ++n) REQUIRE(out[t * columns + n] == Approx(2 * expected(t, n)).epsilon(1e-6));
  if (c.rows.made() < total) REQUIRE(std::isnan(out[c.rows.made() * columns]));
  const auto quantised =
      quantise_rows({out.data(), out.data() + static_cast<std::size_t>(c.rows.made()) * columns}, columns);
  for (std::size_t i = 0; i < quantised.size(); ++i)
    if (is_written(i, columns)) REQUIRE(rows[i] == quantised[i]);
  out.check();
  rows.check();
}

/// Runs a kernel of rows.h with the configuration `text` in all lane orders.
void run_text(WaveText text, const KernelArgs& args, const Buffer<float>& out) {
  run_in_all_orders(build_kernels({std::move(text)})[0], args, [] {}, [&] { return bytes_of(out); });
  out.check();
}

}  // namespace

TEST_CASE("rows are filled from rows, pairs of rows, gathered rows and tables of every type") {
  const Choice<6> sizes{kSources, std::size(kWeightTypes), std::size(kColumns), std::size(kRows), 2, std::size(kWaves)};
  const auto case_of = [](const Choice<6>& at) {
    return FillCase{Source(at[0]), kWeightTypes[at[1]], kColumns[at[2]], kRows[at[3]], at[4] + 1, kWaves[at[5]]};
  };
  std::vector<FillCase> cases;
  for (const auto& choice : cases_of(sizes, [&](const Choice<6>& at) {
         const auto c = case_of(at);
         return c.source == kEmbedded ? has_rows_of(c.type, c.columns) : at[1] == 0;
       }))
    cases.push_back(case_of(choice));
  check_cases(cases, text_of, check_fill);
}

TEST_CASE("RMS norm of whole rows and of heads") {
  for (const int wave : kWaves)
    for (const auto& [columns, dim, rows] :
         {std::tuple{96, 96, kRows[0]}, {160, 32, kRows[1]}, {7, 7, kRows[2]}, {64, 32, kRows[3]}}) {
      constexpr float kEpsilon = 1e-5F;
      const int stride = columns + 5, out_stride = columns + 1;
      codegen::KernelText text{.header = "kernels/gpu/rows.h", .kernel = "RmsNorm", .defaults = {}, .before = {}};
      text.threads = 2 * wave;
      text.blocks = rows.total * (columns / dim);
      text.config.number("kColumns", columns)
          .number("kDim", dim)
          .number("kRowFloats", stride)
          .number("kOutFloats", out_stride)
          .number("kWaves", 2)
          .number("kTokensTotal", rows.total)
          .number("kCount", 0)
          .real("kEpsilon", kEpsilon);
      const auto x = random_floats(static_cast<std::size_t>(rows.total) * stride), weight = random_floats(dim);
      const Buffer<float> x_buffer{std::span<const float>(x)}, weight_buffer{std::span<const float>(weight)};
      const Buffer<int> counts = Buffer<int>::of({rows.real, -1, -1, -1});
      Buffer<float> out(static_cast<std::size_t>(rows.total) * out_stride);
      run_text({wave, text}, KernelArgs({x_buffer.data(), weight_buffer.data(), counts.data(), out.data()}), out);
      for (int i = 0; i < rows.made() * columns; ++i) {
        const int t = i / columns, n = i % columns, first = n / dim * dim;
        double squares = 0;
        for (int j = first; j < first + dim; ++j) squares += std::pow(x[t * stride + j], 2);
        const double expected = x[t * stride + n] / std::sqrt(squares / dim + kEpsilon) * weight[n % dim];
        REQUIRE(out[t * out_stride + n] == Approx(expected).epsilon(1e-5));
      }
      // The gap between two rows.
      for (int t = 0; t < rows.total; ++t) REQUIRE(std::isnan(out[t * out_stride + columns]));
      if (rows.made() < rows.total) REQUIRE(std::isnan(out[rows.made() * out_stride]));
    }
}

TEST_CASE("layer norm of rows and of parts of rows with a large mean, with one gain for all parts or one for each") {
  for (const int wave : kWaves)
    for (const auto& [columns, dim, rows] : {std::tuple{160, 160, kRows[0]}, {96, 32, kRows[1]}, {7, 7, kRows[2]}})
      for (const bool shared : {true, false}) {
        CAPTURE(wave, columns, dim, shared);
        constexpr float kEpsilon = 1e-5F;
        const bool biased = shared;  // with bias only when the gain is shared, which covers both in two combinations
        codegen::KernelText text{.header = "kernels/gpu/rows.h", .kernel = "LayerNorm", .defaults = {}, .before = {}};
        text.threads = 2 * wave;
        text.blocks = rows.total * (columns / dim);
        text.config.number("kColumns", columns)
            .number("kDim", dim)
            .number("kRowFloats", columns)
            .number("kOutFloats", columns)
            .number("kWaves", 2)
            .number("kTokensTotal", rows.total)
            .number("kCount", 0)
            .real("kEpsilon", kEpsilon)
            .flag("kShared", shared)
            .flag("kBiased", biased);
        auto x = random_floats(static_cast<std::size_t>(rows.total) * columns);
        for (auto& value : x) value += 50;
        const auto weight = random_floats(shared ? dim : columns), bias = random_floats(shared ? dim : columns);
        const Buffer<float> x_buffer{std::span<const float>(x)}, weight_buffer{std::span<const float>(weight)},
            bias_buffer{std::span<const float>(bias)};
        const Buffer<int> counts = Buffer<int>::of({rows.real, -1, -1, -1});
        Buffer<float> out(static_cast<std::size_t>(rows.total) * columns);
        run_text({wave, text},
                 KernelArgs({x_buffer.data(), weight_buffer.data(), bias_buffer.data(), counts.data(), out.data()}),
                 out);
        for (int i = 0; i < rows.made() * columns; ++i) {
          const int n = i % columns, first = i / dim * dim, at = shared ? n % dim : n;
          double mean = 0, variance = 0;
          for (int j = first; j < first + dim; ++j) mean += static_cast<double>(x[j]) / dim;
          for (int j = first; j < first + dim; ++j) variance += std::pow(x[j] - mean, 2) / dim;
          const double expected = (x[i] - mean) / std::sqrt(variance + kEpsilon) * weight[at] + (biased ? bias[at] : 0);
          REQUIRE(out[i] == Approx(expected).margin(1e-3));
        }
      }
}

TEST_CASE("interleaved columns are separated") {
  for (const int wave : kWaves)
    for (const Rows& rows : kRows) {
      constexpr int kUnit = 16, kParts = 2, kPartColumns = 48, kStride = 100, kPartStride = 50;
      codegen::KernelText text{
          .header = "kernels/gpu/rows.h", .kernel = "SplitInterleaved", .defaults = {}, .before = {}};
      text.has_lds = false;
      text.threads = 64;
      text.blocks = rows.total;
      text.config.number("kUnit", kUnit)
          .number("kPartsCount", kParts)
          .number("kColumns", kParts * kPartColumns)
          .number("kRowFloats", kStride)
          .number("kPartFloats", kPartStride)
          .number("kThreads", 64)
          .number("kTokensTotal", rows.total)
          .number("kCount", 0);
      const auto x = random_floats(static_cast<std::size_t>(rows.total) * kStride);
      const Buffer<float> x_buffer{std::span<const float>(x)};
      const Buffer<int> counts = Buffer<int>::of({rows.real, -1, -1, -1});
      Buffer<float> even(static_cast<std::size_t>(rows.total) * kPartStride), odd(even.size());
      run_text({wave, text}, KernelArgs({x_buffer.data(), counts.data(), even.data(), odd.data()}), even);
      for (int i = 0; i < rows.made() * kPartColumns; ++i) {
        const int t = i / kPartColumns, n = i % kPartColumns;
        const int from = t * kStride + n / kUnit * (kParts * kUnit) + n % kUnit;
        REQUIRE(even[t * kPartStride + n] == x[from]);
        REQUIRE(odd[t * kPartStride + n] == x[from + kUnit]);
      }
      if (rows.made() < rows.total) REQUIRE(std::isnan(odd[rows.made() * kPartStride]));
      odd.check();
    }
}

TEST_CASE("the RoPE table holds cos and sin of position times frequency, to f32 precision") {
  const bool has_factors = GENERATE(false, true);
  const auto [length, offset] = GENERATE(std::pair{0, 0}, std::pair{1000, 0}, std::pair{8739, 1});
  for (const int wave : kWaves)
    for (const Rows& rows : kRows) {
      constexpr float kTemperature = 0.25F;
      constexpr int kAngles = 40;
      constexpr float kMagnitude = 1.25F;
      codegen::KernelText text{.header = "kernels/gpu/rows.h", .kernel = "RopeTable", .defaults = {}, .before = {}};
      text.has_lds = false;
      text.threads = 64;
      text.blocks = rows.total;
      text.config.number("kAngles", kAngles)
          .number("kThreads", 64)
          .number("kTokensTotal", rows.total)
          .flag("kFactors", has_factors)
          .real("kMagnitude", kMagnitude)
          .real("kTemperature", kTemperature)
          .number("kTemperatureLength", length)
          .number("kTemperatureOffset", offset);
      Buffer<int> positions(rows.total);
      // Padding rows after them keep -1.
      for (int t = 0; t < rows.real; ++t) positions[t] = t < 2 ? t : 131071 * (t - 1) / 15;
      Buffer<float> frequencies(kAngles), table(static_cast<std::size_t>(rows.total) * kAngles * 2);
      Buffer<float> factors(kAngles);
      for (int i = 0; i < kAngles; ++i) {
        frequencies[i] = static_cast<float>(std::pow(5e5, -i / double{kAngles}));
        factors[i] = 1.0F + 0.37F * static_cast<float>(i % 7);
      }
      const Buffer<int> counts = Buffer<int>::of({rows.real, -1, -1, -1});
      run_text({wave, text},
               KernelArgs({positions.data(), frequencies.data(), factors.data(), counts.data(), table.data()}), table);
      for (int i = 0; i < rows.made() * kAngles; ++i) {
        const float frequency = frequencies[i % kAngles] / (has_factors ? factors[i % kAngles] : 1.0F);
        const int position = std::max(positions[i / kAngles], 0);
        const double angle = static_cast<double>(position) * frequency;
        const double lengths = length == 0 ? 0 : (position + offset) / length;
        const double magnitude = kMagnitude * (1 + kTemperature * std::log(1 + lengths));
        const double bound = length == 0 ? 1.5e-7 : 6e-7;  // the length factor is rounded too
        REQUIRE(std::fabs(table[2 * i] - magnitude * std::cos(angle)) <= bound);
        REQUIRE(std::fabs(table[2 * i + 1] - magnitude * std::sin(angle)) <= bound);
      }
      if (rows.made() < rows.total) REQUIRE(std::isnan(table[rows.made() * kAngles * 2]));
    }
}
