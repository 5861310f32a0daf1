// Matrix tiles by their lane tables: each table must give the product, whichever lanes hold what.

#include "kernels/quant/f16.h"
#include "tests/gpu_host/cases/case_args.h"
#include "tests/gpu_host/support.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

/// A kernel of tiles_case.cc whose tile is m x n x k.
void check_tile(const std::string& name, int wave, int m, int n, int k) {
  INFO(name << ", wave " << wave);
  const int depth = gpu::kTileSteps * k;
  const auto rounded = [](std::vector<float> values) {
    for (float& value : values) value = quant::f32_of_f16(quant::f16_of_f32(value));
    return values;
  };
  const auto a = rounded(random_floats(m * depth)), bt = rounded(random_floats(n * depth));
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
      REQUIRE(std::fabs(c[row * n + column] - sum) <= 1e-6 * magnitude);
    }
  c.check();
}

}  // namespace

TEST_CASE("matrix tiles of AMD and NVIDIA give the product") {
  check_tile("mfma", 64, 16, 16, 16);
  for (const char* name : {"wmma_gfx11", "wmma_gfx12"}) check_tile(name, 32, 16, 16, 16);
  check_tile("mma_sm80", 32, 16, 8, 16);
  for (const int wave : kWaves) check_tile("native", wave, 16, 16, 16);
}
