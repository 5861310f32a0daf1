// Matrix tiles: the lane table of each tile layout gives the product, however it distributes elements over lanes.

#include <bit>
#include <cmath>

#include "kernels/quant/f16.h"
#include "tests/gpu_host/cases/case_args.h"
#include "tests/gpu_host/support.h"

using namespace forge;
using namespace forge::gpu_host;
using Catch::Matchers::Contains;

namespace {

enum class Factor { kHalf, kInt8, kBf16 };

/// Random factors that the tile's type represents exactly.
std::vector<float> factors(std::size_t count, Factor kind) {
  auto values = random_floats(count);
  for (float& value : values)
    value = kind == Factor::kHalf   ? quant::f32_of_f16(quant::f16_of_f32(value))
            : kind == Factor::kBf16 ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffff0000U)
                                    : std::clamp(std::nearbyint(value * 50), -128.0F, 127.0F);
  return values;
}

/// Checks a kernel of tiles_case.cc whose tile is m x n x k. int8 products are exact.
void check_tile(const std::string& name, int wave, Factor kind, int m, int n, int k) {
  INFO(name << ", wave " << wave);
  const int depth = gpu::kTileSteps * k;
  const auto a = factors(m * depth, kind), bt = factors(n * depth, kind);
  const Buffer<float> a_buffer{std::span<const float>(a)}, bt_buffer{std::span<const float>(bt)};
  Buffer<float> c(m * n);
  const gpu::TileArgs args{a_buffer.data(), bt_buffer.data(), c.data()};
  run_kernel(module_of("tiles", wave).kernel(name), {.order = Order::kShuffled}, args);
  for (int row = 0; row < m; ++row)
    for (int column = 0; column < n; ++column) {
      double sum = 0, magnitude = 0;
      for (int i = 0; i < depth; ++i) {
        const double product = static_cast<double>(a[row * depth + i]) * bt[column * depth + i];
        sum += product;
        magnitude += std::fabs(product);
      }
      REQUIRE(std::fabs(c[row * n + column] - sum) <= (kind == Factor::kInt8 ? 0 : 1e-6 * magnitude));
    }
  c.check();
}

}  // namespace

TEST_CASE("matrix tiles of AMD and NVIDIA give the product") {
  check_tile("mfma", 64, Factor::kHalf, 16, 16, 16);
  check_tile("mfma_int8_gfx90a", 64, Factor::kInt8, 16, 16, 16);
  check_tile("mfma_int8_gfx942", 64, Factor::kInt8, 16, 16, 32);
  for (const char* name : {"wmma_gfx11", "wmma_gfx12"}) check_tile(name, 32, Factor::kHalf, 16, 16, 16);
  for (const char* name : {"wmma_int8_gfx11", "wmma_int8_gfx12"}) check_tile(name, 32, Factor::kInt8, 16, 16, 16);
  check_tile("mma", 32, Factor::kHalf, 16, 8, 16);
  check_tile("mma_int8", 32, Factor::kInt8, 16, 8, 32);
  check_tile("mfma_bf16", 64, Factor::kBf16, 16, 16, 16);
  for (const char* name : {"wmma_bf16_gfx11", "wmma_bf16_gfx12"}) check_tile(name, 32, Factor::kBf16, 16, 16, 16);
  check_tile("mma_bf16", 32, Factor::kBf16, 16, 8, 16);
  for (const int wave : kWaves) {
    check_tile("native_bf16", wave, Factor::kBf16, 16, 16, 16);
    check_tile("native", wave, Factor::kHalf, 16, 16, 16);
    check_tile("native_int8", wave, Factor::kInt8, 16, 16, 16);
  }
}

TEST_CASE("lanes that hold the same tile element must agree") {
  Buffer<float> c(32);
  const gpu::TileArgs args{nullptr, nullptr, c.data()};
  CHECK_THROWS_WITH(run_kernel(module_of("tiles", 32).kernel("halves_differ"), {}, args),
                    Contains("tiles_case.cc") && Contains("different values for the same element of a tile"));
}
