// RMSNorms that blocks compute themselves: of the columns of a block of FillRows (heads, rows), one or several after
// each other, and of the rows of a matmul for few tokens, whose last block normalises them in the same launch. With
// experts it first sums the rows of a token's experts.

#include <cmath>

#include "tests/gpu_host/kernel_bench.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

constexpr float kEpsilon = 1e-3F;

/// An epilogue of rows of `columns` columns: residual + x / rms * weight over runs of `dim` columns, and its squares.
/// staged: x is the same of the source's rows, without the squares.
std::string norm_text(const std::string& name, int columns, int dim, bool staged = false) {
  const auto cols = std::to_string(columns), parts = std::to_string((columns + 15) / 16), run = std::to_string(dim);
  return "struct " + name + R"( {
  struct Args {
    const float* weight;
    const float* residual;
    float* out;
    float* squares;
  };
  static constexpr int kIn = 16, kOperands = 2, kParts = 0, kOwnNorm = )" +
         run + ";\n" +
         (staged ? R"(  static constexpr bool kStaged = true;
  static constexpr int kNorms = 2;
  template <int I>
  FORGE_DEVICE static float before(const Args& a, int t, int c, float v, float factor) {
    if constexpr (I == 0) return v;
    return v * factor * gpu::load(a.weight + c % )" +
                       run + ") + gpu::load(a.residual + t * " + cols + R"( + c);
  }
)"
                 : "") +
         R"(  FORGE_DEVICE static float inv_rms(float sum) { return 1.0f / sqrt_of(sum / )" + run + ".0f + " +
         codegen::float_literal(kEpsilon) + R"(); }
  FORGE_DEVICE static void load(const Args& a, int t, int n, int, float (&o)[2]) {
    o[0] = gpu::load(a.weight + n % )" +
         run + R"();
    o[1] = gpu::load(a.residual + t * )" +
         cols + R"( + n);
  }
  template <class In>
  FORGE_DEVICE static void run(const Args& a, int t, int n, int, bool real, float factor, const float (&o)[2], In&& in) {
    const float v = in(n) * factor * o[0] + o[1];
    store(a.out + t * )" +
         cols + R"( + n, v, real);
    store_squares(a.squares + t * )" +
         parts + R"( + n / 16, v, real);
  }
};
)";
}

/// What the kernels of a test read and write besides their rows.
struct Rest {
  int columns, dim, total;
  std::vector<float> weights, residuals;
  Buffer<float> weight, residual, out, squares;
  Rest(int cols, int run, int rows)
      : columns(cols),
        dim(run),
        total(rows),
        weights(random_floats(static_cast<std::size_t>(run))),
        residuals(random_floats(static_cast<std::size_t>(rows) * cols)),
        weight(std::span<const float>(weights)),
        residual(std::span<const float>(residuals)),
        out(static_cast<std::size_t>(rows) * cols),
        squares(static_cast<std::size_t>(rows) * ((cols + 15) / 16)) {}

  /// residual + x / rms * weight.
  [[nodiscard]] std::vector<double> normed(const std::vector<double>& x) const {
    std::vector<double> results;
    for (std::size_t at = 0; at < x.size(); ++at) {
      const std::size_t width = static_cast<std::size_t>(dim), first = at / width * width;
      double sum = 0;
      for (std::size_t j = first; j < first + width; ++j) sum += x[j] * x[j];
      results.push_back(x[at] / std::sqrt(sum / dim + kEpsilon) * weights[at % width] + residuals[at]);
    }
    return results;
  }

  /// Compares with the rows `x` [rows][columns] after a norm.
  void check(const std::vector<double>& x, int rows) const {
    const auto wanted = normed(x);
    for (int t = 0; t < rows; ++t)
      for (int n = 0; n < columns; ++n) {
        double squared = 0;
        INFO("row " << t << ", column " << n);
        REQUIRE(out[t * columns + n] == Approx(wanted[static_cast<std::size_t>(t * columns + n)]).margin(1e-5));
        for (int j = n / 16 * 16; j < std::min(columns, n / 16 * 16 + 16); ++j)
          squared += std::pow(out[t * columns + j], 2);
        REQUIRE(squares[t * ((columns + 15) / 16) + n / 16] == Approx(squared).epsilon(1e-5));
      }
    for (const auto* buffer : {&weight, &residual, &out, &squares}) buffer->check();
  }
};

