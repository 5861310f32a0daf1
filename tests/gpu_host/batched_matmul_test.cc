// Batched matmuls: each head's columns are products with the head's own row of x. Compared with f64, for heads of few
// and of many columns, quantised and float weights, GEMV and matrix instructions.

#include <cmath>
#include <cstring>
#include <tuple>

#include "tests/gpu_host/matmul_case.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

struct BatchedCase {
  DType type;
  int heads, columns, tokens;
  bool tiles;
  int wave;
  int terms = 1;        ///< of rows of x
  bool strips = false;  ///< MatmulStrips, for fewer tokens than a block has
  [[nodiscard]] int n() const { return heads * columns; }
  [[nodiscard]] MatmulProblem problem() const { return {type, n(), kDepth, tokens, tokens, MatmulKind::kStore}; }
  static constexpr int kDepth = 128;
};

WaveText text_of(const BatchedCase& c) {
  codegen::KernelText text{.header = c.strips  ? "kernels/gpu/matmul_strips.h"
                                     : c.tiles ? "kernels/gpu/matmul_tiles.h"
                                               : "kernels/gpu/matmul_rows.h",
                           .kernel = c.strips  ? "MatmulStrips"
                                     : c.tiles ? "MatmulTiles"
                                               : "MatmulRows",
                           .defaults = c.strips  ? "StripsDefaults"
                                       : c.tiles ? "TilesDefaults"
                                                 : "MatmulDefaults",
                           .before = epilogue_of(c.problem())};
  text.config.use("Weight", weight_text(c.type, c.n(), BatchedCase::kDepth))
      .use("Epilogue", "gpu::Epilogue")
      .number("kTokensTotal", c.tokens)
      .number("kHeads", c.heads)
      .number("kHeadColumns", c.columns);
  int rows = 32, tile = 16;  // of a block
  if (!c.tiles) text.config.number("kXTerms", c.terms);
  if (c.tiles) {
    const std::string numbers = c.terms == 2 ? "F16" : "Bf16";
    text.config.use("Tile", c.wave == 64 ? "Mfma" + numbers + "Tile" : "Wmma" + numbers + "Gfx11Tile")
        .number("kWavesDown", 2)
        .number("kWavesAcross", 1)
        .number("kSlabs", c.strips ? 4 : 1);
    text.threads = 2 * c.wave;
  } else {
    rows = 16;
    tile = std::min(c.tokens, 4);
    text.config.number("kTokens", tile).number("kLanesPerRow", 16).number("kWaves", 256 / c.wave);
    text.threads = 256;
  }
  text.blocks = (c.n() + rows - 1) / rows * ((c.tokens + tile - 1) / tile);
  return {c.wave, std::move(text)};
}

void check(const BatchedCase& c, const Kernel& kernel) {
  INFO(dtype_name(c.type) << ", " << c.heads << " heads of " << c.columns << " columns, " << c.tokens
                          << " tokens, tiles " << c.tiles << ", wave " << c.wave);
  constexpr int kDepth = BatchedCase::kDepth;
  PlanesWeight weight(c.type, c.n(), kDepth);
  auto x = random_floats(static_cast<std::size_t>(c.tokens) * c.heads * kDepth);
  // Tiles take x in their own numbers.
  const auto numbers = c.terms == 2 ? DType::kF16A : DType::kBF16;
  const std::size_t own = is_float(c.type) ? 4 * kDepth : c.terms * q8_row_bytes(kDepth);
  Buffer<std::byte> rows(c.tokens * c.heads * (c.tiles ? 2 * kDepth : own));
  if (c.tiles) {
    std::memcpy(rows.data(), numbers_of(numbers, x).data(), x.size() * 2);
    round_to(numbers, x);
    round_as_tiles(c.terms == 2 ? DType::kF16 : DType::kBF16, c.type, weight);
  } else if (is_float(c.type)) {
    std::memcpy(rows.data(), x.data(), x.size() * sizeof(float));
  } else {
    const auto quantised = quantise_rows(x, kDepth, c.terms);
    std::memcpy(rows.data(), quantised.data(), quantised.size());
    x = values_of_rows(rows.data(), static_cast<std::size_t>(c.tokens) * c.heads, kDepth, c.terms);
  }
  const Buffer<int> counts = Buffer<int>::of({c.tokens, -1, -1, -1});
  Buffer<float> out(static_cast<std::size_t>(c.tokens) * c.n());
  const KernelArgs of_rows(
      {weight.planes.data(), rows.data(), counts.data(), out.data(), nullptr, nullptr, nullptr, nullptr});
  const KernelArgs of_tiles({weight.planes.data(), rows.data(), nullptr, nullptr, nullptr, counts.data(), out.data(),
                             nullptr, nullptr, nullptr, nullptr});
  const auto& args = c.tiles ? of_tiles : of_rows;
  run_in_all_orders(kernel, args, [&] { out.fill(NAN); }, [&] { return bytes_of(out); });
  for (int t = 0; t < c.tokens; ++t)
    for (int n = 0; n < c.n(); ++n) {
      double sum = 0, magnitude = 0;
      for (int k = 0; k < kDepth; ++k) {
        const double product = static_cast<double>(weight.values[static_cast<std::size_t>(n) * kDepth + k]) *
                               x[(static_cast<std::size_t>(t) * c.heads + n / c.columns) * kDepth + k];
        sum += product;
        magnitude += std::fabs(product);
      }
      INFO("token " << t << ", column " << n);
      REQUIRE(std::fabs(out[static_cast<std::size_t>(t) * c.n() + n] - sum) <= 4e-6 * magnitude + 1e-30);
    }
  for (const auto* buffer : {&rows, &weight.planes}) buffer->check();
  out.check();
}

}  // namespace

TEST_CASE("batched matmuls multiply each head's columns by its own row") {
  std::vector<BatchedCase> cases;
  for (const int wave : kWaves) {
    for (const auto& [type, heads, columns, tokens] :
         {std::tuple(DType::kF32, 5, 1, 1), std::tuple(DType::kF32, 3, 12, 4), std::tuple(DType::kQ4_0, 2, 48, 1),
          std::tuple(DType::kQ4_0, 3, 16, 8), std::tuple(DType::kF16, 2, 24, 4)})
      cases.push_back({type, heads, columns, tokens, false, wave});
    cases.push_back({DType::kQ4_0, 3, 64, 32, true, wave});
    cases.push_back({DType::kBF16, 3, 64, 8, true, wave, 1, true});
    cases.push_back({DType::kQ4_0, 3, 16, 8, false, wave, 2});
    cases.push_back({DType::kQ4_0, 3, 64, 32, true, wave, 2});
  }
  check_cases(cases, text_of, check);
}
