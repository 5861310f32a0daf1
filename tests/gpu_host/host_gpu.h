#pragma once
// A small model compiled for a GPU and run by the GPU executor, every kernel lane by lane on the host.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "codegen/gpu/targets.h"
#include "codegen/gpu/tile_sizes.h"
#include "runtime/gpu/executor.h"
#include "tests/e2e/embed_sources.h"
#include "tests/e2e/tiny_model.h"
#include "tests/gpu_host/host_compiler.h"

namespace forge::tests {

struct HostTarget {
  const char* name;
  int wave;
};
inline constexpr HostTarget kWave32{"gfx1100", 32}, kWave64{"gfx90a", 64};

inline constexpr std::int64_t kStateSlots = 4;  ///< of models with recurrent state, which snapshots need
inline constexpr std::int64_t kLongStep = 512;  ///< tokens in a prefill step of more than kTokenTile tokens
/// The prompts that a test feeds: of any length, of at most kTokenTile tokens, or longer.
enum class Prompts : std::uint8_t { kAny, kShort, kLong };

/// The host compiler, which leaves out the kernels that prompts of a length do not need: up to a third of all.
class PromptCompiler final : public codegen::KernelCompiler {
 public:
  Prompts prompts = Prompts::kAny;

  std::vector<codegen::CompiledKernel> compile(const std::string& target,
                                               std::span<const codegen::KernelSource> sources) override {
    const std::string of_others = fmt::format("_t{}_", prompts == Prompts::kShort ? kLongStep : codegen::kTokenTile);
    const auto left_out = [&](const codegen::KernelSource& source) {
      return prompts != Prompts::kAny && source.entry.contains(of_others);
    };
    std::vector<codegen::KernelSource> taken;
    std::ranges::remove_copy_if(sources, std::back_inserter(taken), left_out);
    auto compiled = compiler_.compile(target, taken);
    std::vector<codegen::CompiledKernel> out;
    auto next = compiled.begin();
    for (const auto& source : sources)
      out.push_back(left_out(source) ? gpu_host::left_out_kernel(source.entry, codegen::find_target(target)->wave)
                                     : std::move(*next++));
    return out;
  }

 private:
  gpu_host::HostKernelCompiler compiler_;
};

/// A model compiled for a GPU with the host compiler and opened on the null driver.
class HostGpu {
 public:
  HostGpu(const TinyModel& model, const HostTarget& target, std::int64_t batch, std::string tune = {},
          Prompts prompts = Prompts::kAny, std::vector<std::string> skip = {}, std::string attention = {})
      : HostGpu(
            model, model.portable().graph, target,
            {.batch_max = batch, .skip = std::move(skip), .tune = std::move(tune), .attention = std::move(attention)},
            prompts) {}
  /// graph: over the model's weights, its own or another. options: but for the compiler; without a context it is 256.
  /// embedded: the weights are parts of larger tensors in a second file.
  HostGpu(const TinyModel& model, const ir::Graph& graph, const HostTarget& target, codegen::CompileOptions options,
          Prompts prompts = Prompts::kAny, bool embedded = false) {
    compiler().prompts = prompts;
    if (options.context == 0) options.context = 256;
    options.kernels = &compiler();
    const std::shared_ptr<plan::ProgramT> program = codegen::compile_program(graph, model.file(), target.name, options);
    tiles_ =
        std::ranges::any_of(program->code_objects, [](const auto& one) { return one->name.starts_with("tiles_"); });
    for (const auto& step : program->variants[0]->steps) labels_.push_back(step->label);
    for (const auto& object : program->code_objects) kernels_ += object->name + "\n";
    for (const auto& variant : program->variants)
      for (const auto& step : variant->steps)
        if (step->label.starts_with("attention")) reasons_ += variant->name + ": " + step->reason + "\n";
    control_ =
        std::make_shared<driver::NullControl>(driver::NullOptions{.wave_size = target.wave, .arch = target.name});
    gpu_host::run_on_host(*control_);
    driver_ = std::make_unique<driver::Driver>(driver::open_null(control_));
    if (embedded) second_file_ = embed_sources(*program, model.bytes());
    source_ = std::make_unique<runtime::SpanWeightSource>(
        "tiny", std::vector{model.bytes(), std::span<const std::byte>(second_file_)});
    const std::int64_t slots = program->recurrent_groups.empty() ? 0 : kStateSlots;
    executor_ = std::make_unique<runtime::GpuExecutor>(program, *source_, driver_->device(0),
                                                       runtime::ExecutorOptions{.threads = 1, .state_slots = slots});
  }
  runtime::GpuExecutor& operator*() { return *executor_; }
  runtime::GpuExecutor* operator->() { return executor_.get(); }
  /// True if prefill uses matrix instructions.
  [[nodiscard]] bool tiles() const { return tiles_; }
  /// The reasons for the choice of attention kernels, one line "decode1: ..." per variant.
  [[nodiscard]] const std::string& reasons() const { return reasons_; }
  /// The names of the kernels, one a line.
  [[nodiscard]] const std::string& kernels() const { return kernels_; }
  /// The labels of the steps for one token.
  [[nodiscard]] const std::vector<std::string>& labels() const { return labels_; }

 private:
  static PromptCompiler& compiler() {
    static PromptCompiler one;
    return one;
  }
  std::shared_ptr<driver::NullControl> control_;
  std::unique_ptr<driver::Driver> driver_;
  std::vector<std::byte> second_file_;  ///< a second model file, for weights that are parts of larger tensors
  std::unique_ptr<runtime::SpanWeightSource> source_;
  std::unique_ptr<runtime::GpuExecutor> executor_;
  bool tiles_ = false;
  std::string reasons_, kernels_;
  std::vector<std::string> labels_;
};

/// By rows: prefill uses the decode kernels, so a token's results do not depend on its step. By tiles: prefill uses
/// matrix instructions.
inline constexpr const char *kByRows = "matrix=0", *kByTiles = "matrix=1";

}  // namespace forge::tests