struct NormCase {
  DType type;
  int n, k, tokens, total, waves, wave;                                  ///< tokens of a tile, rows in memory
  int slots = 0;                                                         ///< experts of a token, 0: none
  bool norm = true;                                                      ///< false: the sum of experts alone
  int unit = 16;                                                         ///< columns that the sum takes together
  [[nodiscard]] int rows() const { return total * std::max(slots, 1); }  ///< of the matmul
};
constexpr int kExperts = 3;

/// residual + x.
std::string sum_text(int columns) {
  const auto cols = std::to_string(columns);
  return R"(struct Tail {
  struct Args {
    const float* weight;
    const float* residual;
    float* out;
    float* squares;
  };
  static constexpr int kIn = 16, kOperands = 0, kParts = 0;
  template <class In>
  FORGE_DEVICE static void run(const Args& a, int t, int n, int, bool real, float, const float (&)[1], In&& in) {
    store(a.out + t * )" +
         cols + " + n, in(n) + gpu::load(a.residual + t * " + cols + R"( + n), real);
  }
};
)";
}

WaveText text_of(const NormCase& c) {
  const auto cols = std::to_string(c.n);
  codegen::KernelText text{.header = "kernels/gpu/matmul_norm.h",
                           .kernel = "MatmulNorm",
                           .defaults = "MatmulDefaults",
                           .before = R"(struct Epilogue {
  struct Args {
    float* rows;
  };
  static constexpr int kIn = 16, kOperands = 0, kParts = 0;
  template <class In>
  FORGE_DEVICE static void run(const Args& a, int t, int n, int, bool real, float, const float (&)[1], In&& in) {
    store(a.rows + t * )" + cols + R"( + n, in(n), real);
  }
};
)" + (c.norm ? norm_text("Tail", c.n, c.n) : sum_text(c.n))};
  text.config.use("Weight", weight_text(c.type, c.slots > 0 ? std::int64_t{kExperts} * c.n : c.n, c.k))
      .use("Epilogue", "gpu::Epilogue")
      .use("Tail", "gpu::Tail")
      .use("TailSource",
           c.slots > 0 ? "FreshSlots<" + std::to_string(c.slots) + ", " + cols + ", " + std::to_string(c.slots) + ">"
                       : "FreshRows<" + cols + ">")
      .number("kTailUnit", c.unit)
      .number("kTokens", c.tokens)
      .number("kTokensTotal", c.rows())
      .number("kWaves", c.waves)
      .number("kLanesPerRow", 8)
      .number("kRowsPerTeam", 4);
  if (c.slots > 0) text.config.number("kSlots", c.slots).number("kColumns", c.n);
  const int block_rows = c.waves * (c.wave / 8) * 4;
  text.blocks = (c.n + block_rows - 1) / block_rows * (c.rows() / c.tokens);
  text.threads = c.waves * c.wave;
  return {c.wave, std::move(text)};
}

