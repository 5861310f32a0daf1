// Matmuls of wide layers, cut up as lowering does it, stay in registers: what a unit of weights takes is counted.

#include <catch2/catch.hpp>

#include "codegen/gpu/compile_service.h"
#include "codegen/gpu/gpu_lowering.h"
#include "codegen/gpu/matmul_config.h"
#include "tests/support/temp_dir.h"

namespace forge::codegen::tests {
namespace {

constexpr const char* kStore = R"(struct Epilogue {
  struct Args {
    float* out;
  };
  static constexpr int kIn = 16, kOperands = 0, kParts = 0;
  template <class In>
  FORGE_DEVICE static void run(const Args& a, int t, int n, int, bool real, float, const float (&)[1], In&& in) {
    store(a.out + t * 65536 + n, in(n), real);
  }
};
)";

/// A [n, k] weight of a type with codes, by `tokens`.
KernelText matmul_text(const GpuTarget& target, DType type, std::int64_t n, std::int64_t k, std::int64_t tokens) {
  const auto config = choose_matmul(target, type, n, k, tokens, {}, {});
  KernelText text{
      .header = "kernels/gpu/matmul_rows.h", .kernel = "MatmulRows", .defaults = "MatmulDefaults", .before = kStore};
  text.config.use("Weight", weight_text(type, n, k)).use("Epilogue", "gpu::Epilogue").number("kTokensTotal", tokens);
  config.write_to(text.config);
  const auto block_rows = config.block_rows(target.wave);
  text.blocks = (n + block_rows - 1) / block_rows * (tokens / config.tokens);
  text.threads = config.waves * target.wave;
  return text;
}

}  // namespace

TEST_CASE("matmuls of the K types keep their units in registers") {
  const forge::tests::TempDir dir;
  CompileServiceOptions options;
  options.cache.directory = dir.file("cache");
  options.helper = FORGE_HELPER;
  CompileService service(options);
  for (const auto& [name, tokens] : {std::pair("gfx1100", 1), std::pair("sm_90", 8)}) {
    const GpuTarget& target = *find_target(name);
    KernelSet kernels(target);
    for (const auto type : {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_XS})
      kernels.add("matmul", matmul_text(target, type, 2560, 9728, tokens));
    for (const auto& kernel : service.compile(name, kernels.sources())) {
      INFO(name << ": " << kernel.facts.registers << " registers");
      CHECK(kernel.facts.spill_bytes <= 0);
    }
  }
}

}  // namespace forge::codegen::tests
