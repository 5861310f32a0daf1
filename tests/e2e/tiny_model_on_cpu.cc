// The part of TinyModel that needs the CPU back-end; builds without it leave this file out.
#include "runtime/cpu/executor.h"
#include "runtime/weights/weight_source.h"
#include "support/error.h"
#include "tests/e2e/tiny_model.h"

namespace forge::tests {

std::unique_ptr<runtime::CpuExecutor> TinyModel::open(std::size_t threads, std::int64_t batch,
                                                      std::vector<std::string> skip, std::string target,
                                                      DType kv_type) const {
  std::shared_ptr<const plan::ProgramT> program = codegen::compile_program(
      portable_.graph, file_, target,
      {.context = portable_.info.context, .batch_max = batch, .skip = std::move(skip), .kv_type = kv_type});
  auto files = source();
  return std::make_unique<runtime::CpuExecutor>(std::move(program), files,
                                                runtime::ExecutorOptions{.threads = threads});
}

std::string opening(const TinyModel& model, const std::function<void(plan::ProgramT&)>& edit) {
  auto program = codegen::compile_program(model.portable().graph, model.file(), codegen::host_target(),
                                          {.context = 64, .batch_max = 1});
  edit(*program);
  auto source = model.source();
  try {
    runtime::CpuExecutor(std::shared_ptr<const plan::ProgramT>(std::move(program)), source, {.threads = 1});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPlan) throw;
    return error.line();
  }
  return "";
}

std::string target_of_floats() {
  auto best = cpu::CpuClass::kGeneric;
  for (const auto cpu_class : cpu::all_classes())
    if (cpu::runs_here(cpu_class) && !cpu::uses_bf16_dots(cpu_class)) best = cpu_class;
  return cpu::target_name(best);
}

}  // namespace forge::tests