void check_norm(const NormCase& c, const Kernel& kernel) {
  INFO(c.n << "x" << c.k << ", tiles of " << c.tokens << " of " << c.total << " tokens, waves " << c.waves << ", wave "
           << c.wave << ", experts " << c.slots << ", norm " << c.norm);
  const std::size_t width = static_cast<std::size_t>(c.n), depth = static_cast<std::size_t>(c.k);
  const PlanesWeight weight(c.type, width * (c.slots > 0 ? kExperts : 1), depth);
  const auto x = random_floats(static_cast<std::size_t>(c.rows()) * depth);
  const Buffer<float> x_buffer{std::span<const float>(x)};
  Rest rest(c.n, c.n, c.total);
  Buffer<float> scratch(static_cast<std::size_t>(c.rows()) * width);
  Buffer<std::uint32_t> counters(static_cast<std::size_t>(c.total) * ((width + 15) / 16));
  counters.fill(0);
  const Buffer<int> counts = Buffer<int>::of({c.total, -1, -1, -1});
  const auto shares = random_floats(static_cast<std::size_t>(c.rows()));
  const Buffer<float> share{std::span<const float>(shares)};
  std::vector<std::int32_t> chosen;
  for (int slot = 0; slot < c.rows(); ++slot) chosen.push_back((slot * 2 + 1) % kExperts);
  const Buffer<std::int32_t> experts{std::span<const std::int32_t>(chosen)};
  const KernelArgs plain({weight.planes.data(), x_buffer.data(), counts.data(), scratch.data(), scratch.data(),
                          counts.data(), rest.weight.data(), rest.residual.data(), rest.out.data(), rest.squares.data(),
                          counters.data()});
  const KernelArgs of_experts({weight.planes.data(), x_buffer.data(), counts.data(), experts.data(), scratch.data(),
                               scratch.data(), share.data(), counts.data(), rest.weight.data(), rest.residual.data(),
                               rest.out.data(), rest.squares.data(), counters.data()});
  run_in_all_orders(
      kernel, c.slots > 0 ? of_experts : plain,
      [&] {
        scratch.fill(NAN);
        rest.out.fill(NAN);
      },
      [&] { return bytes_of(rest.out); });
  auto sums = multiply(weight.values, x, depth).sums;
  if (c.slots > 0) {
    std::vector<double> summed(static_cast<std::size_t>(c.total) * width);
    for (std::size_t slot = 0; slot < chosen.size(); ++slot)
      for (std::size_t n = 0; n < width; ++n)
        summed[slot / static_cast<std::size_t>(c.slots) * width + n] +=
            shares[slot] * sums[(slot * kExperts + static_cast<std::size_t>(chosen[slot])) * width + n];
    sums = std::move(summed);
  }
  if (c.norm)
    rest.check(sums, c.total);
  else
    for (std::size_t at = 0; at < sums.size(); ++at)
      REQUIRE(rest.out[at] == Approx(sums[at] + rest.residuals[at]).margin(1e-5));
  for (std::size_t i = 0; i < counters.size(); ++i) REQUIRE(counters[i] == 0);
  scratch.check();
  counters.check();
}

}  // namespace

TEST_CASE("the last block of a matmul normalises its rows") {
  std::vector<NormCase> cases;
  for (const int wave : kWaves)
    for (const auto& [n, k, tokens, total, waves] :
         {std::tuple{96, 64, 1, 1, 2}, {272, 32, 1, 1, 1}, {512, 96, 2, 2, 4}, {96, 64, 2, 4, 2}, {1040, 32, 4, 4, 8}})
      cases.push_back({DType::kF16, n, k, tokens, total, waves, wave});
  check_cases(cases, text_of, check_norm);
}

TEST_CASE("the last block of a token's experts sums their rows") {
  std::vector<NormCase> cases;
  for (const int wave : kWaves)
    for (const auto& [n, total, slots, norm, unit] : {std::tuple{96, 1, 4, true, 16},
                                                      {272, 3, 2, true, 16},
                                                      {560, 2, 3, false, 16},
                                                      {560, 2, 3, false, 128},
                                                      {32, 4, 1, false, 16},
                                                      {96, 1, 2, false, 256}})
      cases.push_back({DType::kF16, n, 64, 1, total, 2, wave, slots, norm, unit});
  check_cases(cases, text_of, check_norm);
}

