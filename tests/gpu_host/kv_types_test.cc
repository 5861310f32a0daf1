// Whole models with each type of KV cache on the GPU executor, every kernel run lane by lane on the host: their logits
// agree with those of the CPU with the same type of cache, for decode, prefill, batches and forked sequences.

#include <catch2/catch.hpp>
#include <memory>

#include "codegen/compile.h"
#include "runtime/gpu/executor.h"
#include "tests/e2e/family_models.h"
#include "tests/e2e/tiny_model.h"
#include "tests/gpu_host/host_compiler.h"

namespace forge::tests {
namespace kv_types {

/// A model compiled for a GPU with the host compiler and opened on the null driver.
class HostModel {
 public:
  HostModel(const TinyModel& model, const char* target, int wave, DType kv_type, std::int64_t batch = 2,
            std::string tune = {})
      : source_(model.source()) {
    codegen::CompileOptions options{.context = 256, .batch_max = batch, .kernels = &compiler()};
    options.kv_type = kv_type;
    options.tune = std::move(tune);
    const std::shared_ptr<plan::ProgramT> program =
        codegen::compile_program(model.portable().graph, model.file(), target, options);
    control_ = std::make_shared<driver::NullControl>(driver::NullOptions{.wave_size = wave, .arch = target});
    gpu_host::run_on_host(*control_);
    driver_ = std::make_unique<driver::Driver>(driver::open_null(control_));
    executor_ = std::make_unique<runtime::GpuExecutor>(program, source_, driver_->device(0),
                                                       runtime::ExecutorOptions{.threads = 1});
  }
  runtime::GpuExecutor& operator*() { return *executor_; }

 private:
  /// One for all models, which share kernels.
  static gpu_host::HostKernelCompiler& compiler() {
    static gpu_host::HostKernelCompiler one;
    return one;
  }
  runtime::SpanWeightSource source_;
  std::shared_ptr<driver::NullControl> control_;
  std::unique_ptr<driver::Driver> driver_;
  std::unique_ptr<runtime::GpuExecutor> executor_;
};

const TinyShape kShape{.width = 128, .heads = 4, .kv_heads = 2, .head_dim = 32};

std::vector<float> on_cpu(const TinyModel& model, const std::vector<std::int32_t>& ids, DType type,
                          const std::vector<std::int32_t>& blocks = {0, 1, 2}) {
  return run_alone(*model.open(1, 4, {}, target_of_floats(), type), ids, 64, blocks);
}

}  // namespace kv_types

TEST_CASE("gpu model: a q8_0 cache gives the CPU's logits with the same cache") {
  using namespace kv_types;
  const TinyModel model(kShape);
  const auto ids = random_ids(75, model.file().vocab, 11);
  const auto expected = on_cpu(model, ids, DType::kQ8_0), exact = on_cpu(model, ids, DType::kF16);
  const std::vector<std::int32_t> blocks{5, 2, 7};
  for (const auto& [target, wave] : {std::pair("gfx1100", 32), std::pair("gfx90a", 64)}) {
    CAPTURE(target);
    HostModel rows(model, target, wave, DType::kQ8_0, 1, "matrix=0"),
        tiles(model, target, wave, DType::kQ8_0, 1, "matrix=1");
    const auto one_by_one = run_alone(*rows, ids, 1, blocks);
    // The bound between two caches of this type is far below what the type costs.
    INFO("nmse to the CPU " << nmse(one_by_one, expected) << ", of the type " << nmse(expected, exact));
    CHECK(nmse(one_by_one, expected) < 2e-5);
    CHECK(nmse(one_by_one, exact) > 2e-5);
    CHECK(nmse(run_alone(*rows, ids, 64, blocks), one_by_one) < 2e-5);
    CHECK(nmse(run_alone(*tiles, ids, 64, blocks), expected) < 2e-5);
  }
}

TEST_CASE("gpu model: a q8_0 cache's blocks are copied with their scales") {
  using namespace kv_types;
  const TinyModel model(kShape);
  const auto vocab = static_cast<std::size_t>(model.file().vocab);
  const auto prompt = random_ids(45, model.file().vocab, 21);  // one full block and a partial one
  HostModel gpu(model, "gfx1100", 32, DType::kQ8_0);
  const std::int32_t ids[] = {1, 2};
  const auto out = after_copied_block(*gpu, prompt, ids);
  for (std::size_t s = 0; s < 2; ++s) {
    auto alone = prompt;
    alone.push_back(ids[s]);
    const auto whole = on_cpu(model, alone, DType::kQ8_0);
    CHECK(nmse(std::span(out).subspan(s * vocab, vocab), std::span(whole).last(vocab)) < 2e-5);
  }
}

TEST_CASE("gpu model: families with heads of 32 columns store and read a q8_0 cache: QK norms, windows") {
  using namespace kv_types;
  for (const char* family : {"qwen3", "exaone_moe"}) {
    CAPTURE(family);
    const TinyModel model(FileImage{family_gguf(family_model(family))});
    HostModel gpu(model, "gfx1100", 32, DType::kQ8_0, 1);
    const auto logits = run_alone(*gpu, family_tokens(), 64, {1});
    CHECK(nmse(logits, on_cpu(model, family_tokens(), DType::kQ8_0, {0})) < 2e-5);
  }
}

}  // namespace forge::tests
