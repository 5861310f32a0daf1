#include "tools/executors.h"

#include "runtime/cpu/executor.h"
#include "runtime/gpu/executor.h"
#include "support/error.h"

namespace forge::tools {

runtime::MemoryNeed memory_need_of(const plan::ProgramT& program, std::int64_t kv_blocks) {
  return runtime::facts_of(program).on_host ? runtime::CpuExecutor::memory_need_of(program, kv_blocks)
                                            : runtime::GpuMemory(program, kv_blocks).need;
}

std::unique_ptr<runtime::Executor> open_executor(std::shared_ptr<const plan::ProgramT> program,
                                                 runtime::WeightSource& source, const driver::Device* device,
                                                 const runtime::ExecutorOptions& options) {
  const bool on_host = runtime::facts_of(*program).on_host;
  if (on_host != (device == nullptr))
    throw Error(ErrorCode::kPlan, "the plan's program for '" + printable(program->target) + "' cannot run",
                on_host ? "it says that it is for the host, and a device was chosen" : "it needs a device",
                "compile the model again (forge-compile)");
  if (on_host) return std::make_unique<runtime::CpuExecutor>(std::move(program), source, options);
  return std::make_unique<runtime::GpuExecutor>(std::move(program), source, *device, options);
}

}  // namespace forge::tools