TEST_CASE("waves of a block sum the products of a token's experts, each times its share") {
  struct SumCase {
    int n, k, total, slots, team_waves, lanes, rows, wave;
    bool shared;  ///< the slots of a token share a row of x
  };
  std::vector<SumCase> cases;
  for (const int wave : kWaves)
    for (const auto& [n, k, total, slots, team_waves, lanes, rows, shared] : {std::tuple{96, 64, 1, 4, 1, 8, 4, false},
                                                                              {272, 96, 3, 2, 2, 16, 4, false},
                                                                              {48, 64, 2, 8, 1, 8, 4, true},
                                                                              {560, 256, 1, 3, 1, 32, 16, false}})
      cases.push_back({n, k, total, slots, team_waves, lanes, rows, wave, shared});
  const auto text_of_sum = [](const SumCase& c) {
    auto epilogue = sum_text(c.n);
    epilogue.replace(epilogue.find("Tail"), 4, "Epilogue");
    codegen::KernelText text{.header = "kernels/gpu/matmul_rows.h",
                             .kernel = "MatmulRows",
                             .defaults = "MatmulDefaults",
                             .before = std::move(epilogue)};
    text.config.use("Weight", weight_text(DType::kF16, std::int64_t{kExperts} * c.n, c.k))
        .use("Epilogue", "gpu::Epilogue")
        .number("kTokensTotal", c.total)
        .number("kWaves", c.slots * c.team_waves)
        .number("kLanesPerRow", c.lanes)
        .number("kRowsPerTeam", c.rows)
        .number("kSlots", c.slots)
        .number("kColumns", c.n)
        .flag("kSharedX", c.shared)
        .flag("kSummed", true)
        .number("kShareFloats", c.slots + 1);
    const int block_rows = c.team_waves * (c.wave / c.lanes) * c.rows;
    text.blocks = (c.n + block_rows - 1) / block_rows * c.total;
    text.threads = c.slots * c.team_waves * c.wave;
    return WaveText{c.wave, std::move(text)};
  };
  check_cases(cases, text_of_sum, [](const SumCase& c, const Kernel& kernel) {
    INFO(c.n << "x" << c.k << ", " << c.total << " tokens of " << c.slots << " experts, wave " << c.wave);
    const std::size_t width = static_cast<std::size_t>(c.n), depth = static_cast<std::size_t>(c.k),
                      slots = static_cast<std::size_t>(c.slots), total = static_cast<std::size_t>(c.total);
    const PlanesWeight weight(DType::kF16, width * kExperts, depth);
    const auto x = random_floats(total * (c.shared ? 1 : slots) * depth);
    const Buffer<float> x_buffer{std::span<const float>(x)};
    const auto shares = random_floats(total * (slots + 1));
    const Buffer<float> share{std::span<const float>(shares)};
    std::vector<std::int32_t> chosen;
    for (std::size_t slot = 0; slot < total * slots; ++slot)
      chosen.push_back(static_cast<std::int32_t>(slot * 2 + 1) % kExperts);
    const Buffer<std::int32_t> experts{std::span<const std::int32_t>(chosen)};
    const Buffer<int> counts = Buffer<int>::of({c.total, -1, -1, -1});
    Rest rest(c.n, c.n, c.total);
    const KernelArgs args({weight.planes.data(), x_buffer.data(), counts.data(), experts.data(), share.data(),
                           rest.weight.data(), rest.residual.data(), rest.out.data(), rest.squares.data()});
    run_in_all_orders(kernel, args, [&] { rest.out.fill(NAN); }, [&] { return bytes_of(rest.out); });
    const auto products = multiply(weight.values, x, depth).sums;  // [rows of x][kExperts * n]
    for (std::size_t t = 0; t < total; ++t)
      for (std::size_t n = 0; n < width; ++n) {
        double sum = rest.residuals[t * width + n];
        for (std::size_t s = 0; s < slots; ++s) {
          const std::size_t row = c.shared ? t : t * slots + s,
                            expert = static_cast<std::size_t>(chosen[t * slots + s]);
          sum += shares[t * (slots + 1) + s] * products[(row * kExperts + expert) * width + n];
        }
        INFO("token " << t << ", column " << n);
        REQUIRE(rest.out[static_cast<int>(t * width + n)] == Approx(sum).margin(1e-5));
      }
    rest.out.check();
  });
}

