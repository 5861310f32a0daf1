#include "runtime/cpu/executor.h"
#include "session/executors.h"

namespace forge::session {

ExecutorKind cpu_executor();  // executors.cc lists it

ExecutorKind cpu_executor() {
  return {
      .on_host = true,
      .memory_requirements = runtime::CpuExecutor::memory_need_of,
      .open = [](std::shared_ptr<const plan::ProgramT> program, runtime::WeightSource& source, const driver::Device*,
                 const runtime::ExecutorOptions& options) -> std::unique_ptr<runtime::Executor> {
        return std::make_unique<runtime::CpuExecutor>(std::move(program), source, options);
      }};
}

}  // namespace forge::session
