#pragma once
// Programs for GPUs whose kernels are recorded instead of compiled.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/compile.h"
#include "codegen/kernel_compiler.h"
#include "tests/e2e/tiny_model.h"

namespace forge::tests {

/// Records the kernels' sources and returns no code for them.
class Recorder final : public codegen::KernelCompiler {
 public:
  std::vector<codegen::CompiledKernel> compile(const std::string& target,
                                               std::span<const codegen::KernelSource> sources) override {
    targets.push_back(target);
    for (const auto& source : sources) texts.emplace(source.entry, source.text);
    return std::vector<codegen::CompiledKernel>(sources.size());
  }
  [[nodiscard]] std::vector<std::string> with(std::string_view stem) const {
    std::vector<std::string> found;
    for (const auto& [entry, text] : texts)
      if (entry.starts_with(stem)) found.push_back(text);
    return found;
  }
  std::vector<std::string> targets;
  std::map<std::string, std::string> texts;
};

/// A program for a GPU with a context of 256 positions.
inline std::unique_ptr<plan::ProgramT> compile(const TinyModel& model, const std::string& target, Recorder& recorder,
                                               std::int64_t batch = 1, std::vector<std::string> skip = {},
                                               DType kv_type = DType::kF16) {
  codegen::CompileOptions options;
  options.context = 256;
  options.batch_max = batch;
  options.kernels = &recorder;
  options.skip = std::move(skip);
  options.kv_type = kv_type;
  return codegen::compile_program(model.portable().graph, model.file(), target, options);
}

}  // namespace forge::tests
