#include "codegen/gpu/card_rates.h"

#include "codegen/gpu/source/kernel_text.h"
#include "kernels/gpu/card_rates_io.h"

namespace forge::codegen {
namespace {

using namespace gpu::card_rates;

RateKernel rate_kernel(const GpuTarget& target, const char* stem, const char* kernel, int threads) {
  KernelText text{.header = "kernels/gpu/card_rates.h", .kernel = kernel, .defaults = {}, .before = {}};
  text.has_lds = text.has_blocks = false;
  text.threads = threads;
  return {.source = kernel_source(target, stem, text), .threads = static_cast<std::uint32_t>(threads)};
}

}  // namespace

RateKernel read_rate_kernel(const GpuTarget& target) {
  return rate_kernel(target, "read_rate", "ReadRateKernel", kReadThreads);
}

RateKernel matrix_rate_kernel(const GpuTarget& target) {
  return rate_kernel(target, "matrix_rate", "MatrixRateKernel", kMatrixWaves * target.wave);
}

int matrix_rate_columns(const GpuTarget& target) {
  return target.matrix == MatrixKind::kMma ? 8 : 16;
}

double matrix_rate_flops(const GpuTarget& target, std::int64_t rounds) {
  constexpr double kFlopsPerColumn = 2.0 * kMatrixRows * kMatrixDepth * kMatrixTiles * kMatrixUnrolled;
  return static_cast<double>(rounds) * kFlopsPerColumn * matrix_rate_columns(target);
}

std::vector<float> matrix_rate_sums(const GpuTarget& target, std::int64_t wave, std::int64_t rounds) {
  const int tile = static_cast<int>(wave % kMatrixTiles);
  std::vector<float> sums;
  for (int row = 0; row < kMatrixRows; ++row)
    for (int column = 0; column < matrix_rate_columns(target); ++column) {
      std::int64_t sum = 0;
      for (int k = 0; k < kMatrixDepth; ++k)
        sum += element(tile / kMatrixB, row, k) * element(kMatrixA + tile % kMatrixB, column, k);
      sums.push_back(static_cast<float>(sum * rounds * kMatrixUnrolled));
    }
  return sums;
}

}  // namespace forge::codegen
