// forge-bench --tune on the null driver: a small model is compiled for a GPU by a compiler that plants how long each
// kernel takes, by its constants, and the search finds the fastest constants through the profiles of real executors.

#include <catch2/catch.hpp>
#include <chrono>
#include <set>
#include <thread>

#include "runtime/gpu/executor.h"
#include "runtime/program_bounds.h"
#include "support/error.h"
#include "tests/e2e/tiny_model.h"
#include "tests/null_driver/null_driver.h"
#include "tests/null_driver/null_state.h"
#include "tools/bench/tune.h"

namespace forge::tools {
namespace {

using Catch::Contains;
using tests::TinyModel;

constexpr const char* kSite = "64x96";  ///< the FFN's last matmul

/// What its kernel for one token takes, by its waves; the cost model gives it 4.
std::int64_t planted_us(std::int64_t waves) {
  return waves == 8 ? 200 : waves == 4 ? 500 : 800;
}

/// The value of a constant in a kernel's source.
std::int64_t constant(std::string_view source, const std::string& name) {
  const auto at = source.find(" " + name + " = ");
  return at == std::string_view::npos ? -1 : std::stoll(std::string(source.substr(at + name.size() + 4, 12)));
}

/// Makes kernels that only take time: those of kSite for one token what is planted, all others none. 16 waves do not
/// compile.
class PlantedCompiler final : public codegen::KernelCompiler {
 public:
  std::vector<codegen::CompiledKernel> compile(const std::string&,
                                               std::span<const codegen::KernelSource> sources) override {
    std::vector<codegen::CompiledKernel> out;
    for (const auto& source : sources) {
      codegen::CompiledKernel kernel;
      driver::NullKernelImage image;
      image.name = source.entry;
      kernel.code = driver::null_image({&image, 1});
      const bool is_site = source.entry.contains(std::string("_") + kSite + "_t1_");
      const auto waves = is_site ? constant(source.text, "kWaves") : 0;
      if (waves == 16) throw Error(ErrorCode::kDevice, "the kernel does not compile");
      if (is_site) waves_seen.insert(waves);
      kernel.code.push_back(static_cast<std::byte>(waves));
      kernel.facts.wave = 32;
      kernel.compiler = "planted";
      out.push_back(std::move(kernel));
    }
    return out;
  }
  std::set<std::int64_t> waves_seen;
};

/// Opens the model with a tuning on a null driver of its own.
class Machine {
 public:
  struct Opened {
    std::shared_ptr<driver::NullControl> control;
    std::unique_ptr<driver::Driver> driver;
    std::unique_ptr<runtime::SpanWeightSource> source;
    std::unique_ptr<runtime::GpuExecutor> executor;
  };

  std::shared_ptr<runtime::Executor> open(const std::string& tune, bool profile) {
    const codegen::CompileOptions options{.context = 512, .batch_max = 2, .kernels = &compiler, .tune = tune};
    const std::shared_ptr<plan::ProgramT> program =
        codegen::compile_program(model_.portable().graph, model_.file(), "gfx1100", options);
    program->facts->samples = false;  // these kernels write no tokens
    for (auto& variant : program->variants) variant->sample_steps.clear();
    const auto opened = std::make_shared<Opened>();
    opened->control = std::make_shared<driver::NullControl>(driver::NullOptions{.arch = "gfx1100"});
    auto& clock_us = opened->control->state().clock_us;
    opened->control->set_loader([&clock_us](const std::string&, std::span<const std::byte> image) {
      const auto took = std::chrono::microseconds(
          std::to_integer<int>(image.back()) == 0 ? 0 : planted_us(std::to_integer<int>(image.back())));
      return [&clock_us, took](const driver::NullLaunch&) {
        std::this_thread::sleep_for(took);
        clock_us += static_cast<std::uint64_t>(took.count());
      };
    });
    opened->driver = std::make_unique<driver::Driver>(driver::open_null(opened->control));
    opened->source =
        std::make_unique<runtime::SpanWeightSource>("tiny", std::vector<std::span<const std::byte>>{model_.bytes()});
    opened->executor = std::make_unique<runtime::GpuExecutor>(
        program, *opened->source, opened->driver->device(0),
        runtime::ExecutorOptions{
            .threads = 1, .kv_blocks = runtime::kv_blocks_for(*program, 512, 2), .profile = profile});
    return {opened, opened->executor.get()};
  }

  PlantedCompiler compiler;

 private:
  TinyModel model_{tests::TinyShape{.dtype = DType::kQ8_0}};
};

const std::vector<BenchCase> kWorkloads{{.predict = 2, .batch = 1}, {.predict = 2, .batch = 2}, {.prompt = 20}};

}  // namespace

TEST_CASE("tune: profiles of an executor tell each matmul of each workload apart") {
  Machine machine;
  ExecutorMeasurer measurer([&](const auto& tune, bool profile) { return machine.open(tune, profile); }, kWorkloads);
  const auto plain = measurer.profile("");
  REQUIRE(plain);
  const auto& site = plain->at("64x96x1");
  CHECK((site.kind == TuneKind::kDots && site.workload == 0 && site.rows == 64 && site.k == 96 && site.tokens == 1));
  CHECK(machine.compiler.waves_seen == std::set<std::int64_t>{4});
  CHECK(site.time.median == Approx(2 * 2 * 500e-6).epsilon(0.05));  // two layers, two steps
  CHECK(plain->at("64x96x2").workload == 1);
  CHECK(plain->contains("64x96x512"));
  CHECK(plain->at("64x96x512").workload == 2);
  const auto tuned = measurer.profile("64x96x1:waves=8");
  REQUIRE(tuned);
  CHECK(tuned->at("64x96x1").time.median == Approx(2 * 2 * 200e-6).epsilon(0.05));
  CHECK(tuned->at("64x96x1").kernels != site.kernels);
  CHECK(tuned->at("64x96x2").kernels == plain->at("64x96x2").kernels);
  const auto whole = measurer.whole("");
  REQUIRE(whole);
  REQUIRE(whole->size() == 3);
  CHECK(whole->at(0).time.median >= 2 * 2 * 500e-6);
  CHECK((whole->at(0).logits.size() == 90 && whole->at(1).logits.size() == 180 && whole->at(2).logits.size() == 90));
  // What does not compile or is refused is no measurement.
  CHECK_THAT(measurer.profile("64x96x1:waves=16").error(), Contains("does not compile"));
  CHECK_THAT(measurer.whole("64x96x1:split=3").error(), Contains("tuning asks for"));
}

TEST_CASE("tune: the planted optimum of a model's kernels is found") {
  Machine machine;
  ExecutorMeasurer measurer([&](const auto& tune, bool profile) { return machine.open(tune, profile); }, kWorkloads);
  const auto result = search_tuning(measurer, {.wave = 32}, {.seconds = 100});
  CHECK_THAT(result.tune, Contains("64x96x1:waves=8"));
  CHECK(result.invalid > 0);  // 16 waves
  REQUIRE(result.workloads.size() == 3);
  CHECK(result.workloads[0].after < result.workloads[0].before);
}

}  // namespace forge::tools
