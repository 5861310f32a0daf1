// What is made of rows before a matmul by matrix instructions: the 16-bit numbers of tiles, from f32 and from quantised
// rows of one and two terms, and sums of squares from partial ones.

#include <cmath>
#include <cstring>

#include "tests/gpu_host/kernel_bench.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

struct RowsCase {
  DType weight;
  DType numbers;                        ///< of the tile: F16, F16A or BF16
  int k, terms, rows_of_token, stride;  ///< stride: floats from one row to the next; 0: rows follow each other
  int wave;
};
constexpr int kTotal = 32, kReal = 17;

WaveText text_of(const RowsCase& c) {
  codegen::KernelText text{
      .header = "kernels/gpu/tile_rows.h", .kernel = "TileRows", .defaults = "TileRowsDefaults", .before = {}};
  text.has_lds = false;
  text.config.use("Weight", weight_text(c.weight, 16, c.k))
      .use("Tile", c.numbers == DType::kBF16 ? "MmaBf16Tile" : "MmaF16Tile")
      .number("kTokensTotal", kTotal)
      .number("kXTerms", c.terms)
      .number("kRowsOfToken", c.rows_of_token);
  if (c.stride > 0) text.config.number("kXFloats", c.stride);
  text.threads = 256;
  text.blocks = (kTotal * c.rows_of_token * c.k / 16 + 255) / 256;
  return {c.wave, std::move(text)};
}

void check(const RowsCase& c, const Kernel& kernel) {
  INFO(dtype_name(c.weight) << " by " << dtype_name(c.numbers) << ", k " << c.k << ", terms " << c.terms << ", rows "
                            << c.rows_of_token << ", stride " << c.stride);
  const auto k = static_cast<std::size_t>(c.k), rows = static_cast<std::size_t>(kTotal * c.rows_of_token);
  auto x = random_floats(rows * k, 3);
  x[1] = 3e9F;  // beyond F16's range
  x[2] = -3e9F;
  const bool plain = is_float(c.weight);
  const auto stride = c.stride > 0 ? static_cast<std::size_t>(c.stride) : k;
  Buffer<std::byte> in(rows * (plain ? 4 * stride : static_cast<std::size_t>(c.terms) * q8_row_bytes(k)));
  if (plain) {
    for (std::size_t r = 0; r < rows; ++r) std::memcpy(in.data() + r * stride * 4, &x[r * k], k * 4);
  } else {
    const auto quantised = quantise_rows(x, k, c.terms);
    std::memcpy(in.data(), quantised.data(), quantised.size());
    x = values_of_rows(in.data(), rows, k, c.terms);
  }
  // Finite numbers are clamped to the range of F16.
  const float most = c.numbers == DType::kBF16 ? 3.4e38F : c.numbers == DType::kF16A ? 16 * 65504.0F : 65504.0F;
  for (float& value : x) value = std::clamp(value, -most, most);
  const Buffer<int> counts = Buffer<int>::of({kReal, -1, -1, -1});
  Buffer<std::uint16_t> out(rows * k);
  const KernelArgs args({in.data(), counts.data(), out.data()});
  run_in_all_orders(kernel, args, [&] { out.fill(0x1234); }, [&] { return bytes_of(out); });
  const auto expected = numbers_of(c.numbers, x);
  const std::size_t made = 32 * static_cast<std::size_t>(c.rows_of_token) * k;  // whole tiles of 16 tokens
  for (std::size_t i = 0; i < out.size(); ++i) {
    INFO("row " << i / k << ", column " << i % k << ", value " << x[i]);
    REQUIRE(out[i] == (i < made ? expected[i] : 0x1234));
  }
  for (const auto* buffer : {&in}) buffer->check();
  out.check();
}

}  // namespace

TEST_CASE("rows of activations become the numbers of matrix tiles") {
  std::vector<RowsCase> cases;
  for (const int wave : kWaves) {
    for (const int terms : {1, 2}) cases.push_back({DType::kQ8_0, DType::kF16A, 96, terms, 1, 0, wave});
    cases.push_back({DType::kQ4_K, DType::kBF16, 256, 1, 3, 0, wave});
    cases.push_back({DType::kF16, DType::kF16, 48, 1, 1, 0, wave});
    cases.push_back({DType::kBF16, DType::kBF16, 32, 1, 1, 40, wave});
  }
  check_cases(cases, text_of, check);
}

TEST_CASE("sums of squares of rows come from their partial sums, once for each real token") {
  struct Case {
    int parts, wave;
    bool in_place;
  };
  const auto text_of_sums = [](const Case& c) {
    codegen::KernelText text{.header = "kernels/gpu/tile_rows.h", .kernel = "SumSquares", .defaults = {}, .before = {}};
    text.has_lds = false;
    text.config.number("kParts", c.parts)
        .number("kTotalStride", c.in_place ? c.parts : 1)
        .number("kTokensTotal", kTotal)
        .number("kCount", 0);
    text.threads = 8 * c.wave;
    text.blocks = kTotal / 8;
    return WaveText{c.wave, std::move(text)};
  };
  std::vector<Case> cases;
  for (const int wave : kWaves)
    for (const int parts : {1, 36, 256})
      for (const bool in_place : {false, true}) cases.push_back({parts, wave, in_place});
  check_cases(cases, text_of_sums, [](const Case& c, const Kernel& kernel) {
    const auto parts = static_cast<std::size_t>(c.parts);
    std::vector<float> before(kTotal * parts);
    for (std::size_t i = 0; i < before.size(); ++i) before[i] = 0.5F + static_cast<float>(i % 7);
    Buffer<float> partial(before.size()), out(kTotal);
    const Buffer<int> counts = Buffer<int>::of({kReal - 1, -1, -1, -1});
    const KernelArgs args({partial.data(), counts.data(), c.in_place ? partial.data() : out.data()});
    run_in_all_orders(
        kernel, args,
        [&] {
          std::ranges::copy(before, partial.data());
          out.fill(-1);
        },
        [&] { return bytes_of(c.in_place ? partial : out); });
    for (std::size_t t = 0; t < kTotal; ++t) {
      double sum = 0;
      for (std::size_t i = 0; i < parts; ++i) sum += before[t * parts + i];
      const bool made = t < 16;
      REQUIRE(out[t] == (made && !c.in_place ? Approx(sum).epsilon(1e-6) : Approx(-1)));
      REQUIRE(partial[t * parts] == (made && c.in_place ? Approx(sum).epsilon(1e-6) : Approx(before[t * parts])));
      for (std::size_t i = 1; i < parts; ++i) REQUIRE(partial[t * parts + i] == before[t * parts + i]);
    }
    for (const auto* buffer : {&partial, &out}) buffer->check();
  });
}