TEST_CASE("a block of rows normalises its own columns") {
  for (const int wave : kWaves)
    for (const auto& [columns, dim, waves, staged] : {std::tuple{96, 96, 1, false},
                                                      {160, 32, 2, false},
                                                      {1024, 512, 4, true},
                                                      {2064, 2064, 8, false},
                                                      {2064, 2064, 8, true},
                                                      {64, 16, 1, true}}) {
      constexpr int kTotal = 7, kReal = 5;
      codegen::KernelText text{.header = "kernels/gpu/rows.h",
                               .kernel = "FillRows",
                               .defaults = {},
                               .before = norm_text("Epilogue", columns, dim, staged)};
      text.config.use("Source", "LoadedRows<" + std::to_string(columns + 3) + ">")
          .use("Epilogue", "gpu::Epilogue")
          .number("kColumns", columns)
          .number("kBlockRows", dim)
          .number("kWaves", waves)
          .number("kTokensTotal", kTotal)
          .number("kCount", 0);
      text.blocks = kTotal * (columns / dim);
      text.threads = waves * wave;
      CAPTURE(wave, columns, dim, waves, staged);
      const auto x = random_floats(static_cast<std::size_t>(kTotal) * (columns + 3));
      const Buffer<float> x_buffer{std::span<const float>(x)};
      const Buffer<int> counts = Buffer<int>::of({kReal, -1, -1, -1});
      Rest rest(columns, dim, kTotal);
      const KernelArgs args({x_buffer.data(), counts.data(), rest.weight.data(), rest.residual.data(), rest.out.data(),
                             rest.squares.data()});
      run_in_all_orders(
          build_kernels({{wave, text}})[0], args, [&] { rest.out.fill(NAN); }, [&] { return bytes_of(rest.out); });
      std::vector<double> rows;
      for (int t = 0; t < kTotal; ++t)
        for (int n = 0; n < columns; ++n) rows.push_back(x[static_cast<std::size_t>(t) * (columns + 3) + n]);
      rest.check(staged ? rest.normed(rows) : rows, kTotal);
    }
}

// Heads that are normalised and, as the last columns, numbers that are not: gates of attention, one a head.
TEST_CASE("columns after a norm's runs may be fewer than a run") {
  constexpr int kDim = 32, kNormed = 64, kCols = 68, kRows = 3;
  for (const int wave : kWaves) {
    codegen::KernelText text{.header = "kernels/gpu/rows.h", .kernel = "FillRows", .defaults = {}, .before = R"(
struct Epilogue {
  struct Args {
    float* out;
  };
  static constexpr int kIn = 16, kOperands = 0, kParts = 0, kOwnNorm = 32;
  FORGE_DEVICE static float inv_rms(float sum) { return 1.0f / sqrt_of(sum / 32.0f); }
  template <class In>
  FORGE_DEVICE static void run(const Args& a, int t, int n, int, bool real, float factor, const float (&)[1], In&& in) {
    store(a.out + t * 68 + n, n < 64 ? in(n) * factor : in(n), real);
  }
};
)"};
    text.config.use("Source", "LoadedRows<68>")
        .use("Epilogue", "gpu::Epilogue")
        .number("kColumns", kCols)
        .number("kBlockRows", kDim)
        .number("kWaves", 1)
        .number("kTokensTotal", kRows)
        .number("kCount", 0);
    text.blocks = kRows * 3;
    text.threads = wave;
    CAPTURE(wave);
    const auto x = random_floats(static_cast<std::size_t>(kRows) * kCols);
    const Buffer<float> x_buffer{std::span<const float>(x)};
    const Buffer<int> counts = Buffer<int>::of({kRows, -1, -1, -1});
    Buffer<float> out(static_cast<std::size_t>(kRows) * kCols);
    const KernelArgs args({x_buffer.data(), counts.data(), out.data()});
    run_in_all_orders(build_kernels({{wave, text}})[0], args, [&] { out.fill(NAN); }, [&] { return bytes_of(out); });
    for (int t = 0; t < kRows; ++t)
      for (int n = 0; n < kCols; ++n) {
        double sum = 0;
        for (int j = n / kDim * kDim; j < n / kDim * kDim + kDim && n < kNormed; ++j)
          sum += std::pow(x[static_cast<std::size_t>(t * kCols + j)], 2);
        const double value = x[static_cast<std::size_t>(t * kCols + n)];
        INFO("row " << t << ", column " << n);
        REQUIRE(out[t * kCols + n] == Approx(n < kNormed ? value / std::sqrt(sum / kDim) : value).epsilon(1e-5));
      }
    out.check();
  }
}
