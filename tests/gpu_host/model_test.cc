// Whole models by the GPU executor, every kernel lane by lane on the host: against the reference interpreter, one token
// a step and many, in batches, and tokens chosen on the device.

#include <catch2/catch.hpp>
#include <memory>

#include "runtime/gpu/executor.h"
#include "tests/e2e/tiny_model.h"
#include "tests/gpu_host/host_compiler.h"

namespace forge::tests {
namespace {

struct HostTarget {
  const char* name;
  int wave;
};
constexpr HostTarget kWave32{"gfx1100", 32}, kWave64{"gfx90a", 64};

/// A model compiled for a GPU by the host compiler, and opened on the null driver.
class HostGpu {
 public:
  HostGpu(const TinyModel& model, const HostTarget& target, std::int64_t batch, std::vector<std::string> skip = {}) {
    codegen::CompileOptions options;
    options.context = 256;
    options.batch_max = batch;
    options.kernels = &compiler();
    options.skip = std::move(skip);
    std::shared_ptr<const plan::ProgramT> program =
        codegen::compile_program(model.portable().graph, model.file(), target.name, options);
    control_ =
        std::make_shared<driver::NullControl>(driver::NullOptions{.wave_size = target.wave, .arch = target.name});
    gpu_host::run_on_host(*control_);
    driver_ = std::make_unique<driver::Driver>(driver::Driver::open_null(control_));
    source_ =
        std::make_unique<runtime::SpanWeightSource>("tiny", model.bytes(), runtime::SpanWeightSource::Backing::kHeap);
    executor_ = std::make_unique<runtime::GpuExecutor>(program, *source_, driver_->device(0),
                                                       runtime::ExecutorOptions{.threads = 1});
  }
  runtime::GpuExecutor& operator*() { return *executor_; }
  runtime::GpuExecutor* operator->() { return executor_.get(); }

 private:
  static gpu_host::HostKernelCompiler& compiler() {
    static gpu_host::HostKernelCompiler one;
    return one;
  }
  std::shared_ptr<driver::NullControl> control_;
  std::unique_ptr<driver::Driver> driver_;
  std::unique_ptr<runtime::SpanWeightSource> source_;
  std::unique_ptr<runtime::GpuExecutor> executor_;
};

double bound_of(DType dtype) {
  return is_float(dtype) ? 1e-6 : 2e-3;
}

void check_model(const TinyShape& shape, const HostTarget& target) {
  CAPTURE(dtype_name(shape.dtype), target.name);
  const TinyModel model(shape);
  HostGpu gpu(model, target, 1);
  const auto ids = random_ids(37, shape.vocab, 7);
  const auto expected = model.reference(model.portable().graph, ids, false);
  const std::vector<std::int32_t> blocks{5, 2};
  const auto whole = run_alone(*gpu, ids, 64, blocks), one_by_one = run_alone(*gpu, ids, 1, blocks);
  CHECK(nmse(whole, expected) < bound_of(shape.dtype));
  CHECK(nmse(one_by_one, expected) < bound_of(shape.dtype));
  CHECK(nmse(one_by_one, whole) < 1e-8);
}

}  // namespace

TEST_CASE("gpu model: logits of the reference, waves of 32") {
  check_model({.dtype = DType::kQ4_0}, kWave32);
  check_model({.dtype = DType::kF16, .heads = 3, .kv_heads = 1, .tied = false, .biases = true}, kWave32);
}

TEST_CASE("gpu model: logits of the reference, waves of 64") {
  check_model({.dtype = DType::kQ8_0, .rope_freqs = true}, kWave64);
  check_model({.dtype = DType::kQ4_1, .heads = 2, .head_dim = 64, .rope_scaling = "yarn"}, kWave64);
}

}  // namespace forge::tests
